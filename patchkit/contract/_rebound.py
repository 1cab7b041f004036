"""What a module binds in ways that the order of its statements doesn't show."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ._expressions import dotted_name

__all__ = ["Rebinding", "bound_again", "made_at_run_time", "modules_at_run_time"]

_Path = tuple[str, ...]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Rebinding(NamedTuple):
    """One more assignment to a name, or to an attribute of what a name is bound to.

    Attributes:
        line: Where it stands.
        how: What it is, for people.
        later: Whether it may come after whatever else the module does, since it stands in a function.
    """

    line: int
    how: str
    later: bool


def bound_again(tree: ast.Module) -> dict[_Path, list[Rebinding]]:
    """Return what is bound by ``global``, ``Class.attr = …``, ``globals()["name"] = …`` and their kind.

    The paths are names, or names with attributes such as ``("Class", "attr")``.
    """
    found: dict[_Path, list[Rebinding]] = {}
    for path, rebinding in _in_body(tree.body, in_function=False):
        found.setdefault(path, []).append(rebinding)
    return found


def made_at_run_time(tree: ast.Module) -> int | None:
    """Return the line where a module makes names by text or replaces itself, so that it may have any name at all.

    That is: an assignment to ``globals()[…]`` or to ``sys.modules[…]``, ``globals().update(…)``, or ``exec``.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found = _is_namespace(node.value) or dotted_name(node.value)[-2:] == ("sys", "modules")
        elif isinstance(node, ast.Call):
            func = node.func
            update = isinstance(func, ast.Attribute) and func.attr == "update" and _is_namespace(func.value)
            found = update or dotted_name(func) == ("exec",)
        else:
            continue
        if found:
            return node.lineno
    return None


def modules_at_run_time(tree: ast.Module) -> int | None:
    """Return the line where a module puts others into ``sys.modules``, or says where else its submodules lie."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found = dotted_name(node.value)[-2:] == ("sys", "modules")
        elif isinstance(node, ast.Name):
            found = node.id == "__path__" and isinstance(node.ctx, ast.Store)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = dotted_name(node.func.value)
            found = node.func.attr == "declare_namespace" or owner == ("__path__",) or owner[-2:] == ("sys", "modules")
        else:
            continue
        if found:
            return node.lineno
    return None


def _in_body(body: Sequence[ast.AST], *, in_function: bool) -> Iterator[tuple[_Path, Rebinding]]:
    """Look through statements and those inside them; their expressions are looked at only where they may bind."""
    for node in body:
        for path, how in _by_statement(node):
            yield path, Rebinding(getattr(node, "lineno", 0), how, in_function or isinstance(node, _FUNCTIONS))
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, field, None)
            if isinstance(inner, list):
                yield from _in_body(inner, in_function=in_function or isinstance(node, _FUNCTIONS))


def _by_statement(node: ast.AST) -> Iterator[tuple[_Path, str]]:
    if isinstance(node, _FUNCTIONS):
        yield from _by_global(node)
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _by_target(target)
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        yield from _by_target(node.target)
    elif isinstance(node, ast.Delete):
        for target in node.targets:
            yield from _by_target(target)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield from _by_call(node.value)


def _by_global(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[_Path, str]]:
    declared = {name for node in function.body for name in _declared_global(node)}
    if not declared:
        return
    for name in _stored(function):
        if name in declared:
            declared.discard(name)
            yield (name,), f"bound by the function {function.name}"


def _declared_global(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Global):
        yield from node.names
    elif not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr):
                yield from _declared_global(child)


def _stored(function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)) and node is not function:
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name


def _by_target(target: ast.expr) -> Iterator[tuple[_Path, str]]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for element in target.elts:
            yield from _by_target(element)
    elif isinstance(target, ast.Subscript) and _is_namespace(target.value):
        if isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str):
            yield (target.slice.value,), "bound through the namespace"
    elif isinstance(target, ast.Attribute):
        yield from _by_attribute(target.value, target.attr)


def _by_call(call: ast.Call) -> Iterator[tuple[_Path, str]]:
    """Tell ``setattr(Class, "attr", …)`` and ``globals().update(name=…)``."""
    if dotted_name(call.func) == ("setattr",) and len(call.args) == 3 and isinstance(call.args[1], ast.Constant):
        yield from _by_attribute(call.args[0], str(call.args[1].value))
    elif isinstance(call.func, ast.Attribute) and call.func.attr == "update" and _is_namespace(call.func.value):
        named = [keyword.arg for keyword in call.keywords if keyword.arg]
        named += [
            key.value
            for argument in call.args
            if isinstance(argument, ast.Dict)
            for key in argument.keys
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        ]
        for name in named:
            yield (name,), "bound through the namespace"


def _by_attribute(owner: ast.expr, attr: str) -> Iterator[tuple[_Path, str]]:
    if _is_this_module(owner):
        yield (attr,), "set on the module"
    elif names := dotted_name(owner):
        yield (*names, attr), "assigned from outside"


def _is_this_module(node: ast.expr) -> bool:
    """Tell ``sys.modules[__name__]``."""
    return (
        isinstance(node, ast.Subscript)
        and dotted_name(node.value)[-1:] == ("modules",)
        and isinstance(node.slice, ast.Name)
        and node.slice.id == "__name__"
    )


def _is_namespace(node: ast.expr) -> bool:
    """Tell ``globals()`` and its kind, and the ``__dict__`` of the module itself."""
    if isinstance(node, ast.Attribute) and node.attr == "__dict__":
        return _is_this_module(node.value)
    return isinstance(node, ast.Call) and dotted_name(node.func) in {("globals",), ("vars",), ("locals",)}
