"""Locks and forks."""

from __future__ import annotations

import os
import threading

import pytest

from patchkit._locks import LOCK, fresh_after_fork

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def in_child(lock: object) -> bool:
    """Tell whether a forked child can take ``lock`` while another thread of the parent holds it."""
    held, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:  # type: ignore[attr-defined]
            held.set()
            leave.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(30)
    child = os.fork()
    if child == 0:
        os._exit(0 if lock.acquire(timeout=5) else 1)  # type: ignore[attr-defined]
    _, status = os.waitpid(child, 0)
    leave.set()
    holder.join()
    return os.waitstatus_to_exitcode(status) == 0


@needs_fork
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_lock_of_a_handle_is_open_in_a_child() -> None:
    """What another thread of the parent was holding doesn't hang the child; an ordinary lock would."""
    assert in_child(fresh_after_fork())
    assert not in_child(threading.RLock())


@needs_fork
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork_waits_for_a_change_to_be_whole() -> None:
    """A child is never made in the middle of a change of shared state, and finds the common lock open."""
    order: list[str] = []
    held = threading.Event()

    def change() -> None:
        with LOCK:
            held.set()
            # Long enough for the fork to run into the lock; it can't overtake, however long this takes.
            threading.Event().wait(0.2)
            order.append("changed")

    changing = threading.Thread(target=change)
    changing.start()
    held.wait(30)
    child = os.fork()
    if child == 0:
        os._exit(0 if order == ["changed"] and LOCK.acquire(timeout=5) else 1)
    _, status = os.waitpid(child, 0)
    changing.join()
    assert os.waitstatus_to_exitcode(status) == 0
