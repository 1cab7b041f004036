"""Probe of ``fsdp1.cpu-rehearsal``."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

from ...errors import RefusedError
from ._kit import STEPS, Model, batch, expect, group, loss_of, measured, wrap

__all__ = ["probe"]


def probe() -> dict[str, Any]:
    """FSDP1 with CPU offload on this machine equals a single process, to the last bit."""
    with group() as device:
        if device.type != "cpu":
            raise RefusedError("expected a machine without an accelerator, found one: there is nothing to rehearse.")
        whole = Model()
        model = wrap(Model(), device)
        apart = 0.0
        optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (whole, model)]
        for step in range(STEPS):
            _average_over_ranks(whole, step)
            loss_of(model, batch(step, device)).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            with FullyShardedDataParallel.summon_full_params(model):
                pairs = zip(model.parameters(), whole.parameters(), strict=True)
                apart = max(apart, *((a - b).abs().max().item() for a, b in pairs))
        expect(apart == 0.0, f"parameters equal to those of a single process, found them up to {apart} apart")
        return measured(device, steps=STEPS, apart_from_single_process=apart)


def _average_over_ranks(model: nn.Module, step: int) -> None:
    """Set the gradients that a single process gets from the batches of all ranks, averaged as FSDP1 averages."""
    total = [torch.zeros_like(param) for param in model.parameters()]
    for rank in range(dist.get_world_size()):
        model.zero_grad()
        loss_of(model, batch(step, torch.device("cpu"), rank)).backward()
        for mean, param in zip(total, model.parameters(), strict=True):
            mean.add_(torch.as_tensor(param.grad) / dist.get_world_size())
    for mean, param in zip(total, model.parameters(), strict=True):
        param.grad = mean
