"""From a path or a mapping to a resolved manifest."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from ..errors import ManifestError
from ._faults import faults
from ._lines import Key
from ._model import REPEATED_ENTRY, SCHEMA_VERSION, Manifest, repeated
from ._origin import Document, Identity, Origin, Place
from ._read import UnreadableError, is_path, parse, read_bytes


def load_manifest(source: str | os.PathLike[str] | Mapping[str, Any] | Manifest) -> Manifest:
    """Read a manifest and everything that it extends.

    Every file of the chain is read and judged once, a base before the files that extend it. Laid upon each
    other in that order, a later file changes the entries of an earlier one that have the same ``name`` and
    ``on``, key by key and their options key by key, in the place where they are; its other entries follow
    behind. ``[policy]`` and ``[audit]`` are changed key by key too.

    Args:
        source: A TOML file, a mapping of the same form, or a manifest, which is returned as it is unless it
            still extends others. Bases of what isn't a file are relative to the current directory.

    Returns:
        The resolved manifest. Its ``path``, ``text_sha256``, ``bases`` and ``place`` tell where it came from.

    Raises:
        ManifestError: With every fault of the manifest and of its bases.
    """
    if isinstance(source, Manifest) and not source.extends:
        if not source.patch:
            raise ManifestError(_nothing_to_do(Document({}, source.path)))
        return source
    document = _open(source)
    resolution = _Resolution()
    resolution.visit(document, ())
    if not resolution.problems and not any(base.data.get("patch") for base in resolution.documents):
        resolution.problems.append(_nothing_to_do(document))
    if resolution.problems:
        raise ManifestError(resolution.problems)
    return _merge(resolution.documents)


def _open(source: object) -> Document:
    if isinstance(source, (Mapping, Manifest)):
        return Document(_mapping(source))
    if not isinstance(source, (str, os.PathLike)):
        raise ManifestError(f"expected a path, a mapping or a Manifest, got {type(source).__name__}: {source!r:.80}")
    path = os.fsdecode(source)
    if not is_path(path) or "\n" in path:
        raise ManifestError(
            f"expected the path of a manifest, got {path!r:.80}; TOML text is not taken, but what it parses to is"
        )
    try:
        return parse(path, read_bytes(path))
    except UnreadableError as error:
        raise ManifestError(f"{path}: {error}") from None


def _mapping(value: Any) -> Any:
    """Return models and mappings as dicts and tuples as lists: what TOML would have given."""
    if isinstance(value, Manifest):
        return value.to_mapping()
    if isinstance(value, BaseModel):
        return _mapping(value.model_dump(by_alias=True, exclude_unset=True))
    if isinstance(value, Mapping):
        return {key: _mapping(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mapping(item) for item in value]
    return value


class _Resolution:
    """The files of a chain in the order in which they are laid upon each other, and the faults found on the way."""

    def __init__(self) -> None:
        self.documents: list[Document] = []
        self.problems: list[str] = []
        self._visited: set[str] = set()

    def visit(self, document: Document, above: tuple[Document, ...]) -> None:
        """Take the bases of ``document``, then itself; ``above`` is what led to it."""
        if document.path is not None:
            self._visited.add(os.path.realpath(document.path))
        found = list(_faults(document))
        for place, base in _bases(document):
            try:
                self._visit_base(place, base, (*above, document))
            except UnreadableError as error:
                found.append((place, str(error)))
        found.sort(key=lambda fault: fault[0].line or 0)
        self.problems.extend(f"{place}: {text}" for place, text in found)
        self.documents.append(document)

    def _visit_base(self, place: Place, base: str, above: tuple[Document, ...]) -> None:
        if not is_path(base):
            raise UnreadableError(f"expected a path, got {base!r}")
        path = os.path.join(os.path.dirname(place.file or ""), base)
        _refuse_circle(path, above)
        if os.path.realpath(path) in self._visited:
            return
        try:
            document = parse(path, read_bytes(path))
        except UnreadableError as error:
            raise UnreadableError(f"{path}: {error}") from None
        except ManifestError as error:
            self._visited.add(os.path.realpath(path))
            self.problems.extend(f"{problem}; asked for by {place}" for problem in error.problems)
        else:
            self.visit(document, above)


def _refuse_circle(path: str, above: tuple[Document, ...]) -> None:
    chain = [document.path for document in above if document.path is not None]
    for index, ancestor in enumerate(chain):
        if os.path.realpath(ancestor) == os.path.realpath(path):
            shown = " -> ".join([*chain[index:], path])
            raise UnreadableError(f"a manifest can't extend itself: {shown}; take one of these steps out")


def _bases(document: Document) -> Iterator[tuple[Place, str]]:
    extends = None if _is_newer(document) else document.data.get("extends")
    for index, base in enumerate(extends if isinstance(extends, list) else ()):
        if isinstance(base, str) and base:
            yield document.place(("extends", index)), base


def _faults(document: Document) -> Iterator[tuple[Place, str]]:
    """Yield every fault that one document has by itself."""
    newer = _is_newer(document)
    try:
        Manifest.model_validate(document.data)
    except ValidationError as error:
        for key, text, kind in faults(Manifest, error):
            if (not newer or key == ("schema",)) and kind != REPEATED_ENTRY:
                yield document.place(key), text
    # Searched for here too, since the model looks for repeated entries only where all are right by themselves.
    for key, text in () if newer else _repeated_entries(document):
        yield document.place(key), text


def _is_newer(document: Document) -> bool:
    """Say whether the document is of a newer format, whose other keys can't be judged since they may mean anything."""
    version = document.data.get("schema")
    return type(version) is int and version > SCHEMA_VERSION


def _repeated_entries(document: Document) -> Iterator[tuple[Key, str]]:
    entries = document.data.get("patch")
    named = [
        (index, (entry["name"], entry.get("on")))
        for index, entry in enumerate(entries if isinstance(entries, list) else ())
        if isinstance(entry, dict)
        and isinstance(entry.get("name"), str)
        and isinstance(entry.get("on"), (str, type(None)))
    ]
    for second, first in repeated(identity for _, identity in named):
        index, (name, on) = named[second]
        place = document.place(("patch", named[first][0], "name"))
        where = place.key.removesuffix(".name") + (f" in line {place.line}" if place.line else "")
        same = repr(name) if on is None else f"{name!r} on {on!r}"
        text = f"{same} is selected already by {where}; make them one entry, or give them different values of `on`"
        yield ("patch", index, "name"), text


def _nothing_to_do(document: Document) -> str:
    hint = " of its own or of a manifest that it extends" if document.data.get("extends") else ""
    return f"{document.place(())}: selects no patch; expected at least one [[patch]]{hint}"


def _merge(documents: list[Document]) -> Manifest:
    """Lay valid documents upon each other, the first at the bottom."""
    entries: dict[Identity, dict[str, Any]] = {}
    written: dict[Identity, tuple[tuple[Document, int], ...]] = {}
    tables: dict[str, dict[str, Any]] = {}
    for document in documents:
        for index, entry in enumerate(document.data.get("patch", ())):
            identity = (entry["name"], entry.get("on"))
            entries[identity] = _merge_entry(entries.get(identity, {}), entry)
            written[identity] = ((document, index), *written.get(identity, ()))
        for name in {"policy", "audit"} & document.data.keys():
            tables[name] = {**tables.get(name, {}), **document.data[name]}
    manifest = Manifest.model_validate({"schema": SCHEMA_VERSION, "patch": list(entries.values()), **tables})
    nearest, bases = documents[-1], documents[:-1]
    manifest._origin = Origin(
        path=nearest.path,
        text_sha256=nearest.text_sha256,
        bases=tuple(base.path for base in bases if base.path is not None),
        entries=written,
    )
    return manifest


def _merge_entry(base: dict[str, Any], nearer: dict[str, Any]) -> dict[str, Any]:
    merged = {**base, **nearer}
    if "options" in base and "options" in nearer:
        merged["options"] = {**base["options"], **nearer["options"]}
    return merged
