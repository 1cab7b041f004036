"""The end of a log file, read backwards: the last entry, and the torn bytes that may follow it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import AuditError
from ._line import MAX_LINE, TORN_MARK, BadLine, parse

__all__ = ["Tail", "lines_backwards", "looks_like_a_log", "read_at", "read_tail"]

_PREFIX = b'{"v":'
_FIRST_CHUNK, _CHUNK = 4096, 65536
# More than a crash leaves, also one that cuts off the repair of the last one, and that again.
_MOST_TORN = 4 * MAX_LINE


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a log.

    Attributes:
        last: Members of the last entry; None if there is none.
        end: Offset at which the whole entries end, and torn bytes begin if there are any.
        size: Size of the file.
    """

    last: dict[str, Any] | None
    end: int
    size: int


def read_tail(fd: int, path: Path) -> Tail:
    """Read the end of the log open as `fd`.

    Raises:
        AuditError: If the file ends in something that neither the writer nor a crash of it leaves.
    """
    size = os.fstat(fd).st_size
    for offset, line, ended in lines_backwards(fd, size, path):
        if not ended:
            continue
        try:
            return Tail(last=parse(line), end=offset + len(line) + 1, size=size)
        except BadLine as exc:
            if not line.endswith(TORN_MARK) or size - offset > _MOST_TORN:
                raise AuditError(
                    f"{path}: byte {offset}: {exc}; this is not an audit log, or a damaged one, so nothing is"
                    " appended to it: move the file away or choose another path"
                ) from None
    if size and not looks_like_a_log(read_at(fd, 0, 64)):
        raise AuditError(f"expected an audit log at {path}, found another kind of file; choose another path")
    return Tail(last=None, end=0, size=size)


def looks_like_a_log(head: bytes) -> bool:
    """Say whether `head` can be what a crash left of the very first entry of a log."""
    # After a power cut a file may be filled up with NULs.
    torn = head.split(TORN_MARK[:1])[0].strip(b"\0")[: len(_PREFIX)]
    return not head.startswith(TORN_MARK[:1]) and _PREFIX.startswith(torn)


def lines_backwards(fd: int, end: int, path: Path) -> Iterator[tuple[int, bytes, bool]]:
    """Yield the lines before offset `end`, last one first: offset, bytes without line feed, whether it has one.

    Raises:
        AuditError: If a line is longer than any entry.
    """
    start, buffer, ended, chunk = end, b"", False, _FIRST_CHUNK
    while True:
        cut = buffer.rfind(b"\n")
        if cut >= 0:
            line, buffer = buffer[cut + 1 :], buffer[:cut]
            if line or ended:
                yield start + cut + 1, line, ended
            ended = True
        elif start == 0:
            if buffer or ended:
                yield 0, buffer, ended
            return
        elif len(buffer) > MAX_LINE:
            raise AuditError(
                f"{path}: byte {start}: expected lines of at most {MAX_LINE} bytes, found a longer one;"
                " this is not an audit log, or a damaged one: move it away or choose another path"
            )
        else:
            step = min(chunk, start)
            start -= step
            buffer = read_at(fd, start, step) + buffer
            chunk = _CHUNK


def read_at(fd: int, offset: int, length: int) -> bytes:
    """Return `length` bytes at `offset`, fewer only at the end of the file. Moves the position of `fd`."""
    os.lseek(fd, offset, os.SEEK_SET)
    data = b""
    while len(data) < length:
        more = os.read(fd, length - len(data))
        if not more:
            break
        data += more
    return data
