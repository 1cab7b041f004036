"""What the digest of a manifest depends on, and what it doesn't."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.manifest import load_manifest

Write = Callable[[str, str], str]

PATCH: dict[str, Any] = {
    "name": "a",
    "on": "m",
    "modules": ["x.*", "y"],
    "options": {"k": 1, "t": {"u": 2.0, "v": "ü"}},
    "when": {"platform": "linux", "env": {"A": "1", "B": "2"}},
    "required": False,
}
MAPPING: dict[str, Any] = {
    "schema": 1,
    "patch": [PATCH, {"name": "b"}],
    "policy": {"on_changed": "warn", "on_unknown": "skip"},
}


def digest(mapping: dict[str, Any]) -> str:
    return load_manifest(mapping).digest


def with_patch(**changes: object) -> dict[str, Any]:
    return {**MAPPING, "patch": [{**PATCH, **changes}, {"name": "b"}]}


def shuffled(value: Any, data: st.DataObject) -> Any:
    """Return the same mapping with the keys of every table in another order."""
    if isinstance(value, dict):
        return {key: shuffled(value[key], data) for key in data.draw(st.permutations(list(value)))}
    return [shuffled(item, data) for item in value] if isinstance(value, list) else value


@given(st.data())
def test_order_of_keys_makes_no_difference(data: st.DataObject) -> None:
    """The keys of every table may stand in any order."""
    assert digest(shuffled(MAPPING, data)) == digest(MAPPING)


def test_writing_makes_no_difference(write: Write) -> None:
    """Neither comments and formatting, nor the place of the file, nor that it is one make a difference."""
    one = write("a.toml", 'schema = 1\n[[patch]]\nname = "a"\noptions = { k = 1, l = 2 }\n')
    two = write("sub/b.toml", "# same\nschema=1\n[[patch]]\nname='a'\n[patch.options]\nl=2\nk=0x1\n")
    three = {"schema": 1, "patch": [{"name": "a", "options": {"l": 2, "k": 1}}]}
    assert load_manifest(one).digest == load_manifest(two).digest == digest(three)


def test_extending_makes_no_difference(write: Write) -> None:
    """What counts is the result, not over how many files it is spread."""
    write("base.toml", 'schema = 1\n[[patch]]\nname = "a"\noptions.k = 1\n')
    top = write("top.toml", 'schema = 1\nextends = ["base.toml"]\n[[patch]]\nname = "a"\noptions.l = 2\n')
    assert load_manifest(top).digest == digest({"schema": 1, "patch": [{"name": "a", "options": {"k": 1, "l": 2}}]})


def test_spelt_out_defaults_and_audit_make_no_difference() -> None:
    """A default that is written says nothing new, and the log has no part in what is patched."""
    terse = {"schema": 1, "patch": [{"name": "a"}]}
    verbose = {
        "schema": 1,
        "patch": [{"name": "a", "options": {}, "modules": [], "required": True}],
        "policy": {"on_changed": "refuse"},
        "audit": {"path": "x.jsonl"},
    }
    assert digest(terse) == digest(verbose)


@pytest.mark.parametrize(
    "changed",
    [
        with_patch(name="c"),
        with_patch(on="n"),
        with_patch(modules=["y", "x.*"]),
        with_patch(options={"k": 2}),
        with_patch(options={"k": True}),
        with_patch(options={"k": "1"}),
        with_patch(options={"k": date(2026, 1, 1)}),
        with_patch(options={"k": "2026-01-01"}),
        with_patch(when={}),
        with_patch(required=True),
        {**MAPPING, "policy": {}},
        {**MAPPING, "patch": [{"name": "b"}, PATCH]},
        {**MAPPING, "patch": [PATCH]},
    ],
    ids=repr,
)
def test_content_makes_a_difference(changed: dict[str, Any]) -> None:
    """Everything that changes what is asked for changes the digest."""
    assert digest(changed) != digest(MAPPING)


def test_kinds_of_values_differ() -> None:
    """A value and its text are two things."""
    values = [1, 1.0, True, "1", [1], {"1": 1}, date(2026, 1, 1), "2026-01-01"]
    digests = {digest(with_patch(options={"k": value})) for value in values}
    assert len(digests) == len(values)


def test_digest_is_the_same_everywhere() -> None:
    """The digest of a given content is the same in every process and on every supported Python."""
    assert digest(MAPPING) == "1d824c5b1f9e7a5827a524d111220e3c24323f3a58b5b5167c0e1abd45724409"
