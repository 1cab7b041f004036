"""Where a transaction comes from: the facts that its opening event carries.

No command line, and of the environment only the switches named here: anything else may hold a secret.
"""

from __future__ import annotations

import functools
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

__all__ = ["SWITCHES", "origin"]

SWITCHES = ("PATCHKIT_AUDIT", "PATCHKIT_DISABLE")
"""Environment variables that can take part in a transaction."""


def origin() -> dict[str, Any]:
    """Return the versions, host, process and user of this process, and its switches."""
    return {
        "patchkit": _patchkit_version(),
        "python": platform.python_version(),
        "host": platform.node(),
        "pid": os.getpid(),
        "rank": _number("RANK"),
        "world_size": _number("WORLD_SIZE"),
        "user": _user(),
        "switches": {name: os.environ[name] for name in SWITCHES if name in os.environ} or None,
    }


@functools.lru_cache(maxsize=1)
def _patchkit_version() -> str | None:
    try:
        return version("patchkit")
    except PackageNotFoundError:
        return None


def _number(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    # More digits than any rank has are no rank.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _user() -> str | None:
    # The user database, not LOGNAME or USER: those are what somebody said.
    try:
        import pwd
    except ImportError:
        return os.environ.get("USERNAME")
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
