"""The JSON Schema, the file of it that editors read, and the manifests that patchkit ships."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pydantic
import pytest

from patchkit.manifest import AuditConfig, Manifest, PatchEntry, Policy, When, load_manifest, manifest_schema

MANIFESTS = Path(__file__).parent.parent.parent / "manifests"
SHIPPED = {
    "accumulate.toml": [
        "fsdp1.accumulate-offloaded-grads",
        "fsdp1.no-stale-grads",
        "fsdp1.drop-offloaded-grad-shards",
        "fsdp1.pageable-params",
    ],
    "frozen.toml": ["fsdp1.drop-frozen-grads", "fsdp1.pageable-params"],
    "lowmem.toml": ["fsdp1.drop-offloaded-grad-shards", "fsdp1.pageable-params"],
    "precision.toml": ["fsdp1.precision"],
    "rehearsal.toml": ["fsdp1.cpu-rehearsal"],
    "replay.toml": ["fsdp1.drop-idle-grads"],
    "validation.toml": ["fsdp1.drop-idle-grads"],
}


def tables() -> dict[str, dict[str, Any]]:
    schema = manifest_schema()
    return {"Manifest": schema, **schema["$defs"]}


def test_schema_file_is_current() -> None:
    """The file beside the shipped manifests is what `python -m patchkit schema` prints."""
    expected = json.dumps(manifest_schema(), indent=2, ensure_ascii=False) + "\n"
    assert (MANIFESTS / "manifest.schema.json").read_text(encoding="utf-8") == expected


def test_schema_says_what_it_is() -> None:
    """The schema names its dialect, itself and what it is for."""
    schema = manifest_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == "urn:patchkit:manifest:1"
    assert schema["title"] == "patchkit manifest"
    assert schema["required"] == ["schema"]
    assert schema["$defs"]["PatchEntry"]["required"] == ["name"]


@pytest.mark.parametrize("model", [Manifest, PatchEntry, When, Policy, AuditConfig])
def test_schema_has_every_key(model: type[pydantic.BaseModel]) -> None:
    """Every table has exactly the keys of its model, and takes no others."""
    table = tables()[model.__name__]
    assert set(table["properties"]) == {field.alias or name for name, field in model.model_fields.items()}
    assert table["additionalProperties"] is False


def test_every_key_is_described() -> None:
    """Whoever points at a key in an editor is told what it means, without Python's own words."""
    for table in tables().values():
        assert table["description"]
        for key, field in table["properties"].items():
            assert field["description"], key
            assert field.keys() & {"type", "$ref"}, key
            assert "null" not in json.dumps(field), key


def test_examples_are_valid() -> None:
    """Each example in the schema is one that patchkit itself takes."""
    entry: dict[str, Any] = {"name": "a"}
    definitions = manifest_schema()["$defs"]
    for key, field in definitions["PatchEntry"]["properties"].items():
        for example in field.get("examples", ()):
            load_manifest({"schema": 1, "patch": [{**entry, key: example}]})
    for key, field in definitions["When"]["properties"].items():
        for example in field["examples"]:
            load_manifest({"schema": 1, "patch": [{**entry, "when": {key: example}}]})
    for example in definitions["AuditConfig"]["properties"]["path"]["examples"]:
        load_manifest({"schema": 1, "patch": [entry], "audit": {"path": example}})


def test_shipped_manifests_are_these() -> None:
    """Every manifest of the folder is known to these tests."""
    assert sorted(path.name for path in MANIFESTS.glob("*.toml")) == sorted(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_manifest(name: str) -> None:
    """A shipped manifest selects its patches with nothing but options, and leads editors to the schema."""
    manifest = load_manifest(MANIFESTS / name)
    options = [entry.options for entry in manifest.patch]
    expected = [PatchEntry(name=patch, options=given) for patch, given in zip(SHIPPED[name], options, strict=True)]
    assert list(manifest.patch) == expected
    assert (manifest.policy, manifest.audit) == (Policy(), AuditConfig())
    assert (MANIFESTS / name).read_text(encoding="utf-8").startswith("#:schema ./manifest.schema.json\n")


GOOD: list[dict[str, Any]] = [
    {"schema": 1},
    {"schema": 1, "extends": ["a.toml"], "policy": {}, "audit": {"policy": "off"}},
    {"schema": 1, "patch": [{"name": "a", "options": {"x": {"y": [1]}}, "when": {"env": {"A": ""}}, "on": "m"}]},
]
BAD: list[dict[str, Any]] = [
    {},
    {"schema": 2},
    {"schema": "1"},
    {"schema": 1, "polcy": {}},
    {"schema": 1, "patch": {}},
    {"schema": 1, "patch": [{}]},
    {"schema": 1, "patch": [{"name": ""}]},
    {"schema": 1, "patch": [{"name": "a", "modules": "x"}]},
    {"schema": 1, "patch": [{"name": "a", "required": "yes"}]},
    {"schema": 1, "patch": [{"name": "a", "when": {"torch": "1"}}]},
    {"schema": 1, "policy": {"on_changed": "ignore"}},
]


@pytest.mark.parametrize("mapping", [*GOOD, *BAD], ids=repr)
def test_schema_judges_as_the_models_do(mapping: dict[str, Any]) -> None:
    """An editor that checks by the schema, and patchkit, agree on what is right."""
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(manifest_schema())
    validator.check_schema(manifest_schema())
    expected = mapping in GOOD
    assert validator.is_valid(mapping) is expected
    try:
        Manifest.model_validate(mapping)
    except pydantic.ValidationError:
        assert not expected
    else:
        assert expected


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_manifest_fits_the_schema(name: str) -> None:
    """Editors find no fault with a shipped manifest."""
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(load_manifest(MANIFESTS / name).to_mapping(), manifest_schema())
