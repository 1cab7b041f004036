"""What a manifest may say: the models behind its TOML and its JSON Schema."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from datetime import date, datetime, time
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, StrictBool, field_validator
from pydantic_core import PydanticCustomError

from ._lines import Key
from ._origin import Origin, Place, render_key
from ._when import When

SCHEMA_VERSION = 1
"""The version of the manifest format that this patchkit reads."""

REPEATED_ENTRY = "repeated_entry"
"""Type of the validation error for two entries of one name and one ``on``."""

_Reaction = Literal["refuse", "warn", "skip"]
_Name = Annotated[str, Field(min_length=1)]
_Item = TypeVar("_Item", bound=Hashable)


def _toml_options(options: Any) -> Any:
    """Return an own copy of ``options``; refuse what TOML, and so a log or a digest, could not hold."""
    return _toml_value(options, ())


def _toml_value(value: Any, key: Key) -> Any:
    if isinstance(value, (str, bool, int, float, date, time)):
        return value
    if isinstance(value, (list, tuple)):
        return [_toml_value(item, (*key, index)) for index, item in enumerate(value)]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: _toml_value(item, (*key, name)) for name, item in value.items()}
    where = f" at {render_key(key)}" if key else ""
    raise ValueError(
        "expected what TOML can hold (string, number, true or false, date, time, list, or table with string keys), "
        f"got {type(value).__name__}{where}; leave a key out instead of giving it None"
    )


class PatchEntry(BaseModel):
    """One patch to apply: which, to what, with which options, and when."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: _Name = Field(
        description="Name of a registered patch; `python -m patchkit list` shows them.",
        examples=["fsdp1.pageable-params"],
    )
    on: _Name | None = Field(
        default=None,
        description="Which of the models given to apply() the patch is for, by the name it has there. "
        "Left out: the one model that was given, or none for a patch that needs no model.",
        examples=["text_encoder"],
    )
    modules: tuple[_Name, ...] = Field(
        default=(),
        description="Globs of module paths inside the model; the patch acts on modules that match any of them. "
        "Empty: on all.",
        examples=[["blocks.*", "head"]],
    )
    options: Annotated[dict[str, Any], BeforeValidator(_toml_options)] = Field(
        default={},
        description="Options of the patch; `python -m patchkit show NAME` lists them.",
    )
    when: When | None = Field(
        default=None,
        description="Conditions under which the entry counts. Left out: always.",
    )
    required: StrictBool = Field(
        default=True,
        description="false: where the patch is unknown, its contract is refused, or it finds nothing to act on or "
        "refuses to, it is left out and that is recorded, instead of stopping the transaction.",
    )


class Policy(BaseModel):
    """What to do with a patch whose contract doesn't fit. A broken one is refused, whatever is said here."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    on_changed: _Reaction = Field(
        default="refuse",
        description="A function that the patch relies on has another body than those it was proven on. "
        "refuse: stop before anything is touched; warn: apply and warn; skip: leave the patch out.",
    )
    on_excluded: _Reaction = Field(
        default="refuse",
        description="The installed version is outside of what the patch requires.",
    )
    on_unknown: _Reaction = Field(
        default="refuse",
        description="There is no source to judge the contract by.",
    )
    on_retired: _Reaction = Field(
        default="warn",
        description="The installed version has fixed what the patch works around.",
    )


class AuditConfig(BaseModel):
    """The audit log: where it is, and what happens where it can't be written."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: _Name | None = Field(
        default=None,
        description="File to append to; a relative path starts at the current directory of the process. "
        "Left out: patchkit's default, see docs/audit-log.md.",
        examples=["logs/patchkit-audit.jsonl"],
    )
    policy: Literal["required", "best-effort", "off"] = Field(
        default="required",
        description="required: nothing is patched that can't be recorded; best-effort: warn and go on; off: no file.",
    )


class Manifest(BaseModel):
    """Which patches patchkit applies, with which options, to what, when, and under which policy.

    `load_manifest` makes one from a file or a mapping and follows its `extends`; what it returns has no
    `extends` left, and equals another manifest of the same content wherever that one lies.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, title="patchkit manifest")

    schema_: Literal[1] = Field(
        alias="schema",
        description="Version of the manifest format: 1.",
        examples=[1],
    )
    extends: tuple[_Name, ...] = Field(
        default=(),
        description="Manifests to build upon, relative to the file that says so. Their patches come first; "
        "an entry of the same name and `on` here changes theirs key by key.",
        examples=[["base.toml"]],
    )
    patch: tuple[PatchEntry, ...] = Field(
        default=(),
        description="The patches, one `[[patch]]` table each, in the order in which they are applied as far as "
        "they don't ask for another.",
    )
    policy: Policy = Field(
        default=Policy(),
        description="What to do with patches whose contract doesn't fit.",
    )
    audit: AuditConfig = Field(
        default=AuditConfig(),
        description="Where the audit log is.",
    )

    _origin: Origin = PrivateAttr(default_factory=Origin)

    @field_validator("schema_", mode="before")
    @classmethod
    def _check_version(cls, value: object) -> object:
        if type(value) is int and value > SCHEMA_VERSION:
            raise ValueError(f"version {value} is newer than this patchkit, which reads version 1; upgrade patchkit")
        if type(value) is not int or value != SCHEMA_VERSION:
            raise ValueError(f"expected `schema = 1`, the version that this patchkit reads, got {value!r}")
        return value

    @field_validator("patch", mode="before")
    @classmethod
    def _check_list(cls, value: object) -> object:
        if isinstance(value, Mapping):
            raise ValueError("expected a list of tables, got one table; write `[[patch]]` instead of `[patch]`")
        return value

    @field_validator("patch")
    @classmethod
    def _check_repeated(cls, entries: tuple[PatchEntry, ...]) -> tuple[PatchEntry, ...]:
        for index, first in repeated((entry.name, entry.on) for entry in entries):
            raise PydanticCustomError(
                REPEATED_ENTRY,
                "entries {first} and {index} are the same patch on the same model",
                {"first": first, "index": index},
            )
        return entries

    @property
    def path(self) -> str | None:
        """The file as the user wrote it; None for a manifest that came from a mapping."""
        return self._origin.path

    @property
    def text_sha256(self) -> str | None:
        """SHA-256, in hex, of the bytes of that file, without those of its bases; None for a mapping."""
        return self._origin.text_sha256

    @property
    def bases(self) -> tuple[str, ...]:
        """The files that were extended, in the order in which they were laid upon each other."""
        return self._origin.bases

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of what the manifest asks for: its patches in their order, and its policy.

        Neither formatting, comments and the order of keys, nor the place of the file, nor what is said
        explicitly although it is the default, nor the audit log makes a difference.
        """
        content = self.model_dump(mode="python", include={"patch", "policy"})
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=_canonical)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def place(self, entry: PatchEntry, *keys: str | int) -> Place:
        """Say where ``entry``, or a key of it such as ``"options", "scope"``, was written."""
        place = self._origin.place((entry.name, entry.on), keys)
        return place or Place(None, None, render_key(("patch", self.patch.index(entry), *keys)))

    def to_mapping(self) -> dict[str, Any]:
        """Return what was said, and no defaults, as `load_manifest` takes it."""
        mapping: dict[str, Any] = _plain(self.model_dump(mode="python", by_alias=True, exclude_unset=True))
        return mapping


def repeated(items: Iterable[_Item]) -> Iterator[tuple[int, int]]:
    """Yield the index of each item that was there before, and the index of its first occurrence."""
    first: dict[_Item, int] = {}
    for index, item in enumerate(items):
        if first.setdefault(item, index) != index:
            yield index, first[item]


def _canonical(value: datetime | date | time) -> dict[str, str]:
    return {type(value).__name__: value.isoformat()}


def _plain(value: Any) -> Any:
    """Turn tuples into lists and leave out None, since TOML has neither."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
