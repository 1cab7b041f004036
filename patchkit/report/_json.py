"""The format ``json``: one object, stable within its ``schema_version``; docs/cli.md describes it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ._model import Finding, Level, Outcome, PatchResult, Report
from ._style import Style

__all__ = ["SCHEMA_VERSION", "document", "finding_facts", "patch_facts", "render", "summary_facts", "tool_version"]

SCHEMA_VERSION = 1
"""Version of the form; it rises when a member changes its meaning or goes, not when one is added."""


def render(report: Report, style: Style) -> str:
    """Return the report as a JSON object; ``style`` changes nothing of it."""
    return document(
        report.command,
        summary=summary_facts(report),
        findings=[finding_facts(finding) for finding in report.findings],
        patches=[patch_facts(patch) for patch in report.patches],
    )


def document(command: str, **members: Any) -> str:
    """Return a JSON object that starts with what each of them starts with.

    Args:
        command: The command that it is the answer of.
        members: What the command says.
    """
    head = {"schema_version": SCHEMA_VERSION, "tool": {"name": "patchkit", "version": tool_version()}}
    # Escapes for everything outside ASCII: no terminal and no encoding can make anything else of it.
    content = _strict({**head, "command": command, **members})
    return json.dumps(content, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _strict(value: Any) -> Any:
    """Return ``value`` in what JSON has: numbers that aren't finite, and whatever it can't hold, as text."""
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return repr(value)


def tool_version() -> str | None:
    """Return the version of patchkit, or None where it runs without being installed, or from broken metadata."""
    try:
        return version("patchkit")
    except (PackageNotFoundError, ValueError):
        return None


def patch_facts(patch: PatchResult) -> dict[str, Any]:
    """Return what a report says of one patch."""
    judgement = patch.judgement
    return {
        "name": patch.name,
        "on": patch.on,
        "against": patch.against or None,
        "summary": patch.summary or None,
        "outcome": patch.outcome.value,
        "order": patch.order,
        "reason": patch.reason or None,
        "file": patch.file,
        "line": patch.line,
        "verdict": judgement.verdict.value if judgement else None,
        "code": judgement.verdict.code if judgement else None,
        "libraries": [
            {"distribution": found.distribution, "version": found.raw, "normalised": found.normalised}
            for found in (judgement.versions if judgement else ())
        ],
        "probe": _probe(patch),
    }


def _probe(patch: PatchResult) -> Mapping[str, Any] | None:
    if patch.probe is None:
        return None
    return {"status": patch.probe.status, "measured": patch.probe.measured, "error": patch.probe.error or None}


def finding_facts(finding: Finding) -> dict[str, Any]:
    """Return what a report says of one finding."""
    return {
        "level": finding.level.value,
        "code": finding.code,
        "patch": finding.patch,
        "on": finding.on,
        "against": finding.against or None,
        "subject": finding.subject,
        "kind": finding.kind,
        "expected": finding.expected,
        "found": finding.found,
        "where": finding.where or None,
        "file": finding.file,
        "line": finding.line,
        "message": finding.message,
    }


def summary_facts(report: Report) -> dict[str, Any]:
    """Return what a report came to, in numbers."""
    return {
        "manifests": list(report.manifests),
        "patches": len(report.patches),
        "judged": len(report.judged),
        "skipped": report.count(Outcome.SKIPPED),
        "disabled": report.count(Outcome.DISABLED),
        "problems": report.count(Level.PROBLEM),
        "warnings": report.count(Level.WARNING),
        "symbols": len(report.symbols),
        "libraries": {found.distribution: found.raw for found in report.libraries},
    }
