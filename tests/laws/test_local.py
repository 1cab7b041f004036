"""Law 11: a patch that is given a model touches that model only, and lets it live and die as it would."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest

from patchkit import Context, _effects, _site
from patchkit.errors import ResourceError, VerifyError
from tests.engine._kit import Lab, Memory, Module, prefixing_method

SOURCE = """
class Thing:
    word = "stock"
    def m(self, x):
        return f"m({self.word},{x})"
    @staticmethod
    def s(x):
        return f"s({x})"
    @classmethod
    def c(cls, x):
        return f"{cls.__name__}.c({x})"
"""


@pytest.fixture
def lib(lab: Lab) -> Any:
    lab.patch("l.m", lambda ctx: ctx.wrap_each([ctx.model], "m", prefixing_method("M")), resources=("model",))
    return lab.library("locallib", SOURCE)


def test_only_that_instance(lab: Lab, lib: Any) -> None:
    """Another instance of the same class, and the class, are as they were."""
    one, other = lib.Thing(), lib.Thing()
    memory = Memory(lib, lib.Thing, other)
    with lab.apply("l.m", model=one):
        assert (one.m(1), other.m(1), lib.Thing().m(1)) == ("M m(stock,1)", "m(stock,1)", "m(stock,1)")
        assert memory.differences() == []


def test_two_models_that_differ(lab: Lab, lib: Any) -> None:
    """Two models in one process are patched, suspended and reverted independently."""
    one, two = lib.Thing(), lib.Thing()
    first, second = lab.apply("l.m", model=one), lab.apply("l.m", model=two)
    with first.reverted():
        assert (one.m(1), two.m(1)) == ("m(stock,1)", "M m(stock,1)")
    first.revert()
    assert (one.m(1), two.m(1)) == ("m(stock,1)", "M m(stock,1)")
    second.revert()
    assert (vars(one), vars(two)) == ({}, {})


def test_actions_belong_to_the_model(lab: Lab, lib: Any) -> None:
    """A step of a patch that has a model is taken for each model, also if the patch doesn't say for what it is."""
    one, two = lib.Thing(), lib.Thing()
    done: list[object] = []

    def install(ctx: Context) -> None:
        model = ctx.model
        ctx.action("mark", lambda: done.append(model), lambda: done.remove(model))

    lab.patch("l.action", install, resources=("model",))
    first, second = lab.apply("l.action", model=one), lab.apply("l.action", model=two)
    assert done == [one, two]
    first.revert()
    assert done == [two]
    second.revert()
    assert done == []


@pytest.mark.parametrize("attr", ["m", "own", "s", "c"])
def test_deep_copy_acts_on_the_copy(lab: Lab, lib: Any, attr: str) -> None:
    """A deep copy of a patched object calls with itself, whatever was overridden: a method, its own function, static,
    class.
    """
    thing = lib.Thing()
    if attr == "own":
        thing.own = thing.m
    selves: list[Any] = []

    def make(original: Any) -> Any:
        def wrapper(self: Any, x: Any) -> Any:
            selves.append(self)
            return f"W {original(self, x)}"

        return wrapper

    lab.patch("l.any", lambda ctx: ctx.wrap_each([ctx.model], attr, make), resources=("model",))
    with lab.apply("l.any", model=thing):
        twin = copy.deepcopy(thing)
        twin.word = "twin"
        answers = {
            "m": ("W m(stock,1)", "W m(twin,1)"),
            "own": ("W m(stock,1)", "W m(twin,1)"),
            "s": ("W s(1)", "W s(1)"),
            "c": ("W Thing.c(1)", "W Thing.c(1)"),
        }
        assert (getattr(thing, attr)(1), getattr(twin, attr)(1)) == answers[attr]
        assert selves == [thing, twin]


def test_model_can_be_collected(lab: Lab, lib: Any) -> None:
    """Neither a handle nor the engine keeps a model alive; afterwards nothing of it is left, and reverting is
    harmless.
    """
    thing, module = lib.Thing(), Module()
    thing.module = module
    thing.own = thing.m

    def hook(*_: Any) -> None: ...

    def install(ctx: Context) -> None:
        ctx.wrap_each([ctx.model], "m", prefixing_method("M"))
        ctx.wrap_each([ctx.model], "own", prefixing_method("O"))
        ctx.set(ctx.model, "extra", 1)
        ctx.hook(ctx.model.module, "forward_hook", hook)
        ctx.targets([ctx.model])

    lab.patch("l.all", install, resources=("model",))
    applied = lab.apply("l.all", model=thing)
    assert (thing.m(1), thing.own(1)) == ("M m(stock,1)", "O m(stock,1)")
    places, effects = len(_site.PLACES), len(_effects._EFFECTS)
    refs = [weakref.ref(thing), weakref.ref(module)]
    del thing, module, lab._applied[:]
    gc.collect()
    assert [ref() for ref in refs] == [None, None]
    assert (len(_site.PLACES), len(_effects._EFFECTS)) == (places - 3, effects - 1)
    assert applied.report().patches[0].state == "installed"
    applied.verify()
    applied.revert()
    assert applied.patches == ()


def test_verifying_a_model_that_is_gone(lab: Lab, lib: Any) -> None:
    """A patch whose own check asks for a model that has been collected is not proven; that is a ``VerifyError``."""
    thing = lib.Thing()
    lab.patch(
        "l.asks",
        lambda ctx: ctx.wrap_each([ctx.model], "m", prefixing_method("M")),
        verify=lambda ctx: ctx.model,
        resources=("model",),
    )
    applied = lab.apply("l.asks", model=thing)
    del thing
    gc.collect()
    with pytest.raises(VerifyError, match="has been collected since"):
        applied.verify()
    applied.revert()


def test_undo_outlives_the_model(lab: Lab, lib: Any) -> None:
    """A step that was taken for a model is undone also after the model is gone: it may have changed more than the
    model.
    """
    thing, state = lib.Thing(), {"level": "stock"}

    def install(ctx: Context) -> None:
        ctx.action("raise", lambda: state.update(level="high"), lambda: state.update(level="stock"))

    lab.patch("l.level", install, resources=("model",))
    applied = lab.apply("l.level", model=thing)
    del thing
    gc.collect()
    assert state == {"level": "high"}
    applied.revert()
    assert state == {"level": "stock"}


def test_handle_that_is_thrown_away(lab: Lab, lib: Any) -> None:
    """Losing the handle leaves the patch on; another application shares it and doesn't do it twice."""
    thing = lib.Thing()
    lab.apply("l.m", model=thing)
    lab._applied.clear()
    gc.collect()
    assert thing.m(1) == "M m(stock,1)"
    again = lab.apply("l.m", model=thing)
    assert thing.m(1) == "M m(stock,1)"
    again.revert()
    assert thing.m(1) == "M m(stock,1)"


def test_thousand_instances(lab: Lab, lib: Any) -> None:
    """Overrides of many instances are one record, one entry on the log, and all gone after the revert."""
    from patchkit.audit import read_entries

    things = [lib.Thing() for _ in range(1000)]
    lab.patch("l.many", lambda ctx: ctx.wrap_each(things, "m", prefixing_method("M")))
    applied = lab.apply("l.many")
    assert {thing.m(1) for thing in things} == {"M m(stock,1)"}
    assert len({thing.m.__func__ for thing in things}) == 1
    (installed,) = [entry for entry in read_entries(lab.log) if entry.event == "patch.installed"]
    assert [change["count"] for change in installed.fields["changes"]] == [1000]
    assert applied.report().patches[0].sites == ("locallib:Thing.m (one instance) and 999 more",)
    applied.revert()
    assert [vars(thing) for thing in things] == [{}] * 1000


def test_process_wide_patch_refuses_a_model_of_its_own(lab: Lab, lib: Any) -> None:
    """``on`` for a patch that takes no model would promise what it can't keep."""
    lab.patch("l.everywhere", lambda ctx: ctx.set(lib, "EVERYWHERE", 1))
    with pytest.raises(ResourceError, match="expected a patch that is given a model"):
        lab.apply({"name": "l.everywhere", "on": "one"}, model={"one": object()})
    assert not hasattr(lib, "EVERYWHERE")
