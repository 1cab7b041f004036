"""Every way in which a library changes under a patch: the verdict, and what the person who reads it is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from patchkit.contract import Fingerprint, Symbol, Verdict, fingerprint_of
from tests.contract.libraries import Library

ENGINE = """
    import functools

    def finish(state, grad, scale=1.0):
        '''Finish.'''
        result = prepare(grad, scale)
        state._pending.append(result)
        return result

    def prepare(grad, scale):
        return grad * scale

    class Handle:
        def __init__(self, flat):
            self.flat = flat

        def shard(self, *, wait=True):
            self.flat._local = self.flat.copy_(wait)
"""

FINISH = Symbol(
    "lib.engine:finish",
    parameters=("state", "grad", "scale="),
    calls=("prepare", ".append", "state._pending.append"),
    attributes=("_pending",),
)
SHARD = Symbol(
    "lib.engine:Handle.shard", parameters=("self", "*", "wait="), calls=(".copy_",), attributes=("_local", "flat")
)


@pytest.fixture
def proven(library: Library) -> tuple[Symbol, Symbol]:
    """Both symbols, with the fingerprints of the library as it is."""
    library.package("lib", engine=ENGINE)
    finish, shard = (
        replace(symbol, fingerprints=(Fingerprint(fingerprint_of(library.source, symbol.path)[0], ("1.0",), "probe"),))
        for symbol in (FINISH, SHARD)
    )
    return finish, shard


def test_the_library_as_it_was(library: Library, proven: tuple[Symbol, Symbol]) -> None:
    """What the contract was written on fits, with nothing to remark."""
    judgement = library.judge(*proven)
    assert (judgement.verdict, judgement.findings, judgement.remarks) == (Verdict.OK, (), ())


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        pytest.param(
            "def finish(state, grad, scale=1.0):",
            "def finish(state, gradient, scale=1.0):",
            [
                (
                    "lib.engine:finish: expected the parameters (state, grad, scale=), found (state, gradient, scale=)"
                    " (lib/engine.py:3)"
                )
            ],
            id="renamed parameter",
        ),
        pytest.param(
            "scale=1.0):",
            "scale=1.0, *, async_op=False):",
            [
                (
                    "lib.engine:finish: expected the parameters (state, grad, scale=), "
                    "found (state, grad, scale=, *, async_op=) (lib/engine.py:3)"
                )
            ],
            id="new keyword-only parameter",
        ),
        pytest.param(
            "state, grad, scale=1.0",
            "state, grad=None, scale=1.0",
            [
                (
                    "lib.engine:finish: expected the parameters (state, grad, scale=), found (state, grad=, scale=)"
                    " (lib/engine.py:3)"
                )
            ],
            id="default added",
        ),
        pytest.param(
            "state, grad, scale=1.0",
            "state, /, grad, scale=1.0",
            [
                (
                    "lib.engine:finish: expected the parameters (state, grad, scale=), found (state, /, grad, scale=)"
                    " (lib/engine.py:3)"
                )
            ],
            id="positional only",
        ),
        pytest.param(
            "def finish(",
            "def finish_all(",
            [
                (
                    "lib.engine:finish: expected a definition, found no finish in lib.engine; "
                    "the nearest names are finish_all (lib/engine.py)"
                )
            ],
            id="function gone",
        ),
        pytest.param(
            "class Handle:",
            "class FlatHandle:",
            [
                (
                    "lib.engine:Handle.shard: expected a definition, found no Handle in lib.engine; "
                    "the nearest names are FlatHandle (lib/engine.py)"
                )
            ],
            id="class gone",
        ),
        pytest.param(
            "def shard(",
            "def shard_flat(",
            [
                (
                    "lib.engine:Handle.shard: expected a definition, found no shard in the class Handle; "
                    "the nearest names are shard_flat (lib/engine.py:12)"
                )
            ],
            id="method gone",
        ),
        pytest.param(
            "    def shard(self, *, wait=True):",
            "    @property\n        def shard(self, *, wait=True):",
            ["lib.engine:Handle.shard: expected the parameters (self, *, wait=), found a property (lib/engine.py:17)"],
            id="method turned property",
        ),
        pytest.param(
            "class Handle:",
            "def Handle(flat): ...\n\n    class _Handle:",
            [
                (
                    "lib.engine:Handle.shard: expected a definition, found a function, which has no member shard"
                    " (lib/engine.py:12)"
                )
            ],
            id="class turned function",
        ),
        pytest.param(
            "result = prepare(grad, scale)",
            "result = grad * scale",
            ["lib.engine:finish: expected a call of the global prepare, found no such call (lib/engine.py:3)"],
            id="call edge gone",
        ),
        pytest.param(
            "result = prepare(grad, scale)",
            "from .fast import prepare; result = prepare(grad, scale)",
            [
                (
                    "lib.engine:finish: expected a call of the global prepare, found a call of a local name prepare "
                    "(bound in line 5), which a patch of the global doesn't reach (lib/engine.py:3)"
                )
            ],
            id="call edge through a local import",
        ),
        pytest.param(
            "self.flat.copy_(wait)",
            "copy_to(self.flat, wait)",
            ["lib.engine:Handle.shard: expected a call of <…>.copy_, found no such call (lib/engine.py:16)"],
            id="method call gone",
        ),
        pytest.param(
            "state._pending.append(result)",
            "state._queue.append(result)",
            [
                (
                    "lib.engine:finish: expected a call of state._pending.append, found no such call; "
                    "the nearest names are state._queue.append (lib/engine.py:3)"
                ),
                (
                    "lib.engine:finish: expected the attribute _pending in its body, found no mention of it"
                    " (lib/engine.py:3)"
                ),
            ],
            id="attribute gone",
        ),
    ],
)
def test_broken(library: Library, proven: tuple[Symbol, Symbol], before: str, after: str, lines: list[str]) -> None:
    """A shape that the patch relies on is gone: broken, with what was expected, what was found, and where."""
    library.package("lib", engine=ENGINE.replace(before, after))
    judgement = library.judge(*(replace(symbol, fingerprints=()) for symbol in proven))
    assert judgement.verdict is Verdict.BROKEN
    assert [str(finding) for finding in judgement.findings] == lines


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("grad * scale", "grad / scale", id="body of another function"),
        pytest.param("'''Finish.'''", "'''Finish now.'''", id="docstring"),
        pytest.param("scale=1.0", "scale: float = 1.0", id="annotation"),
        pytest.param("return result", "return (result)  # done", id="comment and formatting"),
        pytest.param("import functools", "import functools, os\n\n", id="other lines of the module"),
    ],
)
def test_not_a_change(library: Library, proven: tuple[Symbol, Symbol], before: str, after: str) -> None:
    """What doesn't alter a relied-on body isn't a change."""
    library.package("lib", engine=ENGINE.replace(before, after))
    assert library.judge(*proven).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("return result", "return result + 0", id="body"),
        pytest.param("scale=1.0", "scale=1", id="default"),
        pytest.param("def finish(", "@functools.cache\n    def finish(", id="decorator added"),
        pytest.param("def finish(", "async def finish(", id="async"),
        pytest.param("def prepare(", "finish = functools.cache(finish)\n\n    def prepare(", id="wrapped further down"),
    ],
)
def test_changed(library: Library, proven: tuple[Symbol, Symbol], before: str, after: str) -> None:
    """Every symbol fits but a body is another one: changed, with both digests."""
    library.package("lib", engine=ENGINE.replace(before, after))
    judgement = library.judge(*proven)
    (found,) = fingerprint_of(library.source, FINISH.path)
    line = 4 if "cache\n" in after else 3
    assert judgement.verdict is Verdict.CHANGED
    assert [str(finding) for finding in judgement.findings] == [
        (
            f"lib.engine:finish: expected the body {proven[0].fingerprints[0].digest} (of 1.0), found the body {found}"
            f" (lib/engine.py:{line})"
        )
    ]


def test_one_of_several_proven_bodies(library: Library, proven: tuple[Symbol, Symbol]) -> None:
    """A symbol may have several proven bodies; matching any one is enough, matching none names them all."""
    (known,) = proven[0].fingerprints
    other = Fingerprint("n1:" + "0" * 32, ("0.7", "0.8", "0.9"))
    symbol = replace(FINISH, fingerprints=(other, known))
    assert library.judge(symbol).verdict is Verdict.OK

    library.package("lib", engine=ENGINE.replace("return result", "return 0"))
    (found,) = fingerprint_of(library.source, FINISH.path)
    assert library.judge(symbol).one_line() == (
        f"lib.engine:finish: expected one of the bodies {other.digest} (of 0.7 to 0.9), {known.digest} (of 1.0), "
        f"found the body {found} (lib/engine.py:3)"
    )


def test_fingerprint_without_releases(library: Library) -> None:
    """A fingerprint that names no release is shown by itself."""
    digest = "n1:" + "0" * 32
    library.write(lib="def f(): ...")
    found = library.judge(Symbol("lib:f", fingerprints=(Fingerprint(digest),))).findings[0]
    assert found.expected == f"the body {digest}"


def test_bodies_without_fingerprints_are_not_compared(library: Library) -> None:
    """A contract that records no fingerprint says nothing about bodies."""
    library.package("lib", engine=ENGINE.replace("return result", "return 0"))
    assert library.judge(FINISH, SHARD).verdict is Verdict.OK


def test_moved_and_re_exported(library: Library, proven: tuple[Symbol, Symbol]) -> None:
    """A function that moved but is still to be had in its old place fits, and the judgement says where it went."""
    library.package("lib", engine="from ._new.engine import finish\nfrom ._new import engine as _e\nHandle = _e.Handle")
    library.package("lib/_new", engine=ENGINE)
    judgement = library.judge(*proven)
    assert (judgement.verdict, judgement.findings) == (Verdict.OK, ())
    assert [str(remark) for remark in judgement.remarks] == [
        (
            "lib.engine:finish: expected a definition in its own place, found it in lib._new.engine:finish"
            " (lib/_new/engine.py:3)"
        ),
        (
            "lib.engine:Handle.shard: expected a definition in its own place, found it in lib._new.engine:Handle.shard"
            " (lib/_new/engine.py:16)"
        ),
    ]


def test_moved_and_changed(library: Library, proven: tuple[Symbol, Symbol]) -> None:
    """A move doesn't hide a change of the body."""
    library.package("lib", engine="from .new import finish, Handle", new=ENGINE.replace("grad, scale)\n", "grad, 2)\n"))
    judgement = library.judge(*proven)
    assert (judgement.verdict, judgement.findings[0].where) == (Verdict.CHANGED, "lib/new.py:3")


def test_module_gone(library: Library) -> None:
    """A module that is gone is broken, and the nearest modules of the package are named."""
    library.package("lib", _engine=ENGINE, other="", engines__x="")
    judgement = library.judge(FINISH)
    assert (judgement.verdict, judgement.one_line()) == (
        Verdict.BROKEN,
        (
            "lib.engine:finish: expected a definition, found no module engine in lib; "
            "the nearest names are engines, _engine (lib/__init__.py)"
        ),
    )


def test_module_as_symbol(library: Library) -> None:
    """A path without a name stands for the module itself."""
    library.package("lib", engine=ENGINE)
    assert library.judge(Symbol("lib.engine")).verdict is Verdict.OK
    assert library.judge(Symbol("lib.motor")).verdict is Verdict.BROKEN
    assert library.judge(Symbol("lib.engine", calls=("prepare",), attributes=("_pending",))).verdict is Verdict.OK
    assert library.judge(Symbol("lib.engine", parameters=())).one_line() == (
        "lib.engine: expected the parameters (), found a module (lib/engine.py)"
    )


def test_re_export_of_what_is_gone(library: Library) -> None:
    """An import of a name that isn't there any more doesn't count as a definition."""
    library.package("lib", init="from .engine import finish", engine=ENGINE.replace("def finish(", "def finalise("))
    judgement = library.judge(replace(FINISH, path="lib:finish"))
    assert (judgement.verdict, judgement.one_line()) == (
        Verdict.BROKEN,
        (
            "lib:finish: expected a definition, found no finish in lib.engine; "
            "the nearest names are finalise (lib/engine.py)"
        ),
    )
