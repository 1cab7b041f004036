"""Ctrl-C waits until a step is whole.

An interrupt can hit between any two instructions, also in the first one of the code that rolls back. While a
transaction or a revert runs, SIGINT is therefore only noted; the transaction looks for it between steps, where
rolling back is safe, and a revert finishes first. A second Ctrl-C is not held back: somebody wants out of a patch
that hangs.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

__all__ = ["InterruptsDeferred"]


class InterruptsDeferred:
    """Holds SIGINT back inside a ``with`` block, and delivers it at the end; does nothing in other threads."""

    def __init__(self) -> None:
        self.pending = False
        self._previous: Any = None
        self._frame: FrameType | None = None

    def poll(self) -> None:
        """Deliver an interrupt that is waiting: a safe place to roll back from."""
        if self.pending:
            self._deliver()

    def __enter__(self) -> InterruptsDeferred:
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            # A handler that isn't Python's, or none at all, is nothing that could raise in the middle of a step.
            if callable(handler):
                self._previous = handler
                signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
            if self.pending:
                self._deliver()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.pending:
            self._deliver()
        self.pending = True
        self._frame = frame

    def _deliver(self) -> None:
        self.pending = False
        self._previous(signal.SIGINT, self._frame)
