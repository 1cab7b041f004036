"""Other names of the same object in imported modules."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from patchkit._alias import can_have_aliases, find_aliases, find_copies
from tests.engine._kit import Lab, module


class Rude:
    """An object that does not like to be looked at."""

    def _class(self) -> Any:
        raise RuntimeError("hands off")

    __class__ = property(_class)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparisons")

    def __hash__(self) -> int:
        raise RuntimeError("no hashing")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no attributes")


def test_names_are_found_by_identity(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """All names of an object are found, whatever they are called; equal objects, and rude ones, are passed by."""

    def f() -> None: ...
    def other() -> None: ...

    one, two = module("aliasone", f=f, g=f, h=other, rude=Rude()), module("aliastwo", renamed=f)
    monkeypatch.setitem(sys.modules, "aliasone", one)
    monkeypatch.setitem(sys.modules, "aliastwo", two)
    monkeypatch.setitem(sys.modules, "aliasagain", two)
    modules: dict[str, Any] = sys.modules
    monkeypatch.setitem(modules, "aliasnone", None)
    monkeypatch.setitem(modules, "aliasrude", Rude())
    found = [(held, name, attr) for held, _, name, attr in find_aliases(f, other) if name.startswith("alias")]
    assert found == [(f, "aliasone", "f"), (f, "aliasone", "g"), (other, "aliasone", "h"), (f, "aliastwo", "renamed")]


@pytest.mark.parametrize("obj", [lambda: 1, Rude, sys.getsizeof, type("T", (), {"__call__": lambda self: 1})()])
def test_identity_that_means_something(obj: object) -> None:
    """Functions, classes and other callables can be told from others."""
    assert can_have_aliases(obj)


@pytest.mark.parametrize("obj", [None, True, 0, 1.5, "text", (), dict, len, ValueError, object(), []])
def test_identity_that_means_nothing(obj: object) -> None:
    """Constants and built-ins are shared by accident."""
    assert not can_have_aliases(obj)


def test_copies_in_classes(lab: Lab) -> None:
    """Classes that hold a function as it is, or as a static or class method, are named, and nobody is disturbed."""
    lib = lab.library(
        "aliasclasses",
        """
        def f(x): ...
        def g(x): ...
        class Holder:
            plain = f
            static = staticmethod(f)
            klass = classmethod(g)
            other = 1
        again = Holder
        """,
    )
    lib.rude = Rude()
    assert sorted(set(find_copies(lib.f))) == ["aliasclasses:Holder.plain", "aliasclasses:Holder.static"]
    assert "aliasclasses:Holder.klass" in set(find_copies(lib.f, lib.g))
