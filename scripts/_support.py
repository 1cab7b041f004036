"""What is known of each release: ``docs/support.json``, and ``docs/support.md``, which is made from it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
FACTS = ROOT / "docs" / "support.json"
PAGE = ROOT / "docs" / "support.md"

INTRODUCTION = """\
# Which release of torch, which patch

Made by `scripts/support-matrix`, which installs one patch release of every minor release of torch from 2.1 on, one
after the other, and runs `python -m patchkit verify --probe` in each: every patch's contract is judged, and its effect
is proven in real processes, stock against patched. The same facts as JSON: [support.json](support.json).

- **proven**: the contract fits, the probe passed
- **changed**: the probe passed, on a body that the contract does not know yet: refused unless `on_changed = "warn"`
- **refused**: the contract does not fit, or the patch can't be tried there; nothing is touched
- **failed**: the probe ran and the effect, or parity with stock FSDP1, was not there
"""


def load() -> dict[str, Any]:
    """Return what is known, by the label of the release and the device."""
    if not FACTS.exists():
        return {}
    facts: dict[str, Any] = json.loads(FACTS.read_text(encoding="utf-8"))
    return facts


def note(label: str, date: str, report: Mapping[str, Any]) -> None:
    """Add what ``patchkit verify --probe --format json`` said, and write both files."""
    facts = load()
    facts[label] = {
        "date": date,
        "patches": {patch["name"]: _fact(patch, report["findings"]) for patch in report["patches"]},
    }
    ordered = {key: facts[key] for key in sorted(facts, key=_order)}
    _write(FACTS, json.dumps(ordered, indent=1, sort_keys=False) + "\n")
    _write(PAGE, page(ordered))


def page(facts: Mapping[str, Any]) -> str:
    """Return the page for these facts."""
    return "\n".join([INTRODUCTION, *_matrix(facts), "", "## Measured", "", *_measures(facts), *_reasons(facts)])


def _fact(patch: Mapping[str, Any], findings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    probe = patch.get("probe") or {}
    verdict = patch["verdict"]
    status = {"proven": "proven" if verdict in ("ok", "retired") else "changed", "failed": "failed"}.get(
        probe.get("status", ""), "refused"
    )
    fact: dict[str, Any] = {"status": status, "verdict": verdict}
    if probe.get("measured"):
        fact["measured"] = probe["measured"]
    if status in ("refused", "failed"):
        problems = [finding["message"] for finding in findings if finding["patch"] == patch["name"]]
        fact["reason"] = _plain(probe.get("error") or next(iter(problems), ""))
    return fact


def _plain(reason: str) -> str:
    # The first line says it; folders of whoever ran this are nobody else's business.
    lines = [re.sub(r"^rank \d+: ", "", line.strip()) for line in reason.strip().splitlines() if line.strip()]
    return re.sub(r"(/[\w.+~-]+)+/(?=[\w.-]+)", "…/", lines[0])[:300] if lines else ""


def _matrix(facts: Mapping[str, Any]) -> Iterator[str]:
    names = sorted({name for fact in facts.values() for name in fact["patches"]})
    yield f"| torch | {' | '.join(f'`{name}`' for name in names)} | date |"
    yield f"| --- |{' --- |' * len(names)} --- |"
    for label, fact in facts.items():
        cells = [fact["patches"].get(name, {}).get("status", "") for name in names]
        yield f"| {label} | {' | '.join(cells)} | {fact['date']} |"


def _measures(facts: Mapping[str, Any]) -> Iterator[str]:
    yield "What the probes measured; figures are bytes on one rank unless their names say otherwise."
    yield ""
    yield "| patch | torch | device | measured |"
    yield "| --- | --- | --- | --- |"
    groups: dict[tuple[str, str, str], list[str]] = {}
    for label, fact in facts.items():
        for name, patch in sorted(fact["patches"].items()):
            figures = dict(patch.get("measured", {}))
            if figures:
                device = str(figures.pop("device", ""))
                shown = ", ".join(f"{key} {_number(value)}" for key, value in figures.items())
                groups.setdefault((name, device, shown), []).append(label)
    for (name, device, shown), labels in sorted(groups.items()):
        yield f"| `{name}` | {', '.join(labels)} | {device} | {shown} |"


def _reasons(facts: Mapping[str, Any]) -> Iterator[str]:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for label, fact in facts.items():
        for name, patch in sorted(fact["patches"].items()):
            if patch["status"] in ("refused", "failed"):
                groups.setdefault((label, patch["status"], patch.get("reason", "")), []).append(f"`{name}`")
    if groups:
        yield from ["", "## Not proven, and why", "", "| torch | | patches | reason |", "| --- | --- | --- | --- |"]
        for (label, status, reason), names in groups.items():
            yield f"| {label} | {status} | {', '.join(names)} | {reason.replace('|', chr(92) + '|')} |"
    yield ""


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if isinstance(value, float) else str(value)


def _order(label: str) -> tuple[Version, str]:
    return Version(label.split(maxsplit=1)[0]), label


def _write(path: Path, text: str) -> None:
    draft = path.with_name(path.name + ".new")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)
