"""The exclusive lock on the log file, and what makes it safe to wait for.

Each entry opens the file anew. That makes threads exclude each other like processes (each opening has its own
lock), leaves nothing open that a forked child could share, and finds the file again where it was moved or
replaced since the last entry.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import AuditError

__all__ = ["LOCK_SECONDS", "locked"]

LOCK_SECONDS = 60.0
"""How long a writer waits for the others before it gives up: a stopped process must not stop all."""

_FLAGS = (
    os.O_RDWR
    | os.O_APPEND
    | os.O_CREAT
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOINHERIT", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NONBLOCK", 0)
)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0002, 0.01

_here = threading.local()
_open: set[int] = set()

if sys.platform == "win32":
    import msvcrt

    # Such locks are mandatory on Windows, so the locked byte is one that no log reaches.
    _LOCKED_BYTE = 2**62

    def _try_lock(fd: int) -> bool:
        os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

    def _unlock(fd: int) -> None:
        os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(fd: int) -> None:
        # Closing is not enough: a child forked meanwhile holds a copy of the descriptor, and the lock with it.
        fcntl.flock(fd, fcntl.LOCK_UN)


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Open the log at `path`, creating it if missing, and hold its lock; yields the file descriptor.

    Raises:
        AuditError: If `path` is no regular file, the lock can't be had in time, or this thread already holds it.
        OSError: If the file can't be opened or locked.
    """
    deadline = time.monotonic() + LOCK_SECONDS
    with _once_per_thread(path):
        while True:
            fd = os.open(path, _FLAGS, 0o600)
            _open.add(fd)
            try:
                _expect_regular(fd, path)
                _wait(fd, path, deadline)
                try:
                    # While this writer waited, the file may have been moved away.
                    if _is_at(fd, path):
                        yield fd
                        return
                finally:
                    _unlock(fd)
            finally:
                _open.discard(fd)
                os.close(fd)


@contextmanager
def _once_per_thread(path: Path) -> Iterator[None]:
    """Refuse a second entry inside the first: a signal handler that records would wait for itself forever."""
    paths: set[Path] = _here.__dict__.setdefault("paths", set())
    if path in paths:
        raise AuditError(
            f"can't record to {path} now: this thread is in the middle of another entry, so this call comes from"
            " a signal handler or a finaliser; let the handler set a flag and record later"
        )
    paths.add(path)
    try:
        yield
    finally:
        paths.discard(path)


def _expect_regular(fd: int, path: Path) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise AuditError(
            f"expected a regular file for the audit log, found another kind at {path}; choose another path"
        )


def _wait(fd: int, path: Path, deadline: float) -> None:
    pause = _FIRST_PAUSE
    while not _try_lock(fd):
        if time.monotonic() > deadline:
            raise AuditError(
                f"another process has held the lock on {path} for {LOCK_SECONDS:.0f} seconds; look for a stopped"
                " process that writes this log, or choose another path"
            )
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _close_in_child() -> None:
    """Close what another thread of the parent had open when this child was forked; the parent keeps its lock."""
    for fd in _open:
        os.close(fd)
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
