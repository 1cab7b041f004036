"""One line of the log: how it is put together, and how it is taken apart again.

Writer and reader share this module, so that nothing is written that can't be read.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

__all__ = ["AUDIT_SCHEMA_VERSION", "ENTRY_LIMIT", "MAX_DEPTH", "MAX_LINE", "TORN_MARK", "BadLine", "assemble", "parse"]

AUDIT_SCHEMA_VERSION = 1
"""Version of the form of a line, its member ``v``."""

MAX_LINE = 1 << 20
"""Bytes, line feed included, that a line may have; the reader holds no more than one."""

# A torn line gets marks at its end and must still be within MAX_LINE, so an entry has to be shorter.
ENTRY_LIMIT = MAX_LINE - 4096

MAX_DEPTH = 16
"""How deep lists and objects may be nested."""

# Closes a line that a crash has cut off. It makes any line malformed, also one that lacks nothing but its line
# feed: an entry whose writer never learned that it was written must not count later on.
TORN_MARK = b"#torn"

_LONGEST_INTEGER = 20


class BadLine(ValueError):
    """A line is no entry of a log; the text says why, and callers add the place."""


def assemble(seq: int, body: str) -> bytes:
    """Return the line, line feed included, for an entry whose own members are the JSON object `body`.

    Sequence number and time are put in front. Call it under the lock: only there is the number known, and only
    there do times follow the order of the entries.
    """
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return f'{{"v":{AUDIT_SCHEMA_VERSION},"seq":{seq},"ts":"{now}",{body[1:]}\n'.encode("ascii")


def parse(line: bytes) -> dict[str, Any]:
    """Return the members of a line (without its line feed).

    Raises:
        BadLine: If the line is not an entry of this schema version.
    """
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise BadLine(f"expected UTF-8, found an invalid byte at column {exc.start + 1}") from None
    # The stored bytes are the record: no blank, byte order mark or carriage return beside the object.
    if not (text.startswith("{") and text.endswith("}")):
        raise BadLine("expected one JSON object on the line")
    try:
        fields = _DECODER.decode(text)
    except BadLine:
        raise
    except RecursionError:
        raise BadLine(f"expected nesting of at most {MAX_DEPTH} levels, found far more") from None
    except json.JSONDecodeError as exc:
        raise BadLine(f"expected JSON, found something else at column {exc.colno}: {exc.msg}") from None
    _check_depth(fields)
    _check_members(fields)
    return dict(fields)


def _check_members(fields: dict[str, Any]) -> None:
    version = fields.get("v")
    if type(version) is not int or version != AUDIT_SCHEMA_VERSION:
        found = f"version {version}" if type(version) is int else "no version number"
        raise BadLine(
            f"expected schema version {AUDIT_SCHEMA_VERSION} in member 'v', found {found};"
            " read the log with the patchkit that wrote it, or a later one"
        )
    seq = fields.get("seq")
    if type(seq) is not int or seq < 0:
        raise BadLine("expected a sequence number in member 'seq', found none")
    for name in ("ts", "event"):
        if not isinstance(fields.get(name), str):
            raise BadLine(f"expected text in member {name!r}, found none")
    if not isinstance(fields.get("tx"), (str, type(None))):
        raise BadLine("expected text or null in member 'tx', found something else")


def _check_depth(value: object) -> None:
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise BadLine(f"expected nesting of at most {MAX_DEPTH} levels, found more")


def _inside(value: object) -> list[object]:
    if isinstance(value, dict):
        return [inner for inner in value.values() if isinstance(inner, (dict, list))]
    if isinstance(value, list):
        return [inner for inner in value if isinstance(inner, (dict, list))]
    return []


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadLine(f"expected each member once, found {twice[:80]!a} twice")
    return fields


def _integer(digits: str) -> int:
    if len(digits) > _LONGEST_INTEGER:
        raise BadLine(f"expected an integer of at most {_LONGEST_INTEGER} characters, found {len(digits)}")
    return int(digits)


def _no_constant(name: str) -> float:
    raise BadLine(f"expected JSON, found {name}")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_integer, parse_constant=_no_constant)
