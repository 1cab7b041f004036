"""Probe of ``fsdp1.precision``."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.fsdp import FullyShardedDataParallel

from ..._api import apply
from .._memory import MemoryLedger
from ._accelerate import accelerated
from ._kit import Model, batch, expect, group, loss_of, manifest_of, measured

__all__ = ["probe"]

_NAMED = ("blocks.0.up", "blocks.3")


def probe() -> dict[str, Any]:
    """Named modules compute in float32 and all others in bfloat16; the plugin is itself again after a revert."""
    with group() as device, accelerated(device) as accelerator:
        plain, plugin = Model(), accelerator.state.fsdp_plugin
        before = plugin.auto_wrap_policy, plugin.mixed_precision_policy, plugin.use_orig_params
        seen: dict[str, torch.dtype] = {}
        for name, module in plain.named_modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_hook(lambda module, args, output, name=name: seen.update({name: output.dtype}))
        manifest = manifest_of("fsdp1.precision")
        manifest["patch"][0]["options"] = {"float32": list(_NAMED)}
        with apply(manifest, plain, accelerator=accelerator):
            model, optimizer = accelerator.prepare(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
            with MemoryLedger(model) as ledger:
                accelerator.backward(loss_of(model, batch(0, device)).float())
                optimizer.step()
            kept = ledger.peak("saved_grad_shards")
        expected = {name: torch.float32 if name.startswith(_NAMED) else torch.bfloat16 for name in seen}
        expect(seen == expected and len(seen) > 3, f"float32 in {_NAMED} and bfloat16 elsewhere, found {seen}")
        after = plugin.auto_wrap_policy, plugin.mixed_precision_policy, plugin.use_orig_params
        expect(all(a is b for a, b in zip(before, after, strict=True)), f"the plugin as it was, found {after}")
        return measured(
            device,
            units=len(FullyShardedDataParallel.fsdp_modules(model)),
            in_float32=sum(dtype == torch.float32 for dtype in seen.values()),
            saved_grad_shards=kept,
        )
