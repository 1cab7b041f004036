"""Threads, forked children and processes on one file, and files that move under the writer."""

from __future__ import annotations

import fcntl
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from patchkit.audit import AuditLog, read_entries, torn_tail
from patchkit.audit import _lock as lock_module
from patchkit.audit._tail import read_tail
from patchkit.errors import AuditError
from tests.audit.processes import run, start


def summary(path: Path) -> list[tuple[int, str]]:
    return [(entry.seq, entry.event) for entry in read_entries(path)]


def test_processes_share_a_file(path: Path) -> None:
    """Four processes write 100 entries each: every line is whole, no number is missing or there twice."""
    code = """
import sys
from patchkit.audit import AuditLog
log = AuditLog(sys.argv[1])
sys.stdin.readline()
for number in range(100):
    log.record("patch.installed", tx=sys.argv[2], count=number, reason="x" * (number * 50))
"""
    writers = [start(code, path, f"writer-{i}") for i in range(4)]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        _, err = writer.communicate(timeout=120)
        assert writer.returncode == 0, err
    entries = list(read_entries(path))
    assert [entry.seq for entry in entries] == list(range(400))
    for i in range(4):
        assert [entry.fields["count"] for entry in entries if entry.tx == f"writer-{i}"] == list(range(100))
    assert sorted(entry.ts for entry in entries) == [entry.ts for entry in entries]


def test_threads_share_a_log(path: Path) -> None:
    """Eight threads write through one object, and through objects of their own."""
    shared = AuditLog(path, durability="never")

    def write(name: str) -> None:
        own = AuditLog(path, durability="never")
        for number in range(50):
            (own if number % 2 else shared).record("patch.installed", tx=name, count=number)

    threads = [threading.Thread(target=write, args=(f"thread-{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = list(read_entries(path))
    assert [entry.seq for entry in entries] == list(range(400))
    assert Counter(entry.tx for entry in entries) == {f"thread-{i}": 50 for i in range(8)}
    assert "log.reopened" not in {entry.event for entry in entries}


def test_forked_child_goes_on(path: Path) -> None:
    """A log that the parent has used works in its children, while the parent goes on."""
    code = """
import os, sys
from patchkit.audit import AuditLog
log = AuditLog(sys.argv[1])
log.record("patch.installed", tx="parent")
children = []
for i in range(3):
    child = os.fork()
    if child == 0:
        for _ in range(20):
            log.record("patch.verified", tx=f"child-{i}")
        os._exit(0)
    children.append(child)
for _ in range(20):
    log.record("patch.verified", tx="parent")
print([os.waitpid(child, 0)[1] for child in children])
"""
    assert run(code, path) == ("[0, 0, 0]\n", "")
    entries = list(read_entries(path))
    assert [entry.seq for entry in entries] == list(range(81))
    assert Counter(entry.tx for entry in entries) == {"parent": 21, "child-0": 20, "child-1": 20, "child-2": 20}


def test_child_forked_during_an_entry_does_not_keep_the_lock(path: Path) -> None:
    """A child that is forked while another thread holds the lock closes its copy; the parent keeps the lock."""
    code = """
import os, sys, threading, warnings
from pathlib import Path
from patchkit.audit import AuditLog
from patchkit.audit._lock import locked
warnings.simplefilter("ignore", DeprecationWarning)
path = Path(sys.argv[1])
inside, leave = threading.Event(), threading.Event()
descriptors = []

def hold():
    with locked(path) as fd:
        descriptors.append(fd)
        inside.set()
        leave.wait()

thread = threading.Thread(target=hold)
thread.start()
inside.wait()
ready, forked = os.pipe(), None
child = os.fork()
if child == 0:
    try:
        os.fstat(descriptors[0])
    except OSError:
        os._exit(42)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
import fcntl
probe = os.open(path, os.O_RDWR)
try:
    fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("free")
except BlockingIOError:
    print("held")
leave.set()
thread.join()
AuditLog(path).record("patch.installed", tx="t")
"""
    out, err = run(code, path)
    assert (out, err) == ("42\nheld\n", "")
    assert summary(path) == [(0, "patch.installed")]


def test_lock_is_released_although_a_copy_of_the_descriptor_lives_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of the descriptor, as in a child that was forked behind Python's back, doesn't keep the lock."""
    with lock_module.locked(path) as fd:
        copy = os.dup(fd)
    monkeypatch.setattr(lock_module, "LOCK_SECONDS", 0.0)
    AuditLog(path).record("patch.installed", tx="t")
    os.close(copy)
    assert summary(path) == [(0, "patch.installed")]


def test_killed_writers_lose_nothing_that_they_had_confirmed(path: Path) -> None:
    """Writers are killed in the middle of their work: what `record` returned for is there, and all reads back."""
    code = """
import sys
from patchkit.audit import AuditLog
log = AuditLog(sys.argv[1])
number = 0
while True:
    log.record("patch.installed", tx=sys.argv[2], count=number, reason="x" * 5000)
    print(number, flush=True)
    number += 1
"""
    confirmed: dict[str, int] = {}
    for i in range(5):
        with start(code, path, f"writer-{i}") as writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(7 * i + 1)]
            writer.kill()
            lines += writer.stdout.readlines()
        confirmed[f"writer-{i}"] = int([line for line in lines if line.endswith("\n")][-1])
    AuditLog(path).record("patch.verified", tx="last")
    assert torn_tail(path) is None
    entries = list(read_entries(path))
    assert [entry.seq for entry in entries] == list(range(len(entries)))
    for writer_name, last in confirmed.items():
        counts = [entry.fields["count"] for entry in entries if entry.tx == writer_name]
        assert counts == list(range(len(counts)))
        # One more may have been written and not confirmed.
        assert len(counts) - 1 in {last, last + 1}


def test_signal_handler_that_records_does_not_wait_for_itself(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recording inside a recording of the same thread is refused; it could only wait for ever."""
    log = AuditLog(path)
    refused: list[str] = []

    def interrupted(*arguments: Any) -> Any:
        try:
            AuditLog(path).record("patch.failed", tx="t")
        except AuditError as exc:
            refused.append(str(exc))
        return read_tail(*arguments)

    monkeypatch.setattr("patchkit.audit._file.read_tail", interrupted)
    log.record("patch.installed", tx="t")
    monkeypatch.undo()
    log.record("patch.verified", tx="t")
    assert ["signal handler" in text for text in refused] == [True]
    assert summary(path) == [(0, "patch.installed"), (1, "patch.verified")]


def test_lock_that_is_never_released_is_given_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process that holds the lock doesn't stop all others for ever."""
    log = AuditLog(path)
    log.record("patch.installed", tx="t")
    monkeypatch.setattr(lock_module, "LOCK_SECONDS", 0.0)
    holder = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(AuditError, match="held the lock"):
            log.record("patch.verified", tx="t")
    finally:
        os.close(holder)
    log.record("patch.verified", tx="t")
    assert summary(path) == [(0, "patch.installed"), (1, "patch.verified")]


def test_interrupt_during_an_entry_releases_the_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of an entry comes through, and the log can be used again."""
    log = AuditLog(path)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("patchkit.audit._file.read_tail", interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.record_quietly("patch.installed", tx="t")
    monkeypatch.undo()
    log.record("patch.verified", tx="t")
    assert summary(path) == [(0, "patch.verified")]


@pytest.mark.parametrize("how", ["moved", "removed", "replaced"])
def test_file_that_went_away_is_begun_anew_and_says_so(path: Path, how: str) -> None:
    """Where the file is another one than before, the writer goes on in the new one and records that first."""
    log = AuditLog(path)
    log.record("patch.installed", tx="t")
    old = path.with_name("old.jsonl")
    path.rename(old)
    if how == "removed":
        old.unlink()
    if how == "replaced":
        path.write_bytes(b"")
    log.record("patch.verified", tx="t")
    log.record("patch.reverted", tx="t")
    assert summary(path) == [(0, "log.reopened"), (1, "patch.verified"), (2, "patch.reverted")]
    assert "moved, removed, replaced or cut" in next(read_entries(path)).fields["reason"]
    if how == "moved":
        assert summary(old) == [(0, "patch.installed")]


def test_file_in_place_of_another_says_so(path: Path) -> None:
    """A longer log in the place of the one written before is another one all the same."""
    log = AuditLog(path)
    log.record("patch.installed", tx="t")
    other = AuditLog(path.with_name("other.jsonl"))
    for _ in range(3):
        other.record("patch.verified", tx="u")
    path.with_name("other.jsonl").replace(path)
    log.record("patch.reverted", tx="t")
    assert summary(path)[3:] == [(3, "log.reopened"), (4, "patch.reverted")]


def test_file_that_was_cut_says_so(path: Path) -> None:
    """A file that is shorter than the writer left it (logrotate's copytruncate) is not gone on with silently."""
    log = AuditLog(path)
    log.record("patch.installed", tx="t")
    first = path.stat().st_size
    log.record("patch.verified", tx="t")
    os.truncate(path, first)
    log.record("patch.reverted", tx="t")
    assert summary(path) == [(0, "patch.installed"), (1, "log.reopened"), (2, "patch.reverted")]
    os.truncate(path, 0)
    log.record("patch.failed", tx="t")
    assert summary(path) == [(0, "log.reopened"), (1, "patch.failed")]


def test_file_that_is_moved_while_a_writer_waits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that got the lock of a file which is no longer at the path opens the right one."""
    log = AuditLog(path)
    AuditLog(path).record("patch.installed", tx="t")
    wait = lock_module._wait
    old = path.with_name("old.jsonl")

    def slow(*arguments: Any) -> None:
        if not old.exists():
            path.rename(old)
        wait(*arguments)

    monkeypatch.setattr(lock_module, "_wait", slow)
    log.record("patch.verified", tx="t")
    assert summary(old) == [(0, "patch.installed")]
    assert summary(path) == [(0, "patch.verified")]


def test_nothing_stays_open(path: Path) -> None:
    """Between entries the log holds no descriptor that a child could inherit or that could run out."""
    log = AuditLog(path)
    before = os.listdir("/proc/self/fd")
    for _ in range(5):
        log.record("patch.installed", tx="t")
    next(read_entries(path))
    list(read_entries(path))
    torn_tail(path)
    assert os.listdir("/proc/self/fd") == before
