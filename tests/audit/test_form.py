"""The form of what is written: fields, their order, and what never gets in."""

from __future__ import annotations

import enum
import getpass
import json
import math
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from patchkit.audit import AUDIT_SCHEMA_VERSION, AuditLog, read_entries
from patchkit.audit._event import EVENTS, FIELDS, level, prepare


def lines(path: Path) -> list[str]:
    return path.read_bytes().decode("ascii").splitlines()


def test_entry_is_one_json_object_on_one_line(path: Path) -> None:
    """The members come in the fixed order, after version, sequence number and time."""
    log = AuditLog(path)
    log.record("patch.installed", tx="t1", site="m:f", patch="demo", before={"kind": "function"}, after=None)
    (line,) = lines(path)

    fields = json.loads(line)
    assert list(fields) == ["v", "seq", "ts", "event", "tx", "patch", "site", "before", "after"]
    assert (fields["v"], fields["seq"], fields["event"]) == (AUDIT_SCHEMA_VERSION, 0, "patch.installed")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", fields["ts"])


def test_every_field_is_written_in_its_order(path: Path) -> None:
    """Whatever the order in which fields are given, a line has them in the order of FIELDS."""
    given = {name: "x" for name in reversed(FIELDS) if name not in {"v", "seq", "ts", "event", "tx"}}
    AuditLog(path).record("patch.installed", tx="t", **given)
    assert tuple(json.loads(lines(path)[0])) == FIELDS


def test_sequence_goes_on_where_the_file_ends(path: Path) -> None:
    """A new object, as in a new process, goes on with the number after the last one."""
    for _ in range(3):
        AuditLog(path).record("patch.disabled", tx=None)
    AuditLog(path).record("patch.disabled", tx=None)
    assert [entry.seq for entry in read_entries(path)] == [0, 1, 2, 3]


def test_none_is_left_out_except_where_it_says_something(path: Path) -> None:
    """None means that there is nothing to say; in tx, before and after it means that there was nothing."""
    AuditLog(path).record("patch.skipped", tx=None, reason=None, before=None, policy=None)
    assert list(json.loads(lines(path)[0])) == ["v", "seq", "ts", "event", "tx", "before"]


def test_hostile_text_stays_inside_its_line(path: Path) -> None:
    """Line breaks, escapes and characters outside ASCII are escaped in the file, and come back as they were."""
    text = 'a\nb\r\x00\x1b[31m\x85\u2028\u202e é 🦆 \udc80 " \\'
    AuditLog(path).record("patch.skipped", tx=None, reason=text)
    assert len(lines(path)) == 1
    assert re.fullmatch(rb"[ -~]+\n", path.read_bytes())
    assert next(read_entries(path)).fields["reason"] == text


class Colour(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (object(), "findings"),
        (Colour.RED, "findings"),
        (b"bytes", "findings"),
        ({1, 2}, "findings"),
        ([1, [Path("x")]], r"findings\[1\]\[0\]"),
        ({"a": {"b": print}}, r"findings\.a\.b"),
        ({1: "x"}, "findings: expected text as key"),
    ],
)
@pytest.mark.parametrize("policy", ["required", "best-effort", "off"])
def test_what_json_cannot_express_is_refused(path: Path, policy: Any, value: object, where: str) -> None:
    """There is no fallback to repr: the mistake is a TypeError that names the field, whatever the policy."""
    with pytest.raises(TypeError, match=where):
        AuditLog(path, policy=policy).record("contract.judged", tx="t", findings=value)
    assert not path.exists()


def nested(depth: int) -> list[Any]:
    return [nested(depth - 1)] if depth else []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 2**53, -(2**53), [math.nan], nested(16)])
def test_what_not_every_reader_could_read_is_refused(path: Path, value: object) -> None:
    """Numbers that JSON doesn't have, or that readers round, and endless nesting are a ValueError."""
    with pytest.raises(ValueError, match="audit field findings"):
        AuditLog(path).record("contract.judged", tx="t", findings=value)
    assert not path.exists()


@pytest.mark.parametrize("value", [2**53 - 1, -(2**53) + 1, 1e300, nested(14), True, "x" * 100_000])
def test_what_can_be_written_can_be_read(path: Path, value: object) -> None:
    """The writer's limits are inside the reader's."""
    AuditLog(path).record("contract.judged", tx="t", findings=value)
    assert next(read_entries(path)).fields["findings"] == value


@pytest.mark.parametrize("name", ["seq", "v", "ts", "argv", "value"])
def test_unknown_field_is_refused(path: Path, name: str) -> None:
    """The fields are a closed list, and those of the writer can't be given."""
    with pytest.raises(TypeError, match=repr(name)):
        AuditLog(path).record("patch.failed", tx="t", **{name: 1})
    assert not path.exists()


def test_unknown_event_is_refused(path: Path) -> None:
    """The events are a closed list, which the message shows."""
    with pytest.raises(ValueError, match=r"'patch\.exploded'.*patch\.installed"):
        AuditLog(path).record("patch.exploded", tx="t")
    assert not path.exists()


@pytest.mark.parametrize("event", ["apply.started", "revert.started", "apply.committed", "revert.failed"])
def test_beginnings_and_ends_need_their_transaction(path: Path, event: str) -> None:
    """Without its id an opening event could never be matched with its end."""
    with pytest.raises(TypeError, match="tx"):
        AuditLog(path).record(event, tx=None)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KeyError("x"), {"type": "builtins.KeyError", "message": "'x'"}),
        (KeyboardInterrupt(), {"type": "builtins.KeyboardInterrupt", "message": ""}),
        (ValueError("y" * 9000), {"type": "builtins.ValueError", "message": "y" * 4000}),
        (Unspeakable(), {"type": f"{__name__}.Unspeakable", "message": ""}),
    ],
)
def test_exception_becomes_type_and_message(path: Path, error: BaseException, expected: object) -> None:
    """An error is recorded as the name of its type and its message, cut where it is long; also one that can't speak."""
    AuditLog(path).record("patch.failed", tx="t", error=error)
    assert next(read_entries(path)).fields["error"] == expected


def test_opening_event_says_where_it_comes_from(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions, host, process, rank, user and patchkit's switches are on the opening event."""
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("PATCHKIT_DISABLE", "fsdp1.*")
    manifest = {"path": "manifests/lowmem.toml", "sha256": "00"}
    tx = AuditLog(path).transaction(manifest=manifest, patches=["a", "b"], libraries={"torch": "2.13.0"})

    (entry,) = read_entries(path)
    assert (entry.event, entry.tx) == ("apply.started", tx)
    assert re.fullmatch("[0-9a-f]{32}", tx)
    fields = {name: entry.fields[name] for name in entry.fields if name not in {"v", "seq", "ts", "event", "tx"}}
    fields.pop("patchkit", None)
    assert fields == {
        "patches": ["a", "b"],
        "manifest": manifest,
        "python": platform.python_version(),
        "libraries": {"torch": "2.13.0"},
        "host": platform.node(),
        "pid": os.getpid(),
        "rank": 3,
        "world_size": 8,
        "user": fields["user"],
        "switches": {"PATCHKIT_DISABLE": "fsdp1.*"},
    }
    assert isinstance(fields["user"], str)


@pytest.mark.parametrize("rank", ["", "x", "-1", "1.0", "²", "9" * 5000])
def test_rank_that_is_no_number_is_left_out(path: Path, monkeypatch: pytest.MonkeyPatch, rank: str) -> None:
    """Some other program's RANK doesn't break a transaction."""
    monkeypatch.setenv("RANK", rank)
    AuditLog(path).transaction()
    assert "rank" not in next(read_entries(path)).fields


def test_nothing_else_of_the_environment_gets_in(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other variable, not even one of patchkit's that may hold a secret, and no command line."""
    monkeypatch.setenv("PATCHKIT_AUDIT_KEY", "hunter2")
    monkeypatch.setenv("TOKEN", "hunter2")
    monkeypatch.setattr(sys, "argv", ["train.py", "--token=hunter2"])
    monkeypatch.setenv("LOGNAME", "mallory")
    monkeypatch.setenv("USER", "mallory")
    AuditLog(path).transaction("revert.started", applied="t0")
    assert b"hunter2" not in path.read_bytes()
    assert getpass.getuser() == "mallory"
    assert b"mallory" not in path.read_bytes()


def test_transaction_is_opened_by_an_opening_event(path: Path) -> None:
    """Any other event is refused, and nothing is written."""
    with pytest.raises(ValueError, match=r"apply\.started, revert\.started"):
        AuditLog(path).transaction("apply.committed")
    assert not path.exists()


@pytest.mark.parametrize(
    ("event", "fields", "expected"),
    [
        ("patch.installed", {}, "info"),
        ("patch.installed", {"outcome": "ok"}, "info"),
        ("patch.skipped", {}, "warning"),
        ("patch.disabled", {}, "warning"),
        ("contract.judged", {"verdict": "ok"}, "info"),
        ("contract.judged", {"verdict": "changed"}, "warning"),
        ("patch.failed", {}, "error"),
        ("apply.rolled_back", {}, "error"),
        ("rollback.step", {"outcome": "ok"}, "info"),
        ("rollback.step", {"outcome": "failed"}, "error"),
        ("verify.completed", {"outcome": "failed"}, "error"),
        ("log.recovered", {}, "warning"),
    ],
)
def test_level(event: str, fields: dict[str, Any], expected: str) -> None:
    """Normal events are info, what was left out or has changed is a warning, what failed is an error."""
    assert level(prepare(event, "t", fields)) == expected


def test_page_describes_every_event_and_every_field() -> None:
    """docs/audit-log.md names exactly the events and fields that there are, the fields in their order."""
    page = (Path(__file__).parents[2] / "docs" / "audit-log.md").read_text(encoding="utf-8")
    events = page.split("## Events")[1].split("\n## ")[0]
    rows = [row.split("|")[1:-1] for row in events.splitlines() if row.startswith("| `")]
    assert [(row[0].strip().strip("`"), row[1].strip()) for row in rows] == list(EVENTS.items())
    named = {name for row in rows for name in re.findall("`([a-z0-9_]+)`", row[3])}
    fields = page.split("## Fields")[1].split("\n## ")[0]
    assert tuple(re.findall(r"^\| `([a-z0-9_]+)`", fields, re.MULTILINE)) == FIELDS
    assert named <= set(FIELDS)
