"""What the syntax of a definition says: its parameters, the calls that it makes, the attributes that it mentions."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ._expressions import dotted_name

__all__ = ["Calls", "attributes_in", "calls_in", "parameters_of"]

_ATTRIBUTE_FUNCTIONS = {("getattr",), ("setattr",), ("hasattr",), ("delattr",)}
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def parameters_of(arguments: ast.arguments) -> tuple[str, ...]:
    """Render parameters as a contract writes them: ``("self", "x", "/", "k=", "*", "only", "**kw")``."""
    positional = [*arguments.posonlyargs, *arguments.args]
    plain = len(positional) - len(arguments.defaults)
    rendered = [argument.arg + ("=" if index >= plain else "") for index, argument in enumerate(positional)]
    if arguments.posonlyargs:
        rendered.insert(len(arguments.posonlyargs), "/")
    if arguments.vararg is not None:
        rendered.append("*" + arguments.vararg.arg)
    elif arguments.kwonlyargs:
        rendered.append("*")
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        rendered.append(argument.arg + ("=" if default is not None else ""))
    if arguments.kwarg is not None:
        rendered.append("**" + arguments.kwarg.arg)
    return tuple(rendered)


@dataclass(slots=True)
class Calls:
    """The calls in a body.

    Attributes:
        through_globals: Names called that are the module's (or built in).
        through_locals: Names called that the function binds itself, with the line where it does.
        dotted: Calls of ``a.b.c``, written out.
        attributes: The last name of every call of an attribute, whatever it is an attribute of.
    """

    through_globals: set[str] = field(default_factory=set)
    through_locals: dict[str, int] = field(default_factory=dict)
    dotted: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)

    def add(self, called: ast.expr, local: dict[str, int]) -> None:
        """Note a call of ``called`` where the names in ``local`` aren't the module's."""
        if isinstance(called, ast.Name):
            if called.id in local:
                self.through_locals.setdefault(called.id, local[called.id])
            else:
                self.through_globals.add(called.id)
        elif isinstance(called, ast.Attribute):
            self.attributes.add(called.attr)
            self.dotted.add(".".join(dotted_name(called)))


def calls_in(nodes: Iterable[ast.AST]) -> Calls:
    """Return the calls in the bodies of ``nodes``, those of nested functions included.

    Decorators and defaults of ``nodes`` themselves aren't part of their bodies.
    """
    calls = Calls()
    pending: list[tuple[ast.AST, dict[str, int]]] = []
    for node in nodes:
        if isinstance(node, _FUNCTIONS):
            pending += _body(node, {})
        else:
            pending.append((node, {}))
    while pending:
        node, local = pending.pop()
        if isinstance(node, ast.Call):
            calls.add(node.func, local)
        if isinstance(node, _FUNCTIONS):
            pending += [(outer, local) for outer in _evaluated_outside(node)]
            pending += _body(node, local)
        elif isinstance(node, _COMPREHENSIONS):
            pending += _comprehension(node, local)
        else:
            pending += [(child, local) for child in ast.iter_child_nodes(node)]
    return calls


def attributes_in(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names of all attributes that ``nodes`` read, assign or delete, on whatever object.

    ``getattr``, ``setattr``, ``hasattr`` and ``delattr`` with the name written out count too.
    """
    found: set[str] = set()
    for root in nodes:
        for node in ast.walk(root):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.Call) and len(node.args) > 1 and dotted_name(node.func) in _ATTRIBUTE_FUNCTIONS:
                name = node.args[1]
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    found.add(name.value)
    return found


def _body(node: _Function, outer: dict[str, int]) -> list[tuple[ast.AST, dict[str, int]]]:
    """Return the body of a function with the names that aren't the module's inside it."""
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    bound, module_names = _bound_in(node.args, body)
    local = {name: line for name, line in {**outer, **bound}.items() if name not in module_names}
    return [(statement, local) for statement in body]


def _evaluated_outside(node: _Function) -> Iterator[ast.AST]:
    yield from node.args.defaults
    yield from (default for default in node.args.kw_defaults if default is not None)
    if not isinstance(node, ast.Lambda):
        yield from node.decorator_list


def _comprehension(node: ast.AST, local: dict[str, int]) -> list[tuple[ast.AST, dict[str, int]]]:
    generators: list[ast.comprehension] = getattr(node, "generators", [])
    targets = {
        name.id: name.lineno
        for generator in generators
        for name in ast.walk(generator.target)
        if isinstance(name, ast.Name)
    }
    inner = {**local, **targets}
    return [(child, inner) for child in ast.iter_child_nodes(node)]


def _bound_in(arguments: ast.arguments, body: Iterable[ast.AST]) -> tuple[dict[str, int], set[str]]:
    """Return the names that a function binds, with a line each, and those that it declares global."""
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    bound = {argument.arg: argument.lineno for argument in every if argument is not None}
    module_names: set[str] = set()
    pending = list(body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Global):
            module_names.update(node.names)
        for name in _binds(node):
            bound.setdefault(name, getattr(node, "lineno", 0))
        if isinstance(node, _FUNCTIONS):
            pending += _evaluated_outside(node)
        elif isinstance(node, ast.ClassDef):
            pending += [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]
        elif isinstance(node, _COMPREHENSIONS):
            # Its targets are its own; what a walrus in it binds belongs to the function.
            pending += [inner.target for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr)]
        else:
            pending += ast.iter_child_nodes(node)
    return bound, module_names


def _binds(node: ast.AST) -> Iterator[str]:
    """Yield the names that this node itself binds."""
    if isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load):
            yield node.id
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        if node.name is not None:
            yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest is not None:
        yield node.rest
