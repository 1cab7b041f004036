"""Where a command's report, its progress and its errors go."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import TextIO

from ..errors import PatchkitError
from ._colour import wants_colour
from ._output import is_terminal, write_file, write_stream

__all__ = ["Console", "Settings", "UnwritableError"]


class UnwritableError(Exception):
    """The report can't be written where it should go; the text is the message."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the options say that every command has.

    Attributes:
        format: Name of the format of the report.
        colour: Whether colours are wished for: ``auto``, ``always`` or ``never``.
        quiet: Whether only what doesn't fit is shown.
        output: File for the report; None for stdout.
    """

    format: str = "text"
    colour: str = "auto"
    quiet: bool = False
    output: str | None = None


class Console:
    """Report on stdout or in a file; progress, summary and errors on stderr.

    Args:
        settings: What the options say.
        stdout: Where the report goes unless into a file; what else is printed meanwhile must not come between.
    """

    def __init__(self, settings: Settings, stdout: TextIO | None) -> None:
        self.settings = settings
        self._stdout = stdout
        self._to_file = settings.output not in (None, "-")

    @property
    def colour(self) -> bool:
        """Whether the report may have colours."""
        if self._to_file:
            return self.settings.colour == "always"
        return wants_colour(self.settings.colour, os.environ, terminal=is_terminal(self._stdout))

    @property
    def width(self) -> int | None:
        """Columns of the terminal that shows the report; None where there is none."""
        return None if self._to_file or not is_terminal(self._stdout) else shutil.get_terminal_size().columns

    def report(self, text: str) -> None:
        """Write the report, all at once.

        Raises:
            UnwritableError: It can't be written.
        """
        output = self.settings.output
        try:
            if output is None or output == "-":
                write_stream(self._stdout, text)
            else:
                write_file(output, text)
        except OSError as error:
            place = output if self._to_file else "stdout"
            raise UnwritableError(f"can't write the report to {place}: {error.strerror or error}") from error

    def note(self, text: str) -> None:
        """Say how it goes, or what it came to; quiet leaves it out."""
        if not self.settings.quiet:
            self._complain(text)

    def error(self, error: PatchkitError | str) -> None:
        """Say what went wrong: the message alone, after its code where it has one."""
        if isinstance(error, str):
            self._complain(f"{self._red('error')}: {error}")
            return
        from ..audit import printable

        faults = getattr(error, "faults", ())
        for fault in faults:
            self.error(fault)
        if faults:
            return
        for line in error.message.splitlines():
            # What is indented belongs to the line before it.
            head = "" if line.startswith(" ") else f"{self._red(f'error[{error.code}]')}: "
            self._complain(head + printable(line))

    def warning(self, message: Warning | str, *_: object) -> None:
        """Say what somebody should look at; stands in for ``warnings.showwarning``."""
        from ..audit import printable

        self._complain(f"warning: {printable(str(message))}")

    def _complain(self, text: str) -> None:
        # Nobody is left to be told that stderr can't be written.
        try:
            write_stream(sys.stderr, f"{text}\n")
        except OSError:
            pass

    def _red(self, text: str) -> str:
        colour = wants_colour(self.settings.colour, os.environ, terminal=is_terminal(sys.stderr))
        return f"\x1b[31m{text}\x1b[0m" if colour else text
