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

from ._expressions import bound_in_expressions, captured, dotted_name, mangled, mentions, truth_of

__all__ = ["Binding", "Kind", "Names", "bind"]

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
    # `from m import *` after the name was bound: the module's, where it exports such a name.
    STAR = "star"
    # Nothing any more, since `except … as x` deletes its name.
    DELETED = "deleted"


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
        below: What a star import leaves where it doesn't bring the name.
    """

    kind: Kind
    nodes: tuple[ast.stmt, ...]
    value: ast.expr | None = None
    module: str = ""
    attribute: str = ""
    overload: bool = False
    below: tuple[Binding, ...] = ()

    @property
    def line(self) -> int:
        """Line of the first of them."""
        return self.nodes[0].lineno

    @property
    def origins(self) -> tuple[str, ...]:
        """Modules that it may be imported from, but for star imports."""
        if self.kind is Kind.STAR:
            return tuple(module for old in self.below for module in old.origins)
        return (self.module,)

    def extended(self, node: ast.stmt) -> Binding:
        """Return the binding with one more statement that adds to it."""
        return replace(self, nodes=(*self.nodes, node), below=tuple(old.extended(node) for old in self.below))


@dataclass(slots=True)
class Names:
    """What a body binds.

    Attributes:
        bound: Each name with the definitions that it may have when the body has run.
        stars: Modules from which everything is imported, in order.
        typing_only: Names that only a type checker sees bound, with the line.
        owner: Name of the class, if the body is that of one; its private names are mangled.
    """

    bound: dict[str, tuple[Binding, ...]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    typing_only: dict[str, int] = field(default_factory=dict)
    owner: str = ""


def bind(body: Sequence[ast.stmt], *, package: str = "", declarations: bool = False, owner: str = "") -> Names:
    """Return what ``body`` binds.

    Args:
        body: Statements of a module or of a class.
        package: The package that relative imports start from.
        declarations: Whether ``x: int`` alone says that ``x`` exists, as it does in classes and stub files.
        owner: Name of the class, for the body of one.
    """
    binder = _Binder(package, declarations)
    binder.names.owner = owner
    bound = binder.run(body, {})
    bound.pop(_STARS, None)
    binder.names.bound = {mangled(name, owner): bindings for name, bindings in bound.items()} if owner else bound
    for name in binder.names.bound:
        binder.names.typing_only.pop(name, None)
    return binder.names


_Bound = dict[str, tuple[Binding, ...]]
_STARS = "*"  # no name: under it stand the star imports that have run


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
        for name, always in bound_in_expressions(node):
            new = Binding(Kind.VALUE, (node,))
            bound[name] = (new,) if always else (*bound.get(name, ()), new)
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
            return self._match(node, bound)
        return bound

    def _match(self, node: ast.Match, bound: _Bound) -> _Bound:
        branches = []
        for case in node.cases:
            branch = dict(bound)
            for name in captured(case.pattern):
                branch[name] = (Binding(Kind.VALUE, (node,)),)
            branches.append(self.run(case.body, branch))
        last = node.cases[-1]
        matches_all = last.guard is None and isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None
        return _merge(*branches) if matches_all else _merge(bound, *branches)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, bound: _Bound) -> None:
        before = bound.get(node.name, ())
        decorators = [dotted_name(decorator) for decorator in node.decorator_list]
        if before and any(len(path) == 2 and path[0] == node.name and path[1] in _ACCESSORS for path in decorators):
            bound[node.name] = tuple(old.extended(node) for old in before)
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
                self._star(module, node, bound)
            else:
                binding = Binding(Kind.IMPORTED, (node,), module=module, attribute=alias.name)
                bound[alias.asname or alias.name] = (binding,)

    def _star(self, module: str, node: ast.ImportFrom, bound: _Bound) -> None:
        self.names.stars.append(module)
        bound.setdefault(_STARS, ())
        for name, before in bound.items():
            if not _is_dunder(name):
                bound[name] = (Binding(Kind.STAR, (node,), module=module, below=before),)

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
            if target.id in bound and value is not None and mentions(value, target.id):
                self._extend(target, node, bound)
            else:
                bound[target.id] = (Binding(Kind.VALUE, (node,), value=value),)

    def _extend(self, target: ast.expr, node: ast.stmt, bound: _Bound) -> None:
        if isinstance(target, ast.Name) and target.id in bound:
            bound[target.id] = tuple(old.extended(node) for old in bound[target.id])

    def _if(self, node: ast.If, bound: _Bound) -> _Bound:
        truth = truth_of(node.test)
        if truth is None:
            return _merge(*self._branches((node.body, node.orelse), bound))
        taken, other = (node.body, node.orelse) if truth else (node.orelse, node.body)
        stars = len(self.names.stars)
        for name, bindings in self.run(other, {}).items():
            self.names.typing_only.setdefault(name, bindings[0].line)
        del self.names.stars[stars:]
        return self.run(taken, bound)

    def _try(self, node: ast.Try, bound: _Bound) -> _Bound:
        branches = self._branches([[*node.body, *node.orelse]], bound)
        for handler in node.handlers:
            for after in self._branches([handler.body], bound):
                if handler.name and after.pop(handler.name, ()) and handler.name in bound:
                    after[handler.name] = (Binding(Kind.DELETED, (node,)),)
                branches.append(after)
        return self.run(node.finalbody, _merge(*branches))

    def _branches(self, branches: Iterable[Sequence[ast.stmt]], bound: _Bound) -> list[_Bound]:
        """Run each branch from the same start; one that ends by raising leaves nothing behind."""
        return [
            self.run(branch, dict(bound)) for branch in branches if not (branch and isinstance(branch[-1], ast.Raise))
        ]


def _merge(*alternatives: _Bound) -> _Bound:
    merged: _Bound = {}
    names = dict.fromkeys(name for alternative in alternatives for name in alternative)
    for alternative in alternatives:
        for name in names:
            # Where a branch doesn't bind a name itself, a star import in it may.
            bindings = alternative.get(name) or (() if _is_dunder(name) else alternative.get(_STARS, ()))
            known = merged.get(name, ())
            new = tuple(binding for binding in bindings if not any(binding is old for old in known))
            merged[name] = known + new
    return merged


def _is_dunder(name: str) -> bool:
    """Tell ``__all__`` and its kind, which are a module's own: no star import brings them."""
    return name.startswith("__") and name.endswith("__")


def _changes_exports(node: ast.expr) -> bool:
    """Tell ``__all__.extend(…)``, the one call that says something about names."""
    return isinstance(node, ast.Call) and dotted_name(node.func)[:1] == ("__all__",)
