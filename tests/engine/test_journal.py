"""The undo records of a transaction, and steps that go on after an interrupt."""

from __future__ import annotations

from typing import Any

import pytest

from patchkit._journal import Failure, Journal, persist


class Note:
    """A record that notes what is asked of it, and fails where it was told to."""

    def __init__(self, name: str, log: list[str], *failing: str, error: BaseException | None = None) -> None:
        self.name = name
        self.log = log
        self.failing = list(failing)
        self.error = error or ValueError(f"{name} failed")

    def _step(self, what: str) -> None:
        if what in self.failing:
            self.failing.remove(what)
            raise self.error
        self.log.append(f"{what} {self.name}")

    def describe(self) -> str:
        return self.name

    def has_effect(self) -> bool:
        return True

    def do(self) -> None:
        self._step("do")

    def undo(self) -> None:
        self._step("undo")

    def suspend(self) -> None:
        self._step("suspend")

    def resume(self) -> None:
        self._step("resume")

    def problem(self) -> str | None:
        return None


@pytest.fixture
def log() -> list[str]:
    return []


def journal(*records: Note) -> Journal:
    made = Journal()
    made.records.extend(records)
    return made


def test_record_is_there_before_it_acts(log: list[str]) -> None:
    """A record that fails while it acts is on the journal, so it is undone."""
    made = Journal()
    with pytest.raises(ValueError, match="one failed"):
        made.perform(Note("one", log, "do"))
    assert [record.describe() for record in made.records] == ["one"]
    assert made.undo() == ()
    assert log == ["undo one"]


def test_newest_first_and_on_after_a_failure(log: list[str]) -> None:
    """Undoing goes from the newest to the oldest; what fails stays on the journal and is tried again."""
    made = journal(Note("one", log), Note("two", log, "undo"), Note("three", log))
    (failure,) = made.undo()
    assert (str(failure), log) == ("two (two failed)", ["undo three", "undo one"])
    assert made.undo() == ()
    assert (log[-1], made.records) == ("undo two", [])
    assert made.undo() == ()


def test_undo_goes_on_where_it_was_interrupted(log: list[str]) -> None:
    """An interrupt leaves what is not yet undone on the journal."""
    made = journal(Note("one", log), Note("two", log, "undo", error=KeyboardInterrupt()), Note("three", log))
    with pytest.raises(KeyboardInterrupt):
        made.undo()
    assert made.undo() == ()
    assert log == ["undo three", "undo two", "undo one"]


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_suspending_all_or_none(log: list[str], error: BaseException) -> None:
    """If one record can't be suspended, those that were are resumed; the error comes through."""
    made = journal(Note("one", log), Note("two", log, "suspend", error=error), Note("three", log))
    with pytest.raises(type(error)):
        made.suspend()
    assert log == ["suspend three", "resume two", "resume three"]
    made.suspend()
    assert log[3:] == ["suspend three", "suspend two", "suspend one"]


def test_resuming_all_or_none(log: list[str]) -> None:
    """If one record can't be resumed, those that were are suspended again; a failure of that is noted on the
    error.
    """
    made = journal(Note("one", log, "suspend"), Note("two", log, "resume"), Note("three", log))
    with pytest.raises(ValueError, match="two failed") as caught:
        made.resume()
    assert log == ["resume one", "suspend two"]
    notes: Any = getattr(caught.value, "__notes__", ["one failed"])
    assert "one failed" in notes[0]


def test_persisting() -> None:
    """A step is called again until it isn't interrupted; the first interrupt is returned, an error comes through."""
    plan: list[BaseException] = [KeyboardInterrupt("first"), SystemExit("second")]

    def step() -> None:
        if plan:
            raise plan.pop(0)

    interrupt = persist(step)
    assert (type(interrupt), str(interrupt)) == (KeyboardInterrupt, "first")
    assert persist(step) is None
    plan.append(ValueError("error"))
    with pytest.raises(ValueError, match="error"):
        persist(step)


def test_failure_is_readable() -> None:
    """A failure says what failed and why, also where the error has no text."""
    assert str(Failure("the site", ValueError("stuck"))) == "the site (stuck)"
    assert str(Failure("the site", MemoryError())) == "the site (MemoryError)"
