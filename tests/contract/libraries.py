"""Small hand-made libraries for the tests of contracts."""

from __future__ import annotations

import textwrap
from pathlib import Path

from patchkit.contract import Contract, DirectorySource, Fingerprint, Judgement, Symbol, fingerprint_of, judge

__all__ = ["Library"]


class Library:
    """A folder that holds packages, to be judged as a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, **files: str | bytes) -> Library:
        """Write modules: ``pkg__sub`` is ``pkg/sub.py``; a name that ends in ``_pyi`` is a stub file."""
        for name, content in files.items():
            stem, suffix = (name[: -len("_pyi")], ".pyi") if name.endswith("_pyi") else (name, ".py")
            self.file(stem.replace("__", "/") + suffix, content)
        return self

    def package(self, name: str, **modules: str | bytes) -> Library:
        """Write a package with an ``__init__`` (module ``init``, empty by default) and the other modules in it."""
        self.file(f"{name}/__init__.py", modules.pop("init", ""))
        return self.write(**{f"{name}__{module}": content for module, content in modules.items()})

    def file(self, path: str, content: str | bytes = "") -> Library:
        """Write a file; text is dedented."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else textwrap.dedent(content).lstrip("\n").encode())
        return self

    def distribution(self, name: str, version: str) -> Library:
        """Record an installed distribution."""
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        return self.file(f"{name}-{version}.dist-info/METADATA", metadata)

    def fingerprint(self, definition: str) -> Fingerprint:
        """Return the fingerprint of a function ``f``, given its source."""
        self.write(proven=definition)
        return Fingerprint(fingerprint_of(self.source, "proven:f")[0])

    @property
    def source(self) -> DirectorySource:
        """The library as a source, labelled ``library``."""
        return DirectorySource(self.root, label="library")

    def judge(self, *symbols: Symbol, requires: tuple[str, ...] = (), until: tuple[str, ...] = ()) -> Judgement:
        """Judge a contract of these symbols."""
        return judge(Contract(requires=requires, symbols=symbols, until=until), self.source)
