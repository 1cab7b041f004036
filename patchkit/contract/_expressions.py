"""What expressions say about names: which they mention and bind, and what they are worth without running them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

__all__ = ["bound_in_expressions", "captured", "dotted_name", "mangled", "mentions", "truth_of"]

# Which fields of a node are evaluated whatever happens; of any other node that is said here, none.
_ALWAYS = {ast.IfExp: ("test",), ast.comprehension: (), ast.ExceptHandler: (), ast.match_case: ()}


def dotted_name(node: ast.expr) -> tuple[str, ...]:
    """Return ``("a", "b")`` for ``a.b``, and nothing for an expression of any other form."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else ()


def mangled(name: str, owner: str) -> str:
    """Return the attribute that a name in the body of the class ``owner`` is: ``_C__f`` for ``__f`` in ``C``."""
    stripped = owner.lstrip("_")
    return f"_{stripped}{name}" if stripped and name.startswith("__") and not name.endswith("__") else name


def mentions(value: ast.expr, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(value))


def truth_of(test: ast.expr) -> bool | None:
    """Whether a test always holds or never does, at run time; ``None`` if that depends."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = truth_of(test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.Constant):
        return bool(test.value)
    return False if dotted_name(test)[-1:] == ("TYPE_CHECKING",) else None


def bound_in_expressions(statement: ast.stmt) -> Iterator[tuple[str, bool]]:
    """Yield each name that a walrus binds while ``statement`` is evaluated, and whether it always does.

    What stands in the statements inside it, and in functions, is not evaluated with it.
    """
    yield from _in_node(statement, always=True)


def _in_node(node: ast.AST, *, always: bool) -> Iterator[tuple[str, bool]]:
    if isinstance(node, ast.NamedExpr):
        yield node.target.id, always
    if isinstance(node, ast.BoolOp):
        # Each but the first depends on the one before.
        yield from _in_node(node.values[0], always=always)
        for value in node.values[1:]:
            yield from _in_node(value, always=False)
        return
    fields = _ALWAYS.get(type(node))
    elements = isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp))
    for field, value in ast.iter_fields(node):
        surely = always and not elements and (fields is None or field in fields)
        for child in value if isinstance(value, list) else (value,):
            if isinstance(child, ast.AST) and not isinstance(child, (ast.stmt, ast.Lambda)):
                yield from _in_node(child, always=surely)


def captured(pattern: ast.pattern) -> Iterator[str]:
    """Yield the names that a pattern binds where it matches."""
    for node in ast.walk(pattern):
        if isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest
