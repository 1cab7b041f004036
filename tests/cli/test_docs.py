"""docs/cli.md says what there is."""

from __future__ import annotations

import json
import re

import pytest

from patchkit.report import FORMATS
from tests.cli.conftest import Patchkit
from tests.cli.runs import ROOT

TEXT = (ROOT / "docs/cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["list", "show", "plan", "verify", "schema", "log", "explain"])
def test_commands_and_options_are_described(patchkit: Patchkit, command: str) -> None:
    """Every command has a section, and every option that its help knows is on the page."""
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", patchkit(command, "--help").out)) - {"--help"}
    assert f"\n## `{command}`\n" in TEXT
    assert {option for option in options if option not in TEXT} == set()


def test_formats_are_described() -> None:
    """Every format is on the page."""
    assert [name for name in FORMATS if f"`{name}`" not in TEXT] == []


def test_json_form(patchkit: Patchkit) -> None:
    """The example has exactly the members that the command prints, at every level."""
    [example] = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    described, actual = json.loads(example), json.loads(patchkit("verify", "refused.toml", "--format", "json").out)
    assert list(described) == list(actual)
    assert list(described["summary"]) == list(actual["summary"])
    assert list(described["findings"][0]) == list(actual["findings"][0])
    assert list(described["patches"][0]) == list(actual["patches"][0])


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (("show", "acme.fits"), "patches"),
        (("explain", "PK201"), "codes"),
    ],
)
def test_members_of_documents(patchkit: Patchkit, arguments: tuple[str, ...], where: str) -> None:
    """Every member that another command prints is named on the page."""
    [item] = json.loads(patchkit(*arguments, "--format", "json").out)[where]
    assert [name for name in item if f"`{name}`" not in TEXT and f'"{name}"' not in TEXT] == []
