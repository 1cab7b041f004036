"""The one reader of a log file: whole entries in order, in bounded memory, or an error with its place."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..errors import AuditError
from ._event import ENDINGS, OPENINGS
from ._line import MAX_LINE, TORN_MARK, BadLine, parse
from ._tail import lines_backwards, looks_like_a_log, read_tail

__all__ = ["Entry", "TornTail", "open_transactions", "read_entries", "tail", "torn_tail"]

_TORN_END = TORN_MARK + b"\n"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a log.

    Attributes:
        line: Number of its line, counted from 1; None where the file was not read from its beginning.
        offset: Byte offset of its line.
        fields: Its members, unchanged; use `printable` before they go to a terminal.
    """

    line: int | None
    offset: int
    fields: Mapping[str, Any]

    @property
    def seq(self) -> int:
        """Sequence number; this is the order of the entries."""
        seq: int = self.fields["seq"]
        return seq

    @property
    def ts(self) -> str:
        """Time as the writer's clock gave it; a claim."""
        ts: str = self.fields["ts"]
        return ts

    @property
    def event(self) -> str:
        """Name of the event."""
        event: str = self.fields["event"]
        return event

    @property
    def tx(self) -> str | None:
        """Id of the transaction that the event belongs to, if any."""
        tx: str | None = self.fields.get("tx")
        return tx


@dataclass(frozen=True, slots=True)
class TornTail:
    """Bytes at the end of a log that a crash has cut off.

    Attributes:
        offset: Where they begin.
        length: How many there are.
    """

    offset: int
    length: int


def read_entries(path: str | os.PathLike[str]) -> Iterator[Entry]:
    """Yield the entries of a log, oldest first.

    A cut-off line at the end is left out (see `torn_tail`); so is one that a later writer has sealed off, which
    its entry ``log.recovered`` tells. The file is not locked: an entry that is being written may or may not come.

    Raises:
        AuditError: If the file can't be read, or a line is no entry; the message has path, line and byte offset.
    """
    with _opened(Path(path)) as file:
        yield from _entries(file, Path(path), offset=0, line=1)


def tail(path: str | os.PathLike[str], n: int) -> list[Entry]:
    """Return the last `n` entries of a log, oldest first, without reading what is before them.

    Their line numbers are None.

    Raises:
        AuditError: As `read_entries`, for the part that is read.
    """
    if n <= 0:
        return []
    where = Path(path)
    with _opened(where) as file:
        start, found = 0, 0
        for offset, line, ended in lines_backwards(file.fileno(), os.fstat(file.fileno()).st_size, where):
            if ended and _is_entry(line):
                start, found = offset, found + 1
                if found == n:
                    break
        else:
            start = 0
        file.seek(start)
        return list(_entries(file, where, offset=start, line=None))[-n:]


def torn_tail(path: str | os.PathLike[str]) -> TornTail | None:
    """Return what a crash has left at the end of a log, or None if the last line is whole.

    An entry that is being written at this moment looks the same.

    Raises:
        AuditError: If the file can't be read, or ends in something that no crash leaves.
    """
    with _opened(Path(path)) as file:
        end = read_tail(file.fileno(), Path(path))
    return TornTail(offset=end.end, length=end.size - end.end) if end.end < end.size else None


def open_transactions(path: str | os.PathLike[str]) -> list[Entry]:
    """Return the opening entries of the transactions that have no end on the log, oldest first.

    Such a transaction is still running, or its process died in it.

    Raises:
        AuditError: As `read_entries`.
    """
    started: dict[str, Entry] = {}
    for entry in read_entries(path):
        if entry.tx is None:
            continue
        if entry.event in OPENINGS:
            started[entry.tx] = entry
        elif entry.event in ENDINGS:
            started.pop(entry.tx, None)
    return list(started.values())


def _opened(path: Path) -> BufferedReader:
    def opener(name: str, flags: int) -> int:
        # A FIFO without a writer would block here for ever.
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))

    try:
        file = open(path, "rb", opener=opener)  # noqa: SIM115 - callers use it as a context manager
    except OSError as exc:
        raise AuditError(f"can't read the audit log {path}: {exc.strerror or exc}") from exc
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise AuditError(f"expected a regular file for the audit log, found another kind at {path}")
    return file


def _is_entry(line: bytes) -> bool:
    try:
        parse(line)
    except BadLine:
        return False
    return True


def _entries(file: BufferedReader, path: Path, *, offset: int, line: int | None) -> Iterator[Entry]:
    torn: _Torn | None = None
    while raw := _readline(file, path, offset):
        place = f"{path}: " + (f"line {line}, byte {offset}" if line else f"byte {offset}")
        if len(raw) > MAX_LINE:
            raise AuditError(f"{place}: expected lines of at most {MAX_LINE} bytes, found a longer one")
        if not raw.endswith(b"\n"):
            if offset == 0 and not looks_like_a_log(raw[:64]):
                raise AuditError(f"{place}: expected an audit log, found another kind of file")
            return
        try:
            fields = parse(raw[:-1])
        except BadLine as exc:
            if not raw.endswith(_TORN_END):
                raise AuditError(f"{place}: {exc}") from None
            torn = torn or _Torn(f"{place}: {exc}", offset)
            torn.add(raw)
        else:
            if torn is not None:
                torn.expect_described_by(fields)
                torn = None
            yield Entry(line=line, offset=offset, fields=MappingProxyType(fields))
        offset += len(raw)
        line = None if line is None else line + 1


def _readline(file: BufferedReader, path: Path, offset: int) -> bytes:
    try:
        return file.readline(MAX_LINE + 1)
    except OSError as exc:
        raise AuditError(f"{path}: byte {offset}: can't read on: {exc.strerror or exc}") from exc


class _Torn:
    """Sealed-off bytes, until the recovery entry that must come after them has been seen."""

    def __init__(self, fault: str, offset: int) -> None:
        self._fault = fault
        self._offset = offset
        self._length = 0
        self._digest = hashlib.sha256()
        # The last seal is the recovering writer's, not part of what it found.
        self._seal = b""

    def add(self, raw: bytes) -> None:
        found = self._seal + raw[: -len(_TORN_END)]
        self._digest.update(found)
        self._length += len(found)
        self._seal = _TORN_END

    def expect_described_by(self, fields: Mapping[str, Any]) -> None:
        expected = ("log.recovered", self._offset, self._length, self._digest.hexdigest())
        if tuple(fields.get(name) for name in ("event", "offset", "length", "sha256")) != expected:
            raise AuditError(
                f"{self._fault}; expected a recovery entry after it that describes bytes {self._offset} to"
                f" {self._offset + self._length}, found {fields['event'][:80]!a} (entry {fields['seq']})"
            )
