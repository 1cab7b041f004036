"""Plain aligned lines: nothing is cut, nothing is wrapped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ._style import Colour, Style, colour_of

__all__ = ["Cell", "aligned"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: What it says.
        colour: In which colour, where colours are wanted.
    """

    text: str
    colour: Colour | None = None

    @classmethod
    def word(cls, text: str) -> Cell:
        """Make a cell of a verdict, an outcome or a level, in its own colour."""
        return cls(text, colour_of(text))


def aligned(rows: Iterable[Sequence[Cell]], style: Style, indent: str = "") -> list[str]:
    """Return a line for each row, its cells in columns.

    Args:
        rows: Rows of equally many cells.
        style: Where the lines are going to.
        indent: What each line starts with.
    """
    listed = list(rows)
    widths = [max(len(cell.text) for cell in column) for column in zip(*listed, strict=True)]
    return [indent + _line(row, widths, style) for row in listed]


def _line(row: Sequence[Cell], widths: Sequence[int], style: Style) -> str:
    shown = len(row)
    while shown and not row[shown - 1].text:
        shown -= 1
    cells = []
    for position, (cell, width) in enumerate(zip(row[:shown], widths, strict=False), start=1):
        padding = "" if position == shown else " " * (width - len(cell.text))
        cells.append(style.paint(cell.text, cell.colour) + padding)
    return "  ".join(cells)
