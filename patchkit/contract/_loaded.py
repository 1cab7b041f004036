"""Whether the code that this process has loaded is that of the source: a library may have been replaced under it."""

from __future__ import annotations

import ast
import importlib.machinery
import inspect
import sys
import types
from collections.abc import Iterable, Iterator

from .._code import alike
from ._found import Definition

__all__ = ["is_stale"]

_FUTURE_FLAGS = 0x1FF0000  # the CO_FUTURE_* bits of code flags


def is_stale(definition: Definition) -> bool:
    """Tell that a function is loaded in this process, and not as the source has it.

    ``False`` where that can't be told: what isn't loaded, what isn't a plain function of its own module, and what was
    loaded by a loader that rewrites source.
    """
    node = definition.binding.nodes[0] if definition.binding is not None else None
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or len(definition.nodes) != 1:
        return False
    module, _, path = definition.path.partition(":")
    loaded = _loaded(sys.modules.get(module), path.split("."), node.name)
    if loaded is None or definition.file.tree is None:
        return False
    imports = list(_imports(definition.file.tree.body))
    return not any(alike(code, loaded) for code in _compiled(node, path.split("."), imports, loaded))


def _loaded(module: object, names: list[str], name: str) -> types.CodeType | None:
    """Return the code of the function that a loaded module defines under a path, whatever was wrapped around it."""
    spec = getattr(module, "__spec__", None)
    if spec is None or type(spec.loader) is not importlib.machinery.SourceFileLoader:
        return None
    found: object = module
    for part in names:
        found = getattr(found, "__dict__", {}).get(part)
    if isinstance(found, property):
        found = found.fget
    found = getattr(found, "__func__", found)
    for _ in range(20):
        code = getattr(found, "__code__", None)
        if isinstance(code, types.CodeType) and (code.co_filename, code.co_name) == (spec.origin, name):
            # An enumeration replaces methods of its members' classes by its own of the same name.
            return code if getattr(code, "co_qualname", ".".join(names)) == ".".join(names) else None
        found = getattr(found, "__wrapped__", None)
    return None


def _compiled(
    node: ast.FunctionDef | ast.AsyncFunctionDef, names: list[str], imports: list[ast.stmt], loaded: types.CodeType
) -> Iterator[types.CodeType]:
    """Compile a function where it stands in its classes: they decide on private names and on ``super()``.

    A method of what the module imports is called by other code than a method of anything else, hence the imports.
    """
    statement: ast.stmt = node
    for owner in reversed(names[:-1]):
        outer = ast.parse(f"class {owner}: pass").body[0]
        assert isinstance(outer, ast.ClassDef)
        outer.body = [statement]
        statement = outer
    flags = loaded.co_flags & _FUTURE_FLAGS
    tree = ast.Module(body=[*imports, statement], type_ignores=[])
    pending = [compile(tree, loaded.co_filename, "exec", flags=flags, dont_inherit=True)]
    while pending:
        code = pending.pop()
        if code.co_name == node.name:
            # The decorator types.coroutine sets this flag afterwards.
            yield code.replace(co_flags=code.co_flags | loaded.co_flags & inspect.CO_ITERABLE_COROUTINE)
        pending += [const for const in code.co_consts if isinstance(const, types.CodeType)]


def _imports(body: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from _imports(child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))
