"""Probe of ``fsdp1.no-stale-grads``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ._kit import Model, Record, batch, expect, expect_same, group, loss_of, measured, patched, train, wrap

if TYPE_CHECKING:
    from torch.distributed.fsdp import FullyShardedDataParallel

__all__ = ["probe"]


def probe() -> dict[str, Any]:
    """No gradient comes back in a forward after zero_grad, where stock brings all back; training is stock's."""
    with group() as device:
        came_back: dict[str, int] = {}
        records: dict[str, Record] = {}
        for name, patches in (("stock", ()), ("patched", ("fsdp1.no-stale-grads",))):
            model = wrap(Model(), device)
            with patched(patches, model):
                records[name] = train(model, device)
                came_back[f"came_back_{name}"] = _came_back(model, device)
        expect_same(records["stock"], records["patched"], "gradients and parameters")
        expect(
            came_back["came_back_patched"] == 0 < came_back["came_back_stock"],
            f"no gradient after zero_grad and a forward, found {came_back['came_back_patched']}",
        )
        return measured(device, **came_back)


def _came_back(model: FullyShardedDataParallel, device: torch.device) -> int:
    """Count the parameters that have a gradient after zero_grad and a forward under no_grad."""
    loss_of(model, batch(0, device)).backward()
    model.zero_grad()
    with torch.no_grad():
        loss_of(model, batch(1, device))
    return sum(param.grad is not None for param in model.parameters())
