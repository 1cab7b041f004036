"""The command line: a thin face, one file a command. Everything that it does is one call of the library."""

from __future__ import annotations

from ._main import main

__all__ = ["main"]
