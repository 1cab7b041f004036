"""``plan``: what ``apply`` would do, and in what order; nothing is done."""

from __future__ import annotations

import argparse

from ._command import Command
from ._console import Console
from ._reporting import show

__all__ = ["COMMAND"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the manifest."""
    parser.add_argument("manifest", metavar="MANIFEST", help="TOML file that selects patches")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Show the plan; 1 if policy refuses a step of it."""
    from .._api import plan
    from ..report import report_on_plans

    made = plan(arguments.manifest)
    show(report_on_plans("plan", [made]), console)
    return 1 if made.refused else 0


COMMAND = Command(
    name="plan",
    summary="show what apply would do with a manifest, in what order, and why not; nothing is done",
    usage="MANIFEST",
    examples="""\
python -m patchkit plan manifests/lowmem.toml
PATCHKIT_DISABLE='fsdp1.drop-*' python -m patchkit plan manifests/lowmem.toml
""",
    run=run,
    configure=configure,
    reports=True,
)
