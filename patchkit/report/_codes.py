"""Every stable code, and what it means: from the docstrings of the errors and the explanations of the verdicts."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from dataclasses import dataclass

from .. import errors
from ..contract import Verdict
from ..errors import PatchkitError, error_classes

__all__ = ["Code", "catalogue"]

# A section of a Google docstring is for those who write Python.
_SECTION = re.compile(r"\n\n(?:Args|Attributes|Example|Note|Raises|Returns|Yields):\n.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Code:
    """One code that a message or a report can show.

    Attributes:
        code: Such as ``PK201``.
        name: Class of the error, or the word of the verdict.
        kind: ``error`` or ``verdict``.
        exit_code: What the command line returns for an error; None for a verdict, which policy weighs.
        paragraphs: What it means and what to do next.
    """

    code: str
    name: str
    kind: str
    exit_code: int | None
    paragraphs: tuple[str, ...]


def catalogue() -> dict[str, Code]:
    """Return every code, in their order."""
    codes: dict[str, Code] = {}
    for code in [*map(_of_error, error_classes()), *map(_of_verdict, Verdict)]:
        # A subclass without a code of its own shares that of its parent, which comes first.
        codes.setdefault(code.code, code)
    return dict(sorted(codes.items()))


def _of_error(cls: type[PatchkitError]) -> Code:
    text = inspect.cleandoc(cls.__doc__ or _written().get(cls.__name__, ""))
    return Code(cls.code, cls.__name__, "error", cls.exit_code, _paragraphs(text))


@functools.cache
def _written() -> dict[str, str]:
    """Return the docstrings of the errors from their source: ``python -OO`` leaves them out of the classes."""
    tree = ast.parse(inspect.getsource(errors))
    return {node.name: ast.get_docstring(node) or "" for node in tree.body if isinstance(node, ast.ClassDef)}


def _of_verdict(verdict: Verdict) -> Code:
    return Code(verdict.code, verdict.value, "verdict", None, _paragraphs(verdict.explanation))


def _paragraphs(text: str) -> tuple[str, ...]:
    text = _SECTION.sub("", text).replace("``", "`")
    return tuple(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
