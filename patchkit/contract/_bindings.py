"""Which names a module or class body binds, and to which definitions, without running it.

A small reaching-definitions analysis over statements: a later binding replaces an earlier one, both branches of an
``if`` or ``try`` count, and what only a type checker sees doesn't exist.
"""

from __future__ import annotations

import ast
import enum
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

__all__ = ["Binding", "Kind", "Names", "assigned_elsewhere", "bind", "dotted_name", "made_at_run_time"]

_ACCESSORS = {"getter", "setter", "deleter"}
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Delete, ast.Expr)
if sys.version_info >= (3, 11):
    _TRY = (ast.Try, ast.TryStar)
else:
    _TRY = (ast.Try,)


class Kind(enum.Enum):
    """What a name is bound to."""

    FUNCTION = "function"
    CLASS = "class"
    # Any other value: a constant, a call's result, an alias, a loop variable.
    VALUE = "value"
    # `import a.b` and `import a.b as c`.
    MODULE = "module"
    # `from m import x`.
    IMPORTED = "imported"


@dataclass(frozen=True, slots=True)
class Binding:
    """One definition that a name may have.

    Attributes:
        kind: What it is bound to.
        nodes: The statements that make it up: the definition, then whatever adds to it (the setter of a property, a
            ``f = decorate(f)`` further down).
        value: The expression assigned, where the binding is a plain assignment to the name.
        module: Absolute name of the module imported (from).
        attribute: The name imported from ``module``.
        overload: Whether it is a ``typing.overload`` declaration.
    """

    kind: Kind
    nodes: tuple[ast.stmt, ...]
    value: ast.expr | None = None
    module: str = ""
    attribute: str = ""
    overload: bool = False

    @property
    def line(self) -> int:
        """Line of the first of them."""
        return self.nodes[0].lineno


@dataclass(slots=True)
class Names:
    """What a body binds.

    Attributes:
        bound: Each name with the definitions that it may have when the body has run.
        stars: Modules from which everything is imported, in order.
        typing_only: Names that only a type checker sees bound, with the line.
    """

    bound: dict[str, tuple[Binding, ...]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    typing_only: dict[str, int] = field(default_factory=dict)


def bind(body: Sequence[ast.stmt], *, package: str = "", declarations: bool = False) -> Names:
    """Return what ``body`` binds.

    Args:
        body: Statements of a module or of a class.
        package: The package that relative imports start from.
        declarations: Whether ``x: int`` alone says that ``x`` exists, as it does in classes and stub files.
    """
    binder = _Binder(package, declarations)
    binder.names.bound = binder.run(body, {})
    for name in binder.names.bound:
        binder.names.typing_only.pop(name, None)
    return binder.names


def dotted_name(node: ast.expr) -> tuple[str, ...]:
    """Return ``("a", "b")`` for ``a.b``, and nothing for an expression of any other form."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else ()


def assigned_elsewhere(tree: ast.Module, path: tuple[str, ...]) -> int | None:
    """Return the line where ``path``, a name or ``("Class", "attr")``, is assigned in a way that isn't followed.

    That is: a walrus, a function that declares the name ``global``, or ``Class.attr = …`` outside the class.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            found = path in [(name,) for name in node.names]
        elif isinstance(node, ast.NamedExpr):
            found = path == (node.target.id,)
        elif isinstance(node, ast.Assign):
            found = len(path) > 1 and path in [dotted_name(target) for target in node.targets]
        else:
            continue
        if found:
            return node.lineno
    return None


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


def _is_namespace(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and dotted_name(node.func) in {("globals",), ("vars",), ("locals",)}


_Bound = dict[str, tuple[Binding, ...]]


class _Binder:
    def __init__(self, package: str, declarations: bool) -> None:
        self.names = Names()
        self._package = package
        self._declarations = declarations

    def run(self, body: Sequence[ast.stmt], bound: _Bound) -> _Bound:
        """Return what is bound after ``body``, given what was before it. May change ``bound``."""
        for statement in body:
            bound = self._step(statement, bound)
        return bound

    def _step(self, node: ast.stmt, bound: _Bound) -> _Bound:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._function(node, bound)
        elif isinstance(node, ast.ClassDef):
            bound[node.name] = (Binding(Kind.CLASS, (node,)),)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node, bound)
        elif isinstance(node, _SIMPLE):
            self._simple(node, bound)
        else:
            return self._compound(node, bound)
        return bound

    def _simple(self, node: ast.stmt, bound: _Bound) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node, node.value, bound)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None or self._declarations:
                self._assign(node.target, node, node.value, bound)
        elif isinstance(node, ast.AugAssign):
            self._extend(node.target, node, bound)
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    bound.pop(target.id, None)
        elif isinstance(node, ast.Expr) and _changes_exports(node.value):
            self._extend(ast.Name("__all__", ast.Load()), node, bound)

    def _compound(self, node: ast.stmt, bound: _Bound) -> _Bound:
        if isinstance(node, ast.If):
            return self._if(node, bound)
        if isinstance(node, _TRY):
            return self._try(node, bound)
        if isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                if item.optional_vars is not None:
                    self._assign(item.optional_vars, node, None, bound)
            return self.run(node.body, bound)
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            once = dict(bound)
            if not isinstance(node, ast.While):
                self._assign(node.target, node, None, once)
            return self.run(node.orelse, _merge(bound, self.run(node.body, once)))
        if isinstance(node, ast.Match):
            return _merge(bound, *(self.run(case.body, dict(bound)) for case in node.cases))
        return bound

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, bound: _Bound) -> None:
        before = bound.get(node.name, ())
        decorators = [dotted_name(decorator) for decorator in node.decorator_list]
        if before and any(len(path) == 2 and path[0] == node.name and path[1] in _ACCESSORS for path in decorators):
            bound[node.name] = tuple(replace(old, nodes=(*old.nodes, node)) for old in before)
        elif any(path[-1:] == ("overload",) for path in decorators):
            earlier = tuple(old for old in before if old.overload)
            bound[node.name] = (*earlier, Binding(Kind.FUNCTION, (node,), overload=True))
        else:
            bound[node.name] = (Binding(Kind.FUNCTION, (node,)),)

    def _import(self, node: ast.Import | ast.ImportFrom, bound: _Bound) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                module = alias.name if alias.asname else alias.name.partition(".")[0]
                bound[alias.asname or module] = (Binding(Kind.MODULE, (node,), module=module),)
            return
        module = self._absolute(node)
        for alias in node.names:
            if alias.name == "*":
                self.names.stars.append(module)
            else:
                binding = Binding(Kind.IMPORTED, (node,), module=module, attribute=alias.name)
                bound[alias.asname or alias.name] = (binding,)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self._package.split(".")
        base = package[: max(len(package) - node.level + 1, 0)]
        return ".".join([*base, node.module] if node.module else base)

    def _assign(self, target: ast.expr, node: ast.stmt, value: ast.expr | None, bound: _Bound) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for element in target.elts:
                self._assign(element, node, None, bound)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, node, None, bound)
        elif isinstance(target, ast.Name):
            if target.id in bound and value is not None and _mentions(value, target.id):
                self._extend(target, node, bound)
            else:
                bound[target.id] = (Binding(Kind.VALUE, (node,), value=value),)

    def _extend(self, target: ast.expr, node: ast.stmt, bound: _Bound) -> None:
        if isinstance(target, ast.Name) and target.id in bound:
            bound[target.id] = tuple(replace(old, nodes=(*old.nodes, node)) for old in bound[target.id])

    def _if(self, node: ast.If, bound: _Bound) -> _Bound:
        truth = _truth(node.test)
        if truth is None:
            return _merge(*self._branches((node.body, node.orelse), bound))
        taken, other = (node.body, node.orelse) if truth else (node.orelse, node.body)
        stars = len(self.names.stars)
        for name, bindings in self.run(other, {}).items():
            self.names.typing_only.setdefault(name, bindings[0].line)
        del self.names.stars[stars:]
        return self.run(taken, bound)

    def _try(self, node: ast.Try, bound: _Bound) -> _Bound:
        branches = [[*node.body, *node.orelse], *(handler.body for handler in node.handlers)]
        return self.run(node.finalbody, _merge(*self._branches(branches, bound)))

    def _branches(self, branches: Iterable[Sequence[ast.stmt]], bound: _Bound) -> list[_Bound]:
        """Run each branch from the same start; one that ends by raising leaves nothing behind."""
        return [
            self.run(branch, dict(bound)) for branch in branches if not (branch and isinstance(branch[-1], ast.Raise))
        ]


def _merge(*alternatives: _Bound) -> _Bound:
    merged: _Bound = {}
    for alternative in alternatives:
        for name, bindings in alternative.items():
            known = merged.get(name, ())
            new = tuple(binding for binding in bindings if not any(binding is old for old in known))
            merged[name] = known + new
    return merged


def _mentions(value: ast.expr, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(value))


def _changes_exports(node: ast.expr) -> bool:
    """Tell ``__all__.extend(…)``, the one call that says something about names."""
    return isinstance(node, ast.Call) and dotted_name(node.func)[:1] == ("__all__",)


def _truth(test: ast.expr) -> bool | None:
    """Whether a test always holds or never does, at run time; ``None`` if that depends."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _truth(test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.Constant):
        return bool(test.value)
    return False if dotted_name(test)[-1:] == ("TYPE_CHECKING",) else None
