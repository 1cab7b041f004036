"""What ``from module import *`` takes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from ._bindings import Binding, Names
from ._rebound import made_at_run_time
from ._source import SourceFile

__all__ = ["star_binds"]


def star_binds(find: Callable[[str], SourceFile | None], module: str, name: str, visited: set[str]) -> bool | None:
    """Whether ``from module import *`` brings ``name``; ``None`` if that can't be read.

    Args:
        find: Finds a module.
        module: The module; empty if it can't be told.
        name: The name.
        visited: Modules that were asked already; added to.
    """
    if module in visited:
        return False
    visited.add(module)
    file = find(module) if module else None
    if file is None or file.tree is None:
        return None
    if not _is_exported(file.names, name):
        return False
    if name in file.names.bound or file.again((name,), after=0):
        return True
    answers = [star_binds(find, star, name, visited) for star in file.names.stars]
    answers += [None] if made_at_run_time(file.tree) else []
    return True if True in answers else None if None in answers else False


def _is_exported(names: Names, name: str) -> bool:
    """Whether ``__all__``, or the form of the name, lets it out; an ``__all__`` that is computed may have it."""
    exports = names.bound.get("__all__")
    if not exports:
        return not name.startswith("_")
    listed = set(_strings(exports))
    return name in listed or not all(_is_literal(binding) for binding in exports)


def _strings(bindings: tuple[Binding, ...]) -> Iterator[str]:
    for binding in bindings:
        for node in binding.nodes:
            for item in ast.walk(node):
                if isinstance(item, ast.Constant) and isinstance(item.value, str):
                    yield item.value


def _is_literal(binding: Binding) -> bool:
    elements = binding.value.elts if isinstance(binding.value, (ast.List, ast.Tuple)) else [None]
    return len(binding.nodes) == 1 and all(isinstance(element, ast.Constant) for element in elements)
