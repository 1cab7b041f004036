"""``list``: every known patch, one line each, with its verdict here."""

from __future__ import annotations

import argparse

from ._command import Command, nothing_more
from ._console import Console
from ._reporting import show

__all__ = ["COMMAND"]


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Show the patches. What the verdicts are makes no difference; what can't be read or loaded does."""
    from .. import registry
    from ..report import report_on_known

    report = report_on_known("list", registry.known_names())
    show(report, console)
    for line in registry.undeclared():
        console.error(line)
    return 1 if registry.undeclared() or any(patch.judgement is None for patch in report.patches) else 0


COMMAND = Command(
    name="list",
    summary="list the known patches, with the verdict of each on the installed libraries",
    usage="",
    examples="""\
python -m patchkit list
python -m patchkit list --format json | jq -r '.patches[] | select(.verdict != "ok") | .name'
""",
    run=run,
    configure=nothing_more,
    reports=True,
)
