"""Whether two code objects do the same, wherever they stand."""

from __future__ import annotations

import inspect
import types
from itertools import pairwise

__all__ = ["alike", "same_constant"]

_MEMBERS = (
    "co_code",
    "co_names",
    "co_varnames",
    "co_freevars",
    "co_cellvars",
    "co_argcount",
    "co_posonlyargcount",
    "co_kwonlyargcount",
    "co_exceptiontable",
)


def alike(a: types.CodeType, b: types.CodeType) -> bool:
    """Tell whether two code objects, compiled by this Python, do the same; lines and names of files don't count."""
    return (
        _essence(a) == _essence(b)
        and len(a.co_consts) == len(b.co_consts)
        and all(
            alike(x, y)
            if isinstance(x, types.CodeType) and isinstance(y, types.CodeType)
            else same_constant(x, y) or _are_names(before, x, y)
            for (before, x), y in zip(pairwise((None, *a.co_consts)), b.co_consts, strict=True)
        )
    )


def same_constant(x: object, y: object) -> bool:
    """Tell whether two constants are the same: ``1`` and ``True`` are not, nor are ``0.0`` and ``-0.0``."""
    return _identity(x) == _identity(y)


def _essence(code: types.CodeType) -> tuple[object, ...]:
    flags = code.co_flags & ~(inspect.CO_NESTED | inspect.CO_NOFREE)
    return flags, *(getattr(code, member, None) for member in _MEMBERS)


def _identity(constant: object) -> object:
    kind = type(constant)
    if isinstance(constant, tuple):
        return kind, *map(_identity, constant)
    if isinstance(constant, frozenset):
        return kind, frozenset(map(_identity, constant))
    if isinstance(constant, slice):
        return kind, *map(_identity, (constant.start, constant.stop, constant.step))
    return kind, repr(constant) if isinstance(constant, (float, complex)) else constant


def _are_names(before: object, x: object, y: object) -> bool:
    """Tell the qualified names of a nested function, which are constants behind its code before Python 3.11."""
    if not (isinstance(before, types.CodeType) and isinstance(x, str) and isinstance(y, str)):
        return False
    return not hasattr(before, "co_qualname") and {before.co_name} == {name.rpartition(".")[2] for name in (x, y)}
