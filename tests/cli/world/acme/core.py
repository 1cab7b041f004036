"""What the patches touch."""

from __future__ import annotations


class Engine:
    """Turns."""

    def turn(self, speed: int, *, gently: bool = False) -> int:
        """Turn."""
        return half(speed) if gently else speed

    @property
    def name(self) -> str:
        """Its name."""
        return "engine"


def half(speed: int) -> int:
    """Take it easy."""
    return speed // 2
