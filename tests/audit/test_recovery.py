"""Torn writes: the file is cut at every byte, and must read back, be sealed off, and go on."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.audit import AuditLog, TornTail, open_transactions, read_entries, tail, torn_tail
from patchkit.errors import AuditError


def log_at(path: Path) -> AuditLog:
    """A log of a process of its own, without fsync: a test doesn't cut the power."""
    return AuditLog(path, durability="never")


def summary(path: Path) -> list[tuple[int, str]]:
    return [(entry.seq, entry.event) for entry in read_entries(path)]


@pytest.fixture
def whole(path: Path) -> bytes:
    """A log of one transaction, with text that is awkward to cut."""
    log = log_at(path)
    tx = log.transaction(manifest={"path": 'ü\n{"}#torn', "sha256": "00"}, patches=["demo"])
    log.record("patch.installed", tx=tx, patch="demo", site="m:f")
    log.record("apply.committed", tx=tx, outcome="ok", reason='quotes " \\ and #torn')
    return path.read_bytes()


EVENTS = ["apply.started", "patch.installed", "apply.committed"]


def test_log_cut_at_every_byte_reads_back(path: Path, whole: bytes) -> None:
    """Whole lines are read, the torn rest is reported with its place, and the open transaction shows."""
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        lines = whole[:cut].count(b"\n")
        end = whole.rfind(b"\n", 0, cut) + 1
        assert summary(path) == list(enumerate(EVENTS[:lines]))
        assert torn_tail(path) == (TornTail(offset=end, length=cut - end) if cut > end else None)
        assert [entry.event for entry in tail(path, 2)] == EVENTS[:lines][-2:]
        assert [entry.event for entry in open_transactions(path)] == (["apply.started"] if 0 < lines < 3 else [])


def test_log_cut_at_every_byte_is_sealed_off_and_goes_on(path: Path, whole: bytes) -> None:
    """The next writer leaves every byte in place, describes the torn ones, and goes on with the numbers."""
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        log_at(path).record("patch.reverted", tx="t")
        lines = whole[:cut].count(b"\n")
        end = whole.rfind(b"\n", 0, cut) + 1
        note = ["log.recovered"] if cut > end else []
        assert path.read_bytes().startswith(whole[:cut])
        assert summary(path) == list(enumerate([*EVENTS[:lines], *note, "patch.reverted"]))
        assert [entry.event for entry in tail(path, 3)] == [*EVENTS[:lines], *note, "patch.reverted"][-3:]
        assert torn_tail(path) is None
        if note:
            fields = tail(path, 2)[0].fields
            torn = whole[end:cut]
            expected = (end, len(torn), hashlib.sha256(torn).hexdigest())
            assert (fields["offset"], fields["length"], fields["sha256"]) == expected


def test_repair_cut_at_every_byte_is_repaired(path: Path, whole: bytes) -> None:
    """A crash in the middle of sealing off is sealed off in turn, again and again."""
    committed = whole.rfind(b"\n", 0, -1) + 1
    # The last of these lacks only its line feed: it was never confirmed, and must not count later.
    for torn in (committed + 1, committed + 60, len(whole) - 1):
        path.write_bytes(whole[:torn])
        log_at(path).record("patch.reverted", tx="t")
        repaired = path.read_bytes()
        for cut in range(torn, len(repaired)):
            path.write_bytes(repaired[:cut])
            found = summary(path)
            assert found[:2] == list(enumerate(EVENTS[:2]))
            assert (2, "apply.committed") not in found
            assert (torn_tail(path) is None) == (found[-1][1] == "log.recovered" and repaired[:cut].endswith(b"\n"))
            log_at(path).record("patch.failed", tx="t")
            log_at(path).record("revert.failed", tx="t")
            again = summary(path)
            assert again[: len(found)] == found
            assert [seq for seq, _ in again] == list(range(len(again)))
            assert [event for _, event in again[-2:]] == ["patch.failed", "revert.failed"]
            assert [entry.fields["event"] for entry in tail(path, 3)] == [event for _, event in again[-3:]]


@given(
    steps=st.lists(
        st.one_of(st.integers(0, 300).map(lambda size: "w" * size + "w"), st.integers(1, 900)), min_size=1, max_size=12
    )
)
def test_any_sequence_of_writes_and_crashes(tmp_path_factory: pytest.TempPathFactory, steps: list[str | int]) -> None:
    """Confirmed entries are all there, once and in order, whatever is torn from unconfirmed writes in between."""
    path = tmp_path_factory.mktemp("steps") / "audit.jsonl"
    confirmed: list[str] = []
    for step in steps:
        if isinstance(step, str):
            log_at(path).record("patch.installed", tx="t", reason=step)
            confirmed.append(step)
        else:
            # A crash: another entry was begun and got as far as `step` bytes, short of its last one.
            before = path.read_bytes() if path.exists() else b""
            log_at(path).record("patch.verified", tx="t", reason="never confirmed" * 40)
            after = path.read_bytes()
            path.write_bytes(after[: min(len(before) + step, len(after) - 1)])
    entries = list(read_entries(path)) if path.exists() else []
    assert [entry.fields["reason"] for entry in entries if entry.event == "patch.installed"] == confirmed
    assert [entry.seq for entry in entries] == list(range(len(entries)))
    assert {entry.event for entry in entries} <= {"patch.installed", "log.recovered"}
    assert [entry.fields for entry in tail(path, 100)] == [entry.fields for entry in entries]


def test_torn_bytes_of_a_power_cut(path: Path, whole: bytes) -> None:
    """NULs in place of what was never written to the disk are torn bytes like any others."""
    for start in (b"", whole):
        path.write_bytes(start + b"\0" * 5000)
        assert len(summary(path)) == start.count(b"\n")
        log_at(path).record("patch.reverted", tx="t")
        assert [event for _, event in summary(path)][-2:] == ["log.recovered", "patch.reverted"]


def test_sealed_line_without_its_description_is_refused(path: Path, whole: bytes) -> None:
    """A line that nobody can read counts as torn only if the entry after it describes exactly it."""
    path.write_bytes(whole[:-5])
    log_at(path).record("patch.reverted", tx="t")
    log_at(path).record("patch.failed", tx="t")
    good = path.read_bytes()
    assert len(summary(path)) == 5
    torn = good.index(b"#torn\n{")
    recovered = good.index(b"\n{", torn) + 1
    after = good.index(b"\n", recovered) + 1
    place = r"line 3, byte \d+: .*expected a recovery entry after it"
    for damaged in (
        good[:recovered] + good[after:],
        good[: torn - 1] + b"X" + good[torn:],
        good[: torn - 1] + good[torn:],
        good[:torn] + b"X" + good[torn:],
        good[:recovered].replace(b"sha256", b"sha512") + good[recovered:].replace(b'"length":', b'"length":1'),
    ):
        path.write_bytes(damaged)
        with pytest.raises(AuditError, match=place):
            summary(path)


def test_damaged_last_line_is_not_sealed_off(path: Path, whole: bytes) -> None:
    """A whole line that can't be read comes from no crash: the writer refuses to go on after it."""
    damaged = whole[:-2] + b"\n"
    path.write_bytes(damaged)
    with pytest.raises(
        AuditError, match=r"byte \d+: .*a damaged one, so nothing is appended to it: move the file away"
    ):
        log_at(path).record("patch.reverted", tx="t")
    assert path.read_bytes() == damaged
