"""Counting who owns an effect, and the objects that a patch acts for."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit._shares import NOBODY, Share, Targets

CHANGES = [Share.acquire, Share.release, Share.suspend, Share.resume]


class Thing:
    pass


@given(st.lists(st.tuples(st.sampled_from(CHANGES), st.sampled_from("abc")), max_size=12))
def test_every_change_may_be_repeated(steps: list[Any]) -> None:
    """Making a change twice is the same as making it once, whatever came before."""
    once = twice = NOBODY
    for change, owner in steps:
        once = change(once, owner)
        twice = change(change(twice, owner), owner)
        assert once == twice
        assert once.suspenders <= once.owners
        assert once.active == (bool(once.owners) and not once.suspenders)


def test_one_suspension_is_enough() -> None:
    """An effect is off while any owner has suspended it, and an owner takes its suspension along."""
    share = NOBODY.acquire("a").acquire("b").suspend("a")
    assert not share.active
    assert share.release("a").active
    assert share.resume("a").active
    assert NOBODY.suspend("stranger") == NOBODY


def test_targets_are_counted_and_weak() -> None:
    """An object is acted for while somebody active owns it; it is forgotten with its last owner, or when it dies."""
    targets = Targets()
    one, two = Thing(), Thing()
    targets.change([one, two], Share.acquire, "a")
    targets.change([one], Share.acquire, "b")
    assert (one in targets, two in targets, object() in targets, len(targets)) == (True, True, False, 2)
    targets.change([one], Share.suspend, "a")
    assert (one in targets, targets.owns(one)) == (False, True)
    targets.change([one, two], Share.release, "a")
    assert (one in targets, two in targets, targets.owns(two)) == (True, False, False)
    del one
    gc.collect()
    assert len(targets) == 0


def test_watchers_are_all_called() -> None:
    """Every watcher is called after a change, also if one raises; the change has been made."""
    targets, calls = Targets(), []

    def fail() -> None:
        calls.append("fail")
        raise ValueError("watcher")

    def note() -> None:
        calls.append("note")

    for _ in range(2):
        targets.watch(fail)
        targets.watch(note)
    thing = Thing()
    with pytest.raises(ValueError, match="watcher"):
        targets.change([thing], Share.acquire, "a")
    assert (calls, thing in targets) == (["fail", "note"], True)
    targets.unwatch(fail)
    targets.unwatch(fail)
    targets.change([thing], Share.release, "a")
    assert (calls, len(targets)) == (["fail", "note", "note"], 0)
