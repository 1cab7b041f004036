"""An audit log, sorted into its transactions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..audit import OPENINGS, Entry

__all__ = ["Block", "sort_into_blocks", "the_last"]

_KINDS = tuple(sorted(event.partition(".")[0] for event in OPENINGS))


@dataclass(slots=True)
class Block:
    """The entries of one transaction, or some that belong to none and follow each other.

    Attributes:
        tx: Id of the transaction, or None.
        entries: Its entries in their order; those of other transactions may have come between them.
    """

    tx: str | None
    entries: list[Entry] = field(default_factory=list)

    @property
    def opening(self) -> Entry | None:
        """The entry that the transaction began with, if it is on the log."""
        return next((entry for entry in self.entries if _step(entry) == "started"), None)

    @property
    def kind(self) -> str:
        """``apply``, ``revert`` or ``action``; ``transaction`` where its entries don't tell."""
        return next((kind for entry in self.entries for kind in _KINDS if _step(entry, kind)), "transaction")

    @property
    def outcome(self) -> str:
        """How the transaction ended, such as ``committed``; ``open`` if its end is not on the log."""
        ends = [step for entry in self.entries if (step := _step(entry)) not in (None, "started")]
        return ends[-1] if ends and ends[-1] else "open"


def sort_into_blocks(entries: Iterable[Entry]) -> list[Block]:
    """Sort entries into blocks, in the order of their beginnings."""
    blocks: list[Block] = []
    transactions: dict[str, Block] = {}
    for entry in entries:
        block = transactions.get(entry.tx) if entry.tx is not None else blocks[-1] if blocks else None
        if block is None or block.tx != entry.tx:
            block = Block(entry.tx)
            blocks.append(block)
            if entry.tx is not None:
                transactions[entry.tx] = block
        block.entries.append(entry)
    return blocks


def the_last(blocks: list[Block], count: int) -> list[Block]:
    """Return the last ``count`` transactions, and what is between and after them."""
    positions = [position for position, block in enumerate(blocks) if block.tx is not None]
    return blocks[positions[-count] :] if len(positions) >= count else blocks


def _step(entry: Entry, kind: str | None = None) -> str | None:
    """Return what an entry says of the transaction as a whole, such as ``committed``; None if it says nothing."""
    family, _, step = entry.event.partition(".")
    return step if family in (_KINDS if kind is None else (kind,)) else None
