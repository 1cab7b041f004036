"""Tells the audit log what a transaction does."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ._installation import Installation
from ._plan import Plan, Step
from ._site import ABSENT
from .audit import AuditLog, describe
from .errors import AuditError, PatchkitWarning

__all__ = ["AUDIT_VARIABLE", "DEFAULT_AUDIT_PATH", "Recorder", "audit_path", "recorded_action"]

AUDIT_VARIABLE = "PATCHKIT_AUDIT"
DEFAULT_AUDIT_PATH = "patchkit-audit.jsonl"


# Where the application that was made last is recorded.
_LATEST: list[AuditLog] = []


def audit_path(configured: str | None = None) -> Path:
    """Return where the audit log is: the environment's word, then the manifest's, then the default."""
    return Path(os.environ.get(AUDIT_VARIABLE) or configured or DEFAULT_AUDIT_PATH)


class Recorder:
    """The audit log as one handle sees it: every event carries the transaction that it belongs to.

    Args:
        plan: The plan whose manifest says where the log is.
    """

    def __init__(self, plan: Plan) -> None:
        config = plan.manifest.audit
        self._plan = plan
        self._log = AuditLog(audit_path(config.path), policy=config.policy)
        self._tx: str | None = None
        self._applied: str | None = None

    # Applying

    def apply_started(self) -> None:
        """Record the intent, before anything is touched.

        Raises:
            AuditError: It can't be recorded, and the manifest's audit policy is ``required``.
        """
        plan = self._plan
        self._tx = self._applied = self._log.transaction(
            "apply.started",
            patches=[step.label for step in plan.installing],
            manifest={
                "path": plan.manifest.path,
                "text_sha256": plan.manifest.text_sha256,
                "digest": plan.manifest.digest,
                "plan": plan.digest,
            },
            libraries=_libraries(plan),
        )

    def verdicts(self) -> None:
        """Record what every contract came to, and what is left out."""
        for step in self._plan.steps:
            if step.judgement is not None:
                self._verdict(step)
            if step.outcome == "disabled":
                self._record("patch.disabled", patch=step.patch.name, on=step.entry.on, reason=step.reason)
            elif step.outcome == "skip":
                self.skipped(step.patch.name, step.entry.on, step.reason)
        for entry in self._plan.absent:
            self.skipped(entry.name, entry.on, "no patch of that name is registered")

    def skipped(self, name: str, on: str | None, reason: str) -> None:
        """Record that a patch is left out."""
        self._record("patch.skipped", patch=name, on=on, reason=reason)

    def installed(self, installation: Installation, duration_us: int) -> None:
        """Record a patch that has been installed, with what was and what is on its sites."""
        changes = [
            {"site": site, "before": _described(before), "after": _described(after), "count": count}
            for site, before, after, count in installation.ctx.changes()
        ]
        self._record(
            "patch.installed",
            **_who(installation),
            modules=list(installation.step.entry.modules) or None,
            changes=changes or None,
            steps=installation.ctx.steps() or None,
            duration_us=duration_us,
        )

    def verified(self, installation: Installation, duration_us: int) -> None:
        """Record a patch that was found in effect."""
        self._record("patch.verified", **_who(installation), duration_us=duration_us)

    def failed(self, installation: Installation | None, error: BaseException) -> None:
        """Record what stopped the transaction."""
        who = _who(installation) if installation is not None else {}
        self._log.record_quietly("patch.failed", tx=self._tx, **who, error=error)

    def rolled_back_step(self, installation: Installation, stranded: list[str]) -> None:
        """Record that a patch was taken out again after a failure."""
        outcome = "failed" if stranded else "done"
        self._log.record_quietly(
            "rollback.step", tx=self._tx, **_who(installation), outcome=outcome, stranded=stranded or None
        )

    def committed(self) -> None:
        """Record the end of a transaction that succeeded."""
        self._record("apply.committed")
        _LATEST[:] = [self._log]

    def refused(self, error: BaseException) -> None:
        """Record the end of a transaction that was stopped before it touched anything."""
        self._log.record_quietly("apply.refused", tx=self._tx, error=error)

    def rolled_back(self, stranded: list[str]) -> None:
        """Record the end of a transaction that failed."""
        self._log.record_quietly("apply.rolled_back", tx=self._tx, stranded=stranded or None)

    # Afterwards

    def suspended(self, installation: Installation) -> None:
        """Record the beginning of a time without the patch."""
        self._quietly("patch.suspended", installation)

    def resumed(self, installation: Installation) -> None:
        """Record the end of a time without the patch."""
        self._quietly("patch.resumed", installation)

    def checked(self, installation: Installation, error: BaseException | None) -> None:
        """Record a verification after the fact."""
        self._log.record_quietly(
            "verify.completed",
            tx=None,
            applied=self._applied,
            **_who(installation),
            outcome="failed" if error else "done",
            error=error,
        )

    @contextmanager
    def reverting(self, installations: list[Installation]) -> Iterator[list[str]]:
        """Record a revert from its intent to its end; the list is to be filled with what could not be put back."""
        stranded: list[str] = []
        opening: dict[str, object] = {"applied": self._applied, "patches": [i.step.label for i in installations]}
        try:
            self._tx = self._log.transaction("revert.started", **opening)
        except (AuditError, PatchkitWarning):
            # Taking a patch out never depends on the log, nor on warnings that are errors.
            self._tx = uuid.uuid4().hex
            self._log.record_quietly("revert.started", tx=self._tx, **opening)
        try:
            yield stranded
        except BaseException as error:
            self._log.record_quietly("revert.failed", tx=self._tx, error=error)
            raise
        event = "revert.failed" if stranded else "revert.completed"
        self._log.record_quietly(event, tx=self._tx, stranded=stranded or None)

    def reverted(self, installation: Installation, stranded: list[str]) -> None:
        """Record one patch of a revert."""
        outcome = "failed" if stranded else "done"
        self._log.record_quietly(
            "patch.reverted", tx=self._tx, **_who(installation), outcome=outcome, stranded=stranded or None
        )

    def _verdict(self, step: Step) -> None:
        judgement = step.judgement
        assert judgement is not None
        self._record(
            "contract.judged",
            patch=step.patch.name,
            on=step.entry.on,
            verdict=judgement.verdict.value,
            requires=list(step.patch.contract.requires),
            source=judgement.source,
            findings=[
                {"symbol": f.symbol, "expected": f.expected, "found": f.found, "where": f.where}
                for f in judgement.findings
            ],
            policy=step.reason or None,
        )

    def _record(self, event: str, **fields: object) -> None:
        self._log.record(event, tx=self._tx, **fields)

    def _quietly(self, event: str, installation: Installation) -> None:
        self._log.record_quietly(event, tx=None, applied=self._applied, **_who(installation))


@contextmanager
def recorded_action(name: str) -> Iterator[dict[str, object]]:
    """Record something that is done once and never undone: the intent before it, the outcome after it.

    It is recorded where the application that was made last in this process is, or where the next one would be.

    Args:
        name: What is done, as people call it.

    Yields:
        Fields of the outcome, to be filled in.

    Raises:
        AuditError: The intent can't be recorded, and the policy is ``required``; nothing was done.
    """
    log = next(iter(_LATEST), None) or AuditLog(audit_path())
    tx = log.transaction("action.started", action=name)
    outcome: dict[str, object] = {}
    try:
        with stopwatch() as duration:
            yield outcome
    except BaseException as error:
        log.record_quietly("action.failed", tx=tx, action=name, error=error)
        raise
    log.record_quietly("action.completed", tx=tx, action=name, duration_us=duration[0], **outcome)


@contextmanager
def stopwatch() -> Iterator[list[int]]:
    """Measure a block; the list holds its duration in microseconds afterwards."""
    duration = [0]
    start = time.perf_counter_ns()
    try:
        yield duration
    finally:
        duration[0] = (time.perf_counter_ns() - start) // 1000


def _described(obj: object) -> dict[str, object] | None:
    return None if obj is ABSENT else describe(obj)


def _who(installation: Installation) -> dict[str, object]:
    return {"patch": installation.name, "on": installation.step.entry.on}


def _libraries(plan: Plan) -> dict[str, str]:
    return {
        version.distribution: version.raw
        for step in plan.steps
        if step.judgement is not None
        for version in step.judgement.versions
        if version.raw is not None
    }
