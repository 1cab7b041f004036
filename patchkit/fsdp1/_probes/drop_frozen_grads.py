"""Probe of ``fsdp1.drop-frozen-grads``."""

from __future__ import annotations

from typing import Any

from .._memory import MemoryLedger
from ._kit import BLOCKS, STEPS, Model, Record, batch, expect, expect_same, group, loss_of, measured, patched, wrap

__all__ = ["probe"]


def probe() -> dict[str, Any]:
    """A frozen model has four bytes of host gradient a unit, pins no gradient, and computes what stock does."""
    with group() as device:
        gradients: dict[str, int] = {}
        records: dict[str, Record] = {}
        for name, patches in (("stock", ()), ("patched", ("fsdp1.drop-frozen-grads",))):
            model = wrap(Model().requires_grad_(False), device)
            records[name] = []
            with patched(patches, model), MemoryLedger(model) as ledger:
                for step in range(STEPS):
                    inputs = batch(step, device)
                    loss = loss_of(model, inputs)
                    loss.backward()
                    records[name] += [loss.detach(), inputs.grad]
            gradients[f"cpu_grads_{name}"] = ledger.peak("cpu_grads")
            gradients[f"pinned_{name}"] = ledger.peak("pinned")
        expect_same(records["stock"], records["patched"], "losses and input gradients")
        expect(
            gradients["cpu_grads_patched"] == 4 * (BLOCKS + 1)
            and gradients["pinned_patched"] < gradients["pinned_stock"],
            f"four bytes of host gradient for each of {BLOCKS + 1} units, found {gradients['cpu_grads_patched']}",
        )
        return measured(device, **gradients)
