"""From the path of a symbol to its definitions: through branches, imports, star imports, aliases and base classes."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ._bindings import Binding, Kind, Names, bind
from ._exports import star_binds
from ._expressions import dotted_name, mangled
from ._found import Definition, Found, Gap, absent, bound_again, no_member
from ._mro import linearise
from ._rebound import modules_at_run_time
from ._source import Source, SourceFile

__all__ = ["MAX_HOPS", "Resolver"]

MAX_HOPS = 8
"""How many imports and aliases are followed from one symbol."""

# Bases without members that a patch could touch: not followed, so that judging doesn't parse the `typing` module.
_MARKERS = {"ABC", "Generic", "Protocol"}
_MARKER_MODULES = {"abc", "typing", "typing_extensions"}
_TRANSPARENT = {("staticmethod",), ("classmethod",)}


@dataclass(frozen=True, slots=True, eq=False)
class _Class:
    file: SourceFile
    path: str
    node: ast.ClassDef
    names: Names


_Base = _Class | str  # a base that can't be read is its name


class Resolver:
    """Finds symbols in one source. Made for one judgement: it remembers what it has looked up."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._files: dict[str, SourceFile | None] = {}
        # By identity: of the node, and of the class made from it, which the first mapping keeps alive.
        self._classes: dict[int, _Class] = {}
        self._bases: dict[int, list[_Base]] = {}
        self._orders: dict[int, list[_Base]] = {}

    def find(self, module: str, names: tuple[str, ...]) -> Found:
        """Return every definition that ``module:names`` may have, and every dead end on the way to one.

        Never empty. Raises ``RecursionError`` for source that is nested deeper than this Python follows.
        """
        return _Search(self).in_module(module, names, 0) or [Gap("imports that lead in a circle", certain=True)]

    def file(self, module: str) -> SourceFile | None:
        """Return a module of the source, the same for the life of the resolver."""
        if module not in self._files:
            self._files[module] = self._source.module(module)
        return self._files[module]

    def no_module(self, module: str) -> Gap:
        """Say what is there instead of a module that isn't."""
        top, *inner = module.split(".")
        file = self.file(top)
        if file is None:
            return Gap(f"no package {top}", package=top)
        parent, missing = top, ""
        for name in inner:
            missing = name
            below = self.file(f"{parent}.{name}")
            if below is None:
                break
            parent, file = f"{parent}.{name}", below
        line = modules_at_run_time(file.tree) if file.tree is not None else None
        if line is not None:
            text = f"no module {missing} in {parent}, but code that adds to its modules while it runs"
            return Gap(text, file.where(line))
        if file.compiled:
            return Gap(f"the compiled module {parent}, which may make modules of its own", file.path)
        return Gap(
            f"no module {missing} in {parent}",
            file.path,
            certain=True,
            missing=missing,
            candidates=self._source.children(parent),
        )

    def enter(self, definition: Definition) -> _Class:
        """Return a class with what its body binds."""
        assert definition.binding is not None
        node = definition.binding.nodes[0]
        assert isinstance(node, ast.ClassDef)
        if id(node) not in self._classes:
            names = bind(node.body, package=_package(definition.file), declarations=True, owner=node.name)
            self._classes[id(node)] = _Class(definition.file, definition.path, node, names)
        return self._classes[id(node)]

    def bases(self, cls: _Class) -> list[_Base]:
        """Return the direct bases of a class, without those that have no members of their own."""
        if id(cls) not in self._bases:
            expressions = [base for base in cls.node.bases if not _is_marker(cls.file, base)]
            self._bases[id(cls)] = [self._base(cls.file, base) for base in expressions]
        return self._bases[id(cls)]

    def order(self, cls: _Class) -> list[_Base]:
        """Return a class and its bases in the order in which Python looks members up."""
        if id(cls) not in self._orders:
            # A class that is its own base through some circle ends here.
            self._orders[id(cls)] = []
            bases = self.bases(cls)
            orders = [self.order(base) if isinstance(base, _Class) else [base] for base in bases]
            self._orders[id(cls)] = linearise(cls, orders, bases)
        return self._orders[id(cls)]

    def _base(self, file: SourceFile, expression: ast.expr) -> _Base:
        names = _base_name(expression)
        if not names:
            return "a computed base"
        if names[0] not in file.names.bound and not file.names.stars:
            return ".".join(names)
        for found in _Search(self).in_module(file.name, names, 0):
            if isinstance(found, Definition) and found.kind is Kind.CLASS:
                return self.enter(found)
        return ".".join(names)


class _Search:
    """One walk from a symbol; remembers where it has been, so that circles and star imports end."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._seen: set[tuple[str, tuple[str, ...]]] = set()

    def in_module(self, module: str, names: tuple[str, ...], hops: int) -> Found:
        """Look ``names`` up in a module. Nothing if the search has been here before."""
        if (module, names) in self._seen:
            return []
        self._seen.add((module, names))
        file = self._resolver.file(module)
        if file is None:
            return [self._resolver.no_module(module)]
        if not names:
            return [Definition(file, module)]
        if file.tree is None:
            return [Gap(file.problem, file.path)]
        if hops > MAX_HOPS:
            return [Gap(f"a chain of more than {MAX_HOPS} imports", file.path, bound=True)]
        bindings = file.names.bound.get(names[0], ())
        found = [
            item
            for binding in bindings
            for item in self._follow(file, f"{module}:{names[0]}", binding, names[1:], None, hops)
        ]
        if not found and all(binding.kind is Kind.STAR for binding in bindings):
            return self._unbound(file, names, hops)
        return found and found + bound_again(file, names[:1], max(binding.nodes[-1].lineno for binding in bindings))

    def _unbound(self, file: SourceFile, names: tuple[str, ...], hops: int) -> Found:
        """Look a name up that the module doesn't bind itself."""
        unreadable = ""
        for star in reversed(file.names.stars):
            binds = star_binds(self._resolver.file, star, names[0], {file.name})
            found = self.in_module(star, names, hops + 1) if binds else []
            if found:
                return found
            if binds is None:
                unreadable = star
        if file.is_package and self._resolver.file(f"{file.name}.{names[0]}") is not None:
            return self.in_module(f"{file.name}.{names[0]}", names[1:], hops)
        if unreadable:
            return [Gap(f"no {names[0]}, but a star import from {unreadable}, which can't be read", file.path)]
        return [absent(file, names)]

    def _follow(
        self, file: SourceFile, path: str, binding: Binding, rest: tuple[str, ...], scope: Names | None, hops: int
    ) -> Found:
        """Go on from a binding to what it stands for, or into it."""
        if binding.kind in (Kind.MODULE, Kind.IMPORTED):
            return self._imported(file, binding, rest, hops)
        if binding.kind is Kind.STAR:
            return self._starred(file, path, binding, rest, hops)
        if binding.kind is Kind.DELETED:
            name = path.partition(":")[2]
            return [Gap(f"{name} deleted where `except … as {name}` ends", file.where(binding.line), again=True)]
        if binding.kind is Kind.CLASS and rest:
            return self._in_class(Definition(file, path, binding), rest, hops)
        if binding.kind is Kind.VALUE:
            found = self._alias(file, path, binding, rest, scope, hops)
            if any(isinstance(item, Definition) for item in found):
                return found
            if rest:
                return [Gap("a member of a value that only running the library makes", file.where(binding.line))]
        if rest:
            return [no_member(file, path, binding, rest[0])]
        return [Definition(file, path, binding)]

    def _starred(self, file: SourceFile, path: str, binding: Binding, rest: tuple[str, ...], hops: int) -> Found:
        """Take what a star import brings, or what was there before it where it brings no such name."""
        name = path.partition(":")[2]
        binds = star_binds(self._resolver.file, binding.module, name, {file.name})
        found = self.in_module(binding.module, (name, *rest), hops + 1) if binds else []
        if found:
            return found
        below = [item for old in binding.below for item in self._follow(file, path, old, rest, None, hops)]
        if below and binds is None and not name.startswith("_"):
            text = f"a star import from {binding.module} after it, which can't be read"
            below.append(Gap(text, file.where(binding.line), bound=True, again=True))
        return below

    def _imported(self, file: SourceFile, binding: Binding, rest: tuple[str, ...], hops: int) -> Found:
        module, names = binding.module, rest
        if binding.kind is Kind.IMPORTED:
            names = (binding.attribute, *rest)
            if module == file.name and (module, names) in self._seen:
                # `from . import sub` in the package itself: no attribute of its own yet, so it is the submodule.
                module, names = f"{module}.{binding.attribute}", rest
        if not module:
            return [Gap("an import from above the top-level package", file.where(binding.line), certain=True)]
        if self._resolver.file(module) is None:
            gap = self._resolver.no_module(module)
            where = file.where(binding.line)
            if gap.certain:
                return [replace(gap, imported=True, where=where)]
            return [Gap(f"an import from {module}, which can't be read", where, bound=not rest, imported=True)]
        found = self.in_module(module, names, hops + 1)
        return [replace(item, imported=True) if isinstance(item, Gap) else item for item in found]

    def _alias(
        self,
        file: SourceFile,
        path: str,
        binding: Binding,
        rest: tuple[str, ...],
        scope: Names | None,
        hops: int,
    ) -> Found:
        """Follow ``g = f``, ``g = Class.f`` and ``g = staticmethod(f)``, first in the class, then in the module."""
        names = _alias_name(binding)
        if not names or hops > MAX_HOPS:
            return []
        sibling = scope.bound.get(mangled(names[0], scope.owner), ()) if scope is not None else ()
        if sibling and binding not in sibling:
            inner = f"{path.rpartition('.')[0]}.{names[0]}"
            following = (*names[1:], *rest)
            return [item for other in sibling for item in self._follow(file, inner, other, following, scope, hops + 1)]
        if names[0] in file.names.bound:
            return self.in_module(file.name, (*names, *rest), hops + 1)
        return []

    def _in_class(self, definition: Definition, rest: tuple[str, ...], hops: int) -> Found:
        cls = self._resolver.enter(definition)
        for place in self._places(cls):
            path = f"{place.path}.{rest[0]}"
            found = [
                item
                for binding in place.names.bound.get(rest[0], ())
                for item in self._follow(place.file, path, binding, rest[1:], place.names, hops)
            ]
            names = tuple(path.partition(":")[2].split("."))
            found += bound_again(place.file, names, place.node.lineno)
            if found:
                return found
        return [_no_class_member(cls, rest[0], self._resolver.order(cls))]

    def _places(self, cls: _Class) -> Iterator[_Class]:
        """Yield a class and its bases in the order of look-up, and read the file of a base only when it is reached.

        Where each class has one base there is nothing to put in order; that is nearly always, and a member mostly
        stands near the front.
        """
        passed: list[_Class] = []
        while cls not in passed:
            yield cls
            passed.append(cls)
            bases = self._resolver.bases(cls)
            if len(bases) != 1 or isinstance(bases[0], str):
                yield from (base for base in self._resolver.order(cls)[1:] if isinstance(base, _Class))
                return
            cls = bases[0]


def _no_class_member(cls: _Class, name: str, order: list[_Base]) -> Gap:
    where = cls.file.where(cls.node.lineno)
    for base in order:
        if isinstance(base, str):
            known = getattr(builtins, base, None)
            if known is None:
                return Gap(f"no {name} in the class, but its base {base} can't be read", where)
            if hasattr(known, name):
                return Gap(f"{name} of the built-in {base}, which has no source", where, bound=True)
    names = [place.names for place in order if isinstance(place, _Class)]
    return Gap(
        f"no {name} in the class {cls.path.partition(':')[2]}",
        where,
        certain=True,
        missing=name,
        candidates=tuple(sorted({known for each in names for known in each.bound})),
    )


def _package(file: SourceFile) -> str:
    return file.name if file.is_package else file.name.rpartition(".")[0]


def _alias_name(binding: Binding) -> tuple[str, ...]:
    """Return what a plain assignment names; nothing if it makes a value, or is followed by more."""
    value = binding.value
    if isinstance(value, ast.Call) and len(value.args) == 1 and dotted_name(value.func) in _TRANSPARENT:
        value = value.args[0]
    return dotted_name(value) if value is not None and len(binding.nodes) == 1 else ()


def _base_name(expression: ast.expr) -> tuple[str, ...]:
    """Return the name of a base; ``Base[T]`` is ``Base``."""
    return dotted_name(expression.value if isinstance(expression, ast.Subscript) else expression)


def _is_marker(file: SourceFile, expression: ast.expr) -> bool:
    names = _base_name(expression)
    if names == ("object",):
        return True
    origins = [module for binding in file.names.bound.get(names[0], ()) for module in binding.origins] if names else []
    return bool(origins) and names[-1] in _MARKERS and all(origin in _MARKER_MODULES for origin in origins)
