"""A scene with a bit of everything that can be patched, and faults to strike while it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import patchkit
from patchkit import Applied, Context, _effects, _site
from patchkit._context import _TARGETS
from tests.engine._kit import Lab, Memory, Module, prefixing, prefixing_method

PATCHES = ("scene.functions", "scene.instances", "scene.others")

SOURCE = """
def f(x):
    return f"f({x})"

class Thing:
    def m(self, x):
        return f"m({x})"
    @staticmethod
    def s(x):
        return f"s({x})"
    def inherited(self, x):
        return f"inherited({x})"
    gone = 1

class Special(Thing):
    pass

TABLE = {"present": 1}
LIMIT = 1
"""


class Scene:
    """A library, somebody who uses it, objects, three patches that share no site but use every primitive, and a
    memory.
    """

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.lib = lab.library("scenelib", SOURCE)
        self.user = lab.library("sceneuser", "from scenelib import f as g\n")
        self.things = [self.lib.Thing() for _ in range(3)]
        self.module = Module()
        self.module.register_forward_hook(_other_hook)
        self.switched: set[str] = set()
        self.counts: dict[str, int] = {}
        self.on_make: Callable[[], None] = lambda: None
        # Other tests may have left something that nobody can take out any more.
        self._known = {*_site.PLACES, *_effects._EFFECTS}
        self._register()
        self.memory = Memory(
            *(self.lib, self.user, self.lib.Thing, self.lib.Special, *self.things, self.module, self.lib.TABLE),
            self.module.__dict__["_forward_hooks"],
        )

    def apply(self, *names: str) -> Applied:
        return self.lab.apply(*(names or PATCHES), model=self.module)

    def differences(self) -> list[str]:
        """What is not what it was before: on the scene, or in the engine's own books."""
        found = self.memory.differences()
        found += [f"switched on: {name}" for name in self.switched]
        found += [f"a stack is left: {key}" for key in _site.PLACES if key not in self._known]
        found += [f"an effect is left: {key}" for key in _effects._EFFECTS if key not in self._known]
        found += [f"targets are left: {key}" for key, targets in _TARGETS.items() if len(targets) or targets._members]
        return found

    def effects(self) -> list[object]:
        """What is in effect, as its users see it."""
        return [
            self.lib.f("1"),
            self.user.g("1"),
            self.lib.Thing().m("1"),
            self.lib.Thing.s("1"),
            self.lib.Special().inherited("1"),
            [thing.m("1") for thing in self.things],
            hasattr(self.lib.Thing, "gone"),
            self.lib.LIMIT,
            dict(self.lib.TABLE),
            len(self.module.hooks),
            sorted(self.switched),
        ]

    def _make(self, make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def counted(original: Any) -> Any:
            self.on_make()
            return make(original)

        return counted

    def _register(self) -> None:
        def functions(ctx: Context) -> None:
            ctx.wrap("scenelib:f", self._make(prefixing("F")))
            ctx.wrap("scenelib:Thing.m", self._make(prefixing_method("M")))
            ctx.wrap("scenelib:Thing.s", self._make(prefixing("S")))
            ctx.wrap("scenelib:Special.inherited", self._make(prefixing_method("I")))

        def instances(ctx: Context) -> None:
            targets = ctx.targets(self.things)

            def make(original: Any) -> Any:
                def m(this: Any, x: Any) -> Any:
                    return f"T {original(this, x)}" if this in targets else original(this, x)

                return m

            def make_same(original: Any) -> Any:
                wrapper = make(original)

                def m(self: Any, x: Any) -> Any:
                    return wrapper(self, x)

                return m

            ctx.wrap("scenelib:Thing.m", self._make(make_same), targets=targets)
            ctx.wrap_each(self.things, "m", self._make(prefixing_method("E")))

        def others(ctx: Context) -> None:
            ctx.replace("scenelib:LIMIT", 2)
            ctx.set_item(self.lib.TABLE, "present", 2)
            ctx.set_item(self.lib.TABLE, "absent", 3)
            ctx.set(self.things[0], "extra", 1)
            ctx.delete(self.lib.Thing, "gone")
            ctx.set(self.lib.Thing, "inherited", lambda self, x: "set")
            ctx.hook(ctx.model, "forward_hook", _our_hook, with_kwargs=True)
            ctx.action("switch", lambda: self.switched.add("on"), lambda: self.switched.discard("on"))

        self.lab.patch("scene.functions", functions)
        self.lab.patch("scene.instances", instances)
        self.lab.patch("scene.others", others, resources=("model",), uninstall=lambda ctx: self.switched.discard("own"))


def _other_hook(*_: Any) -> None: ...


def _our_hook(*_: Any) -> None: ...


class Fault:
    """Raises an error at the n-th line that the engine executes, counted from 0.

    Args:
        nth: Which line.
        error: What to raise.
        within: Names of the engine's files whose lines count; none means all.

    Attributes:
        lines: How many lines there were, up to the fault.
        place: Where it struck; empty if there were not so many lines.
    """

    _ROOT = str(Path(patchkit.__file__).parent)
    # What changes nothing, and what only loops over all modules.
    _OTHERS = ("audit", "contract", "manifest", "errors.py", "registry.py", "_alias.py", "_environment.py", "_plan.py")

    def __init__(self, nth: int, error: type[BaseException], within: tuple[str, ...] = ()) -> None:
        self.lines = 0
        self.place = ""
        self._nth = nth
        self._error = error
        self._within = within

    @contextmanager
    def striking(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)

    def _call(self, frame: FrameType, event: str, arg: object) -> Any:
        root, _, name = frame.f_code.co_filename.partition(self._ROOT + os.sep)
        if root or not name or name.startswith(self._OTHERS) or (self._within and name not in self._within):
            return None
        return self._line

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            if self.lines == self._nth:
                self.place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                self.lines += 1
                raise self._error(f"struck at {self.place}")
            self.lines += 1
        return self._line
