"""Errors: a line each, with a code and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit import _api
from patchkit.errors import AuditError, ContractError, PatchkitError
from tests.cli.conftest import Patchkit


def raising(error: BaseException) -> object:
    def plan(manifest: str) -> object:
        raise error

    return plan


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (PatchkitError("no"), 2, "error[PK100]: no\n"),
        (AuditError("no"), 2, "error[PK600]: no\n"),
        (ContractError("broken:\n  this\nand changed:\n  that"), 1, None),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
    ],
)
def test_errors_end_the_command(
    patchkit: Patchkit, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str | None
) -> None:
    """The class of an error decides the exit code; each of its messages stands behind its code."""
    monkeypatch.setattr(_api, "plan", raising(error))
    run = patchkit("plan", "fits.toml")
    assert (run.code, run.out) == (code, "")
    assert run.err == (message or "error[PK300]: broken:\n  this\nerror[PK300]: and changed:\n  that\n")


def test_internal_error(patchkit: Patchkit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake in patchkit itself is one line that says so, and how to get more."""
    monkeypatch.setattr(_api, "plan", raising(ZeroDivisionError("by zero")))
    run = patchkit("plan", "fits.toml")
    assert (run.code, run.out) == (2, "")
    assert run.err == "error: internal error: ZeroDivisionError: by zero (set PATCHKIT_TRACEBACK=1 to see where)\n"


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), PatchkitError("no")])
def test_traceback_on_request(patchkit: Patchkit, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """PATCHKIT_TRACEBACK=1 shows where an error comes from, after its message."""
    monkeypatch.setattr(_api, "plan", raising(error))
    run = patchkit("plan", "fits.toml", PATCHKIT_TRACEBACK="1")
    assert run.err.splitlines()[1] == "Traceback (most recent call last):"
    assert run.code == 2


def test_message_can_not_play_tricks(patchkit: Patchkit, tmp_path: Path) -> None:
    """Escapes for terminals in a name that comes from outside are shown, not obeyed."""
    run = patchkit("plan", tmp_path / "\x1b[2Jgone.toml")
    assert run.code == 2
    assert "\x1b" not in run.err
    assert "\\x1b[2Jgone.toml" in run.err
