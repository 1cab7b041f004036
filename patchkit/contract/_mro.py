"""The order in which Python looks a member up in a class and its bases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

__all__ = ["linearise"]

T = TypeVar("T")


def linearise(cls: T, orders: Sequence[Sequence[T]], bases: Sequence[T]) -> list[T]:
    """Return the method resolution order of ``cls`` (C3), given its bases and the order of each.

    Bases that contradict each other, with which Python would refuse the class, are taken depth first: a library that
    is being judged may be wrong, and that isn't for this function to say.
    """
    order = [cls]
    pending = [list(sequence) for sequence in (*orders, bases) if sequence]
    while pending:
        head = next((seq[0] for seq in pending if not any(seq[0] in other[1:] for other in pending)), pending[0][0])
        order.append(head)
        pending = [rest for rest in ([item for item in seq if item != head] for seq in pending) if rest]
    return order
