"""Ctrl-C waits until a step is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from patchkit._interrupts import InterruptsDeferred
from tests.engine._faults import Fault


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_delivered_at_the_end() -> None:
    """An interrupt inside the block comes when it ends; the handler is the one that was there before."""
    done: list[Any] = []

    def run() -> None:
        with InterruptsDeferred() as deferred:
            interrupt()
            done.append(deferred.pending)

    with pytest.raises(KeyboardInterrupt):
        run()
    assert done == [True]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_delivered_between_steps() -> None:
    """``poll`` delivers what is waiting, once."""
    with InterruptsDeferred() as deferred:
        deferred.poll()
        interrupt()
        with pytest.raises(KeyboardInterrupt):
            deferred.poll()
        deferred.poll()


def test_second_one_gets_through() -> None:
    """A second interrupt is not held back, and takes the first along."""
    done: list[Any] = []

    def run() -> None:
        with InterruptsDeferred():
            interrupt()
            done.append("after the first")
            interrupt()
            done.append("after the second")

    with pytest.raises(KeyboardInterrupt):
        run()
    assert done == ["after the first"]


def test_blocks_inside_each_other() -> None:
    """Blocks inside each other hand the interrupt on to the outermost."""
    done: list[Any] = []

    def run() -> None:
        with InterruptsDeferred():
            with InterruptsDeferred():
                interrupt()
            done.append("after the inner one")

    with pytest.raises(KeyboardInterrupt):
        run()
    assert done == ["after the inner one"]


def test_exception_and_interrupt() -> None:
    """An interrupt that was waiting outranks an exception that leaves the block, which is its context."""

    def run() -> None:
        with InterruptsDeferred():
            interrupt()
            raise ValueError("in the block")

    with pytest.raises(KeyboardInterrupt) as caught:
        run()
    assert isinstance(caught.value.__context__, ValueError)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_handlers_that_are_not_pythons_stay(handler: Any) -> None:
    """Where SIGINT is ignored, or left to the system, nothing is changed."""
    signal.signal(signal.SIGINT, handler)
    with InterruptsDeferred():
        assert signal.getsignal(signal.SIGINT) is handler
    assert signal.getsignal(signal.SIGINT) is handler


def test_other_threads_are_left_alone() -> None:
    """In a thread, which can't have signal handlers, the block does nothing."""
    seen: list[Any] = []

    def run() -> None:
        with InterruptsDeferred():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def test_handler_that_could_not_be_taken_out() -> None:
    """A second interrupt at any line of entering or leaving the block leaves the first Ctrl-C after it as prompt
    as ever, also while somebody keeps the exception with all its frames.
    """
    kept: list[BaseException] = []

    def run(fault: Fault) -> None:
        try:
            with fault.striking(), InterruptsDeferred():
                pass
        except KeyboardInterrupt as error:
            kept.append(error)

    nth = 0
    while True:
        fault = Fault(nth, KeyboardInterrupt)
        run(fault)
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if not fault.place:
            break
        nth += 1
    assert len(kept) == nth > 10
