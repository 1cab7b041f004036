"""What an object is and where it was defined: enough to find it again, never its value."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from ._digest import code_digest, joint_digest

__all__ = ["describe"]


def describe(obj: object) -> dict[str, Any]:
    """Describe an object for the fields ``before`` and ``after``.

    Functions are named by their code, not by ``__module__`` and ``__qualname__``: a wrapper copies those from
    the function that it wraps. Nothing here depends on an address, and no value gets in. The type decides, not
    ``__class__``, so that a proxy is described as the proxy that it is.

    Args:
        obj: A function, method, descriptor, class, module, or any other object.

    Returns:
        ``kind``, ``module``, ``qualname``, ``file``, ``line`` and ``digest``, each None where it isn't known.
        The digest covers the code of a function and the code inside it; it is comparable within one minor
        version of Python. Of an object without code of its own, the type is named.
    """
    cls = type(obj)
    if cls is FunctionType:
        return _function(obj)
    for base, describer in _DESCRIBERS:
        if issubclass(cls, base):
            return describer(obj)
    return _facts("instance", cls.__module__, cls.__qualname__)


def _facts(
    kind: str,
    module: object,
    qualname: object,
    file: object = None,
    line: object = None,
    digest: str | None = None,
) -> dict[str, Any]:
    return {
        "kind": kind,
        "module": module if isinstance(module, str) else None,
        "qualname": qualname if isinstance(qualname, str) else None,
        "file": file if isinstance(file, str) else None,
        "line": line if type(line) is int else None,
        "digest": digest,
    }


def _function(func: Any) -> dict[str, Any]:
    code = func.__code__
    if sys.version_info >= (3, 11):
        qualname = code.co_qualname
    else:
        # Without co_qualname, the function's own claim counts as long as it fits the name in the code.
        claimed = func.__qualname__
        fits = claimed.rpartition(".")[2] == code.co_name and not hasattr(func, "__wrapped__")
        qualname = claimed if fits else code.co_name
    module = func.__globals__.get("__name__")
    return _facts("function", module, qualname, code.co_filename, code.co_firstlineno, code_digest(code))


def _inside(kind: str, attribute: str) -> Callable[[Any], dict[str, Any]]:
    def describer(obj: Any) -> dict[str, Any]:
        return {**describe(getattr(obj, attribute)), "kind": kind}

    return describer


def _property(obj: Any) -> dict[str, Any]:
    accessors = [describe(func) for func in (obj.fget, obj.fset, obj.fdel) if func is not None]
    if not accessors:
        return _facts("property", "builtins", "property")
    digest = joint_digest([accessor["digest"] or "" for accessor in accessors])
    return {**accessors[0], "kind": "property", "digest": digest}


def _builtin(obj: Any) -> dict[str, Any]:
    module = getattr(obj, "__module__", None) or getattr(getattr(obj, "__objclass__", None), "__module__", None)
    return _facts("builtin", module, getattr(obj, "__qualname__", None))


def _class(obj: Any) -> dict[str, Any]:
    file = getattr(sys.modules.get(str(obj.__module__)), "__file__", None)
    return _facts("class", obj.__module__, obj.__qualname__, file, vars(obj).get("__firstlineno__"))


def _module(obj: Any) -> dict[str, Any]:
    facts = vars(obj)
    return _facts("module", facts.get("__name__"), None, facts.get("__file__"))


_DESCRIBERS: tuple[tuple[type, Callable[[Any], dict[str, Any]]], ...] = (
    (MethodType, _inside("method", "__func__")),
    (staticmethod, _inside("staticmethod", "__func__")),
    (classmethod, _inside("classmethod", "__func__")),
    (property, _property),
    (functools.cached_property, _inside("cached_property", "func")),
    (functools.partial, _inside("partial", "func")),
    (functools.partialmethod, _inside("partial", "func")),
    (type(functools.lru_cache(lambda: None)), _inside("lru_cache", "__wrapped__")),
    (type, _class),
    (ModuleType, _module),
    (BuiltinFunctionType, _builtin),
    (MethodDescriptorType, _builtin),
    (WrapperDescriptorType, _builtin),
    (MethodWrapperType, _builtin),
    (ClassMethodDescriptorType, _builtin),
    (GetSetDescriptorType, _builtin),
    (MemberDescriptorType, _builtin),
)
