"""Whether to write in colours."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["WISHES", "wants_colour"]

WISHES = ("auto", "always", "never")


def wants_colour(wish: str, environ: Mapping[str, str], *, terminal: bool) -> bool:
    """Decide: the flag, then ``NO_COLOR``, then ``FORCE_COLOR``, then whether a terminal shows it.

    Args:
        wish: What the flag says, one of ``WISHES``.
        environ: The environment; a variable that is empty counts as not set.
        terminal: Whether the text goes to a terminal.
    """
    if wish != "auto":
        return wish == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return terminal and environ.get("TERM") != "dumb"
