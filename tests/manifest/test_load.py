"""What load_manifest makes of a file, a mapping and a manifest."""

from __future__ import annotations

import copy
import hashlib
import pickle
from collections.abc import Callable
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.errors import ManifestError
from patchkit.manifest import AuditConfig, Manifest, PatchEntry, Policy, When, explain_options, load_manifest

Write = Callable[[str, str], str]

FULL = """\
schema = 1

[[patch]]
name = "acme.one"
on = "encoder"
modules = ["blocks.*"]
options = { window = 128, since = 2026-01-31, nested = { list = [1, [2.5, true]] } }
when = { requires = ["torch>=2.7"], python = ">=3.10", platform = "linux*", env = { CI = "" }, accelerator = false }
required = false

[policy]
on_changed = "warn"

[audit]
path = "log.jsonl"
policy = "best-effort"
"""

FULL_MANIFEST = Manifest(
    schema=1,
    patch=(
        PatchEntry(
            name="acme.one",
            on="encoder",
            modules=("blocks.*",),
            options={"window": 128, "since": date(2026, 1, 31), "nested": {"list": [1, [2.5, True]]}},
            when=When(requires=("torch>=2.7",), python=">=3.10", platform="linux*", env={"CI": ""}, accelerator=False),
            required=False,
        ),
    ),
    policy=Policy(on_changed="warn"),
    audit=AuditConfig(path="log.jsonl", policy="best-effort"),
)


def test_every_key_of_a_file(write: Write) -> None:
    """Every key of a TOML file arrives in the model."""
    assert load_manifest(write("full.toml", FULL)) == FULL_MANIFEST


def test_defaults(write: Write) -> None:
    """A name is all that an entry needs; everything else has its documented default."""
    manifest = load_manifest(write("a.toml", 'schema = 1\n[[patch]]\nname = "a"\n'))
    assert manifest.model_dump() == {
        "schema_": 1,
        "extends": (),
        "patch": ({"name": "a", "on": None, "modules": (), "options": {}, "when": None, "required": True},),
        "policy": {
            "on_changed": "refuse",
            "on_excluded": "refuse",
            "on_unknown": "refuse",
            "on_retired": "warn",
        },
        "audit": {"path": None, "policy": "required"},
    }


def test_origin_of_a_file(write: Write) -> None:
    """A manifest knows its file as the user wrote it, and the hash of the bytes of that file."""
    name = write("manifests/full.toml", FULL)
    for source in (name, Path(name)):
        manifest = load_manifest(source)
        assert manifest.path == "manifests/full.toml"
        assert manifest.text_sha256 == hashlib.sha256(FULL.encode()).hexdigest()
        assert manifest.bases == ()


def test_origin_is_not_content(write: Write) -> None:
    """Two manifests of the same content are equal, and the file is no part of what is dumped."""
    one, two = load_manifest(write("one.toml", FULL)), load_manifest(write("two.toml", "# two\n" + FULL))
    assert one == two
    assert one.path != two.path
    assert one.model_dump() == two.model_dump()


def test_byte_order_mark_and_windows_line_ends(write: Write) -> None:
    """A file as an editor on Windows writes it is read like any other."""
    text = "\ufeff" + FULL.replace("\n", "\r\n")
    assert load_manifest(write("full.toml", text)) == FULL_MANIFEST


def test_mapping_has_no_file() -> None:
    """A mapping is as good as a file; it only has no place."""
    manifest = load_manifest({"schema": 1, "patch": [{"name": "a"}]})
    assert manifest.patch == (PatchEntry(name="a"),)
    assert (manifest.path, manifest.text_sha256, manifest.bases) == (None, None, ())


def test_mapping_of_any_kind() -> None:
    """Mappings that are no dicts, tuples, and models inside of a mapping are taken for what they mean."""
    source = MappingProxyType({"schema": 1, "patch": (PatchEntry(name="a", options={"x": (1, 2)}),)})
    assert load_manifest(source).to_mapping() == {"schema": 1, "patch": [{"name": "a", "options": {"x": [1, 2]}}]}


def test_mapping_is_copied() -> None:
    """What happens later to the mapping that a manifest came from doesn't reach the manifest."""
    options = {"list": [1]}
    manifest = load_manifest({"schema": 1, "patch": [{"name": "a", "options": options}]})
    options["list"].append(2)
    assert manifest.patch[0].options == {"list": [1]}


def test_manifest_is_returned_as_it_is(write: Write) -> None:
    """A resolved manifest passes through, so that callers needn't ask what they were given."""
    manifest = load_manifest(write("full.toml", FULL))
    assert load_manifest(manifest) is manifest


def test_manifest_that_extends_is_resolved(write: Write) -> None:
    """A manifest made in Python may extend a file too, from the current directory."""
    base = write("base.toml", 'schema = 1\n[[patch]]\nname = "a"\n')
    manifest = load_manifest(Manifest(schema=1, extends=(base,), patch=(PatchEntry(name="b"),)))
    assert [entry.name for entry in manifest.patch] == ["a", "b"]


def test_manifest_is_frozen() -> None:
    """Neither a manifest nor an entry can be assigned to."""
    manifest = load_manifest({"schema": 1, "patch": [{"name": "a"}]})
    with pytest.raises(pydantic.ValidationError):
        manifest.policy = Policy(on_changed="warn")
    with pytest.raises(pydantic.ValidationError):
        manifest.patch[0].name = "b"


def test_manifest_travels(write: Write) -> None:
    """A manifest can be sent to another process and copied, and still knows its place."""
    manifest = load_manifest(write("full.toml", FULL))
    for other in (pickle.loads(pickle.dumps(manifest)), copy.deepcopy(manifest)):
        assert other == manifest
        assert str(other.place(other.patch[0], "on")) == "full.toml:5: patch[0].on"


def test_place_of_an_entry_made_in_python() -> None:
    """An entry that was never written anywhere is named by its index."""
    manifest = Manifest(schema=1, patch=(PatchEntry(name="a"), PatchEntry(name="b")))
    assert str(manifest.place(manifest.patch[1], "options", "x")) == "<mapping>: patch[1].options.x"


class _Options(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    window: int = 1
    scope: str


def test_explain_options(write: Write) -> None:
    """What a patch's own options model refuses is said with file and line, as faults of the manifest are."""
    text = 'schema = 1\n[[patch]]\nname = "a"\n[patch.options]\nwindow = "x"\nscop = "y"\n'
    manifest = load_manifest(write("a.toml", text))
    [entry] = manifest.patch
    with pytest.raises(pydantic.ValidationError) as caught:
        _Options.model_validate(entry.options)
    assert explain_options(manifest, entry, _Options, caught.value) == (
        "a.toml:5: patch[0].options.window: expected an integer, got 'x'",
        "a.toml:4: patch[0].options.scope: missing, and there is no default for it",
        "a.toml:6: patch[0].options.scop: unknown key; did you mean 'scope'? Expected one of: window, scope.",
    )


@pytest.mark.parametrize("value", [None, object(), {1: 2}, [None], {"x": {"y": (1, b"")}}], ids=repr)
def test_options_hold_what_toml_can_hold(value: object) -> None:
    """An option that TOML couldn't hold, and so no log or digest could, is refused."""
    with pytest.raises(ManifestError, match="expected what TOML can hold"):
        load_manifest({"schema": 1, "patch": [{"name": "a", "options": {"x": value}}]})


NAMES = st.text("abc.-", min_size=1, max_size=4)
SCALARS = st.one_of(st.text(max_size=3), st.booleans(), st.integers(), st.floats(allow_nan=False), st.dates())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=5,
)
REACTIONS = st.sampled_from(["refuse", "warn", "skip"])
WHENS = st.fixed_dictionaries(
    {},
    optional={
        "requires": st.lists(st.sampled_from(["torch>=2.7", "numpy", "a==1.*,!=1.2"]), max_size=2),
        "python": st.sampled_from([">=3.10", "~=3.11", "!=3.12.*"]),
        "platform": st.sampled_from(["linux", "*", "win[0-9]*"]),
        "env": st.dictionaries(st.text("AB_", min_size=1, max_size=3), st.text(max_size=3), max_size=2),
        "accelerator": st.booleans(),
    },
)
ENTRIES = st.fixed_dictionaries(
    {"name": NAMES},
    optional={
        "on": NAMES,
        "modules": st.lists(NAMES, max_size=2),
        "options": st.dictionaries(st.text(max_size=3), VALUES, max_size=3),
        "when": WHENS,
        "required": st.booleans(),
    },
)
MAPPINGS = st.fixed_dictionaries(
    {
        "schema": st.just(1),
        "patch": st.lists(ENTRIES, min_size=1, max_size=4, unique_by=lambda entry: (entry["name"], entry.get("on"))),
    },
    optional={
        "policy": st.fixed_dictionaries({}, optional={"on_changed": REACTIONS, "on_retired": REACTIONS}),
        "audit": st.fixed_dictionaries({}, optional={"path": NAMES, "policy": st.just("off")}),
    },
)


@given(MAPPINGS)
def test_round_trip(mapping: dict[str, Any]) -> None:
    """A mapping becomes a manifest and the same mapping again, with nothing lost and no default added."""
    manifest = load_manifest(mapping)
    assert manifest.to_mapping() == mapping
    assert load_manifest(manifest.to_mapping()) == manifest
