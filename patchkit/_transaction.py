"""The execution of a plan: intent, checks, install, verify, then commit, or everything back."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from ._applied import Applied
from ._context import Context, Findings
from ._installation import Installation
from ._interrupts import InterruptsDeferred
from ._journal import Failure, persist
from ._plan import Plan, Step
from ._recorder import Recorder, stopwatch
from ._warn import warn
from .errors import NothingToDoError, RefusedError, ResourceError, RevertError

__all__ = ["execute"]

# What an entry with ``required = false`` may run into and then be left out for: its target isn't there.
_NOT_APPLICABLE = (RefusedError, ResourceError, NothingToDoError)


def execute(plan: Plan, model: object, resources: Mapping[str, object]) -> Applied:
    """Carry out ``plan``: all of it, verified, or nothing.

    Args:
        plan: The plan.
        model: One module, or a mapping of names to modules, or ``None``.
        resources: Further objects by name.

    Returns:
        The handle of what was applied.

    Raises:
        ContractError: Policy doesn't accept a contract; nothing was touched.
        ResourceError: A resource is missing; nothing was touched.
        RefusedError: A patch refuses what it finds; nothing is left changed.
        InstallError: A patch failed; nothing is left changed.
        VerifyError: A patch is not in effect; nothing is left changed.
        RevertError: A patch failed, and something could not be put back.
        AuditError: The audit log can't be written; nothing is left changed.
    """
    recorder = Recorder(plan)
    findings = Findings()
    left_out: dict[str, str] = {}
    work = _Work(recorder, left_out)
    try:
        with InterruptsDeferred() as interrupts:
            try:
                recorder.apply_started()
                work.carry_out(_accepted(plan, model, resources, recorder, findings, left_out), interrupts)
                applied = Applied(plan, work.begun, recorder, left_out)
                recorder.committed()
                interrupts.poll()
            except BaseException as error:
                work.roll_back(error)
                raise
            finally:
                findings.close()
        return applied
    except BaseException as error:
        # Whatever came in between, also too late for the handle to reach anybody who could revert it.
        work.roll_back(error)
        raise


class _Work:
    """How far a transaction has come, and how far it has been rolled back."""

    def __init__(self, recorder: Recorder, left_out: dict[str, str]) -> None:
        self._left_out = left_out
        self.begun: list[Installation] = []
        self._recorder = recorder
        self._current: Installation | None = None
        self._failures: dict[Installation, tuple[Failure, ...]] = {}
        self._reason: BaseException | None = None
        self._is_begun = False
        self._is_recorded = False
        self._is_rolled_back = False

    def carry_out(self, installations: list[Installation], interrupts: InterruptsDeferred) -> None:
        """Install everything, then verify everything."""
        self._is_begun = True
        for installation in installations:
            interrupts.poll()
            self._current = installation
            self.begun.append(installation)
            self._install(installation)
        for installation in self.begun:
            interrupts.poll()
            self._current = installation
            with stopwatch() as duration:
                installation.verify()
            self._recorder.verified(installation, duration[0])
        self._current = None

    def roll_back(self, error: BaseException) -> None:
        """Take everything out again. It can be called again if it was interrupted; once it is done, it does nothing.

        Raises:
            RevertError: Something could not be put back; everything else was.
            BaseException: An interrupt that arrived meanwhile; everything was put back.
        """
        if self._is_rolled_back or not self._is_begun:
            return
        self._reason = self._reason or error
        interrupt = persist(self._take_out)
        self._is_rolled_back = True
        failures = [failure for found in self._failures.values() for failure in found]
        if failures:
            lines = self._lines()
            raise RevertError(
                f"{self._reason}\nand while rolling back, {len(lines)} changes could not be undone; all else was:\n"
                + "\n".join(f"  {line}" for line in lines)
                + "\nRestart the process before you rely on what is named here.",
                patch=getattr(self._reason, "patch", None),
                stranded=lines,
                exceptions=[failure.error for failure in failures],
            ) from self._reason
        if interrupt is not None and isinstance(self._reason, Exception):
            raise interrupt from self._reason

    def _take_out(self) -> None:
        assert self._reason is not None
        if not self._is_recorded:
            self._recorder.failed(self._current, self._reason)
            self._is_recorded = True
        while self.begun:
            installation = self.begun[-1]
            self._failures[installation] = failures = installation.undo()
            self._recorder.rolled_back_step(installation, [str(failure) for failure in failures])
            self.begun.pop()
        self._recorder.rolled_back(self._lines())

    def _lines(self) -> list[str]:
        return [f"{who.name}: {failure}" for who, failures in self._failures.items() for failure in failures]

    def _install(self, installation: Installation) -> None:
        try:
            with stopwatch() as duration:
                installation.install()
        except _NOT_APPLICABLE as error:
            if installation.step.entry.required or installation.undo():
                raise
            self.begun.remove(installation)
            self._left_out[installation.step.label] = str(error)
            self._recorder.skipped(installation.name, installation.step.entry.on, str(error))
        else:
            self._recorder.installed(installation, duration[0])


def _accepted(
    plan: Plan,
    model: object,
    resources: Mapping[str, object],
    recorder: Recorder,
    findings: Findings,
    left_out: dict[str, str],
) -> list[Installation]:
    """Let policy and every patch refuse before any is installed."""
    try:
        recorder.verdicts()
        plan.raise_refused()
        _warn(plan)
        _require_known(plan, resources)
        return _checked(plan, model, resources, recorder, findings, left_out)
    except BaseException as error:
        recorder.refused(error)
        raise


def _checked(
    plan: Plan,
    model: object,
    resources: Mapping[str, object],
    recorder: Recorder,
    findings: Findings,
    left_out: dict[str, str],
) -> list[Installation]:
    accepted = []
    for step in plan.installing:
        try:
            installation = Installation(step, _context(step, model, resources, findings))
            installation.check()
        except _NOT_APPLICABLE as error:
            if step.entry.required:
                raise
            left_out[step.label] = str(error)
            recorder.skipped(step.patch.name, step.entry.on, str(error))
        else:
            accepted.append(installation)
    return accepted


def _require_known(plan: Plan, resources: Mapping[str, object]) -> None:
    """Refuse resources that no selected patch takes: a name that is misspelt must not go unnoticed."""
    taken = sorted({name for step in plan.steps for name in step.patch.resources} - {"model"})
    strange = [name for name in resources if name not in taken]
    # A patch that isn't known here may have taken it.
    if strange and not plan.absent:
        near = difflib.get_close_matches(strange[0], taken, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ResourceError(
            f"expected resources that the selected patches take ({', '.join(taken) or 'none but a model'}), found "
            f"{', '.join(map(repr, strange))}.{hint}"
        )


def _context(step: Step, model: object, resources: Mapping[str, object], findings: Findings) -> Context:
    given = dict(resources)
    if step.entry.on is not None and "model" not in step.patch.resources:
        raise ResourceError(
            f"{step.label}: expected a patch that is given a model, since the manifest says on = {step.entry.on!r}; "
            "found one that acts for the whole process. Take 'on' out of the entry, or write the patch with "
            'resources = ("model",).',
            patch=step.patch.name,
        )
    if model is not None or step.entry.on is not None:
        given["model"] = _selected(step, model)
    missing = [name for name in step.patch.resources if given.get(name) is None]
    if missing:
        name = missing[0]
        remedy = "patchkit.apply(manifest, model)" if name == "model" else f"patchkit.apply(manifest, model, {name}=…)"
        raise ResourceError(
            f"{step.label}: expected the resource {name!r}, which was not given. Pass it: {remedy}.",
            patch=step.patch.name,
        )
    wanted = {name: given[name] for name in step.patch.resources}
    return Context(step.patch, step.options, resources=wanted, modules=step.entry.modules, findings=findings)


def _selected(step: Step, model: object) -> object:
    on = step.entry.on
    if isinstance(model, Mapping):
        if on is None and len(model) == 1:
            return next(iter(model.values()))
        if on in model:
            return model[on]
        if on is None and "model" not in step.patch.resources:
            return None
        names = ", ".join(map(repr, model)) or "none"
        found = f"on = {on!r}" if on is not None else "no 'on'"
        raise ResourceError(
            f"{step.label}: expected the manifest entry to select one of the models given ({names}), found {found}. "
            "Add or correct 'on' in the entry.",
            patch=step.patch.name,
        )
    if on is not None:
        found = "no model" if model is None else f"a single {type(model).__qualname__}"
        raise ResourceError(
            f"{step.label}: expected a mapping of names to models with the key {on!r}, found {found}. Pass "
            f"patchkit.apply(manifest, {{{on!r}: model}}).",
            patch=step.patch.name,
        )
    return model


def _warn(plan: Plan) -> None:
    for step in plan.installing:
        if step.reason:
            warn(f"{step.label}: applied by policy although {step.reason}")
