"""Locks that a forked child can use, whatever other threads of its parent were doing.

A child has only the thread that forked. A lock that another thread held at that moment would stay locked in the child
for ever.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["LOCK", "fresh_after_fork"]

# One lock for every change of shared state. It is held for dictionary operations, never while a patch's own code or
# an import runs, so it can't take part in a deadlock with the import lock.
LOCK = threading.RLock()

_FRESH: weakref.WeakSet[Any] = weakref.WeakSet()


def fresh_after_fork() -> AbstractContextManager[bool]:
    """Return a lock that is open in every forked child: what the thread that held it was doing isn't done there.

    For locks that are held while foreign code runs. Steps that they protect are harmless when repeated.
    """
    lock = threading.RLock()
    _FRESH.add(lock)
    return lock


def _open_all() -> None:
    LOCK.release()
    for lock in list(_FRESH):
        # As the standard library's own modules do with theirs.
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    # A fork waits until no change of shared state is half-way, so that the child inherits it whole.
    os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=_open_all)
