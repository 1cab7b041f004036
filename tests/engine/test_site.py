"""One place that can be patched, read and written raw in its own namespace."""

from __future__ import annotations

import gc
import sys
import types
from typing import Any

import pytest

from patchkit._site import ABSENT, PLACES, ItemSite, Site, locate, open_descriptor
from patchkit.errors import SiteError
from tests.engine._kit import Lab, Module, prefixing


class Base:
    attribute = 1

    def m(self) -> str:
        return "m"

    @staticmethod
    def s() -> str:
        return "s"

    @classmethod
    def c(cls) -> str:
        return "c"

    @property
    def p(self) -> int:
        return 1


class Derived(Base):
    __slots__ = ("slot",)


class Fixed:
    __slots__ = ("slot",)


OWNERS: list[tuple[Any, str]] = [
    (types.ModuleType("owner"), "attr"),
    (type("Owner", (), {}), "attr"),
    (Base(), "attr"),
    (Derived(), "slot"),
    (Fixed(), "slot"),
    (Module(), "attr"),
]


@pytest.mark.parametrize(("owner", "attr"), OWNERS)
def test_read_what_was_written(owner: Any, attr: str) -> None:
    """Every kind of owner holds what was written, and nothing after a deletion, which may be repeated."""
    site = Site(owner, attr)
    value = object()
    assert site.read() is ABSENT
    site.write(ABSENT)
    site.write(value)
    site.write(value)
    assert site.read() is value
    assert getattr(owner, attr) is value
    site.write(ABSENT)
    site.write(ABSENT)
    assert site.read() is ABSENT
    assert not hasattr(owner, attr)


def test_reading_is_raw() -> None:
    """Descriptors are read as they are, inherited attributes are not read at all."""
    assert Site(Base, "s").read() is vars(Base)["s"]
    assert Site(Base, "p").read() is vars(Base)["p"]
    assert (Site(Derived, "m").read(), Site(Base(), "m").read()) == (ABSENT, ABSENT)
    assert Site(Derived, "m").inherited() is vars(Base)["m"]
    assert Site(Derived(), "p").inherited() is vars(Base)["p"]
    assert (Site(Base, "m").inherited(), Site(types, "gone").inherited()) == (ABSENT, ABSENT)


def test_registries_of_a_module_are_bypassed() -> None:
    """A class that gives its own meaning to setting attributes is written to all the same."""
    module = Module()
    Site(module, "forward").write(1)
    assert vars(module)["forward"] == 1


@pytest.mark.parametrize(
    ("owner", "attr", "path"),
    [
        (types, "ModuleType", "types:ModuleType"),
        (Base, "m", f"{__name__}:Base.m"),
        (Base(), "m", f"{__name__}:Base.m (one instance)"),
    ],
)
def test_path(owner: Any, attr: str, path: str) -> None:
    """A site is called by its module, class and attribute, or by what it was given."""
    assert Site(owner, attr).path == path
    assert Site(owner, attr, "given:name").path == "given:name"


def test_owner_is_held_weakly() -> None:
    """A site doesn't keep its owner; what is known of the place goes with it, and writing is harmless."""
    owner = Base()
    site = Site(owner, "m")
    PLACES[site.key] = "something"
    key = site.key
    del owner
    gc.collect()
    assert site.owner is None
    assert key not in PLACES
    site.write(1)
    assert site.read() is ABSENT


def test_many_sites_of_several_types() -> None:
    """``each`` makes the same sites as making them one by one, slots included."""
    owners = [Base(), Derived(), Fixed(), Base, types]
    made = Site.each(owners, "slot")
    for site, owner in zip(made, owners, strict=True):
        assert (site.key, site.owner) == (Site(owner, "slot").key, owner)
        site.write("x")
        assert getattr(owner, "slot") == "x"  # noqa: B009 - not every owner declares it
        site.write(ABSENT)
        assert not hasattr(owner, "slot") or isinstance(owner, type)


@pytest.mark.parametrize(
    ("owner", "attr", "message"),
    [
        (dict, "get", "the C type 'dict'"),
        (Base(), "p", "a property on the class"),
        (object(), "x", "neither __dict__ nor such a slot"),
        (5, "x", "neither __dict__ nor such a slot"),
    ],
)
def test_not_writable(owner: Any, attr: str, message: str) -> None:
    """A place where a write would be refused, or have no effect, is refused with the reason."""
    with pytest.raises(SiteError, match=message):
        Site(owner, attr).require_writable()


@pytest.mark.parametrize(("owner", "attr"), OWNERS)
def test_writable(owner: Any, attr: str) -> None:
    """All others are writable."""
    Site(owner, attr).require_writable()


def test_items() -> None:
    """An item of a mapping is a place like any other."""
    mapping: dict[str, Any] = {"a": None}
    present, absent = ItemSite(mapping, "a"), ItemSite(mapping, "b")
    assert (present.read(), absent.read(), absent.inherited()) == (None, ABSENT, ABSENT)
    absent.write(1)
    absent.require_writable()
    assert (mapping, absent.path, absent.owner) == ({"a": None, "b": 1}, "dict['b']", mapping)
    absent.write(ABSENT)
    absent.write(ABSENT)
    assert mapping == {"a": None}


def test_locate(lab: Lab) -> None:
    """A path leads through modules and nested classes; the module is imported for it, the attribute may be absent."""
    lab.write("sitelib", "class Outer:\n    class Inner:\n        def m(self): ...\n")
    site = locate("sitelib:Outer.Inner.m")
    assert (site.owner.__qualname__, site.attr, site.path) == ("Outer.Inner", "m", "sitelib:Outer.Inner.m")
    assert site.read() is vars(site.owner)["m"]
    assert locate("sitelib:absent").read() is ABSENT
    assert locate("os.path:join").owner is __import__("os").path


def test_locate_a_class_that_is_made_on_demand(lab: Lab) -> None:
    """A module that makes its classes when they are asked for (PEP 562) is asked."""
    lab.write(
        "sitelazy",
        "class _Thing:\n    def m(self): ...\n\ndef __getattr__(name):\n    return {'Thing': _Thing}[name]\n",
    )
    assert locate("sitelazy:Thing.m").owner.__name__ == "_Thing"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("sitelib", "of the form"),
        (":f", "of the form"),
        ("sitelib:", "of the form"),
        ("no_such_lib:f", "expected an importable module 'no_such_lib'"),
        ("sitebroken:f", "importing it failed: No module named 'no_such_thing'"),
        ("sitelib:Outer.m", "Nearest names: Other"),
    ],
)
def test_locate_nothing(lab: Lab, path: str, message: str) -> None:
    """A path that leads nowhere is an error that says where it ended, and what is near."""
    lab.write("sitelib", "class Other:\n    pass\n")
    lab.write("sitebroken", "import no_such_thing\n")
    with pytest.raises(SiteError, match=message):
        locate(path)


def test_descriptors_are_opened_and_closed() -> None:
    """A function is taken out of its descriptor and put into one of the same kind."""
    raws: list[Any] = [vars(Base)["m"], vars(Base)["s"], vars(Base)["c"], vars(Base)["p"]]
    opened = [open_descriptor(raw) for raw in raws]
    kinds = [type(pair[1](lambda *_: 1)) for pair in opened if pair is not None]
    assert kinds == [types.FunctionType, staticmethod, classmethod, property]
    others: list[Any] = [1, "x", property(None)]
    assert [open_descriptor(raw) for raw in others] == [None, None, None]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ctx: ctx.wrap("sitenear:halv", prefixing("x")), "found nothing. Nearest names: halve"),
        (lambda ctx: ctx.replace("sitenear:halv", 1), "found none. Nearest names: halve"),
        (lambda ctx: ctx.delete(sys.modules["sitenear"], "halv"), "found none. Nearest names: halve"),
    ],
    ids=["wrap", "replace", "delete"],
)
def test_nearest_names(lab: Lab, change: Any, message: str) -> None:
    """A primitive for a site that isn't there names those that are like it."""
    lab.library("sitenear", "def halve(x): ...\n")
    lab.patch("t.near", change)
    with pytest.raises(SiteError, match=message):
        lab.apply("t.near")
