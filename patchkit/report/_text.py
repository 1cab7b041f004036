"""The format ``text``: for people, ``grep`` and ``cut``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..audit import printable
from ._model import Finding, Level, Outcome, PatchResult, Report
from ._style import Colour, Style, colour_of
from ._table import Cell, aligned

__all__ = ["finding_lines", "render"]


def render(report: Report, style: Style) -> str:
    """Return a table of the patches, and a line for each finding that somebody should look at.

    Args:
        report: The report.
        style: Where it is going to; if quiet, a verification shows findings only.
    """
    row = _ROWS[report.command]
    only_findings = style.quiet and report.command == "verify"
    table = [] if only_findings else aligned((row(patch, report) for patch in report.patches), style)
    shown = [finding for finding in report.findings if finding.level is not Level.NOTE and report.command != "list"]
    lines = [line for finding in shown for line in finding_lines(finding, style)]
    if table and lines:
        table.append("")
    return "".join(f"{line}\n" for line in [*table, *lines])


def finding_lines(finding: Finding, style: Style) -> list[str]:
    """Return a finding in one line that starts with its place, as compilers and linters write it.

    What a probe printed before it failed follows, indented.
    """
    place = (
        "" if finding.file is None else printable(finding.file) + (f":{finding.line}" if finding.line else "") + ": "
    )
    label = f"{finding.patch} on {finding.on}" if finding.on else finding.patch
    code = style.paint(finding.code, colour_of(finding.level.value))
    accepted = " [warning]" if finding.level is Level.WARNING else ""
    first, *more = finding.message.splitlines()
    line = f"{place}{code} {style.paint(printable(label), Colour.STRONG)}: {printable(first)}{accepted}"
    return [line, *(f"    {printable(text)}" for text in more)]


def _list_row(patch: PatchResult, report: Report) -> Sequence[Cell]:
    return _verdict(patch), _label(patch), Cell(_one_line(patch.summary or patch.reason))


def _plan_row(patch: PatchResult, report: Report) -> Sequence[Cell]:
    action = {Outcome.SKIPPED: "skip", Outcome.DISABLED: "disabled", Outcome.PROBLEM: "refuse"}
    position = Cell(f"{patch.order}." if patch.order else "-")
    verdict = Cell.word(patch.judgement.verdict.value if patch.judgement else "-")
    return position, Cell.word(action.get(patch.outcome, "install")), _label(patch), verdict, _reason(patch)


def _verify_row(patch: PatchResult, report: Report) -> Sequence[Cell]:
    cells = [_verdict(patch), _label(patch)]
    if len(report.manifests) > 1:
        line = f":{patch.line}" if patch.line else ""
        cells.append(Cell(f"{printable(patch.file or '')}{line}", Colour.FAINT))
    return *cells, _reason(patch)


_ROWS: dict[str, Callable[[PatchResult, Report], Sequence[Cell]]] = {
    "list": _list_row,
    "plan": _plan_row,
    "verify": _verify_row,
}


def _verdict(patch: PatchResult) -> Cell:
    if patch.outcome in (Outcome.SKIPPED, Outcome.DISABLED):
        return Cell.word(patch.outcome.value)
    if patch.probe is not None and patch.probe.status == "failed":
        return Cell.word("failed")
    return Cell.word(patch.judgement.verdict.value if patch.judgement else "error")


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def _label(patch: PatchResult) -> Cell:
    return Cell(printable(patch.label))


def _reason(patch: PatchResult) -> Cell:
    return Cell("; ".join(_reasons(patch)))


def _reasons(patch: PatchResult) -> Iterator[str]:
    below = sum(finding.level is not Level.NOTE for finding in patch.findings)
    if below:
        yield f"{below} finding{'s' if below > 1 else ''} below"
    elif patch.reason:
        left_out_for = f"{patch.judgement.verdict.value}: " if patch.judgement and patch.findings else ""
        yield left_out_for + _one_line(patch.reason)
    if patch.probe is not None:
        yield f"probe: {patch.probe.status}" if patch.probe.status != "none" else "it has no probe"
