"""What a wrong manifest gets: one error with every fault, each with its file, line and key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from patchkit.errors import ManifestError
from patchkit.manifest import Manifest, load_manifest

Write = Callable[[str, str], str]

KEYS_OF_ENTRY = "Expected one of: name, on, modules, options, when, required."


def problems(source: Any) -> tuple[str, ...]:
    with pytest.raises(ManifestError) as caught:
        load_manifest(source)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


WRONG = """\
schema = 1

[[patch]]
name = "a"
optoins = { x = 1 }
required = "yes"

[[patch]]
nmae = "b"
modules = "blocks.*"
when.requires = ["ok>=1", "torch[x]"]
when.python = "3.10"
when.env = { A = 3 }
when.platform = 1
when.accelerator = "yes"
[patch.options]
x = 1

[[patch]]
name = "a"

[policy]
on_changed = "refuze"
on_broken = "warn"

[audit]
policy = true
"""


def test_every_fault_of_a_file(write: Write) -> None:
    """All faults come at once, in the order of their lines."""
    assert problems(write("m.toml", WRONG)) == (
        f"m.toml:5: patch[0].optoins: unknown key; did you mean 'options'? {KEYS_OF_ENTRY}",
        "m.toml:6: patch[0].required: expected true or false, got 'yes'",
        'm.toml:8: patch[1].name: missing; expected something like `name = "fsdp1.pageable-params"`',
        f"m.toml:9: patch[1].nmae: unknown key; did you mean 'name'? {KEYS_OF_ENTRY}",
        'm.toml:10: patch[1].modules: expected a list, got a string; write ["blocks.*"]',
        (
            "m.toml:11: patch[1].when.requires[1]: expected a distribution with version specifiers only, such as "
            "'torch>=2.7', got 'torch[x]'; for other conditions use the keys python, platform and env of `when`"
        ),
        "m.toml:12: patch[1].when.python: expected version specifiers such as '>=3.10,<3.14', got '3.10'",
        "m.toml:13: patch[1].when.env.A: expected a string, got 3",
        "m.toml:14: patch[1].when.platform: expected a string, got 1",
        "m.toml:15: patch[1].when.accelerator: expected true or false, got 'yes'",
        (
            "m.toml:20: patch[2].name: 'a' is selected already by patch[0] in line 4; make them one entry, "
            "or give them different values of `on`"
        ),
        "m.toml:23: policy.on_changed: expected 'refuse', 'warn' or 'skip', got 'refuze'; did you mean 'refuse'?",
        "m.toml:24: policy.on_broken: unknown key. Expected one of: on_changed, on_excluded, on_unknown, on_retired.",
        "m.toml:27: audit.policy: expected 'required', 'best-effort' or 'off', got true",
    )


def test_lines_of_a_windows_file(write: Write) -> None:
    """A byte-order mark and Windows line ends don't move or hide the lines."""
    text = "\ufeff" + "schema = 1\n\n[[patch]]\nname = 1\n".replace("\n", "\r\n")
    assert problems(write("m.toml", text)) == ("m.toml:4: patch[0].name: expected a string, got 1",)


def test_faults_of_a_mapping_have_no_file() -> None:
    """A mapping has keys, but neither file nor line."""
    source = {"schema": 1, "patch": [{"name": "a", "wen": {}}, {"name": "a"}], 3: 4}
    assert problems(source) == (
        f"<mapping>: patch[0].wen: unknown key; did you mean 'when'? {KEYS_OF_ENTRY}",
        "<mapping>: [3]: expected a string as key, got 3",
        (
            "<mapping>: patch[1].name: 'a' is selected already by patch[0]; make them one entry, "
            "or give them different values of `on`"
        ),
    )


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"name": "a"}, "patch: expected a list of tables, got one table; write `[[patch]]` instead of `[patch]`"),
        ("a", 'patch: expected a list, got a string; write ["a"]'),
        (["a"], "patch[0]: expected a table, got 'a'"),
        ([{"name": 1}], "patch[0].name: expected a string, got 1"),
        ([{"name": ["a"]}], "patch[0].name: expected a string, got a list"),
        ([{"name": {}}], "patch[0].name: expected a string, got a table"),
        ([{"name": "a", "on": ""}], "patch[0].on: expected a string that is not empty, got ''"),
        ([{"name": "a", "options": [1]}], "patch[0].options: expected a table, got a list"),
        ([{"name": "a", "modules": [""]}], "patch[0].modules[0]: expected a string that is not empty, got ''"),
        ([{"name": "a", "required": 1}], "patch[0].required: expected true or false, got 1"),
        ([{"name": "a", "required": None}], "patch[0].required: expected true or false, got nothing"),
        (
            [{"name": "a", "when": {"python": ""}}],
            "patch[0].when.python: expected version specifiers such as '>=3.10,<3.14', got ''",
        ),
        (
            [{"name": "a", "when": {"env": {"A=": ""}}}],
            "patch[0].when.env: expected names of environment variables as keys, got 'A='",
        ),
        (
            [{"name": "a", "when": {"torch": ">=2"}}],
            "patch[0].when.torch: unknown key. Expected one of: requires, python, platform, env, accelerator.",
        ),
    ],
)
def test_wrong_value(patch: object, expected: str) -> None:
    """A value of the wrong kind gets the kind that was expected and what was found, in words of TOML."""
    assert problems({"schema": 1, "patch": patch}) == (f"<mapping>: {expected}",)


def test_requirement_that_is_none() -> None:
    """A requirement that can't be read comes with the reason, in one line."""
    [problem] = problems({"schema": 1, "patch": [{"name": "a", "when": {"requires": ["torch >> 2"]}}]})
    expected = "expected a requirement such as 'torch>=2.7', got 'torch >> 2' (Expected "
    assert problem.startswith(f"<mapping>: patch[0].when.requires[0]: {expected}")
    assert "\n" not in problem


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({}, {}, "'a' is selected already by patch[0]"),
        ({"on": "x"}, {"on": "x"}, "'a' on 'x' is selected already by patch[0]"),
    ],
)
def test_repeated_entry(first: dict[str, str], second: dict[str, str], expected: str) -> None:
    """One patch on one model is one entry."""
    [problem] = problems({"schema": 1, "patch": [{"name": "a", **first}, {"name": "a", **second}]})
    assert problem.startswith(f"<mapping>: patch[1].name: {expected}; ")


def test_repeated_entry_in_python() -> None:
    """A manifest that is made directly is held to that too."""
    with pytest.raises(ValueError, match="entries 0 and 1 are the same patch"):
        Manifest.model_validate({"schema": 1, "patch": [{"name": "a"}, {"name": "a"}]})


def test_schema_is_needed(write: Write) -> None:
    """A manifest that doesn't say its version is told how to; its other faults are told as well."""
    assert problems(write("m.toml", '[[patch]]\nname = "a"\non = 1\n')) == (
        "m.toml: schema: missing; expected `schema = 1`",
        "m.toml:3: patch[0].on: expected a string, got 1",
    )


@pytest.mark.parametrize("value", ["0", "-1", "1.0", "true", '"1"', "[1]"])
def test_schema_is_the_integer_one(write: Write, value: str) -> None:
    """Nothing but the integer 1 is version 1."""
    [problem] = problems(write("m.toml", f'schema = {value}\n[[patch]]\nname = "a"\n'))
    assert problem.startswith("m.toml:1: schema: expected `schema = 1`, the version that this patchkit reads, got ")


def test_newer_schema(write: Write) -> None:
    """A newer format is told as such, and what may be right in it isn't called wrong."""
    text = 'schema = 2\nextends = ["nowhere.toml"]\nnew = 1\n[[patch]]\nname = "a"\n[[patch]]\nname = "a"\n'
    assert problems(write("m.toml", text)) == (
        "m.toml:1: schema: version 2 is newer than this patchkit, which reads version 1; upgrade patchkit",
    )


@pytest.mark.parametrize("text", ["schema = 1\n", "schema = 1\npatch = []\n", "schema = 1\nextends = []\n"])
def test_no_patches(write: Write, text: str) -> None:
    """A manifest that selects nothing would verify nothing, so it is refused."""
    assert problems(write("m.toml", text)) == ("m.toml: selects no patch; expected at least one [[patch]]",)


def test_no_patches_with_bases(write: Write) -> None:
    """Where the bases have none either, they are mentioned."""
    write("base.toml", "schema = 1\n")
    assert problems(write("m.toml", 'schema = 1\nextends = ["base.toml"]\n')) == (
        "m.toml: selects no patch; expected at least one [[patch]] of its own or of a manifest that it extends",
    )


def test_no_patches_in_python() -> None:
    """A manifest made in Python is held to that too."""
    assert problems(Manifest(schema=1)) == ("<mapping>: selects no patch; expected at least one [[patch]]",)


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "\ufeff"])
def test_empty_file(write: Write, text: str) -> None:
    """A file that says nothing is told what to say at least."""
    assert problems(write("m.toml", text)) == ("m.toml: empty; expected `schema = 1` and at least one [[patch]]",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("schema = 1\nname = \n", "m.toml:2:8: not valid TOML: Invalid value"),
        ("schema = 1\r\n\r\nname\r\n", "m.toml:3:5: not valid TOML: Expected '=' after a key in a key/value pair"),
        ("schema = 1\nschema = 1\n", "m.toml:2:11: not valid TOML: Cannot overwrite a value"),
        ("x = [", "m.toml: not valid TOML: Invalid value (at the end of the file)"),
    ],
)
def test_syntax_error(write: Write, text: str, expected: str) -> None:
    """What isn't TOML is told with the line and the column where the parser gave up."""
    assert problems(write("m.toml", text)) == (expected,)


@pytest.mark.parametrize("text", ["x = " + "[" * 20000, "x = " + "1" * 20000], ids=["deep", "long"])
def test_hostile_toml(write: Write, text: str) -> None:
    """What the parser gives up on with another exception than its own is an error of the manifest all the same."""
    [problem] = problems(write("m.toml", text))
    assert problem.startswith("m.toml: not valid TOML: ")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("schema = 1\n".encode("utf-16"), "m.toml:1: not UTF-8 (byte 0xff)"),
        (b"\xef\xbb\xbfschema = 1\n# caf\xe9\n", "m.toml:2: not UTF-8 (byte 0xe9)"),
    ],
)
def test_not_utf8(write: Write, content: bytes, expected: str) -> None:
    """A file in another encoding is told the line and the byte."""
    Path(write("m.toml", "")).write_bytes(content)
    [problem] = problems("m.toml")
    assert problem.startswith(expected)


def test_missing_file(write: Write) -> None:
    """A file that isn't there is told as it was written, with the nearest name."""
    write("manifests/lowmem.toml", "")
    assert problems("manifests/lowmen.toml") == (
        "manifests/lowmen.toml: no such file; did you mean 'manifests/lowmem.toml'?",
    )


def test_missing_file_without_a_neighbour(write: Write, tmp_path: Path) -> None:
    """A relative path that leads nowhere says where it started."""
    write("other.toml", "")
    assert problems("no/such.toml") == (f"no/such.toml: no such file; the current directory is {str(tmp_path)!r}",)
    assert problems(tmp_path / "such") == (f"{tmp_path / 'such'}: no such file",)


def test_directory(tmp_path: Path) -> None:
    """A directory is no manifest."""
    assert problems(tmp_path) == (f"{tmp_path}: is a directory, expected a TOML file",)


def test_file_that_is_below_a_file(write: Write) -> None:
    """Whatever else the system says of a path is passed on."""
    write("m.toml", "")
    assert problems("m.toml/x.toml") == ("m.toml/x.toml: can't be read: Not a directory",)


@pytest.mark.parametrize("source", ["", "schema = 1\n", "a\0b", "\ud800"])
def test_string_that_is_no_path(source: str) -> None:
    """TOML text is not taken for a path."""
    [problem] = problems(source)
    assert problem.startswith(f"expected the path of a manifest, got {source!r}; ")


@pytest.mark.parametrize("source", [None, 3, ["m.toml"], b"m.toml"], ids=repr)
def test_source_of_another_kind(source: object) -> None:
    """What is neither path nor mapping nor manifest is named by its type."""
    [problem] = problems(source)
    assert problem.startswith(f"expected a path, a mapping or a Manifest, got {type(source).__name__}: ")
