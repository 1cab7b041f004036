"""From plans and contracts to a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from .. import registry
from .._plan import Plan, Step, judge_installed, stance
from ..contract import Judgement, Verdict
from ..errors import RefusedError, RegistrationError, VerifyError
from ..manifest import Place, Policy
from ..patch import Patch
from ._model import Finding, Level, Outcome, PatchResult, Report

if TYPE_CHECKING:
    from .._probe import ProbeResult

__all__ = ["pass_over_absent", "report_on_known", "report_on_plans", "with_probe"]

_LEVELS = {Outcome.PROBLEM: Level.PROBLEM, Outcome.WARNING: Level.WARNING}
_NOWHERE = Place(None, None, "")


def report_on_plans(command: str, plans: Iterable[Plan]) -> Report:
    """Report on the patches that manifests select; their policies decide what is a problem.

    Args:
        command: The command that is to be answered.
        plans: The plan of each manifest.
    """
    listed = list(plans)
    patches = [patch for plan in listed for patch in _of_plan(plan)]
    return Report(command, tuple(patches), tuple(plan.manifest.path or "<mapping>" for plan in listed))


def report_on_known(command: str, names: Iterable[str]) -> Report:
    """Report on patches by themselves, under the default policy.

    One that can't be loaded is a finding like any other: the rest is reported all the same.

    Args:
        command: The command that is to be answered.
        names: Names of registered patches.
    """
    return Report(command, tuple(_of_name(name) for name in names))


def pass_over_absent(report: Report) -> Report:
    """Skip the patches for libraries that aren't installed, which nobody has asked for by name."""
    return replace(report, patches=tuple(_passed_over(patch) for patch in report.patches))


def _passed_over(result: PatchResult) -> PatchResult:
    judgement = result.judgement
    absent = [version.distribution for version in judgement.versions if version.raw is None] if judgement else []
    if judgement is None or not absent or judgement.verdict is not Verdict.UNKNOWN:
        return result
    reason = f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed"
    return replace(result, outcome=Outcome.SKIPPED, reason=reason, findings=())


def with_probe(result: PatchResult, probe: ProbeResult) -> PatchResult:
    """Add to a patch what its own check came to; a check that failed is a problem, whatever the policy.

    Args:
        result: The patch.
        probe: What its probe came to.
    """
    if probe.status == "failed":
        finding = _of_probe(result, probe, Level.PROBLEM, VerifyError.code, "the effect of the patch in a live process")
        return replace(result, outcome=Outcome.PROBLEM, probe=probe, findings=(*result.findings, finding))
    if probe.status == "refused":
        finding = _of_probe(result, probe, Level.WARNING, RefusedError.code, "a place where the patch can be tried")
        outcome = Outcome.WARNING if result.outcome is Outcome.FITS else result.outcome
        return replace(result, outcome=outcome, probe=probe, findings=(*result.findings, finding))
    return replace(result, probe=probe)


def _of_plan(plan: Plan) -> Iterator[PatchResult]:
    refused = {id(step) for step in plan.refused}
    order = {id(step): position for position, step in enumerate(plan.installing, start=1)}
    for step in plan.steps:
        outcome = Outcome.PROBLEM if id(step) in refused else _outcome(step)
        yield _result(
            step.patch,
            outcome,
            step.judgement,
            on=step.entry.on,
            reason=step.reason,
            order=order.get(id(step)),
            place=plan.manifest.place(step.entry, "name"),
        )
    for entry in plan.absent:
        place = plan.manifest.place(entry, "name")
        reason = "no patch of that name is registered, and the manifest doesn't require it"
        yield PatchResult(entry.name, Outcome.SKIPPED, on=entry.on, reason=reason, file=place.file, line=place.line)


def _outcome(step: Step) -> Outcome:
    if step.outcome == "disabled":
        return Outcome.DISABLED
    if step.outcome == "skip":
        return Outcome.SKIPPED
    fits = step.judgement is None or step.judgement.verdict is Verdict.OK
    return Outcome.FITS if fits else Outcome.WARNING


def _of_name(name: str) -> PatchResult:
    try:
        patch = registry.find(name)
        judgement = judge_installed(patch)
    except RegistrationError as error:
        expected = "a patch that can be loaded"
        finding = Finding(Level.PROBLEM, error.code, name, "declaration", "wrong", expected, error.message)
        return PatchResult(name, Outcome.PROBLEM, reason=error.message, findings=(finding,))
    outcomes = {"accept": Outcome.FITS, "warn": Outcome.WARNING}
    return _result(patch, outcomes.get(stance(judgement, Policy()), Outcome.PROBLEM), judgement)


def _result(
    patch: Patch,
    outcome: Outcome,
    judgement: Judgement | None,
    *,
    on: str | None = None,
    reason: str = "",
    order: int | None = None,
    place: Place = _NOWHERE,
) -> PatchResult:
    findings = (
        [
            Finding(
                level=_level(outcome, found.verdict, judgement.verdict),
                code=found.verdict.code,
                patch=patch.name,
                subject=found.symbol or "library",
                kind=found.verdict.value,
                expected=found.expected,
                found=found.found,
                where=found.where,
                on=on,
                file=place.file,
                line=place.line,
            )
            for found in judgement.findings
        ]
        if judgement
        else []
    )
    return PatchResult(
        patch.name,
        outcome,
        on=on,
        summary=patch.summary,
        reason=reason or (judgement.one_line() if judgement else ""),
        order=order,
        file=place.file,
        line=place.line,
        judgement=judgement,
        symbols=tuple(symbol.path for symbol in patch.contract.symbols),
        findings=tuple(findings),
    )


def _of_probe(result: PatchResult, probe: ProbeResult, level: Level, code: str, expected: str) -> Finding:
    return Finding(
        level=level,
        code=code,
        patch=result.name,
        subject="probe",
        kind=probe.status,
        expected=expected,
        found=probe.error,
        on=result.on,
        file=result.file,
        line=result.line,
    )


def _level(outcome: Outcome, found: Verdict, deciding: Verdict) -> Level:
    # That upstream has made a patch unnecessary is nothing against it, whatever else is.
    if outcome is Outcome.PROBLEM and found is Verdict.RETIRED and deciding is not Verdict.RETIRED:
        return Level.WARNING
    return _LEVELS.get(outcome, Level.NOTE)
