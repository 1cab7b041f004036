"""Warnings that point at the caller's own line, however deep in patchkit they are found."""

from __future__ import annotations

import sys
import warnings

from .errors import PatchkitWarning

__all__ = ["warn"]


def warn(message: str) -> None:
    """Warn whoever called patchkit."""
    level = 2
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "patchkit":
        frame = frame.f_back
        level += 1
    warnings.warn(message, PatchkitWarning, stacklevel=level)
