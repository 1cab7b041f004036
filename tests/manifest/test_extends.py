"""How manifests that extend each other are laid upon each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.errors import ManifestError
from patchkit.manifest import load_manifest

Write = Callable[[str, str], str]

KEYS = "Expected one of: schema, extends, patch, policy, audit."

BASE = """\
schema = 1

[[patch]]
name = "one"
modules = ["blocks.*"]
options = { a = 1, b = { x = 1, y = 2 } }
when.platform = "linux"

[[patch]]
name = "two"

[policy]
on_changed = "warn"
on_retired = "skip"

[audit]
path = "base.jsonl"
"""


def patches(write: Write, text: str) -> list[dict[str, object]]:
    found = load_manifest(write("top.toml", text)).to_mapping()["patch"]
    assert isinstance(found, list)
    return found


def test_base_patches_come_first(write: Write) -> None:
    """Entries that a base doesn't have follow behind those of the base."""
    write("base.toml", BASE)
    found = patches(write, 'schema = 1\nextends = ["base.toml"]\n[[patch]]\nname = "zero"\n')
    assert [entry["name"] for entry in found] == ["one", "two", "zero"]


def test_entry_is_changed_in_its_place(write: Write) -> None:
    """An entry of the same name changes the keys that it writes, and the options key by key, and no deeper."""
    write("base.toml", BASE)
    options = "options = { b = { x = 3 }, c = 4 }"
    text = f'schema = 1\nextends = ["base.toml"]\n[[patch]]\nname = "one"\n{options}\nrequired = false\n'
    assert patches(write, text) == [
        {
            "name": "one",
            "modules": ["blocks.*"],
            "options": {"a": 1, "b": {"x": 3}, "c": 4},
            "when": {"platform": "linux"},
            "required": False,
        },
        {"name": "two"},
    ]


def test_conditions_and_selection_can_be_taken_away(write: Write) -> None:
    """An empty `when` and an empty `modules` replace those of the base as a whole."""
    write("base.toml", BASE)
    text = 'schema = 1\nextends = ["base.toml"]\n[[patch]]\nname = "one"\nwhen = {}\nmodules = []\n'
    changed = load_manifest(write("top.toml", text)).patch[0]
    assert changed.modules == ()
    assert changed.when is not None
    assert changed.when.platform is None


def test_another_model_is_another_entry(write: Write) -> None:
    """The same name on another model changes nothing in the base."""
    write("base.toml", BASE)
    found = patches(write, 'schema = 1\nextends = ["base.toml"]\n[[patch]]\nname = "two"\non = "encoder"\n')
    assert [(entry["name"], entry.get("on")) for entry in found] == [("one", None), ("two", None), ("two", "encoder")]


def test_written_keys_of_policy_and_audit_win(write: Write) -> None:
    """A key that the nearer file writes wins, also with the default as its value; what it doesn't write stays."""
    write("base.toml", BASE)
    text = 'schema = 1\nextends = ["base.toml"]\n[policy]\non_changed = "refuse"\n[audit]\npolicy = "off"\n'
    manifest = load_manifest(write("top.toml", text))
    assert (manifest.policy.on_changed, manifest.policy.on_retired) == ("refuse", "skip")
    assert (manifest.audit.path, manifest.audit.policy) == ("base.jsonl", "off")


def test_later_base_wins_over_earlier(write: Write) -> None:
    """Of several bases the later one changes the earlier."""
    write("a.toml", 'schema = 1\n[[patch]]\nname = "p"\noptions = { x = "a", y = "a" }\n')
    write("b.toml", 'schema = 1\n[[patch]]\nname = "p"\noptions = { x = "b" }\n')
    assert patches(write, 'schema = 1\nextends = ["a.toml", "b.toml"]\n') == [
        {"name": "p", "options": {"x": "b", "y": "a"}}
    ]


def test_common_base_counts_once(write: Write) -> None:
    """A base that two bases share lies below both: it can't undo what the first of them changed."""
    write("common.toml", 'schema = 1\n[[patch]]\nname = "p"\noptions = { x = "common" }\n')
    write("a.toml", 'schema = 1\nextends = ["common.toml"]\n[[patch]]\nname = "p"\noptions = { x = "a" }\n')
    write("b.toml", 'schema = 1\nextends = ["common.toml"]\n[[patch]]\nname = "q"\n')
    manifest = load_manifest(write("top.toml", 'schema = 1\nextends = ["a.toml", "b.toml"]\n'))
    assert manifest.bases == ("common.toml", "a.toml", "b.toml")
    assert manifest.patch[0].options == {"x": "a"}


def test_paths_start_at_the_file_that_says_them(write: Write) -> None:
    """A base is looked for beside the file that names it, whatever the current directory is, and shown that way."""
    write("shared/deep/base.toml", BASE)
    write("shared/middle.toml", 'schema = 1\nextends = ["deep/base.toml"]\n')
    manifest = load_manifest(write("mine/top.toml", 'schema = 1\nextends = ["../shared/middle.toml"]\n'))
    assert manifest.bases == ("mine/../shared/deep/base.toml", "mine/../shared/middle.toml")


def test_absolute_base(write: Write, tmp_path: Path) -> None:
    """A base may be named by an absolute path."""
    write("base.toml", BASE)
    found = patches(write, f"schema = 1\nextends = ['{tmp_path / 'base.toml'}']\n")
    assert [entry["name"] for entry in found] == ["one", "two"]


def test_mapping_extends_from_the_current_directory(write: Write) -> None:
    """A mapping has no place of its own, so its bases start at the current directory."""
    base = write("folder/base.toml", BASE)
    manifest = load_manifest({"schema": 1, "extends": [base]})
    assert (manifest.path, manifest.bases) == (None, ("folder/base.toml",))


def test_nothing_left_to_extend(write: Write) -> None:
    """A resolved manifest extends nothing any more, so that it can be resolved again anywhere."""
    write("base.toml", BASE)
    manifest = load_manifest(write("top.toml", 'schema = 1\nextends = ["base.toml"]\n'))
    assert manifest.extends == ()
    assert load_manifest(manifest.to_mapping()) == manifest


def test_base_may_be_a_policy_only(write: Write) -> None:
    """Only the result needs patches."""
    write("policy.toml", 'schema = 1\n[policy]\non_changed = "skip"\n')
    manifest = load_manifest(write("top.toml", 'schema = 1\nextends = ["policy.toml"]\n[[patch]]\nname = "p"\n'))
    assert manifest.policy.on_changed == "skip"


def test_place_is_where_the_key_was_written(write: Write) -> None:
    """A key of a merged entry is found in the nearest file that writes it; an unwritten one in the nearest of all."""
    write("base.toml", BASE)
    text = 'schema = 1\nextends = ["base.toml"]\n\n[[patch]]\nname = "one"\noptions.c = 4\n'
    manifest = load_manifest(write("top.toml", text))
    one, two = manifest.patch
    assert [
        str(manifest.place(one)),
        str(manifest.place(one, "options", "c")),
        str(manifest.place(one, "options", "a")),
        str(manifest.place(one, "options", "b", "y")),
        str(manifest.place(one, "options", "z")),
        str(manifest.place(two, "name")),
    ] == [
        "top.toml:4: patch[0]",
        "top.toml:6: patch[0].options.c",
        "base.toml:6: patch[0].options.a",
        "base.toml:6: patch[0].options.b.y",
        "top.toml:6: patch[0].options.z",
        "base.toml:10: patch[1].name",
    ]


def problems(write: Write, text: str) -> tuple[str, ...]:
    with pytest.raises(ManifestError) as caught:
        load_manifest(write("top.toml", text))
    return caught.value.problems


def test_missing_base(write: Write) -> None:
    """A base that isn't there is a fault of the line that names it."""
    assert problems(write, 'schema = 1\nextends = [\n  "sub/nowhere.toml",\n]\n')[0].startswith(
        "top.toml:3: extends[0]: sub/nowhere.toml: no such file"
    )


def test_base_that_is_no_path(write: Write) -> None:
    """A base by a name that no file can have is a fault like any other."""
    assert problems(write, 'schema = 1\nextends = ["a\\u0000b"]\n') == (
        "top.toml:2: extends[0]: expected a path, got 'a\\x00b'",
    )


def test_base_that_is_no_toml_names_who_asked(write: Write) -> None:
    """A base that can't be parsed is a fault of the base, and the file that names it is told too."""
    write("base.toml", "schema = \n")
    [problem] = problems(write, 'schema = 1\nextends = ["base.toml"]\n')
    assert problem == "base.toml:1:10: not valid TOML: Invalid value; asked for by top.toml:2: extends[0]"


def test_circle_shows_its_chain(write: Write) -> None:
    """Manifests that extend each other in a circle are told with the whole circle, and only the circle."""
    write("a.toml", 'schema = 1\nextends = ["b.toml"]\n')
    write("b.toml", 'schema = 1\nextends = ["a.toml"]\n')
    assert problems(write, 'schema = 1\nextends = ["a.toml"]\n') == (
        "b.toml:2: extends[0]: a manifest can't extend itself: a.toml -> b.toml -> a.toml; take one of these steps out",
    )


def test_manifest_that_extends_itself(write: Write) -> None:
    """The smallest circle is one too, also where the file is reached by another name."""
    assert problems(write, 'schema = 1\nextends = ["./top.toml"]\n') == (
        "top.toml:2: extends[0]: a manifest can't extend itself: top.toml -> ./top.toml; take one of these steps out",
    )


def test_faults_of_all_files_are_told_together(write: Write) -> None:
    """Faults of a base and of what extends it come in one error, each with its own file."""
    write("base.toml", 'schema = 1\n[[patch]]\nname = ""\n')
    assert problems(write, 'schema = 1\nextends = ["base.toml", 3]\n[polcy]\n') == (
        "base.toml:3: patch[0].name: expected a string that is not empty, got ''",
        "top.toml:2: extends[1]: expected a string, got 3",
        f"top.toml:3: polcy: unknown key; did you mean 'policy'? {KEYS}",
    )


def test_broken_common_base_is_told_once(write: Write) -> None:
    """A base that is reached on two ways is judged once."""
    write("common.toml", "x = \n")
    write("a.toml", 'schema = 1\nextends = ["common.toml"]\n')
    write("b.toml", 'schema = 1\nextends = ["common.toml"]\n')
    assert len(problems(write, 'schema = 1\nextends = ["a.toml", "b.toml"]\n')) == 1
