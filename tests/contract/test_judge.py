"""The verdict: numbers, source, and which of them decides. Nothing of the library is imported for it."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.contract import (
    Contract,
    Finding,
    Fingerprint,
    InstalledSource,
    SourceFile,
    Symbol,
    Verdict,
    fingerprint_of,
    judge,
)
from patchkit.errors import ContractError, RegistrationError
from tests.contract.libraries import Library

F = Symbol("lib:f", parameters=("a",))
GONE = Symbol("lib:gone")
STRANGE = Symbol("lib:strange", parameters=())
OTHER_BODY = Symbol("lib:f", fingerprints=(Fingerprint("n1:" + "0" * 32, ("0.9",)),))


@pytest.fixture
def lib(library: Library) -> Library:
    """Version 1.5 of a library with a function, and a name that can't be read."""
    return library.distribution("lib", "1.5+cpu").write(lib="def f(a): ...\nstrange = make()")


def test_ok(lib: Library) -> None:
    """A contract that fits says so, with the versions as found and as counted, and the source."""
    judgement = lib.judge(F, requires=("lib>=1,<2",), until=("lib>=2",))
    assert judgement.verdict is Verdict.OK
    assert [(v.distribution, v.raw, v.normalised) for v in judgement.versions] == [("lib", "1.5+cpu", "1.5")]
    assert (judgement.findings, judgement.remarks, judgement.source) == ((), (), "library")
    assert judgement.one_line() == "everything fits lib 1.5+cpu"


@pytest.mark.parametrize(
    ("requires", "until", "symbols", "verdict", "line"),
    [
        (
            ("lib>=2",),
            (),
            (F,),
            "excluded",
            "expected lib>=2, found lib 1.5+cpu, which counts as 1.5",
        ),
        (
            (),
            ("lib>=1.4",),
            (F,),
            "retired",
            "expected a release before upstream's fix (lib>=1.4), found lib 1.5+cpu",
        ),
        # The source outranks the number, and the number outranks what can't be told.
        (
            ("lib>=2",),
            (),
            (F, GONE),
            "broken",
            (
                "lib:gone: expected a definition, found no gone in lib (lib.py); "
                "the version is also outside the declared range (excluded)"
            ),
        ),
        (
            ("lib>=2",),
            (),
            (STRANGE, OTHER_BODY),
            "excluded",
            "expected lib>=2, found lib 1.5+cpu, which counts as 1.5",
        ),
        (
            (),
            (),
            (OTHER_BODY, STRANGE),
            "unknown",
            "lib:strange: expected the parameters (), found what a call of make returns (lib.py:2)",
        ),
        (
            ("lib<1",),
            ("lib>1",),
            (F,),
            "excluded",
            (
                "expected lib<1, found lib 1.5+cpu, which counts as 1.5; "
                "upstream has also made the patch unnecessary (retired)"
            ),
        ),
    ],
)
def test_which_finding_decides(
    lib: Library,
    requires: tuple[str, ...],
    until: tuple[str, ...],
    symbols: tuple[Symbol, ...],
    verdict: str,
    line: str,
) -> None:
    """The gravest finding is the verdict and the reason."""
    judgement = lib.judge(*symbols, requires=requires, until=until)
    assert (judgement.verdict.value, judgement.one_line()) == (verdict, line)


@given(st.permutations([F, GONE, STRANGE, OTHER_BODY]), st.booleans(), st.booleans())
def test_the_order_of_symbols_does_not_decide(symbols: list[Symbol], excluded: bool, retired: bool) -> None:
    """Whatever the order in which a contract names things, the verdict is the gravest, and findings are in order."""
    judgement = judge(
        Contract(("lib>=2",) if excluded else (), tuple(symbols), ("lib>1",) if retired else ()), _FakeSource()
    )
    ranks = [finding.verdict.rank for finding in judgement.findings]
    assert judgement.verdict is Verdict.BROKEN
    assert ranks == sorted(ranks, reverse=True)
    assert {finding.verdict for finding in judgement.findings} == {
        Verdict.BROKEN,
        Verdict.UNKNOWN,
        Verdict.CHANGED,
        *([Verdict.EXCLUDED] if excluded else []),
        *([Verdict.RETIRED] if retired else []),
    }


class _FakeSource:
    """A source of another kind: the judge knows only the protocol."""

    label = "fake"

    def version(self, distribution: str) -> str | None:
        return {"lib": "1.5", "other": "3.0"}.get(distribution)

    def module(self, name: str) -> SourceFile | None:
        import ast

        text = "def f(a): ...\nstrange = make()"
        return SourceFile("lib", "lib.py", ast.parse(text)) if name == "lib" else None

    def children(self, package: str) -> tuple[str, ...]:
        return ()


def test_several_distributions() -> None:
    """Each requirement is compared with its own distribution, and the versions stand in the order of the contract."""
    judgement = judge(Contract(("other<3", "lib<2", "lib>1"), (F,)), _FakeSource())
    assert [str(finding) for finding in judgement.findings] == ["expected other<3, found other 3.0"]
    assert [str(version) for version in judgement.versions] == ["other 3.0", "lib 1.5"]


def test_missing_distribution() -> None:
    """A library that isn't installed is unknown, and said once, however many symbols the contract has."""
    contract = Contract(("no-such-lib>=1",), (Symbol("no_such_lib:f"), Symbol("no_such_lib.sub:g")), ("no-such-lib>5",))
    judgement = judge(contract, InstalledSource())
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.findings == (Finding(Verdict.UNKNOWN, None, "no-such-lib>=1", "no-such-lib is not installed"),)


def test_missing_package_without_a_requirement() -> None:
    """A package that isn't there is unknown also where the contract requires no distribution, or only says until."""
    for until in ((), ("no-such-lib>5",)):
        contract = Contract((), (Symbol("no_such_lib:f"), Symbol("no_such_lib.sub:g")), until)
        judgement = judge(contract, InstalledSource())
        assert judgement.findings == (Finding(Verdict.UNKNOWN, None, "the package no_such_lib", "none in installed"),)


def test_source_without_metadata(library: Library) -> None:
    """Where there is source but no version, the number is unknown, and the source can still be broken."""
    library.write(lib="def f(a): ...")
    judgement = library.judge(F, requires=("lib>=1",))
    assert (judgement.verdict, judgement.one_line()) == (
        Verdict.UNKNOWN,
        "expected lib>=1, found lib has no metadata in library",
    )
    assert library.judge(GONE, requires=("lib>=1",)).verdict is Verdict.BROKEN


@pytest.mark.parametrize("raw", ["0.1.dev1+g1a2b3c4", "0.0.0+unknown"])
def test_number_that_says_nothing(library: Library, raw: str) -> None:
    """A source build without a real number is judged by its source alone, and the number is reported."""
    library.distribution("lib", raw).write(lib="def f(a): ...")
    judgement = library.judge(F, requires=("lib>=1,<2",))
    assert judgement.verdict is Verdict.OK
    assert [str(remark) for remark in judgement.remarks] == [
        f"expected lib>=1,<2, found lib {raw}, a number that says nothing; the source alone was judged"
    ]
    assert library.judge(GONE, requires=("lib>=1,<2",)).verdict is Verdict.BROKEN


def test_number_that_says_nothing_and_no_symbols(library: Library) -> None:
    """Where there is nothing but a number, and it says nothing, nothing is known."""
    judgement = library.distribution("lib", "0+unknown").judge(requires=("lib>=1",))
    assert (judgement.verdict, judgement.one_line()) == (
        Verdict.UNKNOWN,
        "expected lib>=1, found lib 0+unknown, a number that says nothing",
    )


def test_wrong_contract(lib: Library) -> None:
    """A requirement that doesn't parse is the contract's fault, not the library's."""
    with pytest.raises(RegistrationError, match=r"requirement 'lib>>1'"):
        lib.judge(F, requires=("lib>>1",))


def test_empty_contract(lib: Library) -> None:
    """A contract that asks for nothing fits."""
    assert lib.judge().verdict is Verdict.OK


def test_fingerprint_of(library: Library) -> None:
    """The fingerprints of a symbol are those of its definitions, one each; without a body there is an error."""
    library.write(lib="try: ...\nexcept E:\n    def f(a): return 1\nelse:\n    def f(a): return 2\n")
    digests = fingerprint_of(library.source, "lib:f")
    assert len(digests) == 2
    for digest in digests:
        assert library.judge(Symbol("lib:f", fingerprints=(Fingerprint(digest),))).verdict is Verdict.OK
    with pytest.raises(ContractError) as caught:
        fingerprint_of(library.source, "lib:g")
    assert caught.value.message == (
        "lib:g: expected a body to fingerprint in library, found no g in lib. "
        "Check the path, or read it from a source that has it."
    )


@pytest.mark.parametrize("path", ["lib.native:f", "lib.native:C.m"])
def test_fingerprint_of_a_stub(library: Library, path: str) -> None:
    """A stub has no body to fingerprint."""
    library.package("lib", native_pyi="def f(): ...\nclass C:\n    def m(self): ...").file("lib/native.so")
    with pytest.raises(ContractError, match="found no body to read"):
        fingerprint_of(library.source, path)


IMPORTS_NOTHING = """
import sys
from patchkit.contract import Contract, InstalledSource, Symbol, judge
contract = Contract(
    ("poisoned>=1",),
    (
        Symbol("poisoned.inner.mod:Class.f", parameters=("self",), calls=("g",)),
        Symbol("poisoned:Class.f"),
        Symbol("poisoned.star:g"),
        Symbol("poisoned.native:f"),
    ),
)
judgement = judge(contract, InstalledSource())
heavy = {"poisoned", "torch", "pydantic", "structlog"}
print(judgement.verdict.value, sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
"""


def test_nothing_is_imported(library: Library) -> None:
    """Judging imports nothing of the library, whatever the contract makes it follow, and none of the heavy ones."""
    poison = "raise SystemExit('imported')\n"
    library.distribution("poisoned", "1.0")
    library.package(
        "poisoned",
        init=poison + "from .inner.mod import Class",
        star=poison + "from .inner.mod import *",
        native_pyi="f: int",
    )
    library.package("poisoned/inner", init=poison, mod=poison + "def g(): ...\nclass Class:\n    def f(self): g()")
    library.file("poisoned/native.so", b"\x7fELF")
    code = f"import sys; sys.path.insert(0, {str(library.root)!r})\n{IMPORTS_NOTHING}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("ok []", "")


FSDP = "torch.distributed.fsdp._runtime_utils"
FLAT = "torch.distributed.fsdp._flat_param:FlatParamHandle"
REAL = {
    "pytest": (
        Symbol("pytest:MonkeyPatch.setattr"),
        Symbol("_pytest.monkeypatch:MonkeyPatch.undo", parameters=("self",), attributes=("_setattr",)),
    ),
    "torch": (
        Symbol(f"{FSDP}:_reduce_grad", parameters=("state", "handle"), calls=("_post_reduce_grad_callback",)),
        Symbol(f"{FSDP}:_post_reduce_grad_callback", calls=("_offload_grad",)),
        Symbol(f"{FSDP}:_offload_grad", attributes=("_cpu_grad",), calls=(".copy_",)),
        Symbol(f"{FLAT}.init_flat_param_attributes", ("self",), attributes=("_local_shard", "_cpu_grad")),
        Symbol("torch.distributed.fsdp:FullyShardedDataParallel.named_modules"),
        Symbol("torch:Tensor.pin_memory"),
    ),
}


@pytest.mark.parametrize("name", [name for name in REAL if next(iter(metadata.distributions(name=name)), None)])
def test_installed_library(name: str) -> None:
    """A real library that is installed here fits a contract on it, and its bodies match their own fingerprints."""
    source = InstalledSource()
    assert judge(Contract((f"{name}>=1",), REAL[name]), source).one_line().startswith(f"everything fits {name} ")
    for symbol in REAL[name][:-1]:
        (digest,) = fingerprint_of(source, symbol.path)
        proven = Contract(symbols=(Symbol(symbol.path, fingerprints=(Fingerprint(digest),)),))
        assert judge(proven, source).verdict is Verdict.OK
