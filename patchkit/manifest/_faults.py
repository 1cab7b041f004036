"""Validation errors of pydantic, said in the words of a manifest."""

from __future__ import annotations

import difflib
import json
import reprlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from ._lines import Key

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

    from ._model import Manifest, PatchEntry

# Where pydantic's own words ("Input should be a valid tuple") would be Python's instead of TOML's.
_EXPECTED = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a table",
    "float_parsing": "a number",
    "float_type": "a number",
    "frozen_set_type": "a list",
    "int_from_float": "an integer",
    "int_parsing": "an integer",
    "int_type": "an integer",
    "list_type": "a list",
    "mapping_type": "a table",
    "model_attributes_type": "a table",
    "model_type": "a table",
    "set_type": "a list",
    "string_type": "a string",
    "tuple_type": "a list",
}
_PYDANTIC_EXPECTS = "Input should be "


def faults(model: type[BaseModel], error: ValidationError) -> Iterator[tuple[Key, str, str]]:
    """Yield key, text and pydantic's type of each fault.

    Args:
        model: The model that refused its input.
        error: What it raised.
    """
    for details in error.errors(include_url=False):
        # "[key]" marks a fault of a dict's key, not of its value.
        key = tuple(part for part in details["loc"] if part != "[key]")
        yield key, _text(model, key, details), details["type"]


def explain_options(
    manifest: Manifest, entry: PatchEntry, options: type[BaseModel], error: ValidationError
) -> tuple[str, ...]:
    """Say what is wrong with the options of an entry, one line for each fault, in the form of a `ManifestError`.

    Args:
        manifest: The manifest that the entry is of.
        entry: The entry whose options were refused.
        options: The options model of the patch.
        error: What ``options.model_validate(entry.options)`` raised.
    """
    return tuple(f"{manifest.place(entry, 'options', *key)}: {text}" for key, text, _ in faults(options, error))


def _text(model: type[BaseModel], key: Key, details: ErrorDetails) -> str:
    kind, found = details["type"], details["input"]
    if kind == "extra_forbidden":
        return _unknown_key(str(key[-1]), list(_fields(_model_at(model, key[:-1]))))
    if kind == "missing":
        return _missing_key(str(key[-1]), _fields(_model_at(model, key[:-1])))
    if kind == "value_error":
        return str(details["ctx"]["error"])
    if kind == "literal_error":
        return _expected(details["ctx"]["expected"], found) + _suggest(found, _choices(model, key))
    if kind == "invalid_key":
        return f"expected a string as key, got {_describe(found)}"
    if kind == "string_too_short" and found == "":
        return "expected a string that is not empty, got ''"
    if kind == "tuple_type" and isinstance(found, str):
        return f"expected a list, got a string; write [{_toml(found)}]"
    if kind in _EXPECTED:
        return _expected(_EXPECTED[kind], found)
    message = details["msg"]
    if message.startswith(_PYDANTIC_EXPECTS):
        return _expected(message[len(_PYDANTIC_EXPECTS) :], found)
    return f"{message}, got {_describe(found)}"


def _unknown_key(key: str, known: list[str]) -> str:
    expected = f"Expected one of: {', '.join(known)}." if known else "No keys are expected here."
    nearest = _suggest(key, known)
    return f"unknown key{nearest or '.'} {expected}"


def _suggest(found: object, known: list[str]) -> str:
    nearest = difflib.get_close_matches(found, known, n=1) if isinstance(found, str) else []
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def _missing_key(key: str, known: Mapping[str, FieldInfo]) -> str:
    field = known.get(key)
    if field is None or not field.examples:
        return "missing, and there is no default for it"
    like = "expected" if get_origin(field.annotation) is Literal else "expected something like"
    return f"missing; {like} `{key} = {_toml(field.examples[0])}`"


def _expected(expected: str, found: object) -> str:
    return f"expected {expected}, got {_describe(found)}"


def _describe(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, (list, tuple)):
        return "a list"
    return "nothing" if value is None else reprlib.repr(value)


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _fields(model: type[BaseModel] | None) -> dict[str, FieldInfo]:
    """Return the fields of a model by the keys that they have in TOML."""
    return {} if model is None else {field.alias or name: field for name, field in model.model_fields.items()}


def _choices(model: type[BaseModel], key: Key) -> list[str]:
    field = _fields(_model_at(model, key[:-1])).get(str(key[-1])) if key else None
    return [choice for choice in get_args(field.annotation) if isinstance(choice, str)] if field else []


def _model_at(model: type[BaseModel] | None, key: Key) -> type[BaseModel] | None:
    """Return the model of the table at ``key``, or None where a table of free keys is there."""
    for part in key:
        if isinstance(part, str):
            field = _fields(model).get(part)
            model = None if field is None else _model_in(field.annotation)
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model that an annotation such as ``tuple[Model, ...]`` or ``Model | None`` is about."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for argument in get_args(annotation) if (model := _model_in(argument))), None)
