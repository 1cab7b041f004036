"""Probe of ``fsdp1.drop-offloaded-grad-shards``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._memory import MemoryLedger
from .._units import storage_bytes, units_of
from ._kit import Model, Record, expect, expect_same, group, measured, patched, train, wrap

if TYPE_CHECKING:
    import torch

__all__ = ["probe"]


def probe() -> dict[str, Any]:
    """Saved shards stay within the largest unit, and gradients are stock's, also for units that reduce twice."""
    with group() as device:
        peaks = {}
        for twice in (False, True):
            stock, peaks["stock"] = _trained(device, (), twice=twice)
            ours, peaks["patched"] = _trained(device, ("fsdp1.drop-offloaded-grad-shards",), twice=twice)
            expect_same(stock, ours, "gradients and parameters" + (" of blocks that reduce twice" if twice else ""))
        largest = max(storage_bytes(unit.handle.flat_param) for unit in units_of(wrap(Model(), device)) if unit.handle)
        expect(
            peaks["patched"] <= largest < peaks["stock"],
            f"at most {largest} bytes of saved shards, found {peaks['patched']} (stock: {peaks['stock']})",
        )
        return measured(
            device, largest_unit=largest, **{f"saved_grad_shards_{name}": size for name, size in peaks.items()}
        )


def _trained(device: torch.device, patches: Sequence[str], *, twice: bool) -> tuple[Record, int]:
    model = wrap(Model(twice), device)
    with patched(patches, model), MemoryLedger(model) as ledger:
        return train(model, device), ledger.peak("saved_grad_shards")
