"""Everything that can be said about a manifest without changing anything."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import Field

import patchkit
from patchkit import Contract, PatchOptions
from patchkit.errors import OptionsError, OrderError, PatchkitWarning, PlanError, UnknownPatchError
from tests.engine._kit import Lab


class Options(PatchOptions):
    scope: str = Field(default="all", pattern="all|some")
    count: int = Field(default=1, ge=1)


@pytest.fixture(autouse=True)
def _patches(lab: Lab) -> None:
    def install(ctx: patchkit.Context) -> None:
        raise AssertionError("a plan installs nothing")

    lab.patch("p.a", install, Options=Options)
    lab.patch("p.b", install, after=("p.a", "p.unknown"))
    lab.patch("p.c", install, after=("p.b",))
    lab.patch("p.loner", install, conflicts=("p.a",))
    lab.patch("p.chicken", install, after=("p.egg",))
    lab.patch("p.egg", install, after=("p.chicken",))
    lab.patch("p.free", install)


def plan(*entries: str | dict[str, Any], **more: Any) -> patchkit.Plan:
    listed = [{"name": entry} if isinstance(entry, str) else entry for entry in entries]
    return patchkit.plan({"schema": 1, "patch": listed, **more})


def order(*entries: str | dict[str, Any]) -> list[str]:
    return [step.label for step in plan(*entries).installing]


def test_order_of_the_manifest() -> None:
    """Without constraints the order is the manifest's."""
    assert order("p.free", "p.c", "p.a") == ["p.free", "p.c", "p.a"]
    assert order("p.a", "p.free") == ["p.a", "p.free"]


def test_after() -> None:
    """A patch comes after those that it names, as far as they are selected; the others keep the manifest's order."""
    assert order("p.c", "p.b", "p.free", "p.a") == ["p.free", "p.a", "p.b", "p.c"]
    assert order("p.c", "p.a") == ["p.c", "p.a"]


def test_all_entries_of_a_patch_stay_together() -> None:
    """A patch on several models comes, on all of them, before what follows it."""
    entries: list[str | dict[str, Any]] = [{"name": "p.a", "on": "one"}, "p.b", {"name": "p.a", "on": "two"}]
    assert order(*entries) == ["p.a on one", "p.a on two", "p.b"]


def test_circle() -> None:
    """Patches that must follow each other are an error that shows the circle."""
    with pytest.raises(OrderError, match=r"p\.(chicken|egg) after p\.(egg|chicken) after"):
        plan("p.free", "p.chicken", "p.egg")
    assert order("p.chicken") == ["p.chicken"]


def test_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patches that exclude each other are an error, unless one of them is switched off."""
    with pytest.raises(OrderError, match=r"p\.loner and p\.a exclude each other"):
        plan("p.a", "p.loner")
    monkeypatch.setenv("PATCHKIT_DISABLE", "p.loner")
    assert order("p.a", "p.loner") == ["p.a"]


def test_unknown_patch() -> None:
    """An unknown name is an error with the nearest names, unless the entry need not apply."""
    with pytest.raises(UnknownPatchError, match=r"Did you mean 'p\.free'"):
        plan("p.fre")
    made = plan("p.free", {"name": "p.unknown", "required": False})
    assert ([entry.name for entry in made.absent], order("p.free")) == (["p.unknown"], ["p.free"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scop": "all"}, r"options\.scop: .*'scope'.* scope, count"),
        ({"scope": "none"}, r"options\.scope: .*'none'"),
        ({"count": 0}, r"options\.count: .* 0"),
        ({"count": "many"}, r"options\.count: .*'many'"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    """An option that the patch doesn't know, or whose value it doesn't take, is an error that names both."""
    with pytest.raises(OptionsError, match=message) as caught:
        plan({"name": "p.a", "options": options})
    assert caught.value.patch == "p.a"


def test_wrong_options_of_an_optional_entry() -> None:
    """A wrong option is a mistake also where the patch may be absent."""
    with pytest.raises(OptionsError):
        plan({"name": "p.a", "options": {"scop": 1}, "required": False})


def test_options_are_the_patchs_own_model() -> None:
    """Valid options arrive as the patch's own model, with its defaults."""
    (step,) = plan({"name": "p.a", "options": {"count": 3}}).steps
    assert step.options == Options(count=3)


def test_several_faults_together() -> None:
    """All faults of a plan are reported at once."""
    with pytest.raises(PlanError) as caught:
        plan("p.unknown", {"name": "p.a", "options": {"x": 1, "count": 0}}, "p.chicken", "p.egg")
    message = str(caught.value)
    for part in ("p.unknown", "options.x", "options.count", "in a circle"):
        assert part in message
    assert type(caught.value) is PlanError
    assert [fault.code for fault in caught.value.faults] == ["PK201", "PK202", "PK204"]


@pytest.mark.parametrize("globs", ["p.a", "p.[ab]", " p.? ,", "p.loner,p.a"])
def test_switched_off_by_the_environment(monkeypatch: pytest.MonkeyPatch, globs: str) -> None:
    """Names and globs in PATCHKIT_DISABLE leave patches out, with the reason."""
    monkeypatch.setenv("PATCHKIT_DISABLE", globs)
    made = plan("p.a", "p.free")
    (disabled,) = [step for step in made.steps if step.outcome == "disabled"]
    assert disabled.patch.name == "p.a"
    assert "PATCHKIT_DISABLE names 'p." in disabled.reason
    assert disabled.judgement is None


def test_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry whose condition doesn't hold is left out, with the reason, and nothing waits for it."""
    monkeypatch.setenv("PLAN_TEST", "here")
    made = plan(
        {"name": "p.a", "when": {"env": {"PLAN_TEST": "elsewhere"}}},
        {"name": "p.b", "when": {"env": {"PLAN_TEST": "h*"}}},
        {"name": "p.free", "when": {"python": "<3"}},
    )
    assert [step.label for step in made.installing] == ["p.b"]
    reasons = {step.label: step.reason for step in made.steps if step.outcome == "skip"}
    assert set(reasons) == {"p.a", "p.free"}
    assert all(reason.startswith("when: ") for reason in reasons.values())


def test_digest(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal plans have equal digests; another option, order, environment or verdict makes another plan."""
    digests = {
        plan("p.a", "p.free").digest,
        plan("p.free", "p.a").digest,
        plan({"name": "p.a", "options": {"count": 2}}, "p.free").digest,
    }
    assert plan("p.a", "p.free").digest in digests
    assert len(digests) == 3
    monkeypatch.setenv("PATCHKIT_DISABLE", "p.free")
    assert plan("p.a", "p.free").digest not in digests


def test_policy_is_part_of_the_plan(lab: Lab) -> None:
    """A step that policy refuses is shown as refused, not raised, so that a plan can be printed."""
    lab.patch("p.excluded", lambda ctx: None, contract=Contract(requires=("pytest<1",)))
    assert [step.label for step in plan("p.excluded", "p.free").refused] == ["p.excluded"]
    warned = plan("p.excluded", policy={"on_excluded": "warn"})
    assert warned.refused == ()
    assert "pytest" in warned.steps[0].reason
    skipped = plan("p.excluded", policy={"on_excluded": "skip"})
    assert [step.outcome for step in skipped.steps] == ["skip"]
    optional = plan({"name": "p.excluded", "required": False})
    assert [step.outcome for step in optional.steps] == ["skip"]


def test_switch_that_matches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is named in PATCHKIT_DISABLE and isn't known may be misspelt: that is said."""
    monkeypatch.setenv("PATCHKIT_DISABLE", "p.aa, p.a")
    with pytest.warns(PatchkitWarning, match=r"found 'p\.aa', which no known patch matches") as caught:
        plan("p.a", "p.free")
    assert len(caught) == 1
