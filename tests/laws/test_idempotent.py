"""Law 5: the same patch on the same target takes effect once, for as long as somebody owns it."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from pydantic import Field

from patchkit import Context, PatchOptions
from patchkit.errors import OrderError, ResourceError
from tests.engine._kit import Lab, Memory, Module, prefixing, prefixing_method

SOURCE = """
def f(x):
    return f"f({x})"

class Thing:
    def __init__(self, *children):
        self.children = children
    def m(self, x):
        return f"m({x})"
"""


class Options(PatchOptions):
    word: str = Field(default="W", description="What to say first.")


@pytest.fixture
def lib(lab: Lab) -> Any:
    return lab.library("idemlib", SOURCE)


def test_same_manifest_twice(lab: Lab, lib: Any) -> None:
    """Applied twice, in effect once; the patch leaves with the last of its handles, in whatever order they go."""
    memory = Memory(lib)
    lab.patch("i.f", lambda ctx: ctx.wrap("idemlib:f", prefixing("F")))
    first, second, third = lab.apply("i.f"), lab.apply("i.f"), lab.apply("i.f")
    assert lib.f("1") == "F f(1)"
    second.revert()
    first.revert()
    assert lib.f("1") == "F f(1)"
    third.verify()
    third.revert()
    assert memory.differences() == []


def test_reverting_twice(lab: Lab, lib: Any) -> None:
    """Reverting what is reverted does nothing: another handle's reference is not taken."""
    lab.patch("i.f", lambda ctx: ctx.wrap("idemlib:f", prefixing("F")))
    first, second = lab.apply("i.f"), lab.apply("i.f")
    first.revert()
    first.revert()
    first.revert("i.f")
    assert lib.f("1") == "F f(1)"
    second.revert()
    assert lib.f("1") == "f(1)"


def test_every_primitive_is_shared(lab: Lab, lib: Any) -> None:
    """Layers, attributes, items, hooks and actions are there once for two handles, and go with the last."""
    thing, module, table, switch = lib.Thing(), Module(), {"a": 1}, []
    memory = Memory(lib, thing, module, table, module.__dict__["_forward_hooks"])

    def hook(*_: Any) -> None: ...

    def install(ctx: Context) -> None:
        ctx.wrap_each([thing], "m", prefixing_method("M"))
        ctx.set(thing, "extra", 1)
        ctx.set_item(table, "a", 2)
        ctx.hook(ctx.model, "forward_hook", hook)
        ctx.action("switch", lambda: switch.append("on"), lambda: switch.append("off"))

    lab.patch("i.all", install, resources=("model",))
    first, second = lab.apply("i.all", model=module), lab.apply("i.all", model=module)
    assert (thing.m("1"), thing.extra, table, module.hooks, switch) == ("M m(1)", 1, {"a": 2}, [hook], ["on"])
    with first.reverted():
        assert (memory.differences(), switch) == ([], ["on", "off"])
    first.revert()
    assert (thing.m("1"), thing.extra, table, module.hooks, switch) == (
        *("M m(1)", 1, {"a": 2}, [hook]),
        ["on", "off", "on"],
    )
    second.revert()
    assert (memory.differences(), switch) == ([], ["on", "off", "on", "off"])


def test_state_of_an_action_is_its_first_owners(lab: Lab, lib: Any) -> None:
    """A step that remembers something is undone by the inverse that knows it, whichever handle leaves last."""
    state = {"level": "stock"}

    def install(ctx: Context) -> None:
        remembered: dict[str, str] = {}

        def do() -> None:
            remembered.setdefault("level", state["level"])
            state["level"] = "patched"

        def undo() -> None:
            state["level"] = remembered.get("level", state["level"])

        ctx.action("set the level", do, undo)

    lab.patch("i.state", install)
    first, second = lab.apply("i.state"), lab.apply("i.state")
    first.revert()
    assert state == {"level": "patched"}
    second.revert()
    assert state == {"level": "stock"}


def test_same_step_twice_in_one_patch(lab: Lab) -> None:
    """Two steps of one name in one patch are two steps."""
    done: list[str] = []

    def install(ctx: Context) -> None:
        ctx.action("step", lambda: done.append("one"), lambda: done.remove("one"))
        ctx.action("step", lambda: done.append("two"), lambda: done.remove("two"))

    lab.patch("i.steps", install)
    with lab.apply("i.steps"):
        assert done == ["one", "two"]
    assert done == []


def test_two_patches_hook_one_module(lab: Lab) -> None:
    """Two patches that each register a hook of the same kind on one module both get theirs."""
    module = Module()

    def one(*_: Any) -> None: ...
    def two(*_: Any) -> None: ...

    lab.patch("i.one", lambda ctx: ctx.hook(ctx.model, "forward_hook", one), resources=("model",))
    lab.patch("i.two", lambda ctx: ctx.hook(ctx.model, "forward_hook", two), resources=("model",))
    with lab.apply("i.one", "i.two", model=module):
        assert module.hooks == [one, two]
    assert module.hooks == []


def test_one_patch_hooks_one_module_twice(lab: Lab) -> None:
    """A patch that registers two hooks on one module gets both, once, however often it is applied."""
    module = Module()

    def one(*_: Any) -> None: ...
    def two(*_: Any) -> None: ...

    def install(ctx: Context) -> None:
        ctx.hook(ctx.model, "forward_hook", one)
        ctx.hook(ctx.model, "forward_hook", two)

    lab.patch("i.both", install, resources=("model",))
    with lab.apply("i.both", model=module), lab.apply("i.both", model=module):
        assert module.hooks == [one, two]
    assert module.hooks == []


@pytest.mark.parametrize("primitive", ["wrap", "wrap_each", "set", "set_item", "hook", "action", "targets"])
def test_other_options_on_the_same_target(lab: Lab, lib: Any, primitive: str) -> None:
    """The same patch with other options on the same target is refused, and nothing changes."""
    thing, module = lib.Thing(), Module()
    table: dict[str, str] = {}
    done: list[str] = []

    def hook(*_: Any) -> None: ...

    def install(ctx: Context) -> None:
        word = ctx.options.word
        if primitive == "wrap":
            ctx.wrap("idemlib:f", prefixing(word))
        elif primitive == "wrap_each":
            ctx.wrap_each([thing], "m", prefixing_method(word))
        elif primitive == "set":
            ctx.set(thing, "word", word)
        elif primitive == "set_item":
            ctx.set_item(table, "word", word)
        elif primitive == "hook":
            ctx.hook(module, "forward_hook", hook)
        elif primitive == "action":
            ctx.action("say", lambda: done.append(word), lambda: done.remove(word))
        else:
            targets = ctx.targets([thing])
            ctx.wrap("idemlib:f", prefixing(word), targets=targets)

    lab.patch("i.options", install, Options=Options)
    memory = Memory(lib, thing, module, table, module.__dict__["_forward_hooks"])
    applied = lab.apply("i.options")
    patched = Memory(lib, thing, module, table, module.__dict__["_forward_hooks"])
    with pytest.raises(OrderError, match="options"):
        lab.apply({"name": "i.options", "options": {"word": "X"}})
    assert patched.differences() == []
    assert done == (["W"] if primitive == "action" else [])
    applied.verify()
    applied.revert()
    assert (memory.differences(), done) == ([], [])
    # After the first one has left, the other options are as good as any.
    lab.apply({"name": "i.options", "options": {"word": "X"}}).revert()
    assert (memory.differences(), done) == ([], [])


def test_two_models_share_a_process_wide_wrapper(lab: Lab, lib: Any) -> None:
    """One wrapper acts for the targets of two models, with different options; each model leaves by itself."""
    one, two, three = lib.Thing(), lib.Thing(), lib.Thing()

    def install(ctx: Context) -> None:
        targets, word = ctx.targets([ctx.model]), ctx.options.word

        def make(original: Any) -> Any:
            def m(self: Any, x: Any) -> Any:
                return f"{word} {original(self, x)}" if self in targets else original(self, x)

            return m

        ctx.wrap("idemlib:Thing.m", make, targets=targets)

    lab.patch("i.targets", install, Options=Options, resources=("model",))
    memory = Memory(lib.Thing)
    first = lab.apply("i.targets", model=one)
    second = lab.apply("i.targets", model=two)
    other = lab.apply({"name": "i.targets", "options": {"word": "X"}}, model=three)

    def answers() -> list[str]:
        return [thing.m("1") for thing in (one, two, three)]

    assert answers() == ["W m(1)", "W m(1)", "X m(1)"]
    with first.reverted():
        assert answers() == ["m(1)", "W m(1)", "X m(1)"]
    first.revert()
    assert answers() == ["m(1)", "W m(1)", "X m(1)"]
    second.verify()
    second.revert()
    assert answers() == ["m(1)", "m(1)", "X m(1)"]
    other.revert()
    assert memory.differences() == []


def test_overlapping_targets(lab: Lab, lib: Any) -> None:
    """A patch applied to a part and then to the whole is on the part once, and stays there until both have left."""
    child = lib.Thing()
    parent = lib.Thing(child, lib.Thing())
    module_of = {id(thing): Module() for thing in (parent, *parent.children)}

    def hook(*_: Any) -> None: ...

    def install(ctx: Context) -> None:
        for thing in (ctx.model, *ctx.model.children):
            ctx.wrap_each([thing], "m", prefixing_method("M"))
            ctx.hook(module_of[id(thing)], "forward_hook", hook)

    lab.patch("i.tree", install, resources=("model",))
    for order in ((child, parent), (parent, child)):
        first, second = (lab.apply("i.tree", model=model) for model in order)
        assert [thing.m("1") for thing in (parent, *parent.children)] == ["M m(1)"] * 3
        assert [len(module.hooks) for module in module_of.values()] == [1, 1, 1]
        first.revert()
        second.verify()
        assert child.m("1") == "M m(1)"
        second.revert()
        assert [thing.m("1") for thing in (parent, *parent.children)] == ["m(1)"] * 3
        assert [len(module.hooks) for module in module_of.values()] == [0, 0, 0]


def test_new_object_at_an_old_address(lab: Lab, lib: Any) -> None:
    """An object that was collected while patched leaves nothing that a later object at its address could be taken
    for.
    """
    done: list[int] = []

    def install(ctx: Context) -> None:
        ctx.wrap_each([ctx.model], "m", prefixing_method("M"))
        ctx.action("note", lambda: done.append(1), lambda: None)

    lab.patch("i.short", install, resources=("model",))
    addresses = set()
    for count in range(1, 50):
        thing = lib.Thing()
        addresses.add(id(thing))
        lab.apply("i.short", model=thing)
        assert (thing.m("1"), len(done)) == ("M m(1)", count)
        del thing
        # It is in a cycle with its own override.
        gc.collect()
    assert len(addresses) < 49


def test_models_selected_by_name(lab: Lab, lib: Any) -> None:
    """One manifest applies a patch to several models by their names; each is patched once."""
    models = {"a": lib.Thing(), "b": lib.Thing(), "c": lib.Thing()}
    lab.patch("i.m", lambda ctx: ctx.wrap_each([ctx.model], "m", prefixing_method("M")), resources=("model",))
    entries = [{"name": "i.m", "on": "a"}, {"name": "i.m", "on": "b"}]
    with lab.apply(*entries, model=models) as applied:
        assert [model.m("1") for model in models.values()] == ["M m(1)", "M m(1)", "m(1)"]
        assert applied.patches == ("i.m",)
    with pytest.raises(ResourceError, match="'d'"):
        lab.apply({"name": "i.m", "on": "d"}, model=models)
