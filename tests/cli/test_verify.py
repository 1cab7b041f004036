"""``verify`` beyond what its golden files show: probes, patches that can't be loaded, and an empty world."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from patchkit import _probe, registry
from patchkit.patch import Patch
from tests.cli.conftest import Patchkit
from tests.cli.runs import WORLD, distribution, process


def test_probes_run_for_real() -> None:
    """A probe that holds is said to, one that fails is a problem with what it found, in processes of their own."""
    run = process("verify", "--probe", "probes.toml")
    lines = run.out.splitlines()
    assert run.code == 1
    assert lines[:5] == [
        "ok       acme.fits                  everything fits acme 1.4.0; probe: proven",
        "ok       acme.fits on text_encoder  everything fits acme 1.4.0; probe: proven",
        "failed   acme.gentle                1 finding below; probe: failed",
        "broken   acme.broken                2 findings below",
        "retired  acme.retired               1 finding below; it has no probe",
    ]
    assert lines[6].startswith("probes.toml:11: PK502 acme.gentle: probe failed: expected the effect of the patch in a")
    assert lines[6].endswith("AssertionError: expected 2 turns, found 3")
    assert run.err.splitlines() == [
        "probing acme.fits in 1 process ...",
        "probing acme.gentle in 2 processes ...",
        "Found 3 problems in 5 patches; 1 warning.",
    ]


def test_what_probes_measure_is_in_the_json() -> None:
    """JSON has the status of each probe and what it measured."""
    run = process("verify", "--probe", "-q", "--format", "json", "fits.toml")
    [patch] = json.loads(run.out)["patches"]
    assert patch["probe"] == {"status": "proven", "measured": {"saved_bytes": 1024}, "error": None}
    assert (run.code, run.err) == (0, "")


def test_probe_that_can_not_be_tried_is_a_warning(patchkit: Patchkit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A patch that refuses the machine is not proven, and not disproven either."""

    def refuse(patch: Patch) -> _probe.ProbeResult:
        return _probe.ProbeResult(patch.name, "refused", error="expected an engine, found none.")

    monkeypatch.setattr(_probe, "run_probe", refuse)
    run = patchkit("verify", "--probe", "unprobeable.toml")
    assert run.code == 0
    assert run.out.splitlines()[-1] == (
        "unprobeable.toml:4: PK400 acme.rival: probe refused: expected a place where the patch can be tried, found "
        "expected an engine, found none. [warning]"
    )


def test_output_of_a_probe_is_indented(patchkit: Patchkit, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a probe printed follows its finding in lines that can't be taken for findings, and without escapes."""

    def fail(patch: Patch) -> _probe.ProbeResult:
        return _probe.ProbeResult(patch.name, "failed", error="rank 0: it ended\nlast words\x1b[2J\nfits.toml:1: no")

    monkeypatch.setattr(_probe, "run_probe", fail)
    run = patchkit("verify", "--probe", "-q", "fits.toml")
    assert (run.code, run.out.splitlines()[1:]) == (1, ["    last words\\x1b[2J", "    fits.toml:1: no"])


def test_missing_library_is_not_probed(patchkit: Patchkit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the library isn't installed, or lacks what the patch touches, a probe could tell nothing more."""
    tried = []

    def note(patch: Patch) -> _probe.ProbeResult:
        tried.append(patch.name)
        return _probe.ProbeResult(patch.name, "proven")

    monkeypatch.setattr(_probe, "run_probe", note)
    patchkit("verify", "--probe")
    assert tried == ["acme.changed", "acme.excluded", "acme.fits", "acme.gentle", "acme.retired", "acme.rival"]


def test_patch_that_can_not_be_loaded(patchkit: Patchkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution that can't deliver its patch is a finding; the other patches are judged all the same."""
    distribution(tmp_path, "acme.zombie", "acme_zombie", "raise RuntimeError('out of\\norder')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    verified, listed = patchkit("verify"), patchkit("list")
    assert (verified.code, listed.code) == (1, 1)
    first, second = verified.out.splitlines()[-2:]
    assert first == (
        "PK120 acme.zombie: declaration wrong: expected a patch that can be loaded, found acme.zombie: expected "
        "'acme_zombie:Thing' (entry point of acme_zombie) to be importable, but loading it failed: RuntimeError: out of"
    )
    assert second == "    order. Repair or uninstall that distribution."
    assert "ok        acme.fits      everything fits acme 1.4.0\n" in verified.out
    assert "error     acme.zombie    acme.zombie: expected 'acme_zombie:Thing'" in listed.out
    assert patchkit("show", "acme.zombie").code == 2


def test_nothing_is_registered(patchkit: Patchkit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no patch is known, there is nothing to verify, and that is not success."""
    monkeypatch.setattr(registry, "known_names", list)
    run, allowed = patchkit("verify"), patchkit("verify", "--allow-empty")
    assert (run.code, run.out, allowed.code) == (2, "", 0)
    assert run.err.splitlines()[-1].startswith(
        "error: nothing to verify: expected at least one patch to judge, found none"
    )


@pytest.mark.parametrize(("names", "glob"), [("*", "*"), ("acme.fits", "acme.fits"), ("other, acme.f*", "acme.f*")])
def test_environment_may_leave_nothing(patchkit: Patchkit, names: str, glob: str) -> None:
    """A verification of nothing but disabled patches has verified nothing."""
    run = patchkit("verify", "fits.toml", PATCHKIT_DISABLE=names)
    assert (run.code, run.out) == (2, f"disabled  acme.fits  PATCHKIT_DISABLE names {glob!r}\n")


def test_nothing_but_skipped(patchkit: Patchkit, tmp_path: Path) -> None:
    """Where policy skips everything that a manifest selects, nothing was verified."""
    manifest = tmp_path / "skipped.toml"
    manifest.write_text(
        'schema = 1\n[policy]\non_excluded = "skip"\n[[patch]]\nname = "acme.excluded"\n', encoding="utf-8"
    )
    run, allowed = patchkit("verify", manifest), patchkit("verify", manifest, "--allow-empty")
    assert (run.code, allowed.code) == (2, 0)
    assert run.err.splitlines()[0] == "Nothing was verified; 1 skipped."


def test_switch_that_matches_nothing(patchkit: Patchkit) -> None:
    """A name in PATCHKIT_DISABLE that nobody has is a warning of one line."""
    run = patchkit("verify", "fits.toml", PATCHKIT_DISABLE="acme.fist")
    assert run.code == 0
    assert run.err.splitlines()[0] == (
        "warning: PATCHKIT_DISABLE: expected names or globs of patches, found 'acme.fist', which no known patch matches"
    )


def test_several_faults_keep_their_codes(patchkit: Patchkit, tmp_path: Path) -> None:
    """Each fault of a plan stands behind its own code."""
    manifest = tmp_path / "faults.toml"
    manifest.write_text(
        'schema = 1\n[[patch]]\nname = "acme.fist"\n[[patch]]\nname = "acme.fits"\n[[patch]]\nname = "acme.rival"\n',
        encoding="utf-8",
    )
    run = patchkit("plan", manifest)
    assert run.code == 2
    assert [line.partition(":")[0] for line in run.err.splitlines()] == ["error[PK201]", "error[PK204]"]


def test_plan_does_nothing(patchkit: Patchkit) -> None:
    """Planning imports nothing of the library and leaves no log."""
    before = sorted(path.name for path in WORLD.iterdir())
    assert patchkit("plan", "fits.toml").code == 0
    assert "acme" not in sys.modules
    assert sorted(path.name for path in WORLD.iterdir()) == before
