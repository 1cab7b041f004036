"""Law 3: patches stacked on one site leave or are suspended in any order, from any thread; the others keep
working.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from patchkit import Applied, Context
from patchkit.errors import VerifyError
from tests.engine._kit import Lab, Memory, prefixing, prefixing_method

SOURCE = """
def f(x):
    return f"f({x})"

class Base:
    def m(self, x):
        return f"m({x})"

class Derived(Base):
    pass
"""


@dataclass(frozen=True)
class Layer:
    """What a patch of the machine does: on which places, and where in the order."""

    places: tuple[str, ...]
    priority: int = 0
    replaces: bool = False


LAYERS = {
    "m.f": Layer(("f",)),
    "m.high": Layer(("f", "Base"), priority=5),
    "m.low": Layer(("f", "Base", "Derived"), priority=-5),
    "m.instead": Layer(("f",), priority=1, replaces=True),
    "m.base": Layer(("Base",)),
    "m.derived": Layer(("Derived",)),
    "m.both": Layer(("one", "two")),
    "m.one": Layer(("one",), priority=-1),
    "m.target": Layer(("Base@two",), priority=2),
}


@dataclass
class Effect:
    """What the model knows of a patch that is applied."""

    arrival: int
    owners: set[int] = field(default_factory=set)
    blocks: set[tuple[int, int]] = field(default_factory=set)

    @property
    def active(self) -> bool:
        return not self.blocks


class Stacks(RuleBasedStateMachine):
    """Several handles with overlapping patches, against a model of what every call should answer."""

    def __init__(self) -> None:
        super().__init__()
        self.cleanup = ExitStack()
        folder = self.cleanup.enter_context(TemporaryDirectory())
        monkeypatch = self.cleanup.enter_context(pytest.MonkeyPatch.context())
        self.lab = Lab(Path(folder), monkeypatch)
        self.lib = self.lab.library("orderlib", SOURCE)
        self.user = self.lab.library("orderuser", "from orderlib import f as g\n")
        self.one, self.two = self.lib.Base(), self.lib.Derived()
        self.memory = Memory(self.lib, self.user, self.lib.Base, self.lib.Derived, self.one, self.two)
        for name, layer in LAYERS.items():
            self.lab.patch(name, self._installer(name, layer), priority=layer.priority)
        self.handles: dict[int, Applied] = {}
        self.effects: dict[str, Effect] = {}
        self.open: dict[int, tuple[int, tuple[str, ...], AbstractContextManager[None]]] = {}
        self.serial = 0

    def _installer(self, name: str, layer: Layer) -> Callable[[Context], None]:
        word = name.removeprefix("m.")

        def install(ctx: Context) -> None:
            for place in layer.places:
                if place == "f" and layer.replaces:
                    ctx.set(self.lib, "f", lambda x: f"{word}({x})")
                elif place == "f":
                    ctx.wrap("orderlib:f", prefixing(word))
                elif place == "Base@two":
                    targets = ctx.targets([self.two])

                    def make(original: Any, targets: Any = targets) -> Any:
                        def m(self: Any, x: Any) -> Any:
                            return f"{word} {original(self, x)}" if self in targets else original(self, x)

                        return m

                    ctx.wrap("orderlib:Base.m", make, targets=targets)
                elif place in {"Base", "Derived"}:
                    ctx.wrap(f"orderlib:{place}.m", prefixing_method(word))
                else:
                    ctx.wrap_each([getattr(self, place)], "m", prefixing_method(word))

        return install

    # What the machine does

    @rule(names=st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=4, unique=True))
    def apply(self, names: list[str]) -> None:
        if any(name in self.effects and self.effects[name].blocks for name in names):
            with pytest.raises(VerifyError, match="suspended"):
                self.lab.apply(*names, audit={"policy": "off"})
            return
        self.serial += 1
        self.handles[self.serial] = self.lab.apply(*names, audit={"policy": "off"})
        for index, name in enumerate(names):
            effect = self.effects.setdefault(name, Effect(self.serial * 100 + index))
            effect.owners.add(self.serial)

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def revert(self, data: st.DataObject) -> None:
        handle, names = self._choose(data)
        self.handles[handle].revert(*names)
        self._forget(handle, names or tuple(LAYERS))

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def suspend(self, data: st.DataObject) -> None:
        handle, names = self._choose(data)
        self.serial += 1
        block = self.handles[handle].reverted(*names)
        block.__enter__()
        self.open[self.serial] = handle, names, block
        for name, effect in self.effects.items():
            if handle in effect.owners and (not names or name in names):
                effect.blocks.add((handle, self.serial))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        """Blocks end in any order, as those of several threads do."""
        self._end(data.draw(st.sampled_from(sorted(self.open))))

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def verify(self, data: st.DataObject) -> None:
        handle = data.draw(st.sampled_from(sorted(self.handles)))
        owned = [effect for effect in self.effects.values() if handle in effect.owners]
        by_others = [e for e in owned if e.blocks and all(owner != handle for owner, _ in e.blocks)]
        if by_others:
            with pytest.raises(VerifyError, match="suspended"):
                self.handles[handle].verify()
        else:
            self.handles[handle].verify()

    def _choose(self, data: st.DataObject) -> tuple[int, tuple[str, ...]]:
        handle = data.draw(st.sampled_from(sorted(self.handles)))
        known = [status.name for status in self.handles[handle].report().patches]
        return handle, tuple(data.draw(st.lists(st.sampled_from(known), max_size=2, unique=True)))

    def _forget(self, handle: int, names: tuple[str, ...]) -> None:
        for name in names:
            effect = self.effects.get(name)
            if effect is not None:
                effect.owners.discard(handle)
                effect.blocks = {block for block in effect.blocks if block[0] != handle}
                if not effect.owners:
                    del self.effects[name]

    def _end(self, serial: int) -> None:
        handle, _, block = self.open.pop(serial)
        block.__exit__(None, None, None)
        for effect in self.effects.values():
            effect.blocks.discard((handle, serial))

    # What should be

    def _chain(self, place: str, below: str) -> str:
        active = [
            (LAYERS[name].priority, effect.arrival, name)
            for name, effect in self.effects.items()
            if effect.active and place in LAYERS[name].places
        ]
        for _, _, name in sorted(active):
            word = name.removeprefix("m.")
            below = f"{word}(x)" if LAYERS[name].replaces else f"{word} {below}"
        return below

    def _class_chain(self, *, is_two: bool) -> str:
        places = {"Base", "Base@two"} if is_two else {"Base"}
        active = [
            (LAYERS[name].priority, effect.arrival, name)
            for name, effect in self.effects.items()
            if effect.active and places & set(LAYERS[name].places)
        ]
        return " ".join([name.removeprefix("m.") for _, _, name in sorted(active, reverse=True)] + ["m(x)"])

    @invariant()
    def calls_answer_as_the_model_says(self) -> None:
        expected = {
            "f": self._chain("f", "f(x)"),
            "g": self._chain("f", "f(x)"),
            "Base": self._class_chain(is_two=False),
            "Derived": self._chain("Derived", self._class_chain(is_two=False)),
            "one": self._chain("one", self._class_chain(is_two=False)),
            "two": self._chain("two", self._chain("Derived", self._class_chain(is_two=True))),
        }
        actual = {
            "f": self.lib.f("x"),
            "g": self.user.g("x"),
            "Base": self.lib.Base().m("x"),
            "Derived": self.lib.Derived().m("x"),
            "one": self.one.m("x"),
            "two": self.two.m("x"),
        }
        assert actual == expected

    @invariant()
    def nothing_is_left_where_nothing_is_on(self) -> None:
        if not any(effect.active for effect in self.effects.values()):
            assert self.memory.differences() == []

    def teardown(self) -> None:
        order = random.Random(self.serial)
        for serial in order.sample(sorted(self.open), len(self.open)):
            self._end(serial)
        for handle in order.sample(sorted(self.handles), len(self.handles)):
            self.handles[handle].revert()
        differences = self.memory.differences()
        self.lab.close()
        self.cleanup.close()
        assert differences == []


class TestStacks(Stacks.TestCase):  # type: ignore[misc, valid-type, unused-ignore]
    """Whatever the order, every call answers as the model says."""

    settings = settings(max_examples=1000 if "--long" in sys.argv else 60, stateful_step_count=25, deadline=None)


# Threads


def test_blocks_of_several_threads_overlap(lab: Lab) -> None:
    """While any thread's block is open the patch is out for all; the last block to end brings it back."""
    lib = lab.library("orderlib", SOURCE)
    lab.patch("m.f", lambda ctx: ctx.wrap("orderlib:f", prefixing("f")))
    applied = lab.apply("m.f")
    inside = threading.Barrier(3)
    leave = [threading.Event(), threading.Event()]
    seen: list[str] = []

    def run(index: int) -> None:
        with applied.reverted():
            seen.append(lib.f("x"))
            inside.wait(10)
            leave[index].wait(10)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    inside.wait(10)
    assert lib.f("x") == "f(x)"
    leave[0].set()
    threads[0].join(10)
    assert lib.f("x") == "f(x)"
    leave[1].set()
    threads[1].join(10)
    assert lib.f("x") == "f f(x)"
    assert seen == ["f(x)", "f(x)"]


def test_many_threads_at_once(lab: Lab) -> None:
    """Threads that apply, suspend and revert on the same sites at once leave everything as it was."""
    lib = lab.library("orderlib", SOURCE)
    user = lab.library("orderuser", "from orderlib import f as g\n")
    one, two = lib.Base(), lib.Derived()
    memory = Memory(lib, user, lib.Base, lib.Derived, one, two)
    switched: list[int] = []

    def install(ctx: Context) -> None:
        ctx.wrap("orderlib:f", prefixing(ctx.patch.name))
        ctx.wrap("orderlib:Base.m", prefixing_method(ctx.patch.name))
        ctx.wrap_each([one, two], "m", prefixing_method(ctx.patch.name))
        ctx.action("count", lambda: switched.append(1), lambda: switched.append(-1))

    names = [f"m.{index}" for index in range(3)]
    for name in names:
        lab.patch(name, install)
    errors: list[BaseException] = []
    start = threading.Barrier(6)

    def run(seed: int) -> None:
        choice = random.Random(seed)
        try:
            start.wait(10)
            for _ in range(15):
                applied = lab.apply(*choice.sample(names, 2), audit={"policy": "off"})
                lib.f("x"), one.m("x"), two.m("x")
                applied.revert(*choice.sample(applied.patches, 1))
                lib.f("x"), one.m("x"), two.m("x")
                applied.revert()
        except BaseException as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=run, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(interval)
    assert errors == []
    assert memory.differences() == []
    assert sum(switched) == 0


def test_makers_run_without_the_lock(lab: Lab) -> None:
    """A maker that waits for another thread, which itself applies a patch, doesn't stop the two of them for ever."""
    lib = lab.library("orderlib", SOURCE)
    lab.patch("m.f", lambda ctx: ctx.wrap("orderlib:f", prefixing("f")))
    done = threading.Event()

    def apply_other() -> None:
        lab.apply("m.f")
        done.set()

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        if not done.is_set():
            threading.Thread(target=apply_other, daemon=True).start()
            assert done.wait(10), "the other thread waits for this one"
        return prefixing("waits")(original)

    lab.patch("m.waits", lambda ctx: ctx.wrap("orderlib:f", make))
    lab.apply("m.waits")
    assert lib.f("x") == "f waits f(x)"


# Blocks


def test_reverting_inside_a_block_is_for_good(lab: Lab) -> None:
    """A patch that is reverted inside a block stays reverted after it; the others come back."""
    lib = lab.library("orderlib", SOURCE)
    lab.patch("m.f", lambda ctx: ctx.wrap("orderlib:f", prefixing("f")))
    lab.patch("m.base", lambda ctx: ctx.wrap("orderlib:Base.m", prefixing_method("base")))
    applied = lab.apply("m.f", "m.base")
    with applied.reverted():
        applied.revert("m.f")
        assert (lib.f("x"), lib.Base().m("x")) == ("f(x)", "m(x)")
    assert (lib.f("x"), lib.Base().m("x")) == ("f(x)", "base m(x)")
    assert applied.patches == ("m.base",)


def test_blocks_nest(lab: Lab) -> None:
    """Blocks may be nested, the inner one naming what the outer one has taken out already."""
    lib = lab.library("orderlib", SOURCE)
    lab.patch("m.f", lambda ctx: ctx.wrap("orderlib:f", prefixing("f")))
    lab.patch("m.base", lambda ctx: ctx.wrap("orderlib:Base.m", prefixing_method("base")))
    applied = lab.apply("m.f", "m.base")
    with applied.reverted("m.f"):
        with applied.reverted():
            assert (lib.f("x"), lib.Base().m("x")) == ("f(x)", "m(x)")
        assert (lib.f("x"), lib.Base().m("x")) == ("f(x)", "base m(x)")
    assert (lib.f("x"), lib.Base().m("x")) == ("f f(x)", "base m(x)")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit])
def test_exception_inside_a_block(lab: Lab, error: type[BaseException]) -> None:
    """Whatever leaves the block by an exception, the patches come back and the exception goes on."""
    lib = lab.library("orderlib", SOURCE)
    lab.patch("m.f", lambda ctx: ctx.wrap("orderlib:f", prefixing("f")))
    applied = lab.apply("m.f")
    with pytest.raises(error), applied.reverted():
        raise error
    assert lib.f("x") == "f f(x)"
    with pytest.raises(error), applied:
        raise error
    assert lib.f("x") == "f(x)"


def test_abandoned_block(lab: Lab) -> None:
    """A block whose generator is thrown away (an interrupt in its very first moment) doesn't leave the patch out."""
    lib = lab.library("orderlib", SOURCE)
    lab.patch("m.f", lambda ctx: ctx.wrap("orderlib:f", prefixing("f")))
    applied = lab.apply("m.f")
    block = applied.reverted()
    block.__enter__()
    assert lib.f("x") == "f(x)"
    del block
    assert lib.f("x") == "f f(x)"


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.long), 61])
def test_interrupt_at_any_line_of_a_block(lab: Lab, stride: int) -> None:
    """An interrupt at any line while a patch is suspended or brought back leaves it in effect, and revertible."""
    from tests.engine._faults import Fault, Scene

    scene = Scene(lab)
    stock = scene.effects()
    applied = scene.apply()
    patched = scene.effects()
    nth = 3 % stride
    while True:
        fault = Fault(nth, KeyboardInterrupt)
        try:
            with fault.striking(), applied.reverted():
                assert scene.effects() == stock
        except KeyboardInterrupt:
            pass
        assert (fault.place, scene.effects()) == (fault.place, patched)
        applied.verify()
        if not fault.place:
            break
        nth += stride
    assert nth > 1000
    applied.revert()
    assert scene.differences() == []


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.long), 61])
def test_interrupt_at_any_line_of_a_revert(lab: Lab, stride: int) -> None:
    """An interrupt at any line of leaving a handle's context comes through, and everything is reverted all the
    same.
    """
    from tests.engine._faults import Fault, Scene

    scene = Scene(lab)
    nth = 5 % stride
    while True:
        fault = Fault(nth, KeyboardInterrupt)
        applied = scene.apply()
        try:
            with applied, fault.striking():
                applied.__exit__(None, None, None)
        except KeyboardInterrupt:
            pass
        assert (fault.place, scene.differences()) == (fault.place, [])
        if not fault.place:
            break
        nth += stride
    assert nth > 1000


# Layers that stand on others by inheritance


def test_class_patch_that_comes_after_an_instance_patch(lab: Lab) -> None:
    """A patch on the class takes effect, and leaves, below an override of an instance that was there before it."""
    lib = lab.library("orderlib", SOURCE)
    one, other = lib.Base(), lib.Derived()
    lab.patch("m.one", lambda ctx: ctx.wrap_each([one, other], "m", prefixing_method("one")))
    lab.patch("m.derived", lambda ctx: ctx.wrap("orderlib:Derived.m", prefixing_method("derived")))
    lab.patch("m.base", lambda ctx: ctx.wrap("orderlib:Base.m", prefixing_method("base")))
    upper, middle, lower = lab.apply("m.one"), lab.apply("m.derived"), lab.apply("m.base")
    assert (one.m("x"), other.m("x")) == ("one base m(x)", "one derived base m(x)")
    with lower.reverted():
        assert (one.m("x"), other.m("x")) == ("one m(x)", "one derived m(x)")
    lower.revert()
    assert (one.m("x"), other.m("x")) == ("one m(x)", "one derived m(x)")
    middle.revert()
    assert other.m("x") == "one m(x)"
    upper.verify()


def test_two_names_of_one_function(lab: Lab) -> None:
    """Patches that name one function by its home and by a re-export stack on it, and leave in any order."""
    lib = lab.library("orderlib", SOURCE)
    user = lab.library("orderuser", "from orderlib import f as g\n")
    memory = Memory(lib, user)
    lab.patch("m.home", lambda ctx: ctx.wrap("orderlib:f", prefixing("home")))
    lab.patch("m.export", lambda ctx: ctx.wrap("orderuser:g", prefixing("export")))
    home, export = lab.apply("m.home"), lab.apply("m.export")
    assert lib.f("x") == user.g("x") == "export home f(x)"
    home.verify()
    export.verify()
    home.revert()
    assert lib.f("x") == user.g("x") == "export f(x)"
    export.revert()
    assert memory.differences() == []


def test_one_patch_by_two_names_of_one_function(lab: Lab) -> None:
    """A patch that wraps one function by two names does so twice, as it was told to."""
    lib = lab.library("orderlib", SOURCE)
    user = lab.library("orderuser", "from orderlib import f\n")

    def install(ctx: Context) -> None:
        ctx.wrap("orderlib:f", prefixing("home"))
        ctx.wrap("orderuser:f", prefixing("export"))

    lab.patch("m.two", install)
    with lab.apply("m.two"):
        assert lib.f("x") == user.f("x") == "export home f(x)"
    assert lib.f("x") == user.f("x") == "f(x)"


def test_priorities(lab: Lab) -> None:
    """A higher priority is further outside, whatever the order of arrival; equal ones go by arrival."""
    lib = lab.library("orderlib", SOURCE)
    for name, priority in {"outer": 10, "first": 0, "second": 0, "inner": -10}.items():

        def install(ctx: Context, word: str = name) -> None:
            ctx.wrap("orderlib:f", prefixing(word))

        lab.patch(f"m.{name}", install, priority=priority)
    lab.apply("m.outer", "m.first", "m.inner", "m.second")
    assert lib.f("x") == "outer second first inner f(x)"


def test_wrapper_over_a_value_set_on_an_instance(lab: Lab) -> None:
    """A function that one patch has set on an instance is called without ``self``, also through another's wrapper."""
    lib = lab.library("orderlib", SOURCE)
    one = lib.Base()
    lab.patch("m.set", lambda ctx: ctx.set(one, "m", lambda x: f"set({x})"))
    lab.patch("m.one", lambda ctx: ctx.wrap_each([one], "m", prefixing_method("one")))
    lower, upper = lab.apply("m.set"), lab.apply("m.one")
    assert one.m("x") == "one set(x)"
    with lower.reverted():
        assert one.m("x") == "one m(x)"
    upper.revert()
    assert one.m("x") == "set(x)"
    lower.revert()
    assert vars(one) == {}
