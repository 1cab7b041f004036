"""Hooks through a module's own registration, also where it is interrupted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit import Context
from patchkit._hooks import HookRecord
from patchkit.errors import VerifyError
from tests.engine._kit import Handle, Lab, Memory, Module


class Interrupted(Module):
    """A module whose registration is interrupted after it has registered the hook, before anybody has the handle."""

    armed = True

    def register_forward_hook(self, hook: Any, *, prepend: bool = False, with_kwargs: bool = False) -> Handle:
        handle = super().register_forward_hook(hook, prepend=prepend, with_kwargs=with_kwargs)
        if type(self).armed:
            raise KeyboardInterrupt
        return handle


def test_interrupted_registration(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook that was registered, but whose handle nobody got, is taken out again by the roll-back, flags
    included.
    """
    module = Interrupted()

    def other(*_: Any) -> None: ...
    def ours(*_: Any) -> None: ...

    Module.register_forward_hook(module, other, with_kwargs=True)
    memory = Memory(module, module.__dict__["_forward_hooks"], module.__dict__["_forward_hooks_with_kwargs"])
    lab.patch("h.ours", lambda ctx: ctx.hook(ctx.model, "forward_hook", ours, with_kwargs=True), resources=("model",))
    with pytest.raises(KeyboardInterrupt):
        lab.apply("h.ours", model=module)
    assert memory.differences() == []
    monkeypatch.setattr(Interrupted, "armed", False)
    with lab.apply("h.ours", model=module):
        assert module.hooks == [other, ours]
    assert memory.differences() == []


def test_hook_that_somebody_removed(lab: Lab) -> None:
    """A hook that is gone is not in effect; reverting is harmless."""
    module = Module()
    lab.patch("h.ours", lambda ctx: ctx.hook(ctx.model, "forward_hook", lambda *_: None), resources=("model",))
    applied = lab.apply("h.ours", model=module)
    module.__dict__["_forward_hooks"].clear()
    with pytest.raises(
        VerifyError, match=r"forward_hook of Module: expected the hook of 'h\.ours', found that somebody"
    ):
        applied.verify()
    applied.revert()
    assert module.hooks == []


def test_unknown_kind(lab: Lab) -> None:
    """A kind of hook that the module doesn't know is the patch's fault, and is rolled back."""
    from patchkit.errors import InstallError

    lab.patch("h.unknown", lambda ctx: ctx.hook(ctx.model, "sideways_hook", lambda *_: None), resources=("model",))
    with pytest.raises(InstallError, match="register_sideways_hook"):
        lab.apply("h.unknown", model=Module())


def _hook(name: str) -> Callable[..., None]:
    def hook(*_: Any) -> None: ...

    hook.__name__ = name
    return hook


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=14), st.permutations("abcdxyz"))
def test_order_survives_any_suspension(steps: list[tuple[str, bool]], line: list[str]) -> None:
    """Whichever of our hooks are taken out and brought back, in whatever order, the line is the same as before."""
    module = Module()
    records: dict[str, HookRecord] = {}
    for name in line:
        hook = _hook(name)
        if name in "abcd":
            records[name] = HookRecord(f"h.{name}", "", 1, module, "forward_hook", hook, {})
            records[name].do()
        else:
            module.register_forward_hook(hook)
    for name, out in steps:
        records[name].suspend() if out else records[name].resume()
    for record in records.values():
        record.resume()
    names = [hook.__name__ for hook in module.hooks]
    strangers = [name for name in line if name in "xyz"]
    # Against each stranger every hook of ours stands where it stood; two of ours that were out at the same time may
    # only change places if no stranger is between them to tell.
    assert [name for name in names if name in "xyz"] == strangers
    for stranger in strangers:
        assert set(names[: names.index(stranger)]) == set(line[: line.index(stranger)])
    for record in records.values():
        record.undo()
    assert [hook.__name__ for hook in module.hooks] == strangers


def test_context_passes_options_on(lab: Lab) -> None:
    """What the registration takes is passed on to it."""
    module = Module()

    def install(ctx: Context) -> None:
        ctx.hook(ctx.model, "forward_hook", _hook("ours"), prepend=True, with_kwargs=True)

    module.register_forward_hook(_hook("other"))
    lab.patch("h.options", install, resources=("model",))
    with lab.apply("h.options", model=module):
        assert [hook.__name__ for hook in module.hooks] == ["ours", "other"]
        assert list(module.__dict__["_forward_hooks_with_kwargs"].values()) == [True]
