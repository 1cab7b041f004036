"""Law 8: the intent is on the log before the change, the outcome after it; a process that dies leaves a log that reads
back.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import patchkit
from patchkit import Context
from patchkit._effects import EffectRecord
from patchkit._journal import Journal
from patchkit.audit import Entry, open_transactions, read_entries
from patchkit.errors import AuditError, PatchkitWarning, RefusedError, RevertError, VerifyError
from tests.engine._faults import PATCHES, Scene
from tests.engine._kit import Lab, prefixing


def events(log: Path) -> list[str]:
    return [entry.event for entry in read_entries(log)]


def of(entries: Iterable[Entry], event: str) -> list[Entry]:
    return [entry for entry in entries if entry.event == event]


def test_intent_comes_first(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first primitive acts, the opening of the transaction and all verdicts are in the file."""
    scene = Scene(lab)
    seen: list[list[str]] = []
    perform = Journal.perform

    def watched(self: Journal, record: Any) -> None:
        seen.append(events(lab.log))
        perform(self, record)

    monkeypatch.setattr(Journal, "perform", watched)
    scene.apply()
    assert seen[0] == ["apply.started", *["contract.judged"] * len(PATCHES)]


def test_whole_life_of_a_transaction(lab: Lab) -> None:
    """Every step is on the log, in order, under the transaction that it belongs to."""
    scene = Scene(lab)
    applied = scene.apply()
    applied.verify()
    with applied.reverted("scene.functions"):
        pass
    applied.revert("scene.others")
    applied.revert()
    entries = list(read_entries(lab.log))
    one, two, three = PATCHES
    assert [(entry.event, entry.fields.get("patch")) for entry in entries] == [
        ("apply.started", None),
        *(("contract.judged", name) for name in PATCHES),
        *(("patch.installed", name) for name in PATCHES),
        *(("patch.verified", name) for name in PATCHES),
        ("apply.committed", None),
        *(("verify.completed", name) for name in PATCHES),
        ("patch.suspended", one),
        ("patch.resumed", one),
        ("revert.started", None),
        ("patch.reverted", three),
        ("revert.completed", None),
        ("revert.started", None),
        ("patch.reverted", two),
        ("patch.reverted", one),
        ("revert.completed", None),
    ]
    opening = entries[0]
    assert opening.fields["patches"] == list(PATCHES)
    assert {entry.tx for entry in entries[: entries.index(of(entries, "apply.committed")[0]) + 1]} == {opening.tx}
    assert all(entry.fields["applied"] == opening.tx for entry in of(entries, "patch.suspended"))
    assert all(entry.fields["applied"] == opening.tx for entry in of(entries, "revert.started"))
    assert open_transactions(lab.log) == []


def test_what_was_and_what_is(lab: Lab) -> None:
    """An installation is recorded with each site, what was there, what is there, and on how many sites alike."""
    scene = Scene(lab)
    scene.apply()
    installed = {e.fields["patch"]: e.fields["changes"] for e in read_entries(lab.log) if e.event == "patch.installed"}
    function = installed["scene.functions"][0]
    assert function["site"] == "scenelib:f"
    assert (function["before"]["module"], function["before"]["qualname"], function["count"]) == ("scenelib", "f", 1)
    assert function["after"]["module"] == "tests.engine._kit"
    assert [change["count"] for change in installed["scene.instances"]] == [1, 3]
    others = {change["site"]: change for change in installed["scene.others"]}
    assert others["dict['absent']"]["before"] is None
    assert others["scenelib:Thing.gone"]["after"] is None


def test_failure_and_roll_back(lab: Lab) -> None:
    """A failed transaction records what failed, each step back, and its end."""
    scene = Scene(lab)

    def fail(ctx: Context) -> None:
        raise ValueError("no effect")

    lab.patch("r.failing", lambda ctx: ctx.set(scene.lib, "X", 1), verify=fail)
    with pytest.raises(VerifyError):
        scene.apply("scene.functions", "r.failing")
    entries = list(read_entries(lab.log))
    start = [entry.event for entry in entries].index("patch.failed")
    assert [(entry.event, entry.fields.get("patch")) for entry in entries[start:]] == [
        ("patch.failed", "r.failing"),
        ("rollback.step", "r.failing"),
        ("rollback.step", "scene.functions"),
        ("apply.rolled_back", None),
    ]
    assert entries[start].fields["error"]["type"] == "patchkit.errors.VerifyError"
    assert "no effect" in entries[start].fields["error"]["message"]
    assert open_transactions(lab.log) == []


def test_refusal(lab: Lab) -> None:
    """A transaction that is stopped before it touches anything says so."""

    def refuse(ctx: Context) -> None:
        raise RefusedError("not here")

    lab.patch("r.refusing", lambda ctx: None, check=refuse)
    with pytest.raises(RefusedError):
        lab.apply("r.refusing")
    assert events(lab.log) == ["apply.started", "contract.judged", "apply.refused"]


def test_what_is_left_out(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment disables, what a condition excludes, and what is unknown is recorded with the reason."""
    scene = Scene(lab)
    monkeypatch.setenv("PATCHKIT_DISABLE", "scene.f*, r.unknown")
    applied = lab.apply(
        "scene.functions",
        "scene.instances",
        {"name": "scene.others", "when": {"platform": "plan9"}},
        {"name": "r.unknown", "required": False},
        model=scene.module,
    )
    assert applied.patches == ("scene.instances",)
    entries = list(read_entries(lab.log))
    assert [(e.fields["patch"], e.fields["reason"]) for e in of(entries, "patch.disabled")] == [
        ("scene.functions", "PATCHKIT_DISABLE names 'scene.f*'")
    ]
    skipped = {e.fields["patch"]: e.fields["reason"] for e in of(entries, "patch.skipped")}
    assert set(skipped) == {"scene.others", "r.unknown"}
    assert "plan9" in skipped["scene.others"]
    assert entries[0].fields["switches"]["PATCHKIT_DISABLE"] == "scene.f*, r.unknown"
    report = {status.name: (status.state, status.reason) for status in applied.report().patches}
    assert report["scene.functions"] == ("disabled", "PATCHKIT_DISABLE names 'scene.f*'")
    assert report["scene.others"][0] == "skip"


def test_nothing_is_patched_that_cannot_be_recorded(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an audit log that can't be written, nothing is touched and nobody's code runs."""
    scene = Scene(lab)
    (lab.folder / "file").write_text("not a folder")
    monkeypatch.setenv("PATCHKIT_AUDIT", str(lab.folder / "file" / "audit.jsonl"))
    scene.on_make = lambda: pytest.fail("a maker ran")
    with pytest.raises(AuditError):
        scene.apply()
    assert scene.differences() == []


def test_best_effort(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the policy ``best-effort`` an unwritable log is warned of once, and the patches are applied and
    reverted.
    """
    scene = Scene(lab)
    (lab.folder / "file").write_text("not a folder")
    monkeypatch.setenv("PATCHKIT_AUDIT", str(lab.folder / "file" / "audit.jsonl"))
    with pytest.warns(PatchkitWarning, match="audit log") as caught:
        applied = lab.apply(*PATCHES, model=scene.module, audit={"policy": "best-effort"})
    assert len(caught) == 1
    assert scene.lib.f("1") == "F f(1)"
    applied.revert()
    assert scene.differences() == []


def test_reverting_never_depends_on_the_log(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """If the log can't be written any more, patches are taken out all the same, and stderr says what is not on
    record.
    """
    scene = Scene(lab)
    applied = scene.apply()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "write", fail)
    applied.revert()
    monkeypatch.undo()
    assert scene.differences() == []
    assert "patch.reverted" in capfd.readouterr().err


def test_environment_outranks_the_manifest(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """``PATCHKIT_AUDIT`` says where the log is; without it the manifest does."""
    scene = Scene(lab)
    configured = lab.folder / "configured.jsonl"
    lab.apply("scene.functions", audit={"path": str(configured)}).revert()
    assert (lab.log.exists(), configured.exists()) == (True, False)
    monkeypatch.delenv("PATCHKIT_AUDIT")
    lab.apply("scene.functions", audit={"path": str(configured)}).revert()
    assert configured.exists()
    assert scene.differences() == []


def test_interrupted_revert_is_not_recorded_as_completed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A revert that is left by an exception ends on the log as failed."""
    scene = Scene(lab)
    applied = scene.apply("scene.functions")
    installation = applied._installations[0]

    def strike() -> Any:
        raise ValueError("struck")

    with monkeypatch.context() as patched:
        patched.setattr(installation, "undo", strike)
        with pytest.raises(ValueError, match="struck"):
            applied.revert()
    assert events(lab.log)[-1] == "revert.failed"
    applied.revert()
    assert events(lab.log)[-1] == "revert.completed"
    assert EffectRecord.__name__ == "EffectRecord"


CRASH = """
import os, sys
import patchkit

class Crash(patchkit.Patch):
    name = "r.crash"
    summary = why = how = until = "test"
    def install(self, ctx):
        ctx.set(sys, "crash_test", 1)
        os._exit(7)

class Before(patchkit.Patch):
    name = "r.before"
    summary = why = how = until = "test"
    def install(self, ctx):
        ctx.set(sys, "crash_test_before", 1)

patchkit.register(Crash)
patchkit.register(Before)
patchkit.apply({"schema": 1, "patch": [{"name": "r.before"}, {"name": "r.crash"}]})
"""


def test_process_that_dies(lab: Lab) -> None:
    """A process that dies in the middle of an installation leaves a log that reads back whole and shows what was under
    way.
    """
    script = lab.folder / "crash.py"
    script.write_text(textwrap.dedent(CRASH))
    root = Path(patchkit.__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, str(script)], env=environment, check=False, timeout=60)
    assert done.returncode == 7
    assert events(lab.log) == ["apply.started", "contract.judged", "contract.judged", "patch.installed"]
    (opened,) = open_transactions(lab.log)
    assert (opened.event, opened.fields["patches"]) == ("apply.started", ["r.before", "r.crash"])
    # Another process goes on in the same file.
    lab.library("recordlib", "def f(x):\n    return x\n")
    lab.patch("r.f", lambda ctx: ctx.wrap("recordlib:f", prefixing("F")))
    lab.apply("r.f").revert()
    assert open_transactions(lab.log) == [opened]


def test_hooks_and_own_steps_are_recorded(lab: Lab) -> None:
    """A patch that touches no site leaves its hooks and steps on the log, and in the report."""
    lab.patch("r.step", lambda ctx: ctx.action("fill the tank", lambda: None, lambda: None))
    applied = lab.apply("r.step")
    (installed,) = of(read_entries(lab.log), "patch.installed")
    assert installed.fields["steps"] == ["fill the tank"]
    assert applied.report().patches[0].sites == ("fill the tank",)


def test_suspension_that_fails_is_an_error_of_ours(lab: Lab) -> None:
    """An inverse that raises stops a suspension with a documented class, and the patch stays as it was."""
    broken = [True]

    def drain() -> None:
        if broken[0]:
            raise OSError("stuck")

    lab.patch("r.stuck", lambda ctx: ctx.action("fill", lambda: None, drain))
    applied = lab.apply("r.stuck")
    with pytest.raises(RevertError, match=r"r\.stuck: it can't be suspended: OSError: stuck"), applied.reverted():
        raise AssertionError("the block must not run")
    broken[0] = False
    assert applied.report().patches[0].state == "installed"
