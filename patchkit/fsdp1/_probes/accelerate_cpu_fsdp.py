"""Probe of ``accelerate.cpu-fsdp``."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.fsdp import FullyShardedDataParallel

from ._accelerate import accelerated
from ._kit import Model, batch, expect, group, loss_of, measured

__all__ = ["probe"]


def probe() -> dict[str, Any]:
    """An accelerator with an FSDP plugin wraps and trains a model on CPU processes."""
    with group() as device, accelerated(device) as accelerator:
        kind = str(accelerator.distributed_type)
        expect(kind.endswith("FSDP"), f"the distributed type FSDP, found {kind}")
        plain = Model()
        model, optimizer = accelerator.prepare(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
        units = len(FullyShardedDataParallel.fsdp_modules(model))
        expect(units > 1, f"a model wrapped in FSDP1 units, found {units}")
        accelerator.backward(loss_of(model, batch(0, device)))
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return measured(device, units=units)
