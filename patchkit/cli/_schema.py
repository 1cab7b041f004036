"""``schema``: the JSON Schema of manifests."""

from __future__ import annotations

import argparse

from ._command import Command, nothing_more
from ._console import Console

__all__ = ["COMMAND"]


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Show the schema, which is JSON whatever the format."""
    import json

    from ..manifest import manifest_schema

    console.report(json.dumps(manifest_schema(), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return 0


COMMAND = Command(
    name="schema",
    summary="print the JSON Schema of manifests, for editors and checkers",
    usage="",
    examples="""\
python -m patchkit schema -o manifests/manifest.schema.json
""",
    run=run,
    configure=nothing_more,
)
