"""Where a manifest and each of its keys were written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ._lines import Key

Identity = tuple[str, str | None]
"""What makes two entries the same one: ``name`` and ``on``."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Place:
    """One key of a manifest; ``str`` gives ``file:line: key``, with what is unknown left out.

    Attributes:
        file: The file as the user wrote it; None for a manifest that came from a mapping.
        line: The line of the key, or of the table that lacks it; None where it is not known.
        key: The key, such as ``patch[0].options.scope``; empty for the manifest as a whole.
    """

    file: str | None
    line: int | None
    key: str

    def __str__(self) -> str:
        file = "<mapping>" if self.file is None else self.file
        line = "" if self.line is None else f":{self.line}"
        return f"{file}{line}: {self.key}" if self.key else f"{file}{line}"


@dataclass(frozen=True, slots=True)
class Document:
    """One file or mapping, parsed but not judged."""

    data: Mapping[str, Any]
    path: str | None = None
    text_sha256: str | None = None
    lines: Mapping[Key, int] = field(default_factory=dict)

    def place(self, key: Key) -> Place:
        """Say where ``key`` is; the line of what should hold it where the key is missing."""
        line = next((self.lines[key[:end]] for end in range(len(key), 0, -1) if key[:end] in self.lines), None)
        return Place(self.path, line, render_key(key))

    def says(self, key: Key) -> bool:
        """Say whether the document itself has ``key``."""
        value: Any = self.data
        for part in key:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return False
        return True


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a resolved manifest came from; takes no part in comparisons."""

    path: str | None = field(default=None, compare=False)
    text_sha256: str | None = field(default=None, compare=False)
    bases: tuple[str, ...] = field(default=(), compare=False)
    # For each entry every document that has it, with its index there, the nearest first.
    entries: Mapping[Identity, tuple[tuple[Document, int], ...]] = field(default_factory=dict, compare=False)

    def place(self, identity: Identity, keys: Key) -> Place | None:
        """Say where the entry has ``keys``: in the nearest document that says them, else in the nearest of all."""
        written = [(document, ("patch", index, *keys)) for document, index in self.entries.get(identity, ())]
        if not written:
            return None
        document, key = next((pair for pair in written if pair[0].says(pair[1])), written[0])
        return document.place(key)


def render_key(key: Key) -> str:
    """Write a key the way TOML does, list indices in brackets."""
    text = ""
    for part in key:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            quoted = part if _BARE.fullmatch(part) else repr(part)
            text += f".{quoted}" if text else quoted
    return text
