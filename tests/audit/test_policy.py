"""What happens where the log can't be written."""

from __future__ import annotations

import errno
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any, NoReturn

import pytest
from structlog.testing import capture_logs

from patchkit.audit import AuditLog, read_entries, torn_tail
from patchkit.audit._line import ENTRY_LIMIT
from patchkit.errors import AuditError, PatchkitWarning
from tests.audit.processes import run


@pytest.fixture
def unwritable(tmp_path: Path) -> Path:
    """A path below a regular file: root can't write there either."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "folder" / "audit.jsonl"


def events(path: Path) -> list[str]:
    return [entry.event for entry in read_entries(path)]


def test_required_raises(unwritable: Path) -> None:
    """With "required" the intent can't be recorded, so the caller learns it before anything is touched."""
    with pytest.raises(AuditError, match=rf"can't write the audit log {unwritable}: .*best-effort"):
        AuditLog(unwritable).transaction()


def test_required_leaves_no_ordinary_record_of_what_was_not_recorded(unwritable: Path) -> None:
    """An intent that is not on the log is not announced either: it will not be carried out."""
    with capture_logs() as captured, pytest.raises(AuditError):
        AuditLog(unwritable).transaction()
    assert captured == []


def test_best_effort_warns_once_and_goes_on(unwritable: Path) -> None:
    """With "best-effort" there is one warning, where the caller is, and the ordinary records remain."""
    log = AuditLog(unwritable, policy="best-effort")
    with capture_logs() as captured:
        with pytest.warns(PatchkitWarning, match="going on without an audit log") as caught:
            log.record("patch.installed", tx="t")
        log.record("patch.verified", tx="t")
    assert [warning.filename for warning in caught] == [__file__]
    assert captured == [
        {"event": "patch.installed", "tx": "t", "log_level": "info"},
        {"event": "patch.verified", "tx": "t", "log_level": "info"},
    ]


def test_best_effort_writes_where_it_can(path: Path) -> None:
    """The policy changes what happens on failure only."""
    AuditLog(path, policy="best-effort").record("patch.installed", tx="t")
    assert events(path) == ["patch.installed"]


def test_off_touches_no_file(path: Path) -> None:
    """With "off" nothing is written, and transactions still get their ids."""
    log = AuditLog(path, policy="off")
    assert log.transaction() != log.transaction()
    log.record_quietly("patch.installed", tx="t")
    assert not path.exists()


def test_creating_a_log_touches_nothing(unwritable: Path, path: Path) -> None:
    """Only the first entry opens the file."""
    AuditLog(unwritable)
    AuditLog(path)
    assert not path.exists()


def test_a_file_needs_a_path() -> None:
    """Without a path only "off" makes sense; to write nothing silently would not."""
    with pytest.raises(AuditError, match="expects a path"):
        AuditLog(None)
    assert AuditLog(None, policy="off").path is None


@pytest.mark.parametrize("wrong", [{"policy": "of"}, {"durability": "fsync"}])
def test_wrong_settings_are_refused(path: Path, wrong: dict[str, Any]) -> None:
    """A policy that doesn't exist is not taken for another one."""
    with pytest.raises(ValueError, match="expected one of"):
        AuditLog(path, **wrong)


def test_path_is_made_absolute_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that changes its folder goes on in the same file."""
    monkeypatch.chdir(tmp_path)
    log = AuditLog("audit.jsonl")
    log.record("patch.installed", tx="t")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    log.record("patch.verified", tx="t")
    assert events(tmp_path / "audit.jsonl") == ["patch.installed", "patch.verified"]


@pytest.mark.parametrize("policy", ["required", "best-effort"])
def test_quietly_never_raises_and_says_what_is_missing(
    unwritable: Path, capsys: pytest.CaptureFixture[str], policy: Any
) -> None:
    """A roll-back goes on without the log: the event goes to stderr, whole, and to the ordinary records."""
    log = AuditLog(unwritable, policy=policy)
    with capture_logs() as captured:
        log.record_quietly("rollback.step", tx="t", steps=["restore m:f"], error=ValueError("\x1b"))
    (line,) = capsys.readouterr().err.splitlines()
    error = '{"type":"builtins.ValueError","message":"\\u001b"}'
    event = f'{{"event":"rollback.step","tx":"t","steps":["restore m:f"],"error":{error}}}'
    assert line.startswith(f"patchkit: this is not on the audit log: {event}: can't write the audit log")
    assert [event["event"] for event in captured] == ["rollback.step"]


def test_quietly_takes_mistakes_too(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not even a wrong field stops a roll-back."""
    log = AuditLog(path)
    log.record_quietly("rollback.step", tx="t", nonsense=1)
    log.record_quietly("rollback.step", tx="t", step=object())
    log.record_quietly("rollback.stop", tx="t")
    errors = capsys.readouterr().err.splitlines()
    assert [line.split(":")[2] for line in errors] == [
        " rollback.step of transaction t",
        " rollback.step of transaction t",
        " rollback.stop of transaction t",
    ]


def test_quietly_writes_where_it_can(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing is wrong it records like `record`."""
    AuditLog(path).record_quietly("rollback.step", tx="t", outcome="ok")
    assert events(path) == ["rollback.step"]
    assert capsys.readouterr().err == ""


def test_quietly_without_stderr(unwritable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without stderr is no reason to raise either."""
    monkeypatch.setattr(sys, "stderr", None)
    AuditLog(unwritable).record_quietly("rollback.step", tx="t")


def test_disk_full(path: Path) -> None:
    """A write that is cut short raises, breaks the writer for good, and is sealed off by the next one."""
    code = """
import resource, sys
from patchkit.audit import AuditLog
from patchkit.errors import AuditError
path = sys.argv[1]
log = AuditLog(path)
log.record("patch.installed", tx="t")
import os
size = os.path.getsize(path)
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, resource.RLIM_INFINITY))
for _ in range(2):
    try:
        log.record("patch.verified", tx="t")
    except AuditError as exc:
        print(exc)
print(os.path.getsize(path) - size)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
try:
    log.record("patch.verified", tx="t")
except AuditError as exc:
    print(exc)
AuditLog(path).record("patch.failed", tx="t")
"""
    out, _ = run(code, path)
    first, second, written, third = out.splitlines()
    assert "40 of " in first
    assert "the entry may be missing or cut off" in first
    assert "can't be relied on any more" in second
    assert (written, third) == ("40", second)
    assert events(path) == ["patch.installed", "log.recovered", "patch.failed"]


def test_no_space_at_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails whole raises with the system's reason."""
    log = AuditLog(path)
    log.record("patch.installed", tx="t")

    def full(_fd: int, _data: bytes) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(AuditError, match="No space left on device"):
        log.record("patch.verified", tx="t")
    monkeypatch.undo()
    assert events(path) == ["patch.installed"]
    assert torn_tail(path) is None


def test_failed_fsync_is_not_retried_as_success(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed fsync the system may have dropped the data: no later call of this writer may succeed."""
    log = AuditLog(path, durability="always")
    log.record("patch.installed", tx="t")

    def broken(_fd: int) -> NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(AuditError, match="Input/output error"):
        log.record("patch.verified", tx="t")
    monkeypatch.undo()
    with pytest.raises(AuditError, match="can't be relied on any more"):
        log.record("patch.verified", tx="t")


def test_failure_before_writing_does_not_break_the_writer(tmp_path: Path) -> None:
    """Nothing was written, so nothing can be cut off: when the folder is mended, recording goes on."""
    (tmp_path / "logs").write_text("in the way")
    log = AuditLog(tmp_path / "logs" / "audit.jsonl")
    with pytest.raises(AuditError):
        log.record("patch.installed", tx="t")
    (tmp_path / "logs").unlink()
    log.record("patch.verified", tx="t")
    assert events(tmp_path / "logs" / "audit.jsonl") == ["patch.verified"]


def test_durability_decides_about_fsync(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ "always" syncs each entry, "transaction" its ends, "never" none; with the first two a new file's folder too."""
    synced: list[bool] = []
    fsync = os.fsync

    def counting(fd: int) -> None:
        synced.append(os.path.samestat(os.fstat(fd), os.stat(path)))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", counting)
    AuditLog(path, durability="never").record("patch.installed", tx="t")
    assert synced == []
    path.unlink()
    log = AuditLog(path, durability="always")
    log.record("patch.installed", tx="t")
    assert synced == [True, False]
    log.record("patch.verified", tx="t")
    assert synced == [True, False, True]
    path.unlink()
    synced.clear()
    log = AuditLog(path)
    tx = log.transaction()
    assert synced == [True, False]
    log.record("patch.installed", tx=tx)
    assert synced == [True, False]
    log.record("apply.committed", tx=tx)
    assert synced == [True, False, True]


def test_file_is_private_and_its_folders_are_made(tmp_path: Path) -> None:
    """The file is for its owner only, whatever the umask; missing folders are made."""
    path = tmp_path / "a" / "b" / "audit.jsonl"
    before = os.umask(0)
    try:
        AuditLog(path).record("patch.installed", tx="t")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600


def test_entry_that_no_reader_would_take_is_refused(path: Path) -> None:
    """An entry over the limit raises, nothing is written, and the writer goes on."""
    log = AuditLog(path)
    with pytest.raises(AuditError, match=f"at most {ENTRY_LIMIT} bytes"):
        log.record("patch.installed", tx="t", sites=["x" * ENTRY_LIMIT])
    assert path.read_bytes() == b""
    log.record("patch.installed", tx="t", sites=["x" * (ENTRY_LIMIT - 200)])
    assert events(path) == ["patch.installed"]


@pytest.mark.parametrize(
    "content", [b"#!/bin/sh", b"text\n", b"\x89PNG\r\n", b'{"a":1}\n', b'{"v":1}\n', b"x" * 3_000_000]
)
def test_foreign_file_is_left_alone(path: Path, content: bytes) -> None:
    """A path that leads to somebody's file is refused, and the file stays as it is."""
    path.write_bytes(content)
    with pytest.raises(AuditError, match="audit log"):
        AuditLog(path).record("patch.installed", tx="t")
    assert path.read_bytes() == content


def test_log_of_a_later_version_is_left_alone(path: Path) -> None:
    """An older patchkit doesn't write among entries that it can't read."""
    AuditLog(path).record("patch.installed", tx="t")
    content = path.read_bytes().replace(b'{"v":1,', b'{"v":2,')
    path.write_bytes(content)
    with pytest.raises(AuditError, match="expected schema version 1 in member 'v', found version 2"):
        AuditLog(path).record("patch.verified", tx="t")
    assert path.read_bytes() == content


@pytest.mark.parametrize("kind", ["folder", "fifo", "device"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    """Folders, FIFOs and devices are refused at once; nothing hangs."""
    path = tmp_path / kind
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path = Path("/dev/full")
    with pytest.raises(AuditError, match=str(path)):
        AuditLog(path).record("patch.installed", tx="t")
    with pytest.raises(AuditError, match=str(path)):
        next(read_entries(path))


def test_warning_as_error_is_the_caller_s_choice(unwritable: Path) -> None:
    """With warnings turned into errors, "best-effort" raises its warning, once; a quiet record never does."""
    log = AuditLog(unwritable, policy="best-effort")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log.record_quietly("rollback.step", tx="t")
        log.record("rollback.step", tx="t")
        with pytest.raises(PatchkitWarning):
            AuditLog(unwritable, policy="best-effort").record("rollback.step", tx="t")


def test_shown_form_says_what_the_log_is(path: Path) -> None:
    """The repr names the file and what is promised of it."""
    assert repr(
        AuditLog(path)
    ) == f"AuditLog({json.dumps(str(path))}, policy='required', durability='transaction')".replace('"', "'")
