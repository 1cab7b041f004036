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


AUTHOR = """
import patchkit
from {lib} import f
from {lib} import f as stock_f

@patchkit.{form}("{lib}:f", name="{lib}.one", summary="s")
def one({first}a):
    return helper(a) + 1

def helper(a):
    return stock_f(a) * 10

def elsewhere(a):
    return f(a)
"""


@pytest.mark.parametrize(("form", "first"), [("replace", ""), ("wrap", "original, ")])
@pytest.mark.parametrize("is_known", [True, False], ids=["closure", "forwarded"])
def test_names_that_the_patch_reads_itself(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, form: str, first: str, is_known: bool
) -> None:
    """A name by which a patch's own module has kept the stock function stays so; others in it follow the patch."""
    name = f"aliasown_{form}_{is_known}".lower()
    lib = lab.library(name, "def f(a):\n    return a\n")
    source = AUTHOR.format(lib=name, form=form, first=first)
    if is_known:
        author = lab.library(f"{name}_author", source)
    else:
        author = module(f"{name}_author")
        monkeypatch.setitem(sys.modules, author.__name__, author)
        exec(source, author.__dict__)
    lab.keep(f"{name}.one")
    stock = lib.f
    applied = lab.apply(f"{name}.one")
    assert (lib.f(2), author.f(2), author.elsewhere(2)) == (21, 21, 21)
    assert author.stock_f is stock
    applied.verify()
    applied.revert()
    assert lib.f is author.f is author.stock_f is stock


def test_names_that_one_of_two_patches_reads(lab: Lab) -> None:
    """Such a name is the stock function's for as long as the patch that reads it is in effect, in whatever order."""
    lib = lab.library("aliastwo", "def f(a):\n    return a\n")
    author = lab.library("aliastwo_author", AUTHOR.format(lib="aliastwo", form="wrap", first="original, "))
    lab.keep("aliastwo.one")

    def other(original: Any) -> Any:
        def f(a: Any) -> Any:
            return original(a) + 1000

        return f

    lab.patch("aliastwo.other", lambda ctx: ctx.wrap("aliastwo:f", other))
    stock = lib.f
    first = lab.apply("aliastwo.other")
    assert author.stock_f is lib.f is not stock
    second = lab.apply("aliastwo.one")
    assert author.stock_f is stock
    assert lib.f(2) == 21
    second.revert()
    assert author.stock_f is lib.f is not stock
    second = lab.apply("aliastwo.one")
    first.revert()
    assert author.stock_f is stock
    second.verify()
    second.revert()
    assert author.stock_f is lib.f is stock
