"""Law 6: no code of a patch runs until every contract of the plan has been judged and accepted."""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any

import pytest

import patchkit
from patchkit import Context, Contract, Fingerprint, Patch, Symbol, registry
from patchkit.audit import read_entries
from patchkit.contract import InstalledSource, fingerprint_of
from patchkit.errors import ContractError, PatchkitWarning
from tests.engine._kit import Lab, Memory

SOURCE = """
import contractlog
contractlog.imported.append(__name__)

def f(x):
    return f"f({x})"
"""


@pytest.fixture
def ran(lab: Lab) -> list[str]:
    """What code of the patches has run; their libraries note it when they are imported."""
    log = lab.library("contractlog", "imported = []\n")
    lab.write("contractlib", SOURCE)
    lab.write("contractother", SOURCE)
    listed: list[str] = log.imported
    return listed


def declare(lab: Lab, ran: list[str], name: str, contract: Contract) -> None:
    """Register a patch that notes each of its steps."""

    def make(original: Any) -> Any:
        ran.append(f"{name}.make")

        def wrapper(x: Any) -> str:
            return f"new {original(x)}"

        return wrapper

    def install(ctx: Context) -> None:
        ran.append(f"{name}.install")
        ctx.wrap("contractlib:f", make)

    lab.patch(
        name,
        install,
        check=lambda ctx: ran.append(f"{name}.check"),
        verify=lambda ctx: ran.append(f"{name}.verify"),
        uninstall=lambda ctx: ran.append(f"{name}.uninstall"),
        contract=contract,
    )


GOOD = Contract(symbols=(Symbol("contractlib:f", parameters=("x",), role="site"),))
BROKEN = Contract(symbols=(Symbol("contractother:f", parameters=("x", "y"), role="site"),))
GONE = Contract(symbols=(Symbol("contractother:gone", role="site"),))
EXCLUDED = Contract(requires=("pytest<1",))


@pytest.mark.parametrize("bad", [BROKEN, GONE, EXCLUDED], ids=["broken", "gone", "excluded"])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_one_bad_contract_stops_everything(lab: Lab, ran: list[str], bad: Contract, position: int) -> None:
    """With one contract that doesn't fit, wherever in the plan, no step of any patch runs and no library is
    imported.
    """
    for name in ("k.one", "k.two"):
        declare(lab, ran, name, GOOD)
    declare(lab, ran, "k.bad", bad)
    names = ["k.one", "k.two"]
    names.insert(position, "k.bad")
    modules = set(sys.modules)
    with pytest.raises(ContractError) as caught:
        lab.apply(*names)
    assert ran == []
    assert not {"contractlib", "contractother"} & (set(sys.modules) - modules)
    assert caught.value.patch == "k.bad"
    assert [entry.event for entry in read_entries(lab.log)][-1] == "apply.refused"


def test_message_says_what_differs_and_how_to_see_it(lab: Lab, ran: list[str]) -> None:
    """The message names symbol, what was expected, what was found and where, and the command that shows the
    difference.
    """
    declare(lab, ran, "k.bad", BROKEN)
    with pytest.raises(ContractError) as caught:
        lab.apply("k.bad")
    message = str(caught.value)
    for part in ("k.bad", "contractother:f", "expected", "x, y", "found", "contractother.py", "patchkit show k.bad"):
        assert part in message
    assert [judgement.verdict.value for judgement in caught.value.reports] == ["broken"]  # type: ignore[attr-defined]


def test_all_bad_contracts_are_named(lab: Lab, ran: list[str]) -> None:
    """Several contracts that don't fit are reported together."""
    declare(lab, ran, "k.bad", BROKEN)
    declare(lab, ran, "k.excluded", EXCLUDED)
    with pytest.raises(ContractError) as caught:
        lab.apply("k.bad", "k.excluded")
    assert "contractother:f" in str(caught.value)
    assert "pytest<1" in str(caught.value)
    assert len(caught.value.reports) == 2


def test_decorator_form_has_a_contract(lab: Lab, ran: list[str]) -> None:
    """In the decorator form the site itself is the contract: if it is gone, nothing is imported to find that out."""

    @patchkit.wrap("contractother:gone", name="k.wrap", summary="test")
    def wrapped(original: Any, x: Any) -> Any:
        return original(x)

    lab.keep("k.wrap")
    with pytest.raises(ContractError, match="contractother:gone"):
        lab.apply("k.wrap")
    assert ran == []


@pytest.mark.parametrize("stance", ["warn", "skip"])
def test_policy_decides(lab: Lab, ran: list[str], stance: str) -> None:
    """Policy can let an excluded release pass, with a warning, or leave the patch out; the log says so either way."""
    declare(lab, ran, "k.good", GOOD)
    declare(lab, ran, "k.excluded", EXCLUDED)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        applied = lab.apply("k.good", "k.excluded", policy={"on_excluded": stance})
    warned = [warning for warning in caught if issubclass(warning.category, PatchkitWarning)]
    if stance == "warn":
        assert applied.patches == ("k.good", "k.excluded")
        assert ["k.excluded" in str(warning.message) for warning in warned] == [True]
    else:
        assert applied.patches == ("k.good",)
        assert warned == []
        assert [e.fields["patch"] for e in read_entries(lab.log) if e.event == "patch.skipped"] == ["k.excluded"]


def test_no_policy_accepts_a_broken_contract(lab: Lab, ran: list[str]) -> None:
    """What is gone can't be accepted: every policy on warn still refuses a broken contract."""
    declare(lab, ran, "k.bad", BROKEN)
    policy = dict.fromkeys(("on_changed", "on_excluded", "on_unknown", "on_retired"), "warn")
    with pytest.raises(ContractError):
        lab.apply("k.bad", policy=policy)
    assert ran == []


def test_optional_entry_with_a_bad_contract_is_left_out(lab: Lab, ran: list[str]) -> None:
    """An entry that need not apply is left out where its contract doesn't fit, and none of its code runs."""
    declare(lab, ran, "k.good", GOOD)
    declare(lab, ran, "k.bad", BROKEN)
    applied = lab.apply({"name": "k.bad", "required": False}, "k.good")
    assert applied.patches == ("k.good",)
    assert not [step for step in ran if step.startswith("k.bad")]


def test_checks_run_before_any_installation(lab: Lab, ran: list[str]) -> None:
    """All checks of a plan come before the first installation, all installations before the first verification."""
    declare(lab, ran, "k.one", GOOD)
    declare(lab, ran, "k.two", GOOD)
    lab.apply("k.one", "k.two")
    steps = [step for step in ran if not step.endswith(".make")]
    assert steps == [
        *("k.one.check", "k.two.check"),
        *("k.one.install", "contractlib", "k.two.install"),
        *("k.one.verify", "k.two.verify"),
    ]


def test_check_changes_nothing_and_stops_everything(lab: Lab, ran: list[str]) -> None:
    """A patch that refuses in its check stops the plan before anything is installed."""
    declare(lab, ran, "k.good", GOOD)

    def refuse(ctx: Context) -> None:
        raise patchkit.errors.RefusedError("not like this")

    lab.patch("k.refusing", lambda ctx: None, check=refuse)
    with pytest.raises(patchkit.errors.RefusedError, match="not like this") as caught:
        lab.apply("k.good", "k.refusing")
    assert caught.value.patch == "k.refusing"
    assert ran == ["k.good.check"]
    assert "contractlib" not in sys.modules


def test_planning_alone_runs_nothing(lab: Lab, ran: list[str]) -> None:
    """``plan`` judges and touches nothing: no step runs, no library is imported, no log is written."""
    declare(lab, ran, "k.good", GOOD)
    declare(lab, ran, "k.bad", BROKEN)
    plan = patchkit.plan({"schema": 1, "patch": [{"name": "k.good"}, {"name": "k.bad"}]})
    assert [step.patch.name for step in plan.refused] == ["k.bad"]
    assert [step.judgement.verdict.value for step in plan.steps if step.judgement] == ["ok", "broken"]
    assert ran == []
    assert not lab.log.exists()
    assert isinstance(registry.find("k.good"), Patch)


def test_judging_again_after_a_change_of_the_file(lab: Lab, ran: list[str]) -> None:
    """A library that has not been imported is judged by what its file says now."""
    declare(lab, ran, "k.good", GOOD)
    lab.write("contractlib", SOURCE.replace("def f(x)", "def f(x, y)"))
    with pytest.raises(ContractError):
        lab.apply("k.good")
    lab.write("contractlib", SOURCE)
    with lab.apply("k.good"):
        lib: Any = sys.modules["contractlib"]
        assert lib.f("1") == "new f(1)"
    assert Memory(lib).differences() == []


def test_reloaded_library_is_judged_anew(lab: Lab) -> None:
    """A verdict holds for what was loaded when it was given; another release, reloaded, gets a verdict of its own."""
    library = lab.library("reloadlib", "def f(x):\n    return x\n")
    (proven,) = fingerprint_of(InstalledSource(), "reloadlib:f")
    symbol = Symbol("reloadlib:f", role="site", fingerprints=(Fingerprint(proven, ("1",), "review"),))
    lab.patch("c.reloaded", lambda ctx: ctx.set(library, "PATCHED", 1), contract=Contract(symbols=(symbol,)))
    lab.apply("c.reloaded").revert()
    lab.write("reloadlib", "def f(x):\n    return x + 1000\n")
    importlib.reload(library)
    with pytest.raises(ContractError, match="changed"):
        lab.apply("c.reloaded")
