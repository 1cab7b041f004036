"""The scripts that work on releases of torch: what they choose, what they write, and how they refuse."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from scripts import _support
from scripts._support_matrix import newest_of_each_minor

ROOT = Path(__file__).parent.parent


def test_one_release_of_each_minor() -> None:
    """The newest final release of each minor from 2.1 on, oldest first; no local builds and no pre-releases."""
    versions = ["2.10.0", "2.2.1", "2.2.0", "2.0.1", "2.1.2", "2.10.0+cpu", "2.11.0rc1", "2.1.10"]
    assert newest_of_each_minor(versions) == ["2.1.10", "2.2.1", "2.10.0"]


def report(**patch: Any) -> dict[str, Any]:
    finding = {"level": "problem", "patch": "acme.one", "message": "it changed in /home/someone/site-packages/acme.py"}
    return {
        "patches": [{"name": "acme.one", "verdict": "ok", "probe": None, **patch}],
        "findings": [finding],
    }


@pytest.mark.parametrize(
    ("patch", "fact"),
    [
        (
            {"probe": {"status": "proven", "measured": {"bytes": 4}, "error": None}},
            {"status": "proven", "verdict": "ok", "measured": {"bytes": 4}},
        ),
        (
            {"verdict": "changed", "probe": {"status": "proven", "measured": {}, "error": None}},
            {"status": "changed", "verdict": "changed"},
        ),
        (
            {"probe": {"status": "failed", "measured": {}, "error": "rank 0: wrong\nby much"}},
            {"status": "failed", "verdict": "ok", "reason": "wrong"},
        ),
        (
            {"verdict": "broken"},
            {"status": "refused", "verdict": "broken", "reason": "it changed in …/acme.py"},
        ),
    ],
)
def test_what_a_release_came_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patch: dict[str, Any], fact: dict[str, Any]
) -> None:
    """A verification is noted as proven, changed, failed or refused, without anybody's folders; the page shows it."""
    monkeypatch.setattr(_support, "FACTS", tmp_path / "support.json")
    monkeypatch.setattr(_support, "PAGE", tmp_path / "support.md")
    _support.note("2.9.1", "2026-01-02", report(**patch))
    _support.note("2.10.0", "2026-01-03", report(**patch))
    assert _support.load() == {
        "2.9.1": {"date": "2026-01-02", "patches": {"acme.one": fact}},
        "2.10.0": {"date": "2026-01-03", "patches": {"acme.one": fact}},
    }
    page = (tmp_path / "support.md").read_text(encoding="utf-8")
    assert page.index(f"| 2.9.1 | {fact['status']} | 2026-01-02 |") < page.index(f"| 2.10.0 | {fact['status']} |")
    assert ("bytes 4" in page, "…/acme.py" in page) == ("measured" in fact, fact["status"] == "refused")


def test_page_is_made_from_the_facts() -> None:
    """docs/support.md is what docs/support.json says, and nobody has edited it by hand."""
    assert _support.PAGE.read_text(encoding="utf-8") == _support.page(_support.load())


@pytest.mark.skipif(shutil.which("bash") is None, reason="the scripts need bash")
@pytest.mark.parametrize("arguments", [[], ["2.7.1"], ["--unknown", "2.7.1", "true"], ["../2.7.1", "true"]])
def test_lane_says_how_it_is_used(arguments: list[str]) -> None:
    """Without a release and a command, or with what is no release, nothing is made and the usage is printed."""
    done = subprocess.run(
        ["bash", "scripts/lane", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: scripts/lane" in done.stderr
