"""What looking for a symbol comes to: definitions, and gaps where there is none."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ._bindings import Binding, Kind
from ._rebound import made_at_run_time
from ._source import SourceFile

__all__ = ["Definition", "Found", "Gap", "absent", "bound_again", "no_member"]


@dataclass(frozen=True, slots=True)
class Definition:
    """One definition of a symbol.

    Attributes:
        file: The module that it stands in.
        path: Where it stands, as ``module:Class.attr``; another path than was asked for after a re-export.
        binding: What it is; ``None`` for a module.
    """

    file: SourceFile
    path: str
    binding: Binding | None = None

    @property
    def kind(self) -> Kind:
        """What it is."""
        return self.binding.kind if self.binding is not None else Kind.MODULE

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        """The syntax that makes it up."""
        if self.binding is not None:
            return self.binding.nodes
        return (self.file.tree,) if self.file.tree is not None else ()

    @property
    def where(self) -> str:
        """``file:line``."""
        return self.file.where(self.binding.line if self.binding is not None else 0)


@dataclass(frozen=True, slots=True)
class Gap:
    """Where the search for a symbol ended without a definition.

    Attributes:
        found: What was found instead.
        where: ``file:line``, ``file`` or empty.
        certain: Whether the symbol isn't there. Otherwise it may be, but can't be seen without running the library.
        bound: Whether the name is there all the same, and only what it stands for can't be read.
        imported: Whether an import led here. If there are other definitions, it is the branch that isn't taken.
        again: Whether it stands beside definitions, which it may replace.
        missing: The name that is missing, and ``candidates``, the names that are there.
        candidates: See ``missing``.
        package: The top-level package, if it is that which isn't there.
    """

    found: str
    where: str = ""
    certain: bool = False
    bound: bool = False
    imported: bool = False
    again: bool = False
    missing: str = ""
    candidates: tuple[str, ...] = ()
    package: str = ""


Found = list[Definition | Gap]
"""Every definition that a symbol may have, and every dead end on the way to one."""


def absent(file: SourceFile, names: tuple[str, ...]) -> Gap:
    """Say what is there instead of a name that a module doesn't have, or why that can't be told."""
    name = names[0]
    if file.is_stub:
        return Gap(f"no {name} in the stub file, which may leave names out", file.path)
    if "__getattr__" in file.names.bound:
        line = file.names.bound["__getattr__"][0].line
        return Gap(f"no {name}, but a __getattr__ that may make it", file.where(line))
    elsewhere = file.again((name,), after=0)
    if elsewhere is not None:
        return Gap(f"{name} {elsewhere.how}", file.where(elsewhere.line), bound=True)
    if name in file.names.typing_only:
        line = file.names.typing_only[name]
        return Gap(f"{name} bound only for type checkers", file.where(line), certain=True)
    line_made = made_at_run_time(file.tree) if file.tree is not None else None
    if line_made is not None:
        return Gap(f"no {name}, but code that makes names while it runs", file.where(line_made))
    candidates = tuple(sorted(file.names.bound))
    return Gap(f"no {name} in {file.name}", file.path, certain=True, missing=name, candidates=candidates)


def no_member(file: SourceFile, path: str, binding: Binding, name: str) -> Gap:
    outer = tuple(path.partition(":")[2].split("."))
    elsewhere = file.again((*outer, name), after=0)
    if elsewhere is not None:
        return Gap(f"{name} assigned to it from outside", file.where(elsewhere.line), bound=True)
    return Gap(f"a {binding.kind.value}, which has no member {name}", file.where(binding.line), certain=True)


def bound_again(file: SourceFile, path: tuple[str, ...], after: int) -> list[Definition | Gap]:
    """Say what may replace a definition, whose last line is ``after``, in a way that isn't followed."""
    again = file.again(path, after)
    if again is None:
        return []
    return [Gap(f"{path[-1]} {again.how}", file.where(again.line), bound=True, again=True)]
