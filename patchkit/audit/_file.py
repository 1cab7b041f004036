"""The one writer of the log file: an entry is whole, in its place and on the disk, or an error says that it isn't."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import AuditError
from ._event import prepare, render
from ._line import ENTRY_LIMIT, TORN_MARK, assemble
from ._lock import locked
from ._tail import Tail, read_at, read_tail

__all__ = ["Appended", "Durability", "LogFile"]

Durability = Literal["always", "transaction", "never"]

_REMEDY = 'choose another path ([audit] path, or PATCHKIT_AUDIT), or set [audit] policy = "best-effort"'
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Appended:
    """What one call has written.

    Attributes:
        seq: Sequence number of the entry.
        notes: Entries that the writer had to put before it, about the file itself.
    """

    seq: int
    notes: tuple[Mapping[str, Any], ...]


class LogFile:
    """Appends entries to one file, among other threads and processes that do the same.

    Holds nothing open between entries. After an entry that may be on the disk only in part, the object is
    broken and refuses all others: what was lost must not be covered up by a later success.
    """

    def __init__(self, path: Path, durability: Durability) -> None:
        self.path = path
        self._durability = durability
        self._broken = ""
        self._seen: tuple[int, int, int] | None = None

    def append(self, body: str, *, is_boundary: bool) -> Appended:
        """Append an entry whose own members are the JSON object `body`.

        Args:
            body: The entry without what the writer adds.
            is_boundary: Whether it opens or ends a transaction, and so is on the disk when this returns also where only
                boundaries are.

        Raises:
            AuditError: If it couldn't be written.
        """
        if self._broken:
            raise AuditError(f"the audit log {self.path} can't be relied on any more: {self._broken}; {_REMEDY}")
        try:
            self._make_folder()
            with locked(self.path) as fd:
                return self._append(fd, body, is_boundary=is_boundary)
        except AuditError:
            raise
        except OSError as exc:
            raise AuditError(f"can't write the audit log {self.path}: {exc.strerror or exc}; {_REMEDY}") from exc

    def _append(self, fd: int, body: str, *, is_boundary: bool) -> Appended:
        tail = read_tail(fd, self.path)
        seq = 0 if tail.last is None else tail.last["seq"] + 1
        notes = tuple(self._notes(fd, tail))
        lines = [assemble(seq + i, text) for i, text in enumerate([*map(render, notes), body])]
        if len(lines[-1]) > ENTRY_LIMIT:
            raise AuditError(
                f"expected an entry of at most {ENTRY_LIMIT} bytes, got {len(lines[-1])}; record a count and a"
                " pattern in place of a long list"
            )
        closing = TORN_MARK + b"\n" if tail.end < tail.size else b""
        durable = self._durability == "always" or (self._durability == "transaction" and is_boundary)
        self._write(fd, closing + b"".join(lines), durable=durable, is_new=tail.size == 0)
        status = os.fstat(fd)
        self._seen = (status.st_dev, status.st_ino, status.st_size)
        return Appended(seq=seq + len(notes), notes=tuple({**note, "seq": seq + i} for i, note in enumerate(notes)))

    def _notes(self, fd: int, tail: Tail) -> Iterable[dict[str, Any]]:
        if tail.end < tail.size:
            digest = hashlib.sha256()
            for offset in range(tail.end, tail.size, _CHUNK):
                digest.update(read_at(fd, offset, min(_CHUNK, tail.size - offset)))
            torn = {"offset": tail.end, "length": tail.size - tail.end, "sha256": digest.hexdigest()}
            yield prepare("log.recovered", None, torn)
        if self._seen is not None:
            status = os.fstat(fd)
            # The number of a removed file may be that of the next one, which then is shorter.
            if (status.st_dev, status.st_ino) != self._seen[:2] or status.st_size < self._seen[2]:
                reason = "the file that this process had written to was moved, removed, replaced or cut"
                yield prepare("log.reopened", None, {"reason": reason})

    def _write(self, fd: int, data: bytes, *, durable: bool, is_new: bool) -> None:
        try:
            written = os.write(fd, data)
            if written != len(data):
                raise OSError(f"{written} of {len(data)} bytes were written; the disk is full, or a limit is reached")
            if durable:
                os.fsync(fd)
            if is_new and self._durability != "never":
                _sync_folder(self.path.parent)
        except OSError as exc:
            self._broken = f"an entry may be missing or cut off ({exc.strerror or exc})"
            raise AuditError(
                f"can't write the audit log {self.path}: {exc.strerror or exc}; the entry may be missing or cut off;"
                f" {_REMEDY}"
            ) from exc

    def _make_folder(self) -> None:
        parent = self.path.parent
        if parent.is_dir():
            return
        missing = [folder for folder in (parent, *parent.parents) if not folder.exists()]
        parent.mkdir(parents=True, exist_ok=True)
        if self._durability != "never":
            for folder in missing:
                _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    """Make the name of a new file durable; Windows has no such thing."""
    if os.name == "nt":
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
