"""The JSON Schema of manifests, for editors and for checkers that know nothing of patchkit."""

from __future__ import annotations

from typing import Any

from ._model import SCHEMA_VERSION, Manifest

_NULL = {"type": "null"}


def manifest_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a manifest.

    A manifest whose first line is ``#:schema ./manifest.schema.json`` is checked against that file by editors
    while it is typed. The schema knows no conditions between files or entries: `load_manifest` judges those.
    """
    schema = Manifest.model_json_schema(by_alias=True)
    definitions = schema.pop("$defs")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:patchkit:manifest:{SCHEMA_VERSION}",
        **_table(schema),
        "$defs": {name: _table(definition) for name, definition in sorted(definitions.items())},
    }


def _table(schema: dict[str, Any]) -> dict[str, Any]:
    """Fit pydantic's schema of a model to TOML and to what an editor shows, whatever pydantic's release."""
    # The first paragraph of a docstring is for those who write manifests, the rest for those who write Python.
    description = " ".join(schema["description"].partition("\n\n")[0].split())
    return {
        "title": schema["title"],
        "description": description,
        "type": "object",
        "properties": {key: _field(value) for key, value in schema["properties"].items()},
        **({"required": schema["required"]} if "required" in schema else {}),
        "additionalProperties": False,
    }


def _field(schema: dict[str, Any]) -> dict[str, Any]:
    field = dict(schema)
    # A title made from the key ("On Changed") tells nothing that the key doesn't.
    field.pop("title", None)
    # TOML has no null: what may be None in Python is a key that may be left out.
    for branch in field.pop("anyOf", ()):
        if branch != _NULL:
            field.update(branch)
    # Older pydantic wraps a reference that has siblings, which 2020-12 has no need of.
    for branch in field.pop("allOf", ()):
        field.update(branch)
    # The defaults of a table are with its own keys.
    if "$ref" in field or field.get("default", ...) is None:
        field.pop("default", None)
    # Releases of pydantic say a constant in different ways.
    if "const" in field:
        field["type"] = "integer"
        field.pop("enum", None)
    if field.get("additionalProperties") is True:
        del field["additionalProperties"]
    return dict(sorted(field.items()))
