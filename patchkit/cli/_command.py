"""What a command of the command line consists of."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from ._console import Console

__all__ = ["Command", "nothing_more"]


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes:
        name: Its name on the command line.
        summary: What it does, in one line.
        usage: Its arguments beside the options that every command has.
        examples: Lines for the end of its help.
        run: Does it; takes the parsed arguments and returns the exit code.
        configure: Adds its own arguments to its parser.
        reports: Whether it makes a report, so that every format of reports goes; otherwise text and json do.
    """

    name: str
    summary: str
    usage: str
    examples: str
    run: Callable[[argparse.Namespace, Console], int]
    configure: Callable[[argparse.ArgumentParser], None]
    reports: bool = False


def nothing_more(parser: argparse.ArgumentParser) -> None:
    """Add no arguments: the command has the common options only."""
