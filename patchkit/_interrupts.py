"""Ctrl-C waits until a step is whole.

An interrupt can hit between any two instructions, also in the first one of the code that rolls back. While a
transaction or a revert runs, SIGINT is therefore only noted; the transaction looks for it between steps, where
rolling back is safe, and a revert finishes first. A second Ctrl-C is not held back: somebody wants out of a patch
that hangs.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

__all__ = ["InterruptsDeferred"]


class InterruptsDeferred:
    """Holds SIGINT back inside a ``with`` block, and delivers it at the end; does nothing in other threads."""

    def __init__(self) -> None:
        self.pending = False
        self._handler: _Handler | None = None
        self._frame: FrameType | None = None

    def poll(self) -> None:
        """Deliver an interrupt that is waiting: a safe place to roll back from."""
        if self.pending:
            self._deliver()

    def note(self, frame: FrameType | None) -> None:
        """Hold an interrupt back, unless one is waiting already."""
        self._frame = frame
        if self.pending or self._handler is None:
            self._deliver()
        self.pending = True

    def __enter__(self) -> InterruptsDeferred:
        if threading.current_thread() is threading.main_thread():
            previous = signal.getsignal(signal.SIGINT)
            # A handler that isn't Python's, or none at all, is nothing that could raise in the middle of a step.
            if callable(previous):
                self._handler = _Handler(self, previous, sys._getframe(1))
                signal.signal(signal.SIGINT, self._handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        handler = self._handler
        if handler is not None:
            handler.is_over = True
            # A patch may have put its own handler in place meanwhile, or taken it out.
            if _is_in_place(handler):
                signal.signal(signal.SIGINT, handler.previous)
            self.poll()

    def _deliver(self) -> None:
        self.pending = False
        if self._handler is not None:
            self._handler.previous(signal.SIGINT, self._frame)


class _Handler:
    """Notes SIGINT for a block as long as the frame runs in which the block stands.

    A second interrupt may hit while the handler is put in place or taken out. Should it stay because of that, it hands
    on everything to the one before it.
    """

    def __init__(
        self, block: InterruptsDeferred, previous: Callable[[int, FrameType | None], object], home: FrameType
    ) -> None:
        self.previous = previous
        self.is_over = False
        self._block = block
        self._home = home

    def __call__(self, number: int, frame: FrameType | None) -> None:
        running = frame
        while running is not None and running is not self._home:
            running = running.f_back
        if running is None or self.is_over:
            self.previous(number, frame)
        else:
            self._block.note(frame)


def _is_in_place(handler: object) -> bool:
    return signal.getsignal(signal.SIGINT) is handler
