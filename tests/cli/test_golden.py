"""What the commands print, to the letter: stdout, stderr and the exit code."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.conftest import Patchkit

COMMANDS = {
    # What there is.
    "list": ("list",),
    "list-json": ("list", "--format", "json"),
    "list-quiet": ("list", "-q"),
    "show-fits": ("show", "acme.fits"),
    "show-fits-json": ("show", "acme.fits", "--format", "json"),
    "show-broken": ("show", "acme.broken"),
    "show-unknown": ("show", "acme.unknown"),
    "show-nobody": ("show", "acme.fist"),
    # What would be done.
    "plan-fits": ("plan", "fits.toml"),
    "plan-mixed": ("plan", "mixed.toml"),
    "plan-mixed-json": ("plan", "mixed.toml", "--format", "json"),
    "plan-refused": ("plan", "refused.toml"),
    "plan-rivals": ("plan", "rivals.toml"),
    # Whether it fits.
    "verify-fits": ("verify", "fits.toml"),
    "verify-fits-json": ("verify", "fits.toml", "--format", "json"),
    "verify-refused": ("verify", "refused.toml"),
    "verify-refused-json": ("verify", "--format=json", "refused.toml"),
    "verify-refused-quiet": ("verify", "-q", "refused.toml"),
    "verify-refused-exit-zero": ("verify", "--exit-zero", "refused.toml"),
    "verify-refused-colour": ("verify", "--color", "always", "refused.toml"),
    "verify-mixed": ("verify", "mixed.toml"),
    "verify-several": ("verify", "fits.toml", "mixed.toml"),
    "verify-known": ("verify",),
    "verify-nothing": ("verify", "nothing.toml"),
    "verify-nothing-allowed": ("verify", "--allow-empty", "nothing.toml"),
    # What was done.
    "log": ("log", "logs/complete.jsonl"),
    "log-json": ("log", "--format", "json", "logs/complete.jsonl"),
    "log-last": ("log", "-n", "1", "logs/complete.jsonl"),
    "log-last-two": ("log", "--last", "2", "logs/complete.jsonl"),
    "log-interrupted": ("log", "logs/interrupted.jsonl"),
    "log-interrupted-json": ("log", "logs/interrupted.jsonl", "--format", "json"),
    "log-torn": ("log", "logs/torn.jsonl"),
    "log-torn-json": ("log", "logs/torn.jsonl", "--format", "json"),
    "log-malformed": ("log", "logs/malformed.jsonl"),
    "log-hostile": ("log", "logs/hostile.jsonl"),
    "log-empty": ("log", "logs/empty.jsonl"),
    "log-missing": ("log", "logs/missing.jsonl"),
    "log-default": ("log",),
    "log-folder": ("log", "logs"),
    "log-of-something-else": ("log", "fits.toml"),
    "log-wrong-count": ("log", "-n", "0", "logs/complete.jsonl"),
    # What it means.
    "explain": ("explain", "PK201"),
    "explain-several": ("explain", "pk303", "Pk110", "PK303"),
    "explain-json": ("explain", "PK303", "PK201", "--format", "json"),
    "explain-nobody": ("explain", "PK350"),
    # What bad input gets.
    "bad-missing-manifest": ("verify", "fist.toml"),
    "bad-folder": ("plan", "logs"),
    "bad-malformed": ("verify", "malformed.toml"),
    "bad-encoding": ("verify", "latin1.toml"),
    "bad-unknown-key": ("plan", "unknown-key.toml"),
    "bad-unknown-patch": ("plan", "unknown-patch.toml"),
    "bad-option": ("verify", "wrong-option.toml"),
    "bad-several": ("verify", "unknown-key.toml", "fits.toml", "unknown-patch.toml"),
    "bad-excluded": ("verify", "excluded.toml"),
    "bad-missing-library": ("verify", "missing-library.toml"),
    "usage-no-command": (),
    "usage-unknown-option": ("verify", "--fast", "fits.toml"),
    "usage-no-manifest": ("plan",),
    "usage-unknown-format": ("verify", "--format", "yaml"),
    "usage-format-of-reports": ("explain", "--format", "yaml"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_output(name: str, patchkit: Patchkit, golden: Callable[[str, str], None]) -> None:
    """A command prints exactly what its golden file holds."""
    arguments = COMMANDS[name]
    golden(name, patchkit(*arguments).shown(*arguments))


def test_output_of_what_is_disabled(patchkit: Patchkit, golden: Callable[[str, str], None]) -> None:
    """Patches that the environment switches off are shown, and don't count."""
    run = patchkit("verify", "refused.toml", PATCHKIT_DISABLE="acme.[bceu]*")
    golden("verify-disabled", run.shown("verify", "refused.toml"))
