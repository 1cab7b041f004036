"""docs/manifest.md: its examples work, and its tables have the keys, the types and the defaults that there are."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from patchkit.errors import ManifestError
from patchkit.manifest import load_manifest, manifest_schema

Write = Callable[[str, str], str]

PAGE = (Path(__file__).parent.parent.parent / "docs" / "manifest.md").read_text(encoding="utf-8")
EXAMPLES = {
    name: text for text, name in re.findall(r"^```toml\n(# (\S+\.toml)\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
}
HEADINGS = {
    "Manifest": "## At the top",
    "PatchEntry": "## `[[patch]]`",
    "When": "## `[patch.when]`",
    "Policy": "## `[policy]`",
    "AuditConfig": "## `[audit]`",
}


@pytest.fixture
def examples(write: Write) -> list[str]:
    """Write the examples of the page side by side, since some extend others."""
    return [write(name, text) for name, text in EXAMPLES.items()]


def test_every_example_has_a_name() -> None:
    """No TOML on the page escapes these tests."""
    assert len(EXAMPLES) == PAGE.count("```toml\n")


def test_examples_load(examples: list[str]) -> None:
    """Every example is a manifest, but for the one that shows faults."""
    for name in examples:
        if name != "wrong.toml":
            load_manifest(name)


def test_resolved_example(examples: list[str]) -> None:
    """What the page says of the manifest that extends another is so."""
    assert load_manifest("night.toml") == load_manifest("night-resolved.toml")


def test_faults_example(examples: list[str]) -> None:
    """The faults that the page shows are those that the example gets."""
    [shown] = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    with pytest.raises(ManifestError) as caught:
        load_manifest("wrong.toml")
    assert f"{caught.value}\n" == shown


def rows(heading: str) -> dict[str, tuple[str, str]]:
    """Return key, type and default of the first table below a heading."""
    section = PAGE.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|", section, re.MULTILINE)
    return {key: (kind, default) for key, kind, default in found}


def kind_of(field: dict[str, Any]) -> str:
    if "$ref" in field:
        return "table"
    kind = {"object": "table"}.get(field["type"], field["type"])
    if kind == "array":
        return "list of strings" if field["items"].get("type") == "string" else "list of tables, `[[patch]]`"
    inner = field.get("additionalProperties", {}).get("type")
    return f"{kind} of {inner}s" if inner else str(kind)


def default_of(field: dict[str, Any], *, required: bool) -> str:
    if required:
        return "needed"
    if "default" not in field:
        return "left out"
    default = field["default"]
    return f'`"{default}"`' if isinstance(default, str) else f"`{default}`".replace("True", "true")


@pytest.mark.parametrize("model", HEADINGS)
def test_tables_of_the_page(model: str) -> None:
    """The page has a row for every key, in its order, with its type and its default."""
    schema = manifest_schema()
    table = schema if model == "Manifest" else schema["$defs"][model]
    expected = {
        key: (kind_of(field), default_of(field, required=key in table.get("required", ())))
        for key, field in table["properties"].items()
    }
    found = rows(HEADINGS[model])
    if model == "Manifest":
        # The defaults of whole tables are in the sections about them.
        for key in ("policy", "audit"):
            found[key] = (found[key][0], "left out")
    if model == "PatchEntry":
        expected["when"] = ("table", "left out")
    assert list(found) == list(expected)
    assert found == expected
