"""Colours, and what else differs on a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from patchkit.cli._colour import wants_colour
from patchkit.report import Style
from tests.cli.conftest import Patchkit
from tests.cli.runs import WORLD, environment

RULES: list[tuple[str, Mapping[str, str], bool, bool]] = [
    ("auto", {}, True, True),
    ("auto", {}, False, False),
    ("auto", {"TERM": "dumb"}, True, False),
    ("auto", {"NO_COLOR": "1"}, True, False),
    ("auto", {"NO_COLOR": "0"}, True, False),
    ("auto", {"NO_COLOR": ""}, True, True),
    ("auto", {"FORCE_COLOR": "1"}, False, True),
    ("auto", {"FORCE_COLOR": ""}, False, False),
    ("auto", {"FORCE_COLOR": "1", "TERM": "dumb"}, False, True),
    ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
    ("auto", {"NO_COLOR": "", "FORCE_COLOR": "1"}, False, True),
    ("always", {"NO_COLOR": "1", "TERM": "dumb"}, False, True),
    ("never", {"FORCE_COLOR": "1"}, True, False),
]


@pytest.mark.parametrize(("wish", "environ", "terminal", "expected"), RULES)
def test_rules(wish: str, environ: Mapping[str, str], terminal: bool, expected: bool) -> None:
    """The flag counts before NO_COLOR, that before FORCE_COLOR, that before the terminal; empty is not set."""
    assert wants_colour(wish, environ, terminal=terminal) is expected


def test_flag_and_environment_reach_the_report(patchkit: Patchkit) -> None:
    """The rules hold for what is printed: no terminal, so only wishes bring colours."""
    assert "\x1b[" not in patchkit("verify", "refused.toml").out
    assert "\x1b[31m" in patchkit("verify", "refused.toml", FORCE_COLOR="1").out
    assert "\x1b[31m" in patchkit("verify", "--color=always", "refused.toml", NO_COLOR="1").out
    assert "\x1b[" not in patchkit("verify", "--color=never", "refused.toml", FORCE_COLOR="1").out


def test_errors_are_coloured_by_the_same_rules(patchkit: Patchkit) -> None:
    """The word in front of an error is red where colours are wished for, and plain elsewhere."""
    assert patchkit("verify", "fist.toml", FORCE_COLOR="1").err.startswith("\x1b[31merror[PK110]\x1b[0m: ")
    assert patchkit("verify", "fist.toml").err.startswith("error[PK110]: ")


def test_json_has_no_colours(patchkit: Patchkit) -> None:
    """Whatever is wished for, JSON stays JSON."""
    plain = patchkit("verify", "--format", "json", "refused.toml").out
    assert patchkit("verify", "--format", "json", "--color", "always", "refused.toml").out == plain


def on_terminal(*arguments: str, **variables: str) -> str:
    """Run a command whose stdout is a terminal of 60 columns, and return what the terminal got."""
    pty = pytest.importorskip("pty")
    termios = pytest.importorskip("termios")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "patchkit", *arguments],
        cwd=WORLD,
        env=environment(WORLD, **{"TERM": "xterm", "COLUMNS": "60", **variables}),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
    ) as process:
        # Only when nobody else has the other end open does reading end; what was written before stays readable.
        received = b""
        os.close(theirs)
        while chunk := _read(ours):
            received += chunk
        process.communicate()
    os.close(ours)
    assert termios
    return received.decode().replace("\r\n", "\n")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # how Linux says that the other end is closed
        return b""


def test_terminal_gets_colours() -> None:
    """On a terminal the verdicts are coloured without being asked, unless TERM or NO_COLOR say no."""
    assert "\x1b[31mbroken\x1b[0m" in on_terminal("verify", "refused.toml")
    assert "\x1b[" not in on_terminal("verify", "refused.toml", TERM="dumb")
    assert "\x1b[" not in on_terminal("verify", "refused.toml", NO_COLOR="1")


def test_terminal_gets_whole_lines(patchkit: Patchkit) -> None:
    """Tables and findings are neither cut nor wrapped, however narrow the terminal is."""
    assert on_terminal("verify", "refused.toml", NO_COLOR="1") == patchkit("verify", "refused.toml").out


def test_prose_is_wrapped_on_a_terminal_only() -> None:
    """Paragraphs fit the width of a terminal, words stay whole, and elsewhere a paragraph is one line."""
    text = "n1:00000000000000000000000000000000000000000000 is one long word and this\nis a short sentence."
    wrapped = Style(width=40).prose(text, "  ")
    assert Style().prose(text, "  ") == "  " + text.replace("\n", " ")
    assert wrapped.splitlines() == [
        "  n1:00000000000000000000000000000000000000000000",
        "  is one long word and this is a short",
        "  sentence.",
    ]
