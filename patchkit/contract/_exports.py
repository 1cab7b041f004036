"""What ``from module import *`` takes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ._bindings import Binding, Names

__all__ = ["is_exported"]


def is_exported(names: Names, name: str) -> bool:
    """Whether ``from module import *`` takes ``name``; an ``__all__`` that is computed may have it."""
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
