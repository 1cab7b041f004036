"""Other names of the same object: ``from x import f`` copies and re-exports in imported modules.

A copy made at import time keeps the old object when the site is changed, and callers that use it never
see the patch. Names are found by identity, whatever they are called.
"""

from __future__ import annotations

import itertools
import operator
import sys
import types
from collections.abc import Iterator
from typing import Any

__all__ = ["can_have_aliases", "find_aliases", "find_copies"]


def can_have_aliases(obj: object) -> bool:
    """Tell whether identity means anything for ``obj``.

    Constants such as ``None`` or ``1``, and built-ins such as ``dict`` or ``len``, are shared by accident: a module
    that holds one holds no copy of anybody's site.
    """
    kind = type(obj)
    if issubclass(kind, (type, types.BuiltinFunctionType)):
        return getattr(obj, "__module__", None) != "builtins"
    return callable(obj)


def find_aliases(*objects: object) -> Iterator[tuple[object, dict[str, object], str, str]]:
    """Yield ``(object, namespace, module, name)`` for each name in an imported module that is bound to one of them."""
    for module_name, namespace in _namespaces():
        for obj in objects:
            if _holds(namespace, obj):
                for name, value in namespace.copy().items():
                    if value is obj:
                        yield obj, namespace, module_name, name


def _holds(namespace: dict[str, object], obj: object) -> bool:
    try:
        # Nothing of this is interpreted: some seventy thousand names are looked at when torch is loaded.
        return any(map(operator.is_, namespace.values(), itertools.repeat(obj)))
    except RuntimeError:
        # Another thread has changed it meanwhile.
        return True


def find_copies(*functions: object) -> Iterator[str]:
    """Yield the places in classes of imported modules that hold one of ``functions``, as it is or as a static method.

    They are places of their own, which patching a function's site doesn't reach.
    """
    wanted = set(map(id, functions))
    for module_name, namespace in _namespaces():
        # Not by isinstance: it asks for ``__class__``, with which a lazy object does what it likes.
        classes: list[Any] = [value for value in namespace.copy().values() if issubclass(type(value), type)]
        for cls in classes:
            if cls.__module__ == module_name:
                for name, value in cls.__dict__.copy().items():
                    if id(value) in wanted or id(_inside(value)) in wanted:
                        yield f"{module_name}:{cls.__qualname__}.{name}"


def _inside(value: object) -> object:
    return value.__func__ if type(value) in {staticmethod, classmethod} else None  # type: ignore[attr-defined]


def _namespaces() -> Iterator[tuple[str, dict[str, object]]]:
    seen: set[int] = set()
    for module_name, module in sys.modules.copy().items():
        try:
            # Not by getattr: a lazy module would be loaded by it.
            namespace = object.__getattribute__(module, "__dict__")
        except AttributeError:
            continue
        if type(namespace) is dict and id(namespace) not in seen:
            seen.add(id(namespace))
            yield module_name, namespace
