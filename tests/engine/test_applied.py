"""The handle that ``apply`` returns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from patchkit.errors import UnknownPatchError
from tests.engine._kit import Lab, prefixing


@pytest.fixture
def lib(lab: Lab) -> Any:
    lab.patch("a.f", lambda ctx: ctx.wrap("appliedlib:f", prefixing("F")))
    lab.patch("a.g", lambda ctx: ctx.wrap("appliedlib:g", prefixing("G")))
    return lab.library("appliedlib", "def f(x):\n    return f'f({x})'\n\ndef g(x):\n    return f'g({x})'\n")


def test_names(lab: Lab, lib: Any) -> None:
    """The handle's patches are in the order of installation, and go as they are reverted."""
    applied = lab.apply("a.g", "a.f")
    assert (applied.patches, repr(applied)) == (("a.g", "a.f"), "<Applied a.g, a.f>")
    applied.revert("a.g")
    assert (applied.patches, lib.f("1"), lib.g("1")) == (("a.f",), "F f(1)", "g(1)")
    applied.revert()
    assert applied.patches == ()


@pytest.mark.parametrize("method", ["revert", "reverted"])
def test_unknown_names(lab: Lab, lib: Any, method: str) -> None:
    """A name that the handle doesn't have is an error with the nearest one; nothing is reverted."""
    applied = lab.apply("a.f")

    def call() -> None:
        block = getattr(applied, method)("a.f", "a.ff")
        block.__enter__()

    with pytest.raises(UnknownPatchError, match=r"Did you mean 'a\.f'"):
        call()
    assert lib.f("1") == "F f(1)"


def test_context_manager(lab: Lab, lib: Any) -> None:
    """Leaving the handle's context reverts, also after an exception, also what was partly reverted already."""
    with lab.apply("a.f", "a.g") as applied:
        applied.revert("a.f")
        assert (lib.f("1"), lib.g("1")) == ("f(1)", "G g(1)")
    assert (lib.f("1"), lib.g("1")) == ("f(1)", "g(1)")
    with pytest.raises(ValueError, match="inside"), lab.apply("a.f"):
        raise ValueError("inside")
    assert lib.f("1") == "f(1)"


def test_report(lab: Lab, lib: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report has every entry of the manifest, as objects, as JSON, and as text."""
    monkeypatch.setenv("PATCHKIT_DISABLE", "a.g")
    applied = lab.apply("a.f", "a.g")
    report = applied.report()
    assert [(s.name, s.state, s.verdict, s.sites) for s in report.patches] == [
        ("a.f", "installed", "ok", ("appliedlib:f",)),
        ("a.g", "disabled", None, ()),
    ]
    assert json.loads(json.dumps(report.as_dict()))["patches"][0]["name"] == "a.f"
    text = str(report)
    assert "installed  a.f  contract ok" in text
    assert "disabled   a.g  contract not judged" in text
    with applied.reverted():
        assert applied.report().patches[0].state == "suspended"
    applied.revert()
    assert (applied.report().patches[0].state, applied.report().patches[0].sites) == ("reverted", ())
    with applied.reverted():
        assert lib.f("1") == "f(1)"


def test_block_after_revert_of_one(lab: Lab, lib: Any) -> None:
    """A block takes out what is still in."""
    applied = lab.apply("a.f", "a.g")
    applied.revert("a.f")
    with applied.reverted():
        assert (lib.f("1"), lib.g("1")) == ("f(1)", "g(1)")
    assert (lib.f("1"), lib.g("1")) == ("f(1)", "G g(1)")
