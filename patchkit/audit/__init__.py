"""The audit log: a durable, append-only record of what was patched, and what became of it.

One writer (`AuditLog`) and one reader (`read_entries` and what is built on it). The form of the file, the
events and what is promised are described in ``docs/audit-log.md``. This package is told what happened and
knows nobody; it never undoes anything.
"""

from __future__ import annotations

from ._describe import describe
from ._event import OPENINGS
from ._line import AUDIT_SCHEMA_VERSION
from ._logger import AuditLog
from ._reader import Entry, TornTail, open_transactions, read_entries, tail, torn_tail
from ._text import printable

__all__ = [
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
