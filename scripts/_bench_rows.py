"""What a comparison comes to, and how two sides are measured in turn."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        what: What was measured, and against what.
        ours: Median of our side, in ``unit``.
        theirs: Median of the other side, in ``unit``.
        at_most: The ratio that we want to stay under.
        unit: ``s`` or ``bytes``.
    """

    what: str
    ours: float
    theirs: float
    at_most: float | None
    unit: str = "s"

    @property
    def ratio(self) -> float:
        """Ours over theirs."""
        return self.ours / self.theirs if self.theirs else float(self.ours > 0)

    def __str__(self) -> str:
        goal = (
            ""
            if self.at_most is None
            else f"  goal ≤ {self.at_most:.2f}  {'met' if self.ratio <= self.at_most else 'MISSED'}"
        )
        shown = _bytes if self.unit == "bytes" else _time
        return f"{self.what:<66} {shown(self.ours):>11} {shown(self.theirs):>11}  ratio {self.ratio:6.3f}{goal}"


def in_turn(ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> tuple[float, float]:
    """Run both in turn and return the medians of what they return."""
    ours(), theirs()
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def in_pairs(ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> tuple[float, float]:
    """Run both in turn, now one first and now the other, and return what has the median of the pairs' ratios.

    For what takes so long that the machine changes its pace between one round and the next: the two of a pair share it.
    """
    ours(), theirs()
    pairs = []
    for index in range(rounds):
        first, second = (ours, theirs) if index % 2 else (theirs, ours)
        one, other = first(), second()
        pairs.append((one, other) if index % 2 else (other, one))
    base = statistics.median(b for _, b in pairs)
    return statistics.median(a / b for a, b in pairs) * base, base


def _bytes(count: float) -> str:
    return f"{int(count):,}"


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
