"""``schema``, ``explain`` and ``log`` beyond what their golden files show."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from patchkit.contract import Verdict
from patchkit.errors import error_classes
from patchkit.manifest import manifest_schema
from patchkit.report import catalogue
from tests.cli.conftest import Patchkit
from tests.cli.runs import WORLD, environment


@pytest.mark.parametrize("arguments", [("schema",), ("schema", "--format", "json")])
def test_schema_is_that_of_the_library(patchkit: Patchkit, arguments: tuple[str, ...]) -> None:
    """The command prints what the function returns, as JSON in every format."""
    run = patchkit(*arguments)
    assert (run.code, json.loads(run.out), run.err) == (0, manifest_schema(), "")


def test_every_code_is_explained(patchkit: Patchkit) -> None:
    """Every error and every verdict has a line in the list, and an explanation of its own."""
    codes = {cls.code for cls in error_classes()} | {verdict.code for verdict in Verdict}
    listed = [line.split()[0] for line in patchkit("explain").out.splitlines()]
    assert listed == sorted(codes)
    assert [code for code, entry in catalogue().items() if not all(entry.paragraphs)] == []
    assert patchkit("explain", *codes).code == 0


def test_codes_are_explained_without_docstrings() -> None:
    """``python -OO`` has no docstrings, and explains the codes all the same."""
    runs = [
        subprocess.run(
            [sys.executable, *flags, "-m", "patchkit", "explain", "PK201", "--format", "json"],
            capture_output=True,
            text=True,
            check=True,
            env=environment(),
        )
        for flags in ((), ("-OO",))
    ]
    assert runs[0].stdout == runs[1].stdout
    assert "The message lists the nearest names." in runs[1].stdout


def test_explanations_are_for_users(patchkit: Patchkit) -> None:
    """What a docstring says to those who write Python (``Attributes:``, double backquotes) stays in the code."""
    text = patchkit("explain", *catalogue()).out
    assert "Attributes:" not in text
    assert "``" not in text


def test_log_of_the_environment(patchkit: Patchkit) -> None:
    """Without a file, PATCHKIT_AUDIT names the log."""
    named = patchkit("log", "logs/complete.jsonl")
    assert patchkit("log", PATCHKIT_AUDIT="logs/complete.jsonl") == named


def test_log_that_may_not_be_read(patchkit: Patchkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that can't be opened can't be judged: exit code 2, not 1."""
    from patchkit.audit import _reader

    path = tmp_path / "audit.jsonl"
    path.touch()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(_reader, "open", refuse, raising=False)
    run = patchkit("log", path)
    assert (run.code, run.out) == (2, "")
    assert run.err == f"error[PK600]: can't read the audit log {path}: Permission denied\n"


def test_last_counts_transactions(patchkit: Patchkit) -> None:
    """More transactions than there are means all of them, and what is outside of them stays where it was."""
    assert patchkit("log", "-n", "99", "logs/complete.jsonl") == patchkit("log", "logs/complete.jsonl")


def test_transactions_that_overlap(patchkit: Patchkit, tmp_path: Path) -> None:
    """Two processes write one log: each transaction is shown as a whole, JSON keeps the order of the file."""
    lines = (WORLD / "logs/complete.jsonl").read_bytes().splitlines(keepends=True)
    mixed = [lines[index] for index in (0, 11, 1, 12, 8, 13)]
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b"".join(mixed))
    text = patchkit("log", path)
    heads = [line.split() for line in text.out.splitlines() if line and not line.startswith(" ")]
    entries = json.loads(patchkit("log", path, "--format", "json").out)["entries"]
    assert [(head[1][0], head[2]) for head in heads] == [("a", "committed"), ("b", "refused")]
    assert entries == [json.loads(line) for line in mixed]


def test_transaction_without_its_beginning(patchkit: Patchkit, tmp_path: Path) -> None:
    """A log whose first part was moved away still shows what it has, and says what it lacks."""
    lines = (WORLD / "logs/complete.jsonl").read_bytes().splitlines(keepends=True)
    path = tmp_path / "audit.jsonl"
    path.write_bytes(lines[8])
    run = patchkit("log", path)
    assert run.out.splitlines()[:2] == [f"apply {'a' * 32} committed", "  its beginning is not on the log"]
