"""The undo records that a transaction keeps, newest undone first.

A record is pushed before it acts, so whatever interrupts the act finds its inverse on the journal; an
inverse therefore has to be harmless if its act never happened. Undoing goes on after a failure and gathers
what failed: one step that can't be undone must not strand the rest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Failure", "Journal", "Record", "persist"]


class Record(Protocol):
    """One primitive change and its inverse; every step may be run again without harm."""

    def describe(self) -> str:
        """Name the change, for messages and the audit log."""

    def has_effect(self) -> bool:
        """Say whether, as things are, something is other than it would be without the change."""

    def do(self) -> None:
        """Make the change and count one owner."""

    def undo(self) -> None:
        """Take one owner away, and the change back with the last."""

    def suspend(self) -> None:
        """Take the change back for a while, whoever else owns it."""

    def resume(self) -> None:
        """End one suspension."""

    def problem(self) -> str | None:
        """Say in what way the change is not in place now, or return ``None``."""


@dataclass(frozen=True)
class Failure:
    """A step that failed, by its description, and what it raised."""

    what: str
    error: BaseException

    def __str__(self) -> str:
        return f"{self.what} ({str(self.error) or type(self.error).__name__})"


class Journal:
    """The records of one patch in one transaction."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def perform(self, record: Record) -> None:
        """Push ``record``, then let it act."""
        self.records.append(record)
        record.do()

    def undo(self) -> tuple[Failure, ...]:
        """Undo everything, newest first; may be called again, after an interrupt too, and goes on where it was.

        Returns:
            What failed; these records stay on the journal, so a later call tries them again.
        """
        failures: list[Failure] = []
        for index in range(len(self.records) - 1, -1, -1):
            record = self.records[index]
            try:
                record.undo()
            except Exception as error:
                failures.append(Failure(record.describe(), error))
            else:
                del self.records[index]
        return tuple(failures)

    def suspend(self) -> None:
        """Suspend everything, newest first; if a step fails, resume what was suspended and raise."""
        _all_or_none([(record.suspend, record.resume) for record in reversed(self.records)])

    def resume(self) -> None:
        """Resume everything in the order of installation; if a step fails, suspend what was resumed and raise."""
        _all_or_none([(record.resume, record.suspend) for record in self.records])


def persist(step: Callable[[], None]) -> BaseException | None:
    """Call ``step`` until it isn't interrupted: it goes on where it was. Returns the first interrupt, if there was one.

    Raises:
        Exception: What ``step`` raises.
    """
    interrupt: BaseException | None = None
    while True:
        try:
            step()
        except Exception:
            raise
        except BaseException as error:
            interrupt = interrupt or error
        else:
            return interrupt


def _all_or_none(steps: list[tuple[Callable[[], None], Callable[[], None]]]) -> None:
    done: list[Callable[[], None]] = []
    try:
        for forward, backward in steps:
            done.append(backward)
            forward()
    except BaseException as error:
        persist(functools.partial(_step_back, done, error))
        raise


def _step_back(done: list[Callable[[], None]], error: BaseException) -> None:
    while done:
        try:
            done[-1]()
        except Exception as problem:
            if hasattr(error, "add_note"):
                error.add_note(f"and stepping back failed: {problem}")
        done.pop()
