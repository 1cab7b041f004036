"""The arguments of the command line: what they are called, and what they may be."""

from __future__ import annotations

import argparse
import os
import textwrap
from collections.abc import Mapping, Sequence

from ._colour import WISHES
from ._command import Command
from ._console import Settings
from ._explain import COMMAND as EXPLAIN
from ._list import COMMAND as LIST
from ._log import COMMAND as LOG
from ._plan import COMMAND as PLAN
from ._schema import COMMAND as SCHEMA
from ._show import COMMAND as SHOW
from ._verify import COMMAND as VERIFY

__all__ = ["FORMAT_VARIABLE", "parse"]

FORMAT_VARIABLE = "PATCHKIT_FORMAT"

_COMMANDS = (LIST, SHOW, PLAN, VERIFY, SCHEMA, LOG, EXPLAIN)
_DOCUMENT_FORMATS = ("json", "text")

_DESCRIPTION = (
    "Monkeypatches of private APIs, managed like migrations: which there are, whether they fit, what was done."
)
_EPILOG = """\
exit codes:
  0    everything fits
  1    something doesn't
  2    wrong usage, input that can't be read, or an internal error
  130  interrupted

The report goes to stdout; progress, summary and errors go to stderr.

examples:
  python -m patchkit list
  python -m patchkit verify manifests/lowmem.toml
  python -m patchkit verify --format json -o verify.json manifests/*.toml
  python -m patchkit explain PK303

Each command has its own help: python -m patchkit verify --help
"""


class _Version(argparse.Action):
    """Prints the version; reading it takes time, so it is read only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from ..report import tool_version

        print(f"patchkit {tool_version() or '(not installed)'}")
        parser.exit()


def parse(argv: Sequence[str]) -> tuple[Command, argparse.Namespace, Settings]:
    """Parse the arguments of the process.

    Returns:
        The command, its arguments, and what the common options say.

    Raises:
        SystemExit: Help or version was asked for and is printed, or the arguments are wrong and that is said.
    """
    parser, parsers = _build()
    # Defaults are laid down first: an option may stand before the command or after it.
    defaults = {"format": None, "colour": "auto", "quiet": False, "output": None, "exit_zero": False}
    arguments, strange = parser.parse_known_args(argv, argparse.Namespace(**defaults))
    command = next((command for command in _COMMANDS if command.name == arguments.command), None)
    if command is None:
        parser.error(f"expected a command: {', '.join(command.name for command in _COMMANDS)}")
    if strange:
        parsers[command.name].error(f"unrecognized arguments: {' '.join(strange)}")
    chosen = _format(command, arguments.format, os.environ, parsers[command.name])
    return command, arguments, Settings(chosen, arguments.colour, arguments.quiet, arguments.output)


def _build() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    parser = argparse.ArgumentParser(
        "patchkit",
        usage="patchkit [OPTION...] COMMAND ...",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    _add_common(parser)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", prog=parser.prog)
    return parser, {command.name: _add_command(subparsers, command) for command in _COMMANDS}


def _add_command(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser], command: Command
) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(
        command.name,
        usage=f"patchkit {command.name} [OPTION...] {command.usage}".rstrip(),
        help=command.summary,
        description=command.summary[:1].upper() + command.summary[1:] + ".",
        epilog="examples:\n" + textwrap.indent(command.examples, "  "),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.configure(parser)
    _add_common(parser)
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("options of every command")
    group.add_argument(
        "--format",
        metavar="FORMAT",
        default=argparse.SUPPRESS,
        help=f"form of the report: text or json (default: ${FORMAT_VARIABLE}, then text)",
    )
    group.add_argument(
        "--color",
        dest="colour",
        choices=WISHES,
        default=argparse.SUPPRESS,
        help="colours; auto (the default) asks NO_COLOR, then FORCE_COLOR, then whether it is a terminal",
    )
    group.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        default=argparse.SUPPRESS,
        help="no progress and no summary; of a verification, findings only",
    )
    group.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="write the report to this file, when it is complete and at once (default: stdout)",
    )
    group.add_argument(
        "--exit-zero",
        action="store_true",
        default=argparse.SUPPRESS,
        help="exit with 0 also where something doesn't fit",
    )


def _format(command: Command, flag: str | None, environ: Mapping[str, str], parser: argparse.ArgumentParser) -> str:
    from ..report import FORMATS

    supported = tuple(FORMATS) if command.reports else _DOCUMENT_FORMATS
    if flag is not None:
        if flag not in supported:
            parser.error(f"argument --format: expected {' or '.join(supported)}, got {flag!r}")
        return flag
    wish = environ.get(FORMAT_VARIABLE) or "text"
    if wish not in FORMATS:
        parser.error(f"environment variable {FORMAT_VARIABLE}: expected {' or '.join(FORMATS)}, got {wish!r}")
    # The variable is set for the reports of a CI job; other commands in it go on in a form that they have.
    return wish if wish in supported else "text"
