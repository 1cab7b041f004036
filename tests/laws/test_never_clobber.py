"""Law 4: what somebody else changed after patchkit is named, and never overwritten."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from patchkit import Applied, Context
from patchkit.audit import read_entries
from patchkit.errors import ForeignChangeError, RevertError, VerifyError
from tests.engine._kit import Lab, Memory, prefixing, prefixing_method

SOURCE = """
def f(x):
    return f"f({x})"

def other(x):
    return f"other({x})"

class Thing:
    def m(self, x):
        return f"m({x})"
"""

STRANGER = """
import functools

def strange(original):
    @functools.wraps(original)
    def wrapper(x):
        return f"stranger {original(x)}"
    return wrapper
"""


@pytest.fixture
def lib(lab: Lab) -> Any:
    lab.patch("c.f", lambda ctx: ctx.wrap("clobberlib:f", prefixing("F")))
    lab.patch("c.other", lambda ctx: ctx.wrap("clobberlib:other", prefixing("O")))
    return lab.library("clobberlib", SOURCE)


@pytest.fixture
def stranger(lab: Lab) -> Any:
    return lab.library("strangelib", STRANGER)


def test_stranger_is_named(lab: Lab, lib: Any, stranger: Any) -> None:
    """``verify`` says which site holds something else, what that is, and where it was defined, though it bears our
    name.
    """
    applied = lab.apply("c.f")
    ours, lib.f = lib.f, stranger.strange(lib.f)
    with pytest.raises(VerifyError) as caught:
        applied.verify()
    place = f"{Path(stranger.__file__)}:"
    message = str(caught.value)
    assert "clobberlib:f" in message
    assert f"function strangelib.f ({place}" in message
    assert applied.report().patches[0].problem != ""
    lib.f = ours
    applied.verify()


def test_revert_leaves_the_stranger_and_takes_out_the_rest(lab: Lab, lib: Any, stranger: Any) -> None:
    """A revert leaves the stranger's object, takes out everything else, and works once the stranger has left."""
    memory = Memory(lib)
    applied = lab.apply("c.f", "c.other")
    ours, lib.f = lib.f, stranger.strange(lib.f)
    theirs = lib.f
    with pytest.raises(ForeignChangeError) as caught:
        applied.revert()
    assert caught.value.site == "clobberlib:f"
    assert caught.value.found.startswith("function strangelib.f")
    assert lib.f is theirs
    assert lib.f("1") == "stranger F f(1)"
    assert lib.other("1") == "other(1)"
    assert list(applied.patches) == ["c.f"]
    assert [status.state for status in applied.report().patches] == ["stranded", "reverted"]
    assert [e.event for e in read_entries(lab.log)][-1] == "revert.failed"
    lib.f = ours
    applied.revert()
    assert memory.differences() == []
    assert list(applied.patches) == []


def test_stranger_on_several_sites(lab: Lab, lib: Any) -> None:
    """Strangers on several sites are all named."""
    applied = lab.apply("c.f", "c.other")
    ours = lib.f, lib.other
    lib.f, lib.other = (lambda x: "one"), (lambda x: "two")
    with pytest.raises(RevertError) as caught:
        applied.revert()
    assert {getattr(error, "site", None) for error in caught.value.exceptions} == {"clobberlib:f", "clobberlib:other"}
    lib.f, lib.other = ours
    applied.revert()


def test_stranger_who_put_the_original_back(lab: Lab, lib: Any) -> None:
    """If somebody has put back by hand what was there before, there is nothing left to clobber: a revert just
    succeeds.
    """
    memory = Memory(lib)
    original = lib.f
    applied = lab.apply("c.f")
    lib.f = original
    with pytest.raises(VerifyError, match="clobberlib:f"):
        applied.verify()
    applied.revert()
    assert memory.differences() == []


def test_suspension_stops_at_a_stranger(lab: Lab, lib: Any) -> None:
    """A block does not begin while a stranger is on a site: nothing is suspended, and nothing is lost."""
    applied = lab.apply("c.f", "c.other")
    ours, lib.f = lib.f, lambda x: "stranger"
    with pytest.raises(ForeignChangeError), applied.reverted():
        raise AssertionError("the block must not be entered")
    assert lib.f("1") == "stranger"
    assert lib.other("1") == "O other(1)"
    lib.f = ours
    applied.verify()
    with applied.reverted():
        assert (lib.f("1"), lib.other("1")) == ("f(1)", "other(1)")


def test_stranger_who_comes_inside_a_block(lab: Lab, lib: Any) -> None:
    """A stranger who comes while the patch is out stays; the patch comes back with the end of the next block after it
    left.
    """
    original = lib.f
    applied = lab.apply("c.f", "c.other")
    with pytest.raises(ForeignChangeError), applied.reverted():
        lib.f = lambda x: "stranger"
    assert (lib.f("1"), lib.other("1")) == ("stranger", "O other(1)")
    assert [status.state for status in applied.report().patches] == ["suspended", "installed"]
    lib.f = original
    with applied.reverted():
        pass
    assert lib.f("1") == "F f(1)"
    applied.verify()


def test_stranger_under_an_existing_stack(lab: Lab, lib: Any) -> None:
    """A second patch is not laid over a stranger's change of a site that patchkit has patched: that would hide it."""
    lab.patch("c.second", lambda ctx: ctx.wrap("clobberlib:f", prefixing("second")))
    applied = lab.apply("c.f")
    ours, lib.f = lib.f, lambda x: "stranger"
    theirs = lib.f
    with pytest.raises(ForeignChangeError, match="clobberlib:f"):
        lab.apply("c.other", "c.second")
    assert lib.f is theirs
    assert lib.other("1") == "other(1)"
    lib.f = ours
    second = lab.apply("c.second")
    assert lib.f("1") == "second F f(1)"
    second.revert()
    applied.revert()


def test_stranger_before_us_is_the_original(lab: Lab, lib: Any, stranger: Any) -> None:
    """What somebody put there before is simply what is patched, and what comes back."""
    stock = lib.f
    lib.f = theirs = stranger.strange(lib.f)
    with lab.apply("c.f"):
        assert lib.f("1") == "F stranger f(1)"
    assert lib.f is theirs
    lib.f = stock


def test_leaving_the_share_of_a_site_needs_nobodys_leave(lab: Lab, lib: Any) -> None:
    """Of two handles with the same patch, the first to leave changes nothing on the site, so a stranger there is no
    hindrance.
    """
    first, second = lab.apply("c.f"), lab.apply("c.f")
    ours, lib.f = lib.f, lambda x: "stranger"
    first.revert()
    assert lib.f("1") == "stranger"
    lib.f = ours
    assert lib.f("1") == "F f(1)"
    second.revert()
    assert lib.f("1") == "f(1)"


def test_mock_around_and_inside(lab: Lab, lib: Any) -> None:
    """``mock.patch`` and patchkit nest in either order."""
    memory = Memory(lib)
    with mock.patch("clobberlib.f", return_value="mocked"), lab.apply("c.f"):
        assert lib.f("1") == "F mocked"
    assert memory.differences() == []
    with lab.apply("c.f"), mock.patch("clobberlib.f", return_value="mocked"):
        assert lib.f("1") == "mocked"
    assert memory.differences() == []


def test_monkeypatch_around_and_inside(lab: Lab, lib: Any) -> None:
    """pytest's monkeypatch and patchkit nest in either order."""
    memory = Memory(lib)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(lib, "f", lambda x: "mocked")
        with lab.apply("c.f"):
            assert lib.f("1") == "F mocked"
    assert memory.differences() == []
    with lab.apply("c.f"), pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(lib, "f", lambda x: "mocked")
        assert lib.f("1") == "mocked"
    assert memory.differences() == []


def test_mock_that_outlives_us(lab: Lab, lib: Any) -> None:
    """A mock that starts after us and ends after our revert is met at the revert, which works when it has ended."""
    memory = Memory(lib)
    applied = lab.apply("c.f")
    with mock.patch("clobberlib.f"), pytest.raises(ForeignChangeError, match="MagicMock"):
        applied.revert()
    applied.revert()
    assert memory.differences() == []


def test_name_restored_by_a_stranger_is_reported(lab: Lab, lib: Any) -> None:
    """A copy of the function that somebody bound to the stock one again is not in effect, and ``verify`` says so."""
    stock = lib.f
    user = lab.library("clobberuser", "from clobberlib import f as g\n")
    applied = lab.apply("c.f")
    user.g = stock
    with pytest.raises(VerifyError, match="clobberuser:g"):
        applied.verify()
    applied.revert()
    assert user.g is lib.f is stock


def test_name_given_to_something_else_stays(lab: Lab, lib: Any) -> None:
    """A copy that somebody has bound to an object of their own is no copy any more, and is left alone."""
    user = lab.library("clobberuser", "from clobberlib import f as g\n")
    applied = lab.apply("c.f")
    user.g = theirs = lambda x: "theirs"
    applied.verify()
    applied.revert()
    assert user.g is theirs


@pytest.mark.parametrize("kind", ["class", "instance", "item", "hook"])
def test_strangers_everywhere(lab: Lab, lib: Any, kind: str) -> None:
    """A stranger is noticed on a class, an instance, an item of a dictionary; a hook that was removed is noticed
    too.
    """
    from tests.engine._kit import Module

    thing, module, table = lib.Thing(), Module(), {"key": 1}

    def install(ctx: Context) -> None:
        if kind == "class":
            ctx.wrap("clobberlib:Thing.m", prefixing_method("M"))
        elif kind == "instance":
            ctx.wrap_each([thing], "m", prefixing_method("M"))
        elif kind == "item":
            ctx.set_item(table, "key", 2)
        else:
            ctx.hook(module, "forward_hook", lambda *_: None)

    def interfere() -> None:
        if kind == "class":
            lib.Thing.m = lambda self, x: "stranger"
        elif kind == "instance":
            thing.m = functools.partial(str)
        elif kind == "item":
            table["key"] = 3
        else:
            module.__dict__["_forward_hooks"].clear()

    lab.patch("c.any", install)
    applied = lab.apply("c.any")
    applied.verify()
    ours = lib.Thing.__dict__["m"], thing.__dict__.get("m"), table["key"]
    interfere()
    with pytest.raises(VerifyError, match=r"stranger|partial|an object of type builtins\.int|somebody has removed"):
        applied.verify()
    if kind == "hook":
        # What is gone can't be clobbered.
        applied.revert()
        return
    with pytest.raises(ForeignChangeError):
        applied.revert()
    lib.Thing.m, table["key"] = ours[0], ours[2]
    if ours[1] is not None:
        thing.m = ours[1]
    applied.revert()
    assert (lib.Thing().m("1"), thing.m("1"), table["key"]) == ("m(1)", "m(1)", 1)


def test_targets_and_a_stranger(lab: Lab, lib: Any) -> None:
    """A stranger over a wrapper that acts for targets is named once, by suspension and revert alike; nothing is
    clobbered.
    """
    thing = lib.Thing()

    def install(ctx: Context) -> None:
        targets = ctx.targets([thing])

        def make(original: Any) -> Any:
            def m(self: Any, x: Any) -> Any:
                return f"T {original(self, x)}" if self in targets else original(self, x)

            return m

        ctx.wrap("clobberlib:Thing.m", make, targets=targets)

    lab.patch("c.targets", install)
    applied: Applied = lab.apply("c.targets")
    ours = lib.Thing.m
    theirs = lib.Thing.m = lambda self, x: f"stranger {ours(self, x)}"
    with pytest.raises(ForeignChangeError), applied.reverted():
        raise AssertionError("the block must not be entered")
    assert thing.m("1") == "stranger T m(1)"
    with pytest.raises(ForeignChangeError, match=r"clobberlib:Thing\.m"):
        applied.revert()
    assert lib.Thing.m is theirs
    lib.Thing.m = ours
    applied.revert()
    assert thing.m("1") == "m(1)"
    assert lib.Thing.__dict__["m"].__qualname__ == "Thing.m"
    assert not hasattr(lib.Thing.m, "__wrapped__")


def test_reloaded_library(lab: Lab, lib: Any) -> None:
    """A reload defines everything anew: the patch says that it is not in effect any more, and clobbers nothing."""
    applied = lab.apply("c.f")
    ours = lib.f
    importlib.reload(lib)
    fresh = lib.f
    with pytest.raises(VerifyError, match="clobberlib:f"):
        applied.verify()
    with pytest.raises(ForeignChangeError):
        applied.revert()
    assert lib.f is fresh
    lib.f = ours
    applied.revert()
