"""The face of the audit log for those who record: policy, transactions, and the ordinary log records."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..errors import AuditError, PatchkitWarning
from ._emit import emit
from ._event import OPENINGS, prepare, render
from ._file import Durability, LogFile
from ._origin import origin
from ._text import printable

if TYPE_CHECKING:
    from ._sink import Sink

__all__ = ["AuditLog", "AuditPolicy"]

AuditPolicy = Literal["required", "best-effort", "off"]


class AuditLog:
    """Records events in the audit log, and as ordinary log records.

    Creating one touches nothing; the file and its folder are made with the first entry. Safe to use from
    several threads, in forked children, and beside other processes that write the same file.

    Args:
        path: The file; made absolute at once. May be None with the policy ``"off"``.
        policy: ``"required"``: what can't be recorded raises. ``"best-effort"``: it warns, once, and goes on.
            ``"off"``: there is no file; the ordinary log records remain.
        durability: ``"transaction"``: what opens or ends a transaction is on the disk when `record` returns, and
            everything before it with it. ``"always"``: every entry is. ``"never"``: entries are with the operating
            system, and survive the death of the process but not of the machine, as those inside of a transaction do.

    Raises:
        AuditError: If there is no path and the policy is not ``"off"``.
        ValueError: If policy or durability is unknown.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        *,
        policy: AuditPolicy = "required",
        durability: Durability = "transaction",
    ) -> None:
        _expect_one_of("policy", policy, get_args(AuditPolicy))
        _expect_one_of("durability", durability, get_args(Durability))
        if path is None and policy != "off":
            raise AuditError(f'the audit policy {policy!r} expects a path, got None; give one, or set policy = "off"')
        self.path = None if path is None else Path(path).absolute()
        self.policy = policy
        self.durability = durability
        self._file = None if self.path is None or policy == "off" else LogFile(self.path, durability)
        self._sink: Sink | None = None
        self._has_warned = False
        self._has_complained = False

    def __repr__(self) -> str:
        path = None if self.path is None else str(self.path)
        return f"AuditLog({path!r}, policy={self.policy!r}, durability={self.durability!r})"

    def transaction(self, event: str = "apply.started", /, **opening: object) -> str:
        """Record the opening event of a transaction, and return the transaction's new id.

        Versions of patchkit and Python, host, process, rank, user and patchkit's own environment switches
        are added. The change that the transaction intends may begin when this returns.

        Args:
            event: ``"apply.started"``, ``"revert.started"`` or ``"action.started"``.
            opening: Further fields: ``manifest``, ``patches``, ``libraries``, for a revert ``applied``.

        Raises:
            AuditError: As `record`.
        """
        if event not in OPENINGS:
            raise ValueError(
                f"expected an event that opens a transaction ({', '.join(sorted(OPENINGS))}), got {event!r}"
            )
        tx = uuid.uuid4().hex
        self.record(event, tx=tx, **{**origin(), **opening})
        return tx

    def record(self, event: str, /, *, tx: str | None, **fields: object) -> None:
        """Record an event; ``durability`` says what is on the disk when this returns.

        An exception given as a field becomes its type and message. None leaves a field out, but for
        ``before`` and ``after``, where it says that nothing was there.

        Args:
            event: Name of the event.
            tx: Id of its transaction, from `transaction`.
            fields: Fields as in ``docs/audit-log.md``, of plain JSON values.

        Raises:
            AuditError: If it can't be written and the policy is ``"required"``.
            TypeError: If there is no such field, or JSON can't express its value. Whatever the policy.
            ValueError: If there is no such event, or a number is not finite. Whatever the policy.
        """
        self._log(self._to_file(prepare(event, tx, fields)))

    def record_quietly(self, event: str, /, *, tx: str | None, **fields: object) -> None:
        """Record an event where nothing may fail any more, as in a roll-back; never raises an `Exception`.

        What can't be written goes to stderr, with the reason, and is still an ordinary log record.
        """
        text = f"{event} of transaction {tx}"
        try:
            prepared = prepare(event, tx, fields)
            text = render(prepared)
            try:
                prepared = self._to_file(prepared)
            finally:
                self._log(prepared)
        except Exception as exc:
            _complain(f"this is not on the audit log: {text}: {exc}")

    def _to_file(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Write an entry as policy demands; return its fields with the sequence number that it got, if any."""
        if self._file is None:
            # A value that can't be recorded is a mistake also where nothing is recorded.
            render(fields)
            return fields
        try:
            appended = self._logger(self._file).append(**fields)
        except AuditError as exc:
            if self.policy == "required":
                raise
            if not self._has_warned:
                self._has_warned = True
                warnings.warn(f"{exc}; going on without an audit log", PatchkitWarning, stacklevel=3)
            return fields
        for note in appended.notes:
            self._log(note)
        return {**fields, "seq": appended.seq}

    def _logger(self, file: LogFile) -> Sink:
        if self._sink is None:
            # Importing structlog takes longer than all entries of a run; a log that is off doesn't need it.
            from ._sink import file_logger

            self._sink = file_logger(file)
        return self._sink

    def _log(self, fields: Mapping[str, Any]) -> None:
        """Pass an event to the application's logging, whose faults must not undo what is on record."""
        try:
            emit(fields)
        except Exception as exc:
            if not self._has_complained:
                self._has_complained = True
                _complain(f"the application's logging failed on {fields['event']}: {type(exc).__name__}: {exc}")


def _expect_one_of(name: str, value: object, accepted: tuple[str, ...]) -> None:
    if value not in accepted:
        raise ValueError(f"expected one of {', '.join(map(repr, accepted))} as {name} of the audit log, got {value!r}")


def _complain(text: str) -> None:
    # There may be no stderr, and this is the last resort.
    with contextlib.suppress(Exception):
        sys.stderr.write(f"patchkit: {printable(text)}\n")
        sys.stderr.flush()
