"""What only a process of its own can show: what it imports, how it is interrupted, how it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.runs import ROOT, WORLD, distribution, environment, process

FAKE_TORCH = """
from pathlib import Path
Path(__file__).with_name("imported").touch()
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify",),
        ("verify", ROOT / "manifests/lowmem.toml"),
        ("list",),
        ("show", "fsdp1.pageable-params"),
        ("schema",),
    ],
)
def test_torch_is_not_imported(tmp_path: Path, arguments: tuple[str | Path, ...]) -> None:
    """Without --probe nothing imports torch: one that leaves a trace when it is imported leaves none."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(FAKE_TORCH, encoding="utf-8")
    run = process(*arguments, path=(tmp_path,))
    assert "error" not in run.err
    assert run.out
    assert not (package / "imported").exists()


def test_what_a_verification_imports() -> None:
    """A verification needs neither the libraries that it judges, nor structlog, nor what runs probes."""
    code = (
        "import sys; from patchkit.cli import main; code = main(['verify', 'fits.toml', '-q']);"
        "print(code, sorted({'acme', 'asyncio', 'patchkit._probe', 'structlog', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=WORLD,
        env=environment(WORLD),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == ("0 []\n", "")


def test_module_is_the_command() -> None:
    """``python -m patchkit`` is the command line, with its exit code."""
    assert process("verify", "fits.toml").code == 0
    assert process("verify", "refused.toml").code == 1
    assert process("verify", "malformed.toml").code == 2


def test_no_command() -> None:
    """Without a command the usage goes to stderr, and the exit code is 2."""
    run = process()
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("usage: patchkit ")


def test_interrupted(tmp_path: Path) -> None:
    """Ctrl-C, here while a patch is loaded, ends the command with 130 and one word."""
    # A process that was started in the background may have been born ignoring it.
    source = (
        "import os, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
    )
    folder = distribution(tmp_path, "acme.interrupted", "acme_interrupted", source)
    run = process("show", "acme.interrupted", path=(folder,))
    assert (run.code, run.out, run.err) == (130, "", "error: interrupted\n")


def test_real_transactions_are_shown(tmp_path: Path) -> None:
    """What ``apply`` and ``revert`` write is what ``log`` shows."""
    log = tmp_path / "audit.jsonl"
    source = (
        "from patchkit import Patch\n"
        "class Thing(Patch):\n"
        "    name = 'acme.thing'; summary = why = how = until = 'for the test'\n"
        "    def install(self, ctx): ctx.set_item(self.items, 'a', 1)\n"
        "    items = {}\n"
    )
    folder = distribution(tmp_path, "acme.thing", "acme_thing", source)
    code = "import patchkit; patchkit.apply({'schema': 1, 'patch': [{'name': 'acme.thing'}]}).revert()"
    subprocess.run(
        [sys.executable, "-c", code],
        env=environment(folder, PATCHKIT_AUDIT=str(log)),
        check=True,
        timeout=120,
    )
    run = process("log", PATCHKIT_AUDIT=str(log))
    heads = [line.split() for line in run.out.splitlines() if line and not line.startswith(" ")]
    assert [(head[0], head[2]) for head in heads] == [("apply", "committed"), ("revert", "completed")]
    assert (run.code, run.err.partition(": ")[2]) == (0, f"{len(run.out.split('Z  ')) - 1} entries, 2 transactions.\n")
