"""Where the file of a module lies, below the place of its top-level package."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["Place", "children", "find_module", "find_top"]

_COMPILED = re.compile(r"([^\W\d]\w*)(\.[\w-]+)*\.(so|pyd)")


class Place(NamedTuple):
    """Where a module is.

    Attributes:
        path: The file to read; empty for a namespace package, and for a compiled module without a stub.
        root: The folder that holds the top-level package.
        locations: Folders in which its submodules are; empty if it isn't a package.
        compiled: Path of the compiled module, where that is what is imported.
    """

    path: str
    root: str
    locations: tuple[str, ...] = ()
    compiled: str = ""

    @property
    def is_stub(self) -> bool:
        return self.path.endswith(".pyi")


def find_top(name: str, folders: Iterable[str]) -> Place | None:
    """Find a top-level module or package in the first of ``folders`` that has it."""
    return _find(name, [(folder, folder) for folder in folders])


def find_module(names: Sequence[str], top: Place) -> Place | None:
    """Find the module that lies below the top-level package ``top`` by the path ``names``."""
    place = top
    for name in names:
        found = _find(name, [(folder, top.root) for folder in place.locations])
        if found is None:
            return None
        place = found
    return place


def children(place: Place) -> tuple[str, ...]:
    """Return the names of the modules directly inside a package, sorted."""
    found = set()
    for folder in place.locations:
        for entry in _entries(folder):
            stem, extension = os.path.splitext(entry)
            compiled = _COMPILED.fullmatch(entry)
            if compiled:
                found.add(compiled[1])
            elif extension in (".py", ".pyi") or (not extension and os.path.isdir(os.path.join(folder, entry))):
                found.add(stem)
    return tuple(sorted(name for name in found if name.isidentifier() and not _is_dunder(name)))


def _find(name: str, folders: Sequence[tuple[str, str]]) -> Place | None:
    """Look for ``name`` where an import would, except that source is preferred to what was compiled from it."""
    namespace: list[str] = []
    for folder, root in folders:
        base = os.path.join(folder, name)
        package = (base,) if os.path.isdir(base) else ()
        for path in (os.path.join(base, "__init__.py"), base + ".py"):
            if os.path.isfile(path):
                return Place(path, root, package if path.endswith("__init__.py") else ())
        stub = next((path for path in (os.path.join(base, "__init__.pyi"), base + ".pyi") if os.path.isfile(path)), "")
        compiled = _compiled(folder, name) or (_compiled(base, "__init__") if package else "")
        if compiled or stub:
            return Place(stub, root, package, compiled or _bytecode(base))
        if _bytecode(base):
            return Place("", root, package, _bytecode(base))
        namespace += package
    return Place("", folders[0][1], tuple(namespace)) if namespace else None


def _compiled(folder: str, name: str) -> str:
    for entry in _entries(folder):
        match = _COMPILED.fullmatch(entry)
        if match and match[1] == name:
            return os.path.join(folder, entry)
    return ""


def _bytecode(base: str) -> str:
    """Return the path of a module that was shipped as byte code alone."""
    return next((path for path in (os.path.join(base, "__init__.pyc"), base + ".pyc") if os.path.isfile(path)), "")


def _entries(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
