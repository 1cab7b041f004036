"""``explain``: what a code means, and what to do next."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ._command import Command
from ._console import Console
from ._reporting import style_of

if TYPE_CHECKING:
    from ..report import Code, Style

__all__ = ["COMMAND"]

_CODE = re.compile(r"PK[0-9]{3}")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the codes."""
    parser.add_argument(
        "codes", metavar="CODE", nargs="*", type=_code, help="such as PK303, in upper or lower case (default: list all)"
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Show the codes."""
    from ..report import catalogue, document

    known = catalogue()
    codes = [known[code] for code in dict.fromkeys(arguments.codes)]
    if console.settings.format == "json":
        console.report(document("explain", codes=[_facts(code) for code in codes or known.values()]))
    elif codes:
        style = style_of(console)
        console.report("\n".join(f"{_explained(code, style)}\n" for code in codes))
    else:
        console.report(_listed(known.values(), style_of(console)))
    return 0


def _code(text: str) -> str:
    from ..report import catalogue

    known = catalogue()
    code = text.upper()
    if code not in known:
        nearest = _nearest(code, known)
        hint = f"; the nearest are {', '.join(nearest)}" if nearest else ""
        raise argparse.ArgumentTypeError(
            f"expected a code such as PK303, got {text!r}{hint}. 'python -m patchkit explain' lists all."
        )
    return code


def _nearest(code: str, known: Iterable[str]) -> list[str]:
    if _CODE.fullmatch(code):
        number = int(code[2:])
        return sorted(known, key=lambda other: abs(int(other[2:]) - number))[:3]
    return difflib.get_close_matches(code, known, n=3)


def _explained(code: Code, style: Style) -> str:
    from ..report import Colour

    if code.kind == "verdict":
        head = f"{code.code}: the verdict '{code.name}' of a contract"
    else:
        head = f"{code.code}: {code.name} (exit code {code.exit_code})"
    return "\n\n".join([style.paint(head, Colour.STRONG), *(style.prose(text) for text in code.paragraphs)])


def _listed(codes: Iterable[Code], style: Style) -> str:
    from ..report import Cell, Colour, aligned

    rows = [(Cell(code.code, Colour.STRONG), Cell(code.name), Cell(next(_sentences(code)))) for code in codes]
    return "".join(f"{line}\n" for line in aligned(rows, style))


def _sentences(code: Code) -> Iterator[str]:
    for sentence in code.paragraphs[0].split(". "):
        yield sentence.rstrip(".") + "."


def _facts(code: Code) -> dict[str, object]:
    return {
        "code": code.code,
        "name": code.name,
        "kind": code.kind,
        "exit_code": code.exit_code,
        "text": "\n\n".join(code.paragraphs),
    }


COMMAND = Command(
    name="explain",
    summary="say what codes mean and what to do next; without a code, list all",
    usage="[CODE ...]",
    examples="""\
python -m patchkit explain PK303
python -m patchkit explain
""",
    run=run,
    configure=configure,
)
