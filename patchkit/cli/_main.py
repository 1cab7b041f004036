"""From arguments to an exit code; nothing escapes as a traceback."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import warnings
from collections.abc import Sequence
from typing import TextIO

from ..errors import PatchkitError
from ._console import Console, Settings, UnwritableError
from ._output import write_stream
from ._parser import parse

__all__ = ["main"]

TRACEBACK_VARIABLE = "PATCHKIT_TRACEBACK"

_UNFIT, _WRONG, _INTERRUPTED = 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments without the name of the program; those of the process if not given.

    Returns:
        The exit code: 0 everything fits, 1 something doesn't, 2 wrong usage, unreadable input or an internal error,
        130 interrupted.
    """
    if argv is None:
        # A process that ends after one command has nothing to collect, and syntax trees by the hundred thousand to go
        # through for that: collecting would take as long as all the rest.
        gc.disable()
        # In search of plugins, pydantic reads the entry points of all distributions, and fails where one is broken.
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        return _main(sys.argv[1:] if argv is None else argv)
    finally:
        if argv is None:
            gc.freeze()


def _main(argv: Sequence[str]) -> int:
    stdout = sys.stdout
    console = Console(Settings(), stdout)
    try:
        try:
            command, arguments, settings = parse(argv)
        except (SystemExit, OSError) as done:
            # Help may be cut off by a reader that has gone away; argparse doesn't always expect that.
            _flush(stdout, None if isinstance(done, (SystemExit, BrokenPipeError)) else done)
            return int(getattr(done, "code", None) or 0)
        console = Console(settings, stdout)
        # A module of a patch that prints when it is imported must not do so into the report.
        with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = console.warning  # type: ignore[assignment]
            code = command.run(arguments, console)
        return 0 if code == _UNFIT and arguments.exit_zero else code
    except PatchkitError as error:
        console.error(error)
        _show_traceback(console)
        return error.exit_code
    except UnwritableError as error:
        console.error(str(error))
        return _WRONG
    except KeyboardInterrupt:
        console.error("interrupted")
        return _INTERRUPTED
    except (Exception, SystemExit) as error:
        console.error(f"internal error: {type(error).__name__}: {error} (set {TRACEBACK_VARIABLE}=1 to see where)")
        _show_traceback(console)
        return _WRONG


def _flush(stdout: TextIO | None, failure: OSError | None) -> None:
    try:
        write_stream(stdout, "")
        if failure is not None:
            raise failure
    except OSError as error:
        raise UnwritableError(f"can't write to stdout: {error.strerror or error}") from error


def _show_traceback(console: Console) -> None:
    if os.environ.get(TRACEBACK_VARIABLE):
        import traceback

        write_stream(sys.stderr, traceback.format_exc())
