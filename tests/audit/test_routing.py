"""Events as ordinary log records: they follow the application, and the file doesn't."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, NoReturn

import pytest
import structlog
from structlog.testing import capture_logs

from patchkit.audit import AuditLog, read_entries
from tests.audit.processes import run


def events(path: Path) -> list[str]:
    return [entry.event for entry in read_entries(path)]


def configure(*processors: Any, **options: Any) -> list[dict[str, Any]]:
    """Configure structlog as an application would; what it logs ends in the list."""
    seen: list[dict[str, Any]] = []

    def keep(_logger: object, method: str, event_dict: Any) -> NoReturn:
        seen.append({**event_dict, "level": method})
        raise structlog.DropEvent

    structlog.configure(processors=[*processors, keep], **options)
    return seen


def test_application_with_structlog_gets_the_events(path: Path) -> None:
    """A configured structlog gets each event with its fields, its level, and its number in the file."""
    seen = configure()
    log = AuditLog(path)
    log.record("patch.installed", tx="t", patch="demo")
    log.record("patch.skipped", tx="t", patch="demo")
    log.record("patch.failed", tx="t", patch="demo", error=ValueError("x"))
    assert seen == [
        {"event": "patch.installed", "tx": "t", "patch": "demo", "seq": 0, "level": "info"},
        {"event": "patch.skipped", "tx": "t", "patch": "demo", "seq": 1, "level": "warning"},
        {
            "event": "patch.failed",
            "tx": "t",
            "patch": "demo",
            "error": {"type": "builtins.ValueError", "message": "x"},
            "seq": 2,
            "level": "error",
        },
    ]


def test_capture_logs_sees_the_events(path: Path) -> None:
    """structlog's own test helper works, also where nothing is configured and where the log is off."""
    log, off = AuditLog(path), AuditLog(None, policy="off")
    with capture_logs() as captured:
        log.record("patch.installed", tx="t")
        off.record("patch.reverted", tx="t")
    assert captured == [
        {"event": "patch.installed", "tx": "t", "seq": 0, "log_level": "info"},
        {"event": "patch.reverted", "tx": "t", "log_level": "info"},
    ]


def test_level_filter_of_the_application_does_not_reach_the_file(path: Path) -> None:
    """An application that wants errors only still has every entry in the file."""
    seen = configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    log = AuditLog(path)
    for event in ("patch.installed", "patch.skipped", "patch.failed"):
        log.record(event, tx="t")
    assert [event["event"] for event in seen] == ["patch.failed"]
    assert events(path) == ["patch.installed", "patch.skipped", "patch.failed"]


def test_application_cannot_change_or_drop_entries(path: Path) -> None:
    """Its processors, context variables and frozen loggers stay with the ordinary records."""

    def drop(*_: object) -> NoReturn:
        raise structlog.DropEvent

    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, drop],
        context_class=lambda *_: {"reason": "hunter2"},  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )
    with structlog.contextvars.bound_contextvars(source="hunter2"):
        AuditLog(path).record("patch.installed", tx="t")
    assert events(path) == ["patch.installed"]
    assert b"hunter2" not in path.read_bytes()


def test_library_configures_nothing(path: Path) -> None:
    """structlog is as unconfigured after recording as before: configuring belongs to the application."""
    before = structlog.get_config()
    AuditLog(path).transaction()
    assert structlog.is_configured() is False
    assert structlog.get_config() == before


def test_without_structlog_the_standard_library_gets_the_events(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An application that only knows logging finds the events under "patchkit", readable and as data."""
    caplog.set_level(logging.INFO, logger="patchkit")
    AuditLog(path).record("patch.skipped", tx="t", patch="de\nmo 100%s", reason=None)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("patchkit", logging.WARNING)
    assert record.getMessage() == 'patch.skipped tx="t" patch="de\\nmo 100%s" seq=0'
    assert vars(record)["patchkit"] == {"event": "patch.skipped", "tx": "t", "patch": "de\nmo 100%s", "seq": 0}


def test_structlog_on_top_of_logging_gets_the_logger_by_name(caplog: pytest.LogCaptureFixture) -> None:
    """With structlog's logger factory for the standard library, records come from the logger "patchkit"."""
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.render_to_log_kwargs],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    caplog.set_level(logging.INFO)
    AuditLog(None, policy="off").record("patch.installed", tx="t", patch="demo")
    (record,) = caplog.records
    assert (record.name, record.getMessage(), vars(record)["patch"]) == ("patchkit", "patch.installed", "demo")


@pytest.mark.parametrize("policy", ["required", "off"])
def test_nothing_is_printed_by_default(path: Path, policy: str) -> None:
    """Where nobody has configured logging, not even an error reaches the terminal."""
    code = """
import sys
import structlog
from patchkit.audit import AuditLog
AuditLog(sys.argv[1], policy=sys.argv[2]).record("patch.failed", tx="t", error=ValueError("x"))
"""
    assert run(code, path, policy) == ("", "")


def test_faults_of_the_application_s_logging_do_not_undo_what_is_recorded(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A processor that raises costs its own record only; stderr says so, once."""

    def explode(*_: object) -> NoReturn:
        raise RuntimeError("out of \x1b[31mink")

    structlog.configure(processors=[explode])
    log = AuditLog(path)
    log.record("patch.installed", tx="t")
    log.record("patch.verified", tx="t")
    assert events(path) == ["patch.installed", "patch.verified"]
    assert capsys.readouterr().err == (
        "patchkit: the application's logging failed on patch.installed: RuntimeError: out of \\x1b[31mink\n"
    )


def test_notes_of_the_writer_are_events_too(path: Path) -> None:
    """What the writer records about the file itself goes where the other events go."""
    log = AuditLog(path)
    log.record("patch.installed", tx="t")
    with path.open("ab") as file:
        file.write(b'{"v":1')
    seen = configure()
    log.record("patch.verified", tx="t")
    assert [(event["event"], event["seq"], event["level"]) for event in seen] == [
        ("log.recovered", 1, "warning"),
        ("patch.verified", 2, "info"),
    ]
