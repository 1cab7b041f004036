"""The facts of contracts: their order, their codes, and what they refuse to be."""

from __future__ import annotations

import pytest

from patchkit.contract import Finding, Fingerprint, Judgement, LibraryVersion, Symbol, Verdict
from patchkit.errors import RegistrationError

DIGEST = "n1:" + "0" * 32


def test_verdict_order() -> None:
    """The gravest finding decides, and a broken source outranks a number that is out of range."""
    gravest_first = sorted(Verdict, key=lambda verdict: verdict.rank, reverse=True)
    assert [verdict.value for verdict in gravest_first] == [
        "broken",
        "excluded",
        "unknown",
        "changed",
        "retired",
        "ok",
    ]


def test_gravest_of_nothing_is_ok() -> None:
    """A contract against which nothing was found is fulfilled."""
    assert Verdict.gravest([]) is Verdict.OK
    assert Verdict.gravest([Verdict.CHANGED, Verdict.BROKEN, Verdict.OK]) is Verdict.BROKEN


def test_verdict_codes_are_stable() -> None:
    """Codes are what people search for, so they don't move."""
    assert {verdict.code: verdict.value for verdict in Verdict} == {
        "PK301": "ok",
        "PK302": "changed",
        "PK303": "broken",
        "PK304": "excluded",
        "PK305": "retired",
        "PK306": "unknown",
    }


@pytest.mark.parametrize("verdict", Verdict)
def test_every_verdict_explains_itself(verdict: Verdict) -> None:
    """Each verdict has an explanation in whole sentences, and is found by its value."""
    assert verdict.explanation.endswith(".")
    assert Verdict(verdict.value) is verdict


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"path": "pkg mod:f"}, "symbol 'pkg mod:f': expected 'package.module:Class.attr' or 'package.module'"),
        ({"path": "pkg:"}, "symbol 'pkg:': expected 'package.module:Class.attr' or 'package.module'"),
        ({"path": ""}, "symbol '': expected 'package.module:Class.attr' or 'package.module'"),
        ({"path": "pkg:f", "role": "target"}, "symbol pkg:f: expected role 'site' or 'relies', got 'target'"),
        (
            {"path": "pkg:f", "parameters": ("x: int",)},
            "symbol pkg:f: expected 'x', 'k=', '*args', '**kw', '*' or '/' in parameters, got 'x: int'",
        ),
        (
            {"path": "pkg:f", "calls": ("g()",)},
            "symbol pkg:f: expected 'function', '.method' or 'a.b.function' in calls, got 'g()'",
        ),
        ({"path": "pkg:f", "attributes": (".x",)}, "symbol pkg:f: expected a name in attributes, got '.x'"),
    ],
)
def test_malformed_symbol(facts: dict[str, object], message: str) -> None:
    """A symbol that could never fit anything is refused where it is written."""
    with pytest.raises(RegistrationError) as caught:
        Symbol(**facts)  # type: ignore[arg-type]
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("digest", "proof", "message"),
    [
        ("n1:12", "probe", "fingerprint 'n1:12': expected 'n1:' and 32 hexadecimal digits"),
        (DIGEST, "hope", f"fingerprint {DIGEST}: expected proof 'probe' or 'review', got 'hope'"),
    ],
)
def test_malformed_fingerprint(digest: str, proof: str, message: str) -> None:
    """A fingerprint says how it was proven, in one of two words."""
    with pytest.raises(RegistrationError) as caught:
        Fingerprint(digest, ("1.0",), proof)
    assert caught.value.message == message


def test_symbol_parts() -> None:
    """A path falls into the module and the names inside it."""
    assert Symbol("pkg.mod:Class.attr").module == "pkg.mod"
    assert Symbol("pkg.mod:Class.attr").names == ("Class", "attr")
    assert Symbol("pkg.mod").names == ()


def _finding(verdict: Verdict, symbol: str | None = "pkg:f", where: str = "pkg.py:1") -> Finding:
    return Finding(verdict, symbol, "this", "that", where)


@pytest.mark.parametrize(
    ("findings", "line"),
    [
        ([], "everything fits lib 1.0+cpu"),
        ([_finding(Verdict.BROKEN)], "pkg:f: expected this, found that (pkg.py:1)"),
        ([_finding(Verdict.EXCLUDED, None, "")], "expected this, found that"),
        (
            [_finding(Verdict.BROKEN), _finding(Verdict.BROKEN), _finding(Verdict.CHANGED)],
            "pkg:f: expected this, found that (pkg.py:1); and 1 more",
        ),
        (
            [_finding(Verdict.CHANGED), _finding(Verdict.RETIRED, None, "")],
            "pkg:f: expected this, found that (pkg.py:1); upstream has also made the patch unnecessary (retired)",
        ),
        ([_finding(Verdict.RETIRED, None, "")], "expected this, found that"),
    ],
)
def test_one_line(findings: list[Finding], line: str) -> None:
    """The reason is the first finding, with how many more say the same, and a retirement is never hidden."""
    verdict = Verdict.gravest(finding.verdict for finding in findings)
    judgement = Judgement(verdict, tuple(findings), (LibraryVersion("lib", "1.0+cpu", "1.0"),), "installed")
    assert judgement.one_line() == line


def test_one_line_of_an_empty_contract() -> None:
    """A contract that asks for nothing fits everything."""
    assert Judgement(Verdict.OK, (), (), "installed").one_line() == "everything fits"
