"""Probe of ``fsdp1.drop-idle-grads``."""

from __future__ import annotations

from typing import Any

import torch

from .._memory import MemoryLedger
from ._kit import BLOCKS, Model, Record, batch, expect, expect_same, group, loss_of, measured, patched, train, wrap

__all__ = ["probe"]


def probe() -> dict[str, Any]:
    """Four bytes of host gradient a unit during a validation and none after it; training goes on as in stock."""
    with group() as device:
        gradients: dict[str, int] = {}
        records: dict[str, Record] = {}
        for name, patches in (("stock", ()), ("patched", ("fsdp1.drop-idle-grads",))):
            model = wrap(Model(), device)
            records[name] = train(model, device)
            model.zero_grad()
            with torch.no_grad(), patched(patches, model), MemoryLedger(model) as ledger:
                records[name].append(loss_of(model, batch(0, device)))
            gradients[f"cpu_grads_{name}"] = ledger.peak("cpu_grads")
            with MemoryLedger(model) as ledger:
                gradients[f"cpu_grads_after_{name}"] = ledger.before("cpu_grads")
            records[name] += train(model, device)
        expect_same(records["stock"], records["patched"], "losses, gradients and parameters")
        expect(
            gradients["cpu_grads_patched"] == 4 * (BLOCKS + 1) and gradients["cpu_grads_after_patched"] == 0,
            f"four bytes of host gradient for each of {BLOCKS + 1} units, found {gradients['cpu_grads_patched']}",
        )
        return measured(device, **gradients)
