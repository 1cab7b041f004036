"""Law 3: patches stacked on one site leave or are suspended in any order, from any thread; the others keep working."""

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
