"""Changing who owns a layer, on many sites at once."""

from __future__ import annotations

import enum
import threading
import types
from typing import Any

import pytest

from patchkit import Context, _moves, _site
from patchkit._layers import Layer
from patchkit._moves import move, move_on, settle, standing_stack
from patchkit._records import LayerRecord
from patchkit._shares import Share
from patchkit._site import Site
from patchkit.errors import ForeignChangeError, RevertError, SiteError
from tests.engine._kit import Lab, prefixing_method


class Thing:
    def m(self, x: int) -> str:
        return f"m({x})"


class Other(Thing):
    pass


class Fixed:
    __slots__ = ()

    def m(self, x: int) -> str:
        return f"fixed({x})"


def record(*owners: Any, word: str = "W", patch: str = "z.patch") -> LayerRecord:
    return LayerRecord(Layer(patch, 1, "", make=prefixing_method(word)), Site.each(owners, "m"))


def test_all_or_none() -> None:
    """A layer that can't be put on one of its sites is put on none."""
    things = [Thing(), Fixed(), Thing()]
    with pytest.raises(SiteError):
        record(*things).do()
    assert [standing_stack(site) for site in Site.each(things, "m")] == [None] * 3
    assert (vars(things[0]), vars(things[2])) == ({}, {})


def test_stranger_on_one_site_stops_a_strict_move_only() -> None:
    """A suspension changes no site if there is a stranger on one; a release goes on and names the stranger."""
    things = [Thing() for _ in range(3)]
    made = record(*things)
    made.do()
    ours = vars(things[1])["m"]
    vars(things[1])["m"] = "stranger"
    with pytest.raises(ForeignChangeError):
        move(made, Share.suspend)
    assert (things[0].m(1), things[2].m(1)) == ("W m(1)", "W m(1)")
    errors = move_on(made, Share.release)
    assert [type(error) for error in errors] == [ForeignChangeError]
    assert (things[0].m(1), vars(things[1]), things[2].m(1)) == ("m(1)", {"m": "stranger"}, "m(1)")
    vars(things[1])["m"] = ours
    assert move_on(made, Share.release) == []
    assert vars(things[1]) == {}


def test_strangers_on_several_sites_are_all_named() -> None:
    """Undoing one record of many sites names each that a stranger has."""
    things = [Thing() for _ in range(3)]
    made = record(*things)
    made.do()
    ours = [vars(thing)["m"] for thing in things]
    for thing in things[:2]:
        vars(thing)["m"] = "stranger"
    with pytest.raises(RevertError) as caught:
        made.undo()
    assert len(caught.value.exceptions) == 2
    for thing, method in zip(things, ours, strict=True):
        if vars(thing):
            vars(thing)["m"] = method
    made.undo()
    assert [vars(thing) for thing in things] == [{}, {}, {}]


def test_alike_instances_share_one_stack() -> None:
    """A thousand instances patched alike have one stack for each type, and one wrapper."""
    things = [*(Thing() for _ in range(50)), *(Other() for _ in range(50))]
    made = record(*things)
    made.do()
    assert len({id(standing_stack(site)) for site in made.sites}) == 2
    assert len({vars(thing)["m"].__func__ for thing in things}) == 1
    made.undo()


def test_one_instance_parts_from_the_others() -> None:
    """What happens to one of many instances alike leaves the others as they are."""
    things = [Thing() for _ in range(4)]
    many, one = record(*things, word="many"), record(things[2], word="one", patch="z.other")
    many.do()
    one.do()
    assert [thing.m(1) for thing in things] == ["many m(1)", "many m(1)", "one many m(1)", "many m(1)"]
    twin = LayerRecord(many.layer, Site.each(things[1:3], "m"))
    twin.do()
    many.undo()
    assert [thing.m(1) for thing in things] == ["m(1)", "many m(1)", "one many m(1)", "m(1)"]
    twin.undo()
    assert [thing.m(1) for thing in things] == ["m(1)", "m(1)", "one m(1)", "m(1)"]
    one.undo()
    assert [vars(thing) for thing in things] == [{}] * 4


class Colour(enum.Enum):
    RED = 1


class Closed(type):
    def __setattr__(cls, name: str, value: object) -> None:
        raise AttributeError(f"{name} is closed")

    def __delattr__(cls, name: str) -> None:
        raise AttributeError(f"{name} is closed")


class Shut(metaclass=Closed):
    def m(self, x: int) -> str:
        return f"m({x})"


@pytest.mark.parametrize(
    "change",
    [
        lambda ctx: ctx.set(Colour, "RED", 2),
        lambda ctx: ctx.wrap(f"{__name__}:Shut.m", prefixing_method("x")),
        lambda ctx: ctx.set(Shut, "new", 1),
        lambda ctx: ctx.delete(Shut, "m"),
        lambda ctx: ctx.set_item(types.MappingProxyType({"a": 1}), "a", 2),
        lambda ctx: ctx.set_item(types.MappingProxyType({}), "a", 2),
    ],
    ids=["enum", "metaclass", "new attribute", "delete", "mapping", "new item"],
)
def test_owner_that_refuses(lab: Lab, change: Any) -> None:
    """An owner that refuses a write is an error about its site, and nothing is said to be left behind."""
    known = set(_site.PLACES)
    lab.patch("z.refused", change)
    with pytest.raises(SiteError, match=r"expected an owner that lets it be changed, found that it refuses: \w+Error"):
        lab.apply("z.refused")
    assert set(_site.PLACES) == known


def test_settling_reports_strangers_and_goes_on() -> None:
    """Settling names a stranger and settles the rest; where nothing has changed it touches nothing."""
    thing = Thing()
    made = record(thing)
    made.do()
    before = vars(thing)["m"]
    settle(made.sites)
    assert vars(thing)["m"] is before
    made.undo()
    settle(made.sites)


def test_nothing_is_left_in_the_books(lab: Lab) -> None:
    """After everything was reverted the engine knows no place that it has touched."""
    known = set(_site.PLACES)
    things = [Thing(), Other()]

    def install(ctx: Context) -> None:
        ctx.wrap(f"{__name__}:Thing.m", prefixing_method("C"))
        ctx.wrap_each(things, "m", prefixing_method("I"))
        ctx.set_item(vars(things[0]), "item", 1)

    lab.patch("z.all", install)
    lab.apply("z.all").revert()
    assert set(_site.PLACES) == known


def test_what_was_worked_out_half_way_is_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that looked while another one was just carrying out a move doesn't act on what it saw."""
    thing = Thing()
    looked = threading.Event()

    def make(original: Any) -> Any:
        looked.set()
        return prefixing_method("second")(original)

    first = record(thing, word="first")
    second = LayerRecord(Layer("z.second", 1, "", make=make), Site.each([thing], "m"))
    other = threading.Thread(target=second.do)
    take = _moves._take

    def take_slowly(*step: Any) -> None:
        monkeypatch.setattr(_moves, "_take", take)
        other.start()
        assert looked.wait(10)
        take(*step)

    monkeypatch.setattr(_moves, "_take", take_slowly)
    first.do()
    other.join(10)
    assert thing.m(1) == "second first m(1)"
    first.undo()
    second.undo()
    assert vars(thing) == {}
