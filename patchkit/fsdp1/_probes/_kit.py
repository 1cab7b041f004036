"""What the probes share: a model, its training, the group of ranks, and how an expectation is told."""

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

from ..._api import apply
from ..._applied import Applied
from ...errors import ContractError, RefusedError, VerifyError
from .._facts import accelerator

__all__ = [
    "BLOCKS",
    "STEPS",
    "Model",
    "Record",
    "batch",
    "expect",
    "expect_same",
    "group",
    "loss_of",
    "measured",
    "patched",
    "train",
    "wrap",
]

WIDTH = 32
BLOCKS = 6
STEPS = 3

Record = list["torch.Tensor | None"]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.add(x, self.down(torch.tanh(self.up(x))))


class Model(nn.Module):
    """Blocks and a head; ``twice`` calls each block twice under reentrant checkpointing."""

    def __init__(self, twice: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, WIDTH)
        self.twice = twice

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            for _ in range(2 if self.twice else 1):
                x = checkpoint(block, x, use_reentrant=True) if self.twice else block(x)
        return torch.as_tensor(self.head(x))


@contextmanager
def group() -> Iterator[torch.device]:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    rehearsal: Applied | None = None
    torch.set_num_threads(1)
    cards = torch.cuda.device_count()
    if cards:
        device = torch.device("cuda", rank % cards)
        torch.cuda.set_device(device)
    elif accelerator():
        raise RefusedError("expected CUDA or no accelerator at all, found one of another kind.")
    else:
        device = torch.device("cpu")
        rehearsal = _rehearse()
    # NCCL wants a card for each rank; over gloo, ranks may share one.
    dist.init_process_group("nccl" if cards >= world else "gloo")
    try:
        if cards:
            _try_collectives(device)
        yield device
    finally:
        dist.destroy_process_group()
        if rehearsal is not None:
            rehearsal.revert()


def _rehearse() -> Applied:
    manifest = manifest_of("fsdp1.cpu-rehearsal")
    manifest["policy"]["on_excluded"] = "refuse"
    try:
        return apply(manifest)
    except ContractError as error:
        raise RefusedError(f"expected a release that FSDP1 can be rehearsed on, or a GPU: {error}") from error


def _try_collectives(device: torch.device) -> None:
    world = dist.get_world_size()
    whole, part = torch.ones(world, device=device), torch.ones(1, device=device)
    try:
        dist.all_gather_into_tensor(whole, part)
        dist.reduce_scatter_tensor(part, whole)
    except (RuntimeError, ValueError) as error:
        raise RefusedError(
            f"expected a {device.type} device for each of {world} ranks, or one on which {dist.get_backend()} can "
            f"gather and scatter: {error}"
        ) from error


def manifest_of(*names: str) -> dict[str, Any]:
    """Select patches; a probe is how bodies and releases are proven, so those that aren't yet are let through."""
    policy = dict.fromkeys(("on_changed", "on_excluded", "on_unknown", "on_retired"), "warn")
    return {
        "schema": 1,
        "policy": policy,
        "patch": [{"name": name} for name in names],
        "audit": {"policy": "off"},
    }


@contextmanager
def patched(names: Sequence[str], model: nn.Module) -> Iterator[None]:
    if not names:
        yield
        return
    with apply(manifest_of(*names), model):
        yield


def wrap(model: nn.Module, device: torch.device) -> FullyShardedDataParallel:
    return FullyShardedDataParallel(
        model,
        device_id=device,
        cpu_offload=CPUOffload(offload_params=True),
        use_orig_params=True,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
    )


def batch(step: int, device: torch.device, rank: int | None = None) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + (dist.get_rank() if rank is None else rank))
    return torch.randn(4, WIDTH, generator=generator).to(device).requires_grad_()


def loss_of(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(model(inputs)).pow(2).mean()


def train(model: FullyShardedDataParallel, device: torch.device) -> Record:
    """Train, and return every loss, gradient and parameter on the way."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    record: Record = []
    for step in range(STEPS):
        loss = loss_of(model, batch(step, device))
        loss.backward()
        record.append(loss.detach())
        record += [None if param.grad is None else param.grad.clone() for param in model.parameters()]
        optimizer.step()
        optimizer.zero_grad()
        record += [param.detach().clone() for param in model.parameters()]
    return record


def expect_same(stock: Record, ours: Record, what: str) -> None:
    same = all(a is b if a is None or b is None else torch.equal(a, b) for a, b in zip(stock, ours, strict=True))
    expect(same, f"{what} equal to stock's bit for bit, found others")


def expect(holds: bool, expected: str) -> None:
    if not holds:
        raise VerifyError(f"expected {expected}.")


def measured(device: torch.device, **figures: float) -> dict[str, Any]:
    name = "cpu (rehearsed)" if device.type == "cpu" else torch.cuda.get_device_name(device)
    return {"device": name, **figures}
