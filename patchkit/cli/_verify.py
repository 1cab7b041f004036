"""``verify``: contracts against the installed libraries, and the patches' own checks if asked for."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import PatchkitError
from ._command import Command
from ._console import Console
from ._reporting import show

if TYPE_CHECKING:
    from .._plan import Plan
    from .._probe import ProbeResult
    from ..report import PatchResult, Report

__all__ = ["COMMAND"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the manifests and what may be done with them."""
    parser.add_argument(
        "manifests", metavar="MANIFEST", nargs="*", help="TOML files that select patches (default: every known patch)"
    )
    parser.add_argument(
        "--probe",
        action="store_true",
        help="also run each patch's own check of its effect, in processes of its own; this imports the library",
    )
    parser.add_argument(
        "--allow-empty", action="store_true", help="exit with 0 instead of 2 where there is nothing to verify"
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Verify; 1 if policy refuses something, 2 if there is nothing to verify."""
    from ..report import Level

    report = _judge(arguments.manifests, console)
    if report is None:
        return 2
    if arguments.probe:
        report = _probe(report, console)
    show(report, console)
    if not report.judged and not arguments.allow_empty:
        console.error(_nothing(report))
        return 2
    return 1 if report.count(Level.PROBLEM) else 0


def _judge(manifests: list[str], console: Console) -> Report | None:
    """Judge what the manifests select, or every known patch; None if a manifest is wrong, and that is said."""
    from ..report import pass_over_absent, report_on_known, report_on_plans

    if not manifests:
        from .. import registry

        for line in registry.undeclared():
            console.error(line)
        return pass_over_absent(report_on_known("verify", registry.known_names()))
    plans = [_plan(manifest, console) for manifest in manifests]
    made = [plan for plan in plans if plan is not None]
    return report_on_plans("verify", made) if len(made) == len(plans) else None


def _plan(manifest: str, console: Console) -> Plan | None:
    from .._api import plan

    try:
        return plan(manifest)
    except PatchkitError as error:
        # The faults of the other manifests are wanted too.
        console.error(error)
        return None


def _probe(report: Report, console: Console) -> Report:
    """Run the probes of the patches that could be installed, each once, however many entries select it."""
    from .. import registry
    from .._probe import run_probe
    from ..report import with_probe

    results: dict[str, ProbeResult] = {}
    patches = []
    for result in report.patches:
        if not _can_be_tried(result):
            patches.append(result)
            continue
        if result.name not in results:
            patch = registry.find(result.name)
            if patch.probe is not None:
                processes = "1 process" if patch.probe.ranks == 1 else f"{patch.probe.ranks} processes"
                console.note(f"probing {result.name} in {processes} ...")
            results[result.name] = run_probe(patch)
        patches.append(with_probe(result, results[result.name]))
    return replace(report, patches=tuple(patches))


def _can_be_tried(result: PatchResult) -> bool:
    """Say whether a probe could tell more than that the library isn't there, or lacks what the patch touches."""
    from ..contract import Verdict
    from ..report import Outcome

    judgement = result.judgement
    if judgement is None or result.outcome in (Outcome.SKIPPED, Outcome.DISABLED):
        return False
    return judgement.verdict is not Verdict.BROKEN and all(found.raw is not None for found in judgement.versions)


def _nothing(report: Report) -> str:
    found = f"{len(report.patches)} that are skipped or disabled" if report.patches else "none"
    return (
        f"nothing to verify: expected at least one patch to judge, found {found}; "
        "pass --allow-empty where that is right"
    )


COMMAND = Command(
    name="verify",
    summary="judge contracts against the installed libraries, without importing them",
    usage="[--probe] [--allow-empty] [MANIFEST ...]",
    examples="""\
python -m patchkit verify                              every known patch
python -m patchkit verify manifests/lowmem.toml        those that it selects, under its policy
python -m patchkit verify --probe manifests/*.toml     and what they do in real processes
python -m patchkit verify --format json -o verify.json manifests/lowmem.toml
""",
    run=run,
    configure=configure,
    reports=True,
)
