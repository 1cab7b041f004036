"""The examples of the README and the pages in docs/ run as they are written."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
TORCH = importlib.util.find_spec("torch") is not None
ACCELERATE = importlib.util.find_spec("accelerate") is not None
# As people start ranks: `torchrun --nproc-per-node 2 example.py`.
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
# What the reader of a page about the command line has done before: applied something, which is on the log.
BEFORE = """
import patchkit

@patchkit.wrap("json:dumps", name="docs.before", summary="Something that was applied.")
def before(original, obj, **kwargs):
    return original(obj, **kwargs)

patchkit.apply({"schema": 1, "patch": [{"name": "docs.before"}]}).revert()
"""
_FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXPECTED = re.compile(r"^\s*print\(.*\)\s+# (.+)$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#\s]+)\)")


class Block(NamedTuple):
    """One fenced block of a page."""

    language: str
    text: str
    ranks: bool


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page that are meant to be run here, in order."""
    found = _FENCE.findall(page.read_text(encoding="utf-8"))
    unwanted = {"no-run"} if TORCH else {"no-run", "needs-torch", "torchrun"}
    if not ACCELERATE:
        unwanted.add("needs-accelerate")
    return [
        Block(language, text, "torchrun" in rest.split())
        for language, rest, text in found
        if not unwanted & set(rest.split())
    ]


def run(command: list[str], folder: Path) -> str:
    """Run a command as a reader would, with this interpreter as ``python``, and return what it printed."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples_run(page: Path, tmp_path: Path) -> None:
    """Every Python block runs, printing what its comments say; every command succeeds, in the same folder."""
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    (tmp_path / "before.py").write_text(BEFORE, encoding="utf-8")
    run([sys.executable, "before.py"], tmp_path)
    for index, block in enumerate(blocks_of(page)):
        if block.language == "python":
            script = tmp_path / f"example_{index}.py"
            script.write_text(block.text, encoding="utf-8")
            printed = run([sys.executable, *(TORCHRUN if block.ranks else []), script.name], tmp_path)
            position = 0
            for expected in _EXPECTED.findall(block.text):
                position = printed.find(expected, position)
                assert position >= 0, f"expected {expected!r} in this order in:\n{printed}"
        elif block.language == "console":
            for line in block.text.splitlines():
                if line.startswith("$ "):
                    run(["bash", "-c", line.removeprefix("$ ")], tmp_path)


def test_pages_have_examples() -> None:
    """The pages that teach by example have some, so that the test above tests something."""
    runnable = {page.name for page in PAGES if any(block.language == "python" for block in blocks_of(page))}
    assert {"README.md", "writing-patches.md"} <= runnable


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page leads to a file."""
    links = [link for link in _LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []
