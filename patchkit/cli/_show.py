"""``show``: everything that a patch says about itself, and its verdict here."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ._command import Command
from ._console import Console
from ._reporting import style_of

if TYPE_CHECKING:
    from ..patch import Patch
    from ..report import Report

__all__ = ["COMMAND"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the patch."""
    parser.add_argument("name", metavar="NAME", help="name of a patch; 'python -m patchkit list' shows them")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Show the patch; what its verdict is makes no difference."""
    from .. import registry
    from ..report import report_on_known
    from ._sheet import sheet

    patch = registry.find(arguments.name)
    report = report_on_known("show", [patch.name])
    if console.settings.format == "json":
        console.report(_json(patch, report))
    else:
        console.report(sheet(patch, report.patches[0], style_of(console)))
    return 0


def _json(patch: Patch, report: Report) -> str:
    from ..report import document, finding_facts, patch_facts, summary_facts
    from ._sheet import facts

    return document(
        "show",
        summary=summary_facts(report),
        findings=[finding_facts(finding) for finding in report.findings],
        patches=[{**patch_facts(result), **facts(patch)} for result in report.patches],
    )


COMMAND = Command(
    name="show",
    summary="show what a patch is for, what it needs, its options, and its verdict here",
    usage="NAME",
    examples="""\
python -m patchkit show fsdp1.pageable-params
python -m patchkit show fsdp1.pageable-params --format json | jq '.patches[0].options'
""",
    run=run,
    configure=configure,
)
