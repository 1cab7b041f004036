"""Text from a log, made safe for a terminal."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    r"""Return `text` with everything that isn't plainly visible written as an escape.

    Terminal escapes, line breaks, tabs, NULs, bidirectional controls, zero-width characters and lone
    surrogates become ``\x1b``, ``\n``, ``\u202e`` and the like; the result is one line that can neither move
    the cursor nor hide a part of itself. Visible characters of any script, and the space, stay.

    Args:
        text: Any text, also from a hostile file.

    Returns:
        The same text on one line, without control characters.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
