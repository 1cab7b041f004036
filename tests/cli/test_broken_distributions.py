"""Distributions that are broken, hostile or talkative: the rest is shown all the same, and the report stays clean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.runs import distribution, process

GOOD = """
from patchkit import Patch
class Thing(Patch):
    name, summary, why, how, until = "acme.good", "s", "w", "h", "u"
    def install(self, ctx): ...
"""


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A folder with one distribution that declares a patch, and that is as it should be."""
    return distribution(tmp_path, "acme.good", "acme_good", GOOD)


def break_one(world: Path, file: str, content: bytes) -> None:
    folder = world / "acme_bad-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: acme_bad\nVersion: 1.0\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text("[patchkit.patches]\nacme.bad = acme_good:Thing\n", encoding="utf-8")
    (folder / file).write_bytes(content)


@pytest.mark.parametrize("content", [b"[patchkit.patches]\nno value here\n", b"[patchkit.patches]\nx = \xff\n"])
def test_entry_points_that_can_not_be_read(world: Path, content: bytes) -> None:
    """They are an error that names the distribution, and the patches of others are listed."""
    break_one(world, "entry_points.txt", content)
    listed = process("list", path=(world,))
    assert listed.code == 1
    assert "acme.good" in listed.out
    (line,) = [line for line in listed.err.splitlines() if line.startswith("error")]
    assert line.startswith("error: the entry points of acme_bad can't be read (")
    assert "the entry points of acme_bad" in process("show", "acme.bad", path=(world,)).err
    assert process("show", "acme.good", path=(world,)).code == 0


def test_metadata_that_can_not_be_read(world: Path) -> None:
    """A distribution whose own name can't be read is named by the folder of its metadata."""
    break_one(world, "METADATA", b"Name: \xff\n")
    (world / "acme_bad-1.0.dist-info" / "entry_points.txt").write_text("[patchkit.patches]\nacme.bad = gone:Thing\n")
    listed = process("list", path=(world,))
    assert "acme.good" in listed.out
    assert "'gone:Thing' (entry point of acme_bad-1.0.dist-info)" in listed.out


def test_names_can_not_play_tricks(world: Path) -> None:
    """Escapes for terminals in the name of an entry point are shown, not obeyed."""
    break_one(world, "entry_points.txt", b"[patchkit.patches]\n\x1b[2J = acme_good:Thing\n")
    listed = process("list", path=(world,))
    assert "\x1b" not in listed.out
    assert "\\x1b[2J" in listed.out


def test_module_that_prints(tmp_path: Path) -> None:
    """What the module of a patch prints when it is imported goes to stderr, and the report is what it was."""
    distribution(tmp_path, "acme.good", "acme_good", f"print('hello')\n{GOOD}")
    listed = process("list", "--format", "json", path=(tmp_path,))
    assert "acme.good" in [patch["name"] for patch in json.loads(listed.out)["patches"]]
    assert "hello\n" in listed.err
