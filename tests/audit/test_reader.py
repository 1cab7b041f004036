"""Reading: entries, the end of a log, open transactions, and hostile files."""

from __future__ import annotations

import dataclasses
import itertools
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from patchkit.audit import AuditLog, Entry, open_transactions, read_entries, tail, torn_tail
from patchkit.audit._line import MAX_LINE
from patchkit.errors import AuditError

GOOD = b'{"v":1,"seq":0,"ts":"2026-01-01T00:00:00.000000Z","event":"patch.installed","tx":"t"}'


def line(seq: int, **fields: str) -> bytes:
    rest = "".join(f',"{name}":"{value}"' for name, value in fields.items())
    return GOOD.replace(b'"seq":0', b'"seq":%d' % seq)[:-1] + rest.encode() + b"}\n"


def test_entry(path: Path) -> None:
    """An entry has its place in the file, its members, and names for those that every entry has."""
    path.write_bytes(line(0) + line(1, patch="demo"))
    _, entry = read_entries(path)
    assert (entry.line, entry.offset) == (2, len(line(0)))
    assert (entry.seq, entry.event, entry.tx, entry.ts) == (1, "patch.installed", "t", "2026-01-01T00:00:00.000000Z")
    assert dict(entry.fields) == {
        "v": 1,
        "seq": 1,
        "ts": "2026-01-01T00:00:00.000000Z",
        "event": "patch.installed",
        "tx": "t",
        "patch": "demo",
    }
    with pytest.raises(dataclasses.FrozenInstanceError):
        entry.line = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        entry.fields["seq"] = 3  # type: ignore[index]


def test_unknown_members_and_events_are_kept(path: Path) -> None:
    """A later patchkit may add some without a new schema version."""
    path.write_bytes(line(0, novelty="x").replace(b"patch.installed", b"patch.praised"))
    (entry,) = read_entries(path)
    assert (entry.event, entry.fields["novelty"]) == ("patch.praised", "x")


def test_empty_log(path: Path) -> None:
    """A file without a byte is a log without an entry."""
    path.write_bytes(b"")
    assert (list(read_entries(path)), tail(path, 3), torn_tail(path), open_transactions(path)) == ([], [], None, [])


READERS: list[Callable[[Path], Any]] = [
    lambda path: list(read_entries(path)),
    lambda path: tail(path, 3),
    torn_tail,
    open_transactions,
]


@pytest.mark.parametrize("reader", READERS, ids=["read_entries", "tail", "torn_tail", "open_transactions"])
def test_missing_log(path: Path, reader: Callable[[Path], Any]) -> None:
    """A file that isn't there is an error with its path, not an empty log."""
    with pytest.raises(AuditError, match=f"can't read the audit log {path}: No such file"):
        reader(path)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"", "expected one JSON object"),
        (b"null", "expected one JSON object"),
        (b"[1]", "expected one JSON object"),
        (b"\xef\xbb\xbf" + GOOD, "expected one JSON object"),
        (GOOD + b"\r", "expected one JSON object"),
        (b" " + GOOD, "expected one JSON object"),
        (GOOD + GOOD, "expected JSON, found something else at column 86: Extra data"),
        (b"{}", "expected schema version 1 in member 'v', found no version number"),
        (GOOD.replace(b":1,", b":2,"), "found version 2; read the log with the patchkit that wrote it, or a later one"),
        (GOOD.replace(b":1,", b":true,"), "found no version number"),
        (GOOD.replace(b'"seq":0', b'"seq":-1'), "expected a sequence number"),
        (GOOD.replace(b'"seq":0', b'"seq":1.0'), "expected a sequence number"),
        (GOOD.replace(b'"seq":0', b'"seq":true'), "expected a sequence number"),
        (GOOD.replace(b'"ts":"', b'"tz":"'), "expected text in member 'ts'"),
        (GOOD.replace(b'"patch.installed"', b"7"), "expected text in member 'event'"),
        (GOOD.replace(b'"t"', b"7"), "expected text or null in member 'tx'"),
        (GOOD.replace(b"}", b',"seq":1}'), "expected each member once, found 'seq' twice"),
        (GOOD.replace(b"}", b',"a":{"\\u001b[2J":1,"\\u001b[2J":2}}'), r"found '\x1b[2J' twice"),
        (GOOD.replace(b"}", b',"a":NaN}'), "expected JSON, found NaN"),
        (GOOD.replace(b"}", b',"a":-Infinity}'), "expected JSON, found -Infinity"),
        (GOOD.replace(b"}", b',"a":' + b"9" * 5000 + b"}"), "expected an integer of at most 20 characters, found 5000"),
        (GOOD.replace(b"}", b',"a":"\xff"}'), "expected UTF-8, found an invalid byte at column 91"),
        (GOOD.replace(b"}", b',"a":"\xed\xa0\x80"}'), "expected UTF-8"),
        (GOOD.replace(b"}", b',"a":"\0"}'), "expected JSON, found something else"),
        (b"\0" * 100, "expected one JSON object"),
        (GOOD.replace(b"}", b',"a":' + b"[" * 16 + b"]" * 16 + b"}"), "expected nesting of at most 16 levels"),
        (GOOD.replace(b"}", b',"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "expected nesting of at most 16"),
        (GOOD.replace(b"}", b',"a":' + b'{"a":' * 100_000 + b"}"), "expected"),
        (GOOD.replace(b"}", b',"a":"' + b"x" * MAX_LINE + b'"}'), f"expected lines of at most {MAX_LINE} bytes"),
        (GOOD[:-1], "expected one JSON object"),
    ],
    ids=itertools.count(),
)
def test_hostile_line_is_an_error_with_its_place(path: Path, bad: bytes, reason: str) -> None:
    """The entries before it are read; then path, line, byte offset and the reason are named."""
    path.write_bytes(line(0) + bad + b"\n" + line(2))
    entries = read_entries(path)
    assert next(entries).seq == 0
    with pytest.raises(AuditError) as caught:
        next(entries)
    assert str(caught.value).startswith(f"{path}: line 2, byte {len(line(0))}: ")
    assert reason in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("bad", [b"\n", b"x\n", GOOD[:-1] + b"\n", GOOD[:-1] + b"#torn\nx\n"])
def test_bad_line_at_the_end_is_an_error_too(path: Path, bad: bytes) -> None:
    """What has a line feed was not cut off by a crash, also where nothing comes after it."""
    path.write_bytes(line(0) + bad)
    for reader in READERS:
        with pytest.raises(AuditError, match="expected one JSON object"):
            reader(path)


def test_file_of_another_kind_without_a_line(path: Path) -> None:
    """A file that is no log, and not even lines, is not taken for a torn one."""
    path.write_bytes(b"\x7fELF" * 10)
    with pytest.raises(AuditError, match="expected an audit log, found another kind of file"):
        list(read_entries(path))
    with pytest.raises(AuditError, match="expected an audit log"):
        torn_tail(path)


def complaint_about(path: Path) -> Callable[[Callable[[Path], Any]], str]:
    """Return what says what a reader says of a file: its error, or else the path."""

    def complaint(reader: Callable[[Path], Any]) -> str:
        try:
            reader(path)
        except AuditError as exc:
            return str(exc)
        return str(path)

    return complaint


@given(st.binary(max_size=300))
@example(b"#torn")
@example(b"#torn\n")
@example(b"\n")
@example(GOOD + b"#torn\n")
def test_no_bytes_bring_the_reader_down(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Whatever is in a file, alone or after good entries, each reader returns or raises an AuditError."""
    path = tmp_path_factory.mktemp("bytes") / "audit.jsonl"
    for start in (b"", line(0) + line(1)):
        path.write_bytes(start + content)
        assert [complaint for complaint in map(complaint_about(path), READERS) if str(path) not in complaint] == []


@given(st.data())
def test_no_mutation_brings_the_reader_down(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Nor does a good log in which bytes are changed, dropped or repeated."""
    content = bytearray(b"".join(line(seq, patch="demo") for seq in range(4)))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(start, min(len(content), start + 40)))
        content[start:end] = data.draw(st.one_of(st.binary(max_size=8), st.just(bytes(content[start:end] * 2))))
    path = tmp_path_factory.mktemp("mutation") / "audit.jsonl"
    path.write_bytes(content)
    assert [complaint for complaint in map(complaint_about(path), READERS) if str(path) not in complaint] == []


@pytest.mark.parametrize("size", [10, 3000, 70_000])
@pytest.mark.parametrize("count", [0, 1, 7, 60])
def test_tail_is_the_end_of_the_whole(path: Path, size: int, count: int) -> None:
    """Also where lines are longer than what is read at a time, and where there are fewer."""
    path.write_bytes(b"".join(line(seq, reason="x" * (size + seq)) for seq in range(50)))
    expected = list(read_entries(path))[50 - min(count, 50) :]
    assert tail(path, count) == [dataclasses.replace(entry, line=None) for entry in expected]
    assert tail(path, -1) == []


def test_tail_does_not_read_what_is_before_it(path: Path) -> None:
    """Damage far away doesn't matter, and damage within is an error."""
    path.write_bytes(b"damaged\n" + line(1) + line(2))
    assert [entry.seq for entry in tail(path, 2)] == [1, 2]
    with pytest.raises(AuditError, match="byte 0: expected one JSON object"):
        tail(path, 3)
    path.write_bytes(line(0) + b"damaged\n" + line(2))
    assert [entry.seq for entry in tail(path, 1)] == [2]
    with pytest.raises(AuditError, match=f"byte {len(line(0))}: expected one JSON object"):
        tail(path, 2)


def test_reading_needs_little_memory(path: Path) -> None:
    """A log of any size is read an entry at a time, and a line without an end is not read to its end."""
    with path.open("wb") as file:
        for seq in range(8_000):
            file.write(line(seq, reason="x" * 900))
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_entries(path)) == 8_000
        assert len(tail(path, 5)) == 5
        assert open_transactions(path) == []
        os.truncate(path, 300 * MAX_LINE)
        with pytest.raises(AuditError, match="found a longer one"):
            assert all(read_entries(path))
        with pytest.raises(AuditError, match="found a longer one"):
            torn_tail(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 * MAX_LINE


def test_open_transactions(path: Path) -> None:
    """Those that were started and not ended, oldest first, whatever was recorded in between."""
    log = AuditLog(path, durability="never")
    ends = ["apply.committed", "apply.rolled_back", "apply.refused"]
    finished = [log.transaction() for _ in ends]
    crashed = log.transaction(patches=["demo"])
    for tx, end in zip(finished, ends, strict=True):
        log.record(end, tx=tx)
    reverts = [log.transaction("revert.started", applied=finished[0]) for _ in range(3)]
    log.record("patch.installed", tx=crashed)
    log.record("verify.completed", tx=finished[0])
    log.record("revert.completed", tx=reverts[0])
    log.record("revert.failed", tx=reverts[2])
    log.record("log.reopened", tx=None)
    found: list[Entry] = open_transactions(path)
    assert [(entry.tx, entry.event) for entry in found] == [(crashed, "apply.started"), (reverts[1], "revert.started")]
    assert found[0].fields["patches"] == ["demo"]


def test_reading_while_another_writes(path: Path) -> None:
    """A reader that has come to the end sees what it saw; it is not disturbed by a new entry."""
    log = AuditLog(path, durability="never")
    log.record("patch.installed", tx="t")
    entries = read_entries(path)
    assert next(entries).seq == 0
    log.record("patch.verified", tx="t")
    assert [entry.seq for entry in entries] in ([], [1])
