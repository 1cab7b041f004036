"""What was found by people who tried to break the engine: odd callables, constants, strangers, numbers."""

from __future__ import annotations

import functools
import json
import math
import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import patchkit
from patchkit._code import same_constant
from patchkit._signature import misfit
from patchkit.errors import ManifestError, RegistrationError
from patchkit.manifest._lines import key_lines
from patchkit.registry import unregister
from patchkit.report._json import document


class Called:
    def __call__(self) -> None: ...


@pytest.mark.parametrize("decorator", [patchkit.wrap, patchkit.replace])
@pytest.mark.parametrize("thing", [functools.partial(print), Called(), None, 3])
def test_decorating_what_is_no_function(decorator: Callable[..., Any], thing: object) -> None:
    """A partial, an object that can be called, or nothing at all, is refused with what to do instead."""
    with pytest.raises(RegistrationError, match="expected a function, found"):
        decorator("json:dumps", name="acme.odd", summary="Odd.")(thing)


@pytest.mark.parametrize("thing", [3, int, "patch", None])
def test_registering_what_is_no_patch(thing: Any) -> None:
    """Something that is no patch is refused."""
    with pytest.raises(RegistrationError, match=r"expected a subclass of patchkit\.Patch"):
        patchkit.register(thing)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1, True),
        (1, 1.0, False),
        (1, True, False),
        (0.0, -0.0, False),
        ((1, 2), (1.0, 2.0), False),
        ((0.0,), (-0.0,), False),
        (((1,), "a"), ((1,), "a"), True),
        (frozenset({1}), frozenset({True}), False),
        (frozenset({1, "a"}), frozenset({"a", 1}), True),
        ("f.<locals>.g", "f.<locals>.h", False),
    ],
)
def test_same_constants(one: object, other: object, same: bool) -> None:
    """Source that was changed under a loaded function is told by any constant, its type and its sign."""
    assert same_constant(one, other) is same


def test_stranger_with_names_of_its_own() -> None:
    """A function of other parameter names is a misfit, unless it is only called by position."""

    def ours(state: object, handle: object) -> None: ...

    def theirs(s: object, h: object) -> None: ...

    def more(s: object, h: object, extra: object) -> None: ...

    assert misfit(ours, theirs) is not None
    assert misfit(ours, theirs, by_position=True) is None
    assert misfit(ours, more, by_position=True) is not None


def test_wrapping_over_a_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another project's wrapper with parameter names of its own, put there before, is wrapped as the function is."""
    original = textwrap.dedent

    def theirs(t: str) -> str:
        return original(t)

    monkeypatch.setattr(textwrap, "dedent", theirs)

    @patchkit.wrap("textwrap:dedent", name="acme.over-a-stranger", summary="Over a stranger.")
    def over(original: Callable[..., Any], text: str) -> Any:
        return f"<{original(text)}>"

    with patchkit.apply({"schema": 1, "patch": [{"name": "acme.over-a-stranger"}], "audit": {"policy": "off"}}):
        assert textwrap.dedent(" a") == "<a>"
    assert textwrap.dedent(" a") == "a"
    unregister("acme.over-a-stranger")


def test_json_is_strict() -> None:
    """Numbers that JSON doesn't have, and values that it can't hold, are written as text."""
    text = document("show", figures={"inf": math.inf, "nan": [math.nan], "bytes": b"x", 3: (1, None, True)})

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    found = json.loads(text, parse_constant=refuse)
    assert found["figures"] == {"inf": "inf", "nan": ["nan"], "bytes": "b'x'", "3": [1, None, True]}


class Counting(str):
    """A text that knows how much of it was looked through for line feeds."""

    counted = 0

    def count(self, sub: str, start: Any = 0, end: Any = None) -> int:
        type(self).counted += (len(self) if end is None else end) - start
        return super().count(sub, start, end)


def test_lines_of_a_long_manifest() -> None:
    """Finding the lines goes through the text once, however many keys there are."""
    text = Counting("".join(f'[[patch]]\nname = "p{index}"\n' for index in range(500)))
    lines = key_lines(text, {"patch": [{"name": f"p{index}"} for index in range(500)]})
    assert lines["patch", 499, "name"] == 1000
    assert 0 < Counting.counted <= len(text)


def test_deeply_dotted_keys(tmp_path: Path) -> None:
    """A key of six hundred parts is a fault of the manifest, not of patchkit."""
    path = tmp_path / "deep.toml"
    path.write_text(f"schema = 1\n{'.'.join(['a'] * 600)} = 1\n", encoding="utf-8")
    with pytest.raises(ManifestError):
        patchkit.load_manifest(path)


def test_long_chain_of_extends(tmp_path: Path) -> None:
    """So is a chain of fifteen hundred manifests that extend each other."""
    for index in range(1500):
        (tmp_path / f"{index}.toml").write_text(f'schema = 1\nextends = ["{index + 1}.toml"]\n', encoding="utf-8")
    (tmp_path / "1500.toml").write_text('schema = 1\n[[patch]]\nname = "acme.none"\n', encoding="utf-8")
    with pytest.raises(ManifestError, match="extends"):
        patchkit.load_manifest(tmp_path / "0.toml")


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs a device that never ends")
def test_endless_manifest() -> None:
    """A device that never ends is not read to its end."""
    with pytest.raises(ManifestError, match="is larger than 16 MiB"):
        patchkit.load_manifest("/dev/zero")


def test_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder that was removed, a manifest that isn't there is an error like any other."""
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(ManifestError, match="no such file"):
        patchkit.load_manifest("fist.toml")
