"""What one patch puts on a site, and how it is described."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from patchkit._layers import Layer, describe_object
from patchkit._site import ABSENT
from patchkit.errors import InstallError, NothingToDoError


def below(x: int) -> int:
    """Say what is below."""
    return x


below.mark = "kept"  # type: ignore[attr-defined]


def forwarding(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(x: int) -> Any:
        return original(x)

    return wrapper


def layer(make: Callable[..., Any]) -> Layer:
    return Layer("y.patch", 1, "variant", make=make)


def test_wrapper_is_built_once_for_what_is_below() -> None:
    """The same object below gives the same wrapper; another one gives another."""
    built: list[Any] = []

    def make(original: Any) -> Any:
        built.append(original)
        return forwarding(original)

    made = layer(make)
    one = made.build(below)
    assert made.build(below) is one
    assert made.build(lambda x: x) is not one
    assert len(built) == 2


def test_wrapper_passes_for_what_is_below() -> None:
    """Name, docstring and attributes are those of what is below, unless it is no function."""
    wrapper: Any = layer(forwarding).build(below)
    assert (wrapper.__name__, wrapper.__doc__, wrapper.mark, wrapper.__wrapped__) == (
        *("below", "Say what is below.", "kept"),
        below,
    )

    class Callee:
        def __init__(self) -> None:
            self.weight = [1]

        def __call__(self, x: int) -> int:
            return x

    callee = Callee()
    around: Any = layer(forwarding).build(callee)
    assert (hasattr(around, "weight"), around.__wrapped__) == (False, callee)


def test_objects_as_wrappers() -> None:
    """A wrapper need not be a function, where nothing is to be bound."""
    wrapper = functools.partial(lambda original, x: original(x), below)
    assert layer(lambda original: wrapper).build(below) is wrapper


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda original: original, NothingToDoError, "got that very object back"),
        (lambda original: 5, InstallError, "can't be called"),
        (lambda original: lambda: None, InstallError, "it takes 0 positional arguments, expected 1"),
    ],
)
def test_wrappers_that_are_none(make: Callable[..., Any], error: type[Exception], message: str) -> None:
    """A maker that returns something else than a wrapper is told what it returned, by the name of its patch."""
    with pytest.raises(error, match=message) as caught:
        layer(make).build(below)
    assert getattr(caught.value, "patch", None) == "y.patch"


class Described:
    def m(self) -> None: ...

    @staticmethod
    def s() -> None: ...

    @property
    def p(self) -> int:
        return 1


HERE = f"({__file__}:"


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (ABSENT, "nothing"),
        (below, f"function {__name__}.below {HERE}"),
        (Described().m, f"method {__name__}.Described.m {HERE}"),
        (vars(Described)["s"], f"staticmethod {__name__}.Described.s {HERE}"),
        (vars(Described)["p"], f"property {__name__}.Described.p {HERE}"),
        (Described, f"type {__name__}.Described"),
        (len, "builtin_function_or_method builtins.len"),
        (sys, "an object of type builtins.module"),
        (5, "an object of type builtins.int"),
        (Described(), f"an object of type {__name__}.Described"),
        (property(None), "an object of type builtins.property"),
    ],
)
def test_descriptions(obj: object, expected: str) -> None:
    """An object is described by what it is and where it was defined, without its value."""
    assert describe_object(obj).startswith(expected)


def test_description_is_not_deceived() -> None:
    """A wrapper that bears another's name is described by where it was really defined."""

    @functools.wraps(types.new_class)
    def deceiver() -> None: ...

    assert f"function {__name__}.new_class ({__file__}:" in describe_object(deceiver)
