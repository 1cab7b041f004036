"""The options that every command has, and what the environment may say in their place."""

from __future__ import annotations

import importlib.metadata
import json

import pytest

from tests.cli.conftest import Patchkit


@pytest.mark.parametrize(
    "arguments",
    [
        ("--format", "json", "-q", "verify", "fits.toml"),
        ("verify", "--format", "json", "-q", "fits.toml"),
        ("verify", "fits.toml", "--format", "json", "-q"),
        ("-q", "verify", "fits.toml", "--format", "json"),
    ],
)
def test_options_stand_before_or_after_the_command(patchkit: Patchkit, arguments: tuple[str, ...]) -> None:
    """Wherever a common option stands, it counts."""
    run = patchkit(*arguments)
    assert (json.loads(run.out)["command"], run.err, run.code) == ("verify", "", 0)


def test_options_are_not_abbreviated(patchkit: Patchkit) -> None:
    """A part of an option's name is no option: scripts would break when another option gets that beginning."""
    run = patchkit("verify", "fits.toml", "--allow")
    assert (run.code, run.out) == (2, "")


def test_format_of_the_environment(patchkit: Patchkit) -> None:
    """PATCHKIT_FORMAT is the default of --format, and the flag counts before it."""
    from_environment = patchkit("verify", "fits.toml", PATCHKIT_FORMAT="json")
    from_flag = patchkit("verify", "fits.toml", "--format", "text", PATCHKIT_FORMAT="json")
    empty = patchkit("verify", "fits.toml", PATCHKIT_FORMAT="")
    assert from_environment.out == patchkit("verify", "fits.toml", "--format", "json").out
    assert from_flag.out == empty.out == patchkit("verify", "fits.toml").out


def test_wrong_format_of_the_environment(patchkit: Patchkit) -> None:
    """A PATCHKIT_FORMAT that doesn't exist is wrong usage, and the message names the variable."""
    run = patchkit("verify", "fits.toml", PATCHKIT_FORMAT="yaml")
    assert run.code == 2
    assert "environment variable PATCHKIT_FORMAT: expected json or text, got 'yaml'" in run.err


def test_quiet_says_nothing_where_all_is_well(patchkit: Patchkit) -> None:
    """A quiet verification of what fits prints nothing at all."""
    run = patchkit("verify", "--quiet", "fits.toml")
    assert (run.code, run.out, run.err) == (0, "", "")


def test_quiet_keeps_errors(patchkit: Patchkit) -> None:
    """However quiet, an error is said."""
    run = patchkit("-q", "verify", "malformed.toml")
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("error[PK110]: malformed.toml:3")


def test_exit_zero_is_for_findings_only(patchkit: Patchkit) -> None:
    """--exit-zero turns 1 into 0, and leaves 2 alone: what could not be read was not verified."""
    codes = {
        manifest: patchkit("verify", "--exit-zero", manifest).code
        for manifest in ("fits.toml", "refused.toml", "malformed.toml", "nothing.toml")
    }
    assert codes == {"fits.toml": 0, "refused.toml": 0, "malformed.toml": 2, "nothing.toml": 2}


def test_version(patchkit: Patchkit) -> None:
    """--version prints that of the installed distribution."""
    run = patchkit("--version")
    assert (run.code, run.out, run.err) == (0, f"patchkit {importlib.metadata.version('patchkit')}\n", "")


@pytest.mark.parametrize("command", ["list", "show", "plan", "verify", "schema", "log", "explain"])
def test_help_has_examples(patchkit: Patchkit, command: str) -> None:
    """The help of each command goes to stdout and ends in examples of that command."""
    run = patchkit(command, "--help")
    examples = run.out.partition("examples:\n")[2]
    assert (run.code, run.err) == (0, "")
    assert f"python -m patchkit {command}" in examples


def test_unknown_command(patchkit: Patchkit) -> None:
    """A command that doesn't exist is wrong usage, and the message lists those that do."""
    run = patchkit("verfy")
    assert (run.code, run.out) == (2, "")
    assert "verify" in run.err
    assert "explain" in run.err
