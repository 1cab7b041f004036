"""Steps that are taken once for all applications of a patch to the same object."""

from __future__ import annotations

import gc
import threading

import pytest

from patchkit import _effects
from patchkit._effects import ActionRecord
from patchkit.errors import OrderError


class Thing:
    pass


def action(log: list[str], on: object = None, *, name: str = "step", variant: str = "") -> ActionRecord:
    return ActionRecord("e.patch", variant, name, 1, on, (lambda: log.append("do"), lambda: log.append("undo")))


@pytest.fixture
def log() -> list[str]:
    return []


def test_once_for_all(log: list[str]) -> None:
    """The step is taken with the first owner and undone with the last, and nothing is left of it."""
    thing = Thing()
    one, two = action(log, thing), action(log, thing)
    one.do()
    two.do()
    one.do()
    one.undo()
    assert (log, one.problem() is None, two.problem()) == (["do"], False, None)
    two.undo()
    two.undo()
    assert log == ["do", "undo"]
    assert not [key for key in _effects._EFFECTS if key[0] == "e.patch"]


def test_again_after_the_last_one_left(log: list[str]) -> None:
    """A record can be done again after it was undone."""
    one = action(log)
    for _ in range(2):
        one.do()
        one.undo()
    assert log == ["do", "undo", "do", "undo"]


def test_suspension_of_one_is_enough(log: list[str]) -> None:
    """One owner's suspension switches the effect off; the problem of the other says why."""
    one, two = action(log), action(log)
    one.do()
    two.do()
    one.suspend()
    assert "another handle has suspended it" in str(two.problem())
    one.undo()
    assert (log, two.problem()) == (["do", "undo", "do"], None)
    two.undo()


def test_objects_and_options_are_told_apart(log: list[str]) -> None:
    """Other objects have effects of their own; other options on the same object are refused and change nothing."""
    thing = Thing()
    first, second, wrong = action(log, thing), action(log, Thing()), action(log, thing, variant="other")
    first.do()
    with pytest.raises(OrderError, match=r"step: expected 'e\.patch' with the options"):
        wrong.do()
    wrong.undo()
    second.do()
    assert log == ["do", "do"]
    first.undo()
    second.undo()


def test_undone_after_its_object_died(log: list[str]) -> None:
    """An effect outlives its object, whose address may be another's by then."""
    thing = Thing()
    record = action(log, thing)
    record.do()
    del thing
    gc.collect()
    assert not [key for key in _effects._EFFECTS if key[0] == "e.patch"]
    record.undo()
    assert log == ["do", "undo"]


def test_object_without_weak_references(log: list[str]) -> None:
    """An object that allows no weak reference is kept as long as the effect."""
    on = (1, 2)
    one, two = action(log, on), action(log, on)
    one.do()
    two.do()
    one.undo()
    two.undo()
    assert log == ["do", "undo"]


def test_failing_step_is_undone() -> None:
    """A step that failed half-way is undone, and one that failed to be undone is undone again."""
    log: list[str] = []
    failing = {"do", "undo"}

    def step(what: str) -> None:
        log.append(what)
        if what in failing:
            failing.remove(what)
            raise OSError(what)

    record = ActionRecord("e.patch", "", "step", 1, None, (lambda: step("do"), lambda: step("undo")))
    with pytest.raises(OSError, match="do"):
        record.do()
    with pytest.raises(OSError, match="undo"):
        record.undo()
    record.undo()
    record.undo()
    assert log == ["do", "undo", "undo"]


def test_threads_take_turns() -> None:
    """Owners that come and go in several threads never run a step and its inverse at the same time, nor one of them
    twice.
    """
    state: dict[str, int] = {"on": 0, "wrong": 0}

    def do() -> None:
        state["wrong"] += state["on"]
        state["on"] = 1

    def undo() -> None:
        state["wrong"] += 1 - state["on"]
        state["on"] = 0

    def run() -> None:
        for _ in range(200):
            record = ActionRecord("e.patch", "", "turn", 1, None, (do, undo))
            record.do()
            record.suspend()
            record.resume()
            record.undo()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert state == {"on": 0, "wrong": 0}
