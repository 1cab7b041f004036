"""The events: their names, the fields that they may carry, and how loud they are.

An event is checked when it is recorded, whatever the policy: a wrong name, or a value that JSON can't express,
is a mistake in the program and shows at once, not in the one run that needs the log.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from ._line import MAX_DEPTH

__all__ = ["ENDINGS", "EVENTS", "FIELDS", "OPENINGS", "level", "prepare", "render"]

EVENTS: Mapping[str, str] = {
    "apply.started": "info",
    "contract.judged": "info",
    "patch.disabled": "warning",
    "patch.skipped": "warning",
    "patch.installed": "info",
    "patch.verified": "info",
    "patch.failed": "error",
    "rollback.step": "info",
    "apply.refused": "error",
    "apply.committed": "info",
    "apply.rolled_back": "error",
    "verify.completed": "info",
    "patch.suspended": "info",
    "patch.resumed": "info",
    "revert.started": "info",
    "patch.reverted": "info",
    "revert.completed": "info",
    "revert.failed": "error",
    "action.started": "info",
    "action.completed": "info",
    "action.failed": "error",
    "log.recovered": "warning",
    "log.reopened": "warning",
}
"""Every event, with the level that it has as an ordinary log record."""

OPENINGS = frozenset({"apply.started", "revert.started", "action.started"})
ENDINGS = frozenset(
    {
        "apply.refused",
        "apply.committed",
        "apply.rolled_back",
        "revert.completed",
        "revert.failed",
        "action.completed",
        "action.failed",
    }
)

FIELDS = (
    # every entry; made by the writer except `event` and `tx`
    "v",
    "seq",
    "ts",
    "event",
    "tx",
    # what happened, to what
    "outcome",
    "applied",
    "action",
    "patch",
    "patches",
    "on",
    "modules",
    "site",
    "sites",
    "count",
    "aliases",
    "steps",
    "before",
    "after",
    "changes",
    "stranded",
    # who decided, on what grounds
    "verdict",
    "requires",
    "source",
    "findings",
    "policy",
    "reason",
    "duration_us",
    "freed_bytes",
    "error",
    # where from: the opening event of a transaction
    "manifest",
    "patchkit",
    "python",
    "libraries",
    "host",
    "pid",
    "rank",
    "world_size",
    "user",
    "switches",
    # log.recovered
    "offset",
    "length",
    "sha256",
)
"""Every field, in the order in which a line has them."""

_MADE_BY_THE_WRITER = frozenset({"v", "seq", "ts"})
_ORDER = {name: position for position, name in enumerate(FIELDS)}
# null says that nothing was there; elsewhere None says that there is nothing to say.
_NULL_SAYS_SOMETHING = frozenset({"tx", "before", "after"})
_LONGEST_MESSAGE = 4000
# Beyond this not every JSON reader keeps an integer exactly.
_LARGEST_INTEGER = 2**53 - 1
_ENCODER = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def prepare(event: str, tx: str | None, fields: Mapping[str, object]) -> dict[str, Any]:
    """Return the fields of an event in their fixed order, exceptions described, empty ones left out.

    Raises:
        ValueError: If there is no such event.
        TypeError: If there is no such field, or a transaction is opened or ended without its id.
    """
    if event not in EVENTS:
        raise ValueError(f"no audit event is called {event!r}; expected one of: {', '.join(EVENTS)}")
    if tx is None and (event in OPENINGS or event in ENDINGS):
        raise TypeError(f"audit event {event!r} expects the id of its transaction in tx, got None")
    for name in fields:
        if name not in _ORDER or name in _MADE_BY_THE_WRITER:
            raise TypeError(f"audit event {event!r} got an unexpected field {name!r}; fields are listed in FIELDS")
    given: dict[str, object] = {"event": event, "tx": tx, **fields}
    return {
        name: _described(value)
        for name, value in sorted(given.items(), key=lambda item: _ORDER[item[0]])
        if value is not None or name in _NULL_SAYS_SOMETHING
    }


def render(fields: Mapping[str, Any]) -> str:
    """Return the fields as one JSON object on one line of ASCII.

    There is no fallback to ``repr``: it would let addresses and values into the log.

    Raises:
        TypeError: If JSON can't express a value.
        ValueError: If a number is not finite or too large, or values are nested too deeply.
    """
    for name, value in fields.items():
        _check(value, name, 1)
    return _ENCODER.encode(fields)


def level(fields: Mapping[str, Any]) -> str:
    """Return the level of an event as an ordinary log record: info, warning or error."""
    if fields.get("outcome") == "failed":
        return "error"
    if fields["event"] == "contract.judged" and fields.get("verdict", "ok") != "ok":
        return "warning"
    return EVENTS[fields["event"]]


def _described(value: object) -> object:
    if not isinstance(value, BaseException):
        return value
    try:
        message = str(value)
    except Exception:
        # The error that is recorded must not be hidden by another one from its own text.
        message = ""
    kind = type(value)
    return {"type": f"{kind.__module__}.{kind.__qualname__}", "message": message[:_LONGEST_MESSAGE]}


def _check(value: object, where: str, depth: int) -> None:
    if value is None or isinstance(value, (str, bool)):
        return
    if isinstance(value, int):
        if abs(value) > _LARGEST_INTEGER:
            raise ValueError(f"audit field {where}: expected an integer within ±{_LARGEST_INTEGER}, got a larger one")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"audit field {where}: expected a finite number, got {value}")
    elif depth >= MAX_DEPTH:
        raise ValueError(f"audit field {where}: expected nesting of at most {MAX_DEPTH} levels, got more")
    elif isinstance(value, (list, tuple)):
        for position, item in enumerate(value):
            _check(item, f"{where}[{position}]", depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"audit field {where}: expected text as key, got {_name(key)}")
            _check(item, f"{where}.{key}", depth + 1)
    else:
        raise TypeError(
            f"audit field {where}: expected str, int, float, bool, None, or a list or dict of them, got"
            f" {_name(value)}; record what describe() says of an object, not the object"
        )


def _name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
