"""Showing a report in the format that was asked for, and its summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._console import Console

if TYPE_CHECKING:
    from ..report import Report, Style

__all__ = ["show", "style_of"]


def show(report: Report, console: Console) -> None:
    """Write the report, then say on stderr what it came to."""
    from ..report import FORMATS, summarise

    console.report(FORMATS[console.settings.format](report, style_of(console)))
    console.note(summarise(report))


def style_of(console: Console) -> Style:
    """Return how text may look where the report goes."""
    from ..report import Style

    return Style(colour=console.colour, width=console.width, quiet=console.settings.quiet)
