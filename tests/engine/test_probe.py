"""A patch's own check of its effect, run for real in processes of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import patchkit
from patchkit import Patch, Probe, registry
from patchkit._probe import ProbeResult, run_probe
from tests.engine._kit import Lab

PROBES = """
import os, signal, sys, time

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

def good():
    return {"rank": rank, "ranks": ranks, "port": bool(os.environ["MASTER_PORT"]), "here": os.getcwd()}

def rank_one_fails():
    if rank == 1:
        raise ValueError("no effect here")
    time.sleep(60)

def refuses():
    from patchkit.errors import RefusedError
    raise RefusedError("not on this machine")

def rank_one_hangs():
    print("rank", rank, "was here", flush=True)
    if rank == 1:
        time.sleep(60)
    return {}

def rank_one_is_killed():
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)

def rank_one_dies_and_the_other_complains():
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(0.01)
    raise ConnectionError("peer is gone")

def leaves():
    print("leaving early")
    sys.exit(0)

def unspeakable():
    return {"value": object()}

def no_answer():
    return None
"""


@pytest.fixture
def probe(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> type[Patch]:
    lab.write("probelib", PROBES)
    root = Path(patchkit.__file__).parent.parent
    monkeypatch.syspath_prepend(str(root))
    return lab.patch("x.probed", lambda ctx: None)


def run(target: str, *, ranks: int = 2, timeout_s: float = 60) -> ProbeResult:
    patch = registry.find("x.probed")
    type(patch).probe = Probe(f"probelib:{target}", ranks=ranks)
    return run_probe(patch, timeout_s=timeout_s)


def test_proven(probe: type[Patch], lab: Lab) -> None:
    """A probe that returns in all ranks proves the patch; what rank 0 measured is handed on, nothing happens here."""
    before = os.getcwd()
    result = run("good")
    assert (result.patch, result.status, result.error) == ("x.probed", "proven", "")
    here = result.measured.pop("here")
    assert result.measured == {"rank": 0, "ranks": 2, "port": True}
    assert (here != before, os.getcwd(), "probelib" in sys.modules) == (True, before, False)


def test_failing_rank_ends_the_others(probe: type[Patch]) -> None:
    """A rank that fails ends the others at once, and its error is the result."""
    result = run("rank_one_fails")
    assert (result.status, result.error) == ("failed", "rank 1: ValueError: no effect here")


def test_refused(probe: type[Patch]) -> None:
    """A probe that refuses the machine is neither proven nor failed."""
    result = run("refuses", ranks=1)
    assert (result.status, result.error) == ("refused", "rank 0: not on this machine")


def test_hanging_rank(probe: type[Patch]) -> None:
    """A rank that doesn't end in time is killed and named, with what it had to say."""
    result = run("rank_one_hangs", timeout_s=3)
    assert result.status == "failed"
    assert result.error == "rank 1: no answer within 3 s\nrank 1 was here\n"


def test_killed_rank(probe: type[Patch]) -> None:
    """A rank that is killed by a signal is named with it, not one of those that were ended because of it."""
    result = run("rank_one_is_killed")
    assert (result.status, result.error.splitlines()[0]) == ("failed", "rank 1: it was killed by SIGKILL")


def test_rank_that_died_outranks_the_complaints_of_others(probe: type[Patch]) -> None:
    """Where one rank dies without a word and the other complains about that, either may be seen first, and both are
    failures.
    """
    result = run("rank_one_dies_and_the_other_complains")
    assert result.status == "failed"
    assert result.error.splitlines()[0] in {"rank 1: it was killed by SIGSEGV", "rank 0: ConnectionError: peer is gone"}


def test_rank_that_leaves(probe: type[Patch]) -> None:
    """A probe that ends its process without an answer has proven nothing."""
    result = run("leaves", ranks=1)
    assert (result.status, result.error) == (
        "failed",
        "rank 0: it ended with exit code 0 and no answer\nleaving early\n",
    )


@pytest.mark.parametrize("target", ["unspeakable", "no_answer", "gone"])
def test_probe_that_is_wrong(probe: type[Patch], target: str) -> None:
    """A probe that returns what can't be passed on, or nothing, or doesn't exist, has not proven anything."""
    result = run(target, ranks=1)
    assert result.status == "failed"
    assert result.error.startswith("rank 0: ")


def test_no_probe(lab: Lab) -> None:
    """A patch without a probe says so, and no process is started."""
    lab.patch("x.none", lambda ctx: None)
    assert run_probe(registry.find("x.none")).status == "none"
