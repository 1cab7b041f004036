"""Each patch's check of its effect: the real FSDP1, stock against patched, in the processes of ``verify --probe``.

Every function runs once in each rank, with ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT`` in its
environment, and returns what it measured. Without an accelerator FSDP1 runs under ``fsdp1.cpu-rehearsal``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils.checkpoint import checkpoint

from .._api import apply
from .._applied import Applied
from ..errors import RefusedError, VerifyError
from ._facts import accelerator
from ._memory import MemoryLedger
from ._units import storage_bytes, units_of

__all__ = ["cpu_rehearsal", "drop_frozen_grads", "drop_offloaded_grad_shards", "pageable_params"]

_WIDTH = 32
_BLOCKS = 6
_STEPS = 3

_Record = list["torch.Tensor | None"]


def cpu_rehearsal() -> dict[str, Any]:
    """FSDP1 with CPU offload on this machine equals a single process, to the last bit."""
    with _group() as device:
        if device.type != "cpu":
            raise RefusedError("expected a machine without an accelerator, found one: there is nothing to rehearse.")
        whole = _Model()
        model = _wrap(_Model(), device)
        apart = 0.0
        optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (whole, model)]
        for step in range(_STEPS):
            _average_over_ranks(whole, step)
            _loss(model, _batch(step, device)).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            with FullyShardedDataParallel.summon_full_params(model):
                pairs = zip(model.parameters(), whole.parameters(), strict=True)
                apart = max(apart, *((a - b).abs().max().item() for a, b in pairs))
        _expect(apart == 0.0, f"parameters equal to those of a single process, found them up to {apart} apart")
        return _measured(device, steps=_STEPS, apart_from_single_process=apart)


def drop_offloaded_grad_shards() -> dict[str, Any]:
    """Saved shards stay within the largest unit, and gradients are stock's, also for units that reduce twice."""
    with _group() as device:
        peaks = {}
        for twice in (False, True):
            stock, peaks["stock"] = _trained(device, (), twice=twice)
            ours, peaks["patched"] = _trained(device, ("fsdp1.drop-offloaded-grad-shards",), twice=twice)
            _expect_same(stock, ours, "gradients and parameters" + (" of blocks that reduce twice" if twice else ""))
        largest = max(
            storage_bytes(unit.handle.flat_param) for unit in units_of(_wrap(_Model(), device)) if unit.handle
        )
        _expect(
            peaks["patched"] <= largest < peaks["stock"],
            f"at most {largest} bytes of saved shards, found {peaks['patched']} (stock: {peaks['stock']})",
        )
        return _measured(
            device, largest_unit=largest, **{f"saved_grad_shards_{name}": size for name, size in peaks.items()}
        )


def pageable_params() -> dict[str, Any]:
    """No parameter is pinned, not even for a moment; training is stock's."""
    with _group() as device:
        pinned: dict[str, int] = {}
        records = {}
        for name, patches in (("stock", ()), ("patched", ("fsdp1.pageable-params",))):
            model = _wrap(_Model(), device)
            with _patched(patches, model), MemoryLedger(model) as ledger:
                records[name] = _train(model, device)
            pinned[f"pinned_{name}"] = ledger.peak("pinned")
            pinned[f"pinned_params_{name}"] = ledger.peak("pinned_params")
        _expect_same(records["stock"], records["patched"], "gradients and parameters")
        _expect(
            pinned["pinned_params_patched"] == 0 and 2 * pinned["pinned_patched"] == pinned["pinned_stock"],
            f"half of stock's {pinned['pinned_stock']} pinned bytes, found {pinned['pinned_patched']}",
        )
        return _measured(device, **pinned)


def drop_frozen_grads() -> dict[str, Any]:
    """A frozen model has four bytes of host gradient a unit, pins no gradient, and computes what stock does."""
    with _group() as device:
        gradients: dict[str, int] = {}
        records: dict[str, _Record] = {}
        for name, patches in (("stock", ()), ("patched", ("fsdp1.drop-frozen-grads",))):
            model = _wrap(_Model().requires_grad_(False), device)
            records[name] = []
            with _patched(patches, model), MemoryLedger(model) as ledger:
                for step in range(_STEPS):
                    inputs = _batch(step, device)
                    loss = _loss(model, inputs)
                    loss.backward()
                    records[name] += [loss.detach(), inputs.grad]
            gradients[f"cpu_grads_{name}"] = ledger.peak("cpu_grads")
            gradients[f"pinned_{name}"] = ledger.peak("pinned")
        _expect_same(records["stock"], records["patched"], "losses and input gradients")
        _expect(
            gradients["cpu_grads_patched"] == 4 * (_BLOCKS + 1)
            and gradients["pinned_patched"] < gradients["pinned_stock"],
            f"four bytes of host gradient for each of {_BLOCKS + 1} units, found {gradients['cpu_grads_patched']}",
        )
        return _measured(device, **gradients)


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(_WIDTH, 2 * _WIDTH)
        self.down = nn.Linear(2 * _WIDTH, _WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.add(x, self.down(torch.tanh(self.up(x))))


class _Model(nn.Module):
    """Blocks and a head; ``twice`` calls each block twice under reentrant checkpointing."""

    def __init__(self, twice: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(_Block() for _ in range(_BLOCKS))
        self.head = nn.Linear(_WIDTH, _WIDTH)
        self.twice = twice

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            for _ in range(2 if self.twice else 1):
                x = checkpoint(block, x, use_reentrant=True) if self.twice else block(x)
        return torch.as_tensor(self.head(x))


@contextmanager
def _group() -> Iterator[torch.device]:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    rehearsal: Applied | None = None
    torch.set_num_threads(1)
    if accelerator():
        if torch.cuda.device_count() < world:
            raise RefusedError(f"expected no accelerator or {world} CUDA devices, found {torch.cuda.device_count()}.")
        device, backend = torch.device("cuda", rank), "nccl"
        torch.cuda.set_device(device)
    else:
        device, backend = torch.device("cpu"), "gloo"
        rehearsal = apply(_manifest("fsdp1.cpu-rehearsal"))
    dist.init_process_group(backend)
    try:
        yield device
    finally:
        dist.destroy_process_group()
        if rehearsal is not None:
            rehearsal.revert()


def _manifest(*names: str) -> dict[str, Any]:
    return {"schema": 1, "patch": [{"name": name} for name in names], "audit": {"policy": "off"}}


@contextmanager
def _patched(names: Sequence[str], model: nn.Module) -> Iterator[None]:
    if not names:
        yield
        return
    with apply(_manifest(*names), model):
        yield


def _wrap(model: nn.Module, device: torch.device) -> FullyShardedDataParallel:
    return FullyShardedDataParallel(
        model,
        device_id=device,
        cpu_offload=CPUOffload(offload_params=True),
        use_orig_params=True,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        auto_wrap_policy=ModuleWrapPolicy({_Block}),
    )


def _batch(step: int, device: torch.device, rank: int | None = None) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + (dist.get_rank() if rank is None else rank))
    return torch.randn(4, _WIDTH, generator=generator).to(device).requires_grad_()


def _loss(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(model(inputs)).pow(2).mean()


def _trained(device: torch.device, patches: Sequence[str], *, twice: bool) -> tuple[_Record, int]:
    model = _wrap(_Model(twice), device)
    with _patched(patches, model), MemoryLedger(model) as ledger:
        return _train(model, device), ledger.peak("saved_grad_shards")


def _train(model: FullyShardedDataParallel, device: torch.device) -> _Record:
    """Train, and return every loss, gradient and parameter on the way."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    record: _Record = []
    for step in range(_STEPS):
        loss = _loss(model, _batch(step, device))
        loss.backward()
        record.append(loss.detach())
        record += [None if param.grad is None else param.grad.clone() for param in model.parameters()]
        optimizer.step()
        optimizer.zero_grad()
        record += [param.detach().clone() for param in model.parameters()]
    return record


def _average_over_ranks(model: nn.Module, step: int) -> None:
    """Set the gradients that a single process gets from the batches of all ranks, averaged as FSDP1 averages."""
    total = [torch.zeros_like(param) for param in model.parameters()]
    for rank in range(dist.get_world_size()):
        model.zero_grad()
        _loss(model, _batch(step, torch.device("cpu"), rank)).backward()
        for mean, param in zip(total, model.parameters(), strict=True):
            mean.add_(torch.as_tensor(param.grad) / dist.get_world_size())
    for mean, param in zip(total, model.parameters(), strict=True):
        param.grad = mean


def _expect_same(stock: _Record, ours: _Record, what: str) -> None:
    same = all(a is b if a is None or b is None else torch.equal(a, b) for a, b in zip(stock, ours, strict=True))
    _expect(same, f"{what} equal to stock's bit for bit, found others")


def _expect(holds: bool, expected: str) -> None:
    if not holds:
        raise VerifyError(f"expected {expected}.")


def _measured(device: torch.device, **figures: float) -> dict[str, Any]:
    name = "cpu (rehearsed)" if device.type == "cpu" else torch.cuda.get_device_name(device)
    return {"device": name, **figures}
