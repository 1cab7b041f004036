"""How text may look where it is going to be read."""

from __future__ import annotations

import enum
import textwrap
from dataclasses import dataclass

__all__ = ["Colour", "Style", "colour_of"]


class Colour(enum.Enum):
    """What a colour stands for; the values are the codes of ANSI terminals."""

    GOOD = "32"
    DOUBTFUL = "33"
    BAD = "31"
    FAINT = "2"
    STRONG = "1"


# Verdicts, outcomes and levels by the words that are shown for them.
_COLOURS = {
    "ok": Colour.GOOD,
    "fits": Colour.GOOD,
    "install": Colour.GOOD,
    "proven": Colour.GOOD,
    "committed": Colour.GOOD,
    "completed": Colour.GOOD,
    "changed": Colour.DOUBTFUL,
    "retired": Colour.DOUBTFUL,
    "unknown": Colour.DOUBTFUL,
    "warning": Colour.DOUBTFUL,
    "open": Colour.DOUBTFUL,
    "broken": Colour.BAD,
    "excluded": Colour.BAD,
    "problem": Colour.BAD,
    "refuse": Colour.BAD,
    "failed": Colour.BAD,
    "refused": Colour.BAD,
    "rolled_back": Colour.BAD,
    "error": Colour.BAD,
    "skip": Colour.FAINT,
    "skipped": Colour.FAINT,
    "disabled": Colour.FAINT,
}


def colour_of(word: str) -> Colour | None:
    """Return the colour of a verdict, an outcome or a level, or None for any other word."""
    return _COLOURS.get(word)


@dataclass(frozen=True, slots=True)
class Style:
    """Where text is going to.

    Attributes:
        colour: Whether colours are wanted.
        width: Columns of the terminal; None where it isn't one, and then prose is not wrapped either.
        quiet: Whether as little as possible is wanted.
    """

    colour: bool = False
    width: int | None = None
    quiet: bool = False

    def paint(self, text: str, colour: Colour | None) -> str:
        """Return ``text`` in a colour, if colours are wanted."""
        if not self.colour or colour is None or not text:
            return text
        return f"\x1b[{colour.value}m{text}\x1b[0m"

    def prose(self, text: str, indent: str = "") -> str:
        """Return a paragraph, wrapped for a terminal; elsewhere it is one line, so that it can be searched."""
        text = " ".join(text.split())
        if self.width is None:
            return indent + text
        return textwrap.fill(
            text,
            max(self.width, 40),
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
