"""Fingerprints of bodies that are the same on every Python that makes them.

``ast.dump`` and ``ast.unparse`` give other text for the same source on other Pythons, so neither can be hashed. A
fingerprint is taken over a normal form of our own, number 1 (hence ``n1:``), which says what the code does and leaves
out how it is written:

* left out: positions, formatting, comments, docstrings and every other string (or ``...``) that stands alone as a
  statement, ``pass``, annotations, type comments, and whether a string was written with a ``u``;
* ``x: int = 1`` counts as ``x = 1`` and ``x: int`` as nothing, except in the body of a class with a decorator, or one
  derived from ``NamedTuple``, ``TypedDict`` or ``BaseModel``: there annotated names are the fields of the class;
* neighbouring pieces of text in an f-string are joined, empty ones (which Python 3.12 leaves, and others don't) and
  empty formats dropped;
* kept: decorators, names, parameters with their kinds and defaults, ``async``, the order of everything, and each
  constant with its type (``1``, ``1.0``, ``True`` and ``"1"`` differ).

Written out, a node is ``(Type field=value …)`` with the fields in alphabetical order and empty ones left out, so that a
field which a later Python adds counts only where it is used. The digest is the first half of the SHA-256 of that text.
A change to any of this is a new number.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Sequence

from ._expressions import dotted_name

__all__ = ["fingerprint", "normal_form"]

_LEFT_OUT = {"annotation", "ctx", "kind", "returns", "simple", "type_comment", "type_ignores"}
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}
_FIELD_BASES = {("NamedTuple",), ("TypedDict",), ("BaseModel",)}


def fingerprint(*nodes: ast.AST) -> str:
    """Return ``n1:`` and 32 hexadecimal digits for the code in ``nodes``, the same on Python 3.10 to 3.13."""
    return "n1:" + hashlib.sha256(normal_form(*nodes).encode("utf-8")).hexdigest()[:32]


def normal_form(*nodes: ast.AST) -> str:
    """Return the text that :func:`fingerprint` hashes. It grows with the code and is meant for machines."""
    written: list[str] = []
    # A list of its own, not recursion: generated code nests deeper than the interpreter's limit.
    pending: list[object] = [*reversed(nodes)]
    while pending:
        item = pending.pop()
        if isinstance(item, _Token):
            written.append(item)
        elif isinstance(item, ast.AST):
            pending += reversed(list(_node(item)))
        elif isinstance(item, (list, tuple)):
            pending += [_Token("]"), *reversed(item), _Token("[")]
        else:
            written.append(_text(item))
    return "".join(written)


class _Token(str):
    """Text of the normal form itself, as against a string of the code."""

    __slots__ = ()


def _node(node: ast.AST) -> Iterator[object]:
    """Yield what a node is written as: tokens, and values to be written in turn."""
    if isinstance(node, ast.Constant):
        yield _Token(_constant(node.value))
        return
    yield _Token(f"({type(node).__name__}")
    for name in _fields(type(node)):
        value = getattr(node, name, None)
        if name in ("body", "orelse", "finalbody") and isinstance(value, list):
            value = list(_statements(value, keep_fields=_has_fields(node)))
        elif isinstance(node, ast.JoinedStr):
            value = _joined(node.values)
        elif name == "format_spec" and isinstance(value, ast.JoinedStr) and not _joined(value.values):
            value = None
        if value is not None and value != []:
            yield _Token(f" {name}=")
            yield value
    yield _Token(")")


def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    fields = _FIELDS.get(kind)
    if fields is None:
        fields = _FIELDS[kind] = tuple(sorted(name for name in kind._fields if name not in _LEFT_OUT))
    return fields


def _statements(body: Sequence[ast.AST], *, keep_fields: bool) -> Iterator[ast.AST]:
    for node in body:
        if isinstance(node, ast.Pass):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str) or node.value.value is ...:
                continue
        elif isinstance(node, ast.AnnAssign) and not keep_fields:
            if node.value is not None:
                yield ast.Assign(targets=[node.target], value=node.value)
            continue
        yield node


def _has_fields(node: ast.AST) -> bool:
    """Whether annotated names in the body of ``node`` are data rather than hints."""
    if not isinstance(node, ast.ClassDef):
        return False
    return bool(node.decorator_list) or any(dotted_name(base)[-1:] in _FIELD_BASES for base in node.bases)


def _joined(values: Sequence[ast.expr]) -> list[ast.expr]:
    """Join neighbouring text of an f-string and drop empty text."""
    joined: list[ast.expr] = []
    for value in values:
        if not isinstance(value, ast.Constant):
            joined.append(value)
        elif value.value != "":
            if joined and isinstance(joined[-1], ast.Constant):
                joined[-1] = ast.Constant(value=str(joined[-1].value) + str(value.value))
            else:
                joined.append(value)
    return joined


def _text(value: object) -> str:
    """Write a name, a number or a gap (a keyword without default, ``**`` in a dict) that isn't an expression."""
    return f"'{_constant(value)}"


def _constant(value: object) -> str:
    """Write a constant so that no two of different type or value look the same."""
    if value is None or isinstance(value, bool) or value is ...:
        return f"<{value}>"
    if isinstance(value, int):
        return f"<int {value:x}>"
    if isinstance(value, float):
        return f"<float {value.hex()}>"
    if isinstance(value, complex):
        return f"<complex {value.real.hex()} {value.imag.hex()}>"
    if isinstance(value, bytes):
        return f"<bytes {value.hex()}>"
    # Surrogates can stand in a literal, and must not stop the hash.
    return f"<str {str(value).encode('utf-8', 'surrogatepass').hex()}>"
