"""What the package offers, and what it costs to import."""

from __future__ import annotations

from pathlib import Path

from patchkit import audit
from tests.audit.processes import run


def test_public_names() -> None:
    """The facade offers exactly these names, sorted, and each leads to an object."""
    expected = [
        "AUDIT_SCHEMA_VERSION",
        "OPENINGS",
        "AuditLog",
        "Entry",
        "TornTail",
        "describe",
        "open_transactions",
        "printable",
        "read_entries",
        "tail",
        "torn_tail",
    ]
    assert audit.__all__ == expected
    assert [name for name in expected if not hasattr(audit, name)] == []


def test_reading_and_a_log_that_is_off_import_no_structlog(path: Path) -> None:
    """structlog is slow to import, and only writing the file needs it."""
    code = """
import sys
from patchkit.audit import AuditLog, open_transactions, read_entries, tail, torn_tail
AuditLog(None, policy="off").transaction()
list(read_entries(sys.argv[1])), tail(sys.argv[1], 1), torn_tail(sys.argv[1]), open_transactions(sys.argv[1])
print("structlog" in sys.modules)
"""
    audit.AuditLog(path).transaction()
    assert run(code, path) == ("False\n", "")
