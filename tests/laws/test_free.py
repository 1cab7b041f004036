"""Law 10: what is not used costs nothing, and what is used costs what the same closure written by hand would."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import patchkit
from patchkit import Context
from tests.engine._kit import Lab, Memory

SOURCE = """
import sys

def f(x):
    return depth_of(sys._getframe())

def depth_of(frame):
    depth = 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    return depth

def fail(x):
    raise ValueError(x)

class Thing:
    def m(self, x):
        return depth_of(sys._getframe())
"""

AUTHOR = """
import patchkit

@patchkit.wrap("freelib:f", name="free.f", summary="test")
def patched(original, x):
    return original(x)

@patchkit.wrap("freelib:fail", name="free.fail", summary="test")
def patched_fail(original, x):
    return original(x)  # the author's line
"""


def depth(call: Callable[[], int]) -> int:
    """Return how many frames lie between here and the innermost one."""
    frame: FrameType | None = sys._getframe()
    here = 0
    while frame is not None:
        frame, here = frame.f_back, here + 1
    return call() - here


def author(lab: Lab) -> Any:
    for name in ("free.f", "free.fail"):
        lab.keep(name)
    return lab.library("freeauthor", AUTHOR)


def run(code: str) -> str:
    root = str(Path(patchkit.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r})\n{code}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


def test_importing_is_cheap() -> None:
    """Importing patchkit imports none of its dependencies, nor any of its own modules."""
    code = """
import patchkit
print(sorted(n for n in sys.modules if n.split(".")[0] in {"torch", "pydantic", "structlog", "packaging", "tomllib"}))
print(sorted(n for n in sys.modules if n.startswith("patchkit.")))
"""
    assert run(code) == "[]\n[]\n"


def test_applying_does_not_import_torch(lab: Lab) -> None:
    """The engine works without torch, whatever is patched."""
    code = f"""
import os; os.environ["PATCHKIT_AUDIT"] = {str(lab.log)!r}
import json, patchkit
@patchkit.wrap("json:dumps", name="free.json", summary="test")
def dumps(original, obj, **kwargs):
    return "patched " + original(obj, **kwargs)
with patchkit.apply({{"schema": 1, "patch": [{{"name": "free.json"}}]}}):
    print(json.dumps(1))
print(json.dumps(1), "torch" in sys.modules)
"""
    assert run(code) == "patched 1\n1 False\n"


def test_reverted_patch_is_not_on_the_way(lab: Lab) -> None:
    """After a revert, and inside a block, the very function that was there before is called, with nothing between."""
    lib = lab.library("freelib", SOURCE)
    author(lab)
    stock, plain = lib.f, depth(lambda: lib.f(1))
    applied = lab.apply("free.f")
    assert lib.f is not stock
    with applied.reverted():
        assert (lib.f, depth(lambda: lib.f(1))) == (stock, plain)
    applied.revert()
    assert (lib.f, depth(lambda: lib.f(1))) == (stock, plain)


def test_decorator_form_adds_one_frame(lab: Lab) -> None:
    """A call through a wrapper in the decorator form passes through the author's function and the original, nothing
    else.
    """
    lib = lab.library("freelib", SOURCE)
    author(lab)
    plain = depth(lambda: lib.f(1))
    lab.apply("free.f")
    assert depth(lambda: lib.f(1)) == plain + 1


def test_class_form_adds_one_frame_for_each_wrapper(lab: Lab) -> None:
    """Several wrappers on one site are chained directly; an instance's override is no longer than the class's own
    method.
    """
    lib = lab.library("freelib", SOURCE)
    thing = lib.Thing()

    def make(original: Any) -> Any:
        def m(self: Any, x: Any) -> Any:
            return original(self, x)

        return m

    plain = depth(lambda: thing.m(1))
    lab.patch("free.class", lambda ctx: ctx.wrap("freelib:Thing.m", make))
    lab.patch("free.instance", lambda ctx: ctx.wrap_each([thing], "m", make))
    lab.apply("free.class", "free.instance")
    assert depth(lambda: thing.m(1)) == plain + 2


def test_traceback_shows_the_author_and_the_original(lab: Lab) -> None:
    """A traceback has the author's line and the original's, in their files, and no frame of patchkit."""
    lib = lab.library("freelib", SOURCE)
    own = author(lab)
    lab.apply("free.fail")
    frames = []
    try:
        lib.fail(1)
    except ValueError as error:
        traceback = error.__traceback__
        while traceback is not None:
            code = traceback.tb_frame.f_code
            frames.append((code.co_filename, code.co_name, traceback.tb_lineno))
            traceback = traceback.tb_next
    line = next(n for n, text in enumerate(AUTHOR.splitlines(), 1) if "the author's line" in text)
    raising = next(n for n, text in enumerate(SOURCE.splitlines(), 1) if "raise ValueError" in text)
    assert frames[1:] == [(own.__file__, "patched_fail", line), (lib.__file__, "fail", raising)]


def test_wrapper_without_targets_is_off_the_site(lab: Lab) -> None:
    """A process-wide wrapper that acts for targets leaves the site with the last of them."""
    lib = lab.library("freelib", SOURCE)
    things = [lib.Thing(), lib.Thing()]
    memory = Memory(lib.Thing)

    def install(ctx: Context) -> None:
        targets = ctx.targets([ctx.model])

        def make(original: Any) -> Any:
            def m(self: Any, x: Any) -> Any:
                return -1 if self in targets else original(self, x)

            return m

        ctx.wrap("freelib:Thing.m", make, targets=targets)

    lab.patch("free.targets", install, resources=("model",))
    first, second = (lab.apply("free.targets", model=thing) for thing in things)
    with first.reverted(), second.reverted():
        assert memory.differences() == []
    first.revert()
    assert things[1].m(1) == -1
    second.revert()
    assert memory.differences() == []
