"""The patches' own checks of their effects."""

from __future__ import annotations

import os

from patchkit.errors import RefusedError


def proven() -> dict[str, int]:
    """Hold."""
    return {"saved_bytes": 1024}


def failing() -> dict[str, int]:
    """Fail, on the second rank only."""
    if os.environ["RANK"] == "1":
        raise AssertionError("expected 2 turns, found 3")
    return {}


def refusing() -> dict[str, int]:
    """Say that it can't be tried here."""
    raise RefusedError("expected an engine, found none. Plug one in.")
