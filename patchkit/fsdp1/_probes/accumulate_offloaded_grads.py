"""Probe of ``fsdp1.accumulate-offloaded-grads``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from ._kit import Model, batch, expect, group, loss_of, measured, patched, train, wrap

__all__ = ["probe"]

_PASSES = 3


def probe() -> dict[str, Any]:
    """Three backward passes before a step add up, beside drop-offloaded-grad-shards too, where stock keeps the last."""
    both = ("fsdp1.accumulate-offloaded-grads", "fsdp1.drop-offloaded-grad-shards")
    with group() as device:
        apart = {
            "apart_stock": _apart_from_sum(device, ()),
            "apart_patched": _apart_from_sum(device, both[:1]),
            "apart_patched_and_dropped": _apart_from_sum(device, both),
        }
        expect(
            apart["apart_patched"] == apart["apart_patched_and_dropped"] == 0.0 < apart["apart_stock"],
            f"gradients that add up over {_PASSES} passes, found them {apart} apart from the sum",
        )
        ones = {}
        for name, patches in (("stock", ()), ("patched", both)):
            model = wrap(Model(), device)
            with patched(patches, model):
                ones[name] = train(model, device)
        same = all(a is b or torch.equal(a, b) for a, b in zip(ones["stock"], ones["patched"], strict=True))  # type: ignore[arg-type]
        expect(same, "single passes to train as in stock, bit for bit")
        return measured(device, passes=_PASSES, **apart)


def _apart_from_sum(device: torch.device, patches: Sequence[str]) -> float:
    """Return how far accumulated gradients are from the sum of those of single passes, as another model has them."""
    model, single = wrap(Model(), device), wrap(Model(), device)
    total = [torch.zeros(()) for _ in single.parameters()]
    with patched(patches, model):
        for step in range(_PASSES):
            loss_of(model, batch(step, device)).backward()
            loss_of(single, batch(step, device)).backward()
            total = [
                mean if param.grad is None else mean + param.grad
                for mean, param in zip(total, single.parameters(), strict=True)
            ]
            single.zero_grad()
    pairs = [
        (mean, param.grad) for mean, param in zip(total, model.parameters(), strict=True) if param.grad is not None
    ]
    apart = torch.tensor(max((a - b).abs().max().item() for a, b in pairs))
    dist.all_reduce(apart, dist.ReduceOp.MAX)
    return float(apart)
