"""The last word of a report, in one line for people; it goes to stderr whatever the format of the report is."""

from __future__ import annotations

from collections import Counter

from ._model import Level, Outcome, Report

__all__ = ["summarise"]


def summarise(report: Report) -> str:
    """Return one line that says what the report came to."""
    return {"list": _listed, "plan": _planned, "verify": _verified}[report.command](report)


def _listed(report: Report) -> str:
    verdicts = Counter(patch.judgement.verdict.value if patch.judgement else "error" for patch in report.patches)
    shares = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    return f"{_patches(len(report.patches))}{f' ({shares})' if shares else ''}."


def _planned(report: Report) -> str:
    refused = report.count(Outcome.PROBLEM)
    left_out = report.count(Outcome.SKIPPED) + report.count(Outcome.DISABLED)
    if refused:
        return f"The contracts of {refused} of {_patches(len(report.patches))} are refused: nothing would be installed."
    out = f", and leave out {left_out}" if left_out else ""
    return f"Would install {_patches(len(report.patches) - left_out)}{out}. Nothing was done."


def _verified(report: Report) -> str:
    judged, problems = len(report.judged), report.count(Level.PROBLEM)
    if problems:
        return f"Found {problems} problem{_s(problems)} in {_patches(judged)}{_asides(report)}."
    if not judged:
        return f"Nothing was verified{_asides(report)}."
    looked_at = [f"{found.distribution} {found.normalised or found.raw}" for found in report.libraries if found.raw]
    looked_at.append(f"{len(report.symbols)} symbol{_s(len(report.symbols))}")
    all_of_them = f"All {_patches(judged)}" if judged > 1 else _patches(judged)
    proven = sum(patch.probe is not None and patch.probe.status == "proven" for patch in report.patches)
    tried = f", {proven} proven by probe" if any(patch.probe for patch in report.patches) else ""
    return f"{all_of_them} verified ({', '.join(looked_at)}{tried}){_asides(report)}."


def _asides(report: Report) -> str:
    warnings = report.count(Level.WARNING)
    counts = [
        (warnings, f"warning{_s(warnings)}"),
        (report.count(Outcome.SKIPPED), "skipped"),
        (report.count(Outcome.DISABLED), "disabled"),
    ]
    said = ", ".join(f"{count} {what}" for count, what in counts if count)
    return f"; {said}" if said else ""


def _patches(count: int) -> str:
    return f"{count} patch{'es' if count != 1 else ''}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
