"""One rank of ``scripts/bench fsdp1``: ``_bench_ranks.py training|rollout SIZE FILE`` under torchrun.

``_bench_ranks.py bytes SIZE FILE`` measures bytes alone, in one process and a group that sends nothing.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.checkpoint import checkpoint

import patchkit
from patchkit.fsdp1 import replay_forward
from patchkit.fsdp1._memory import MemoryLedger
from scripts._bench_rows import Row, in_pairs

WIDTH = 128
BATCH = 64
ROUNDS = 16
ROLLOUT_UNITS = 12
# Where a patch removes nothing but memory, a step takes as long as before.
AT_MOST = 1.02

SHARDS = "fsdp1.drop-offloaded-grad-shards"
PAGEABLE = "fsdp1.pageable-params"
FROZEN = "fsdp1.drop-frozen-grads"
IDLE = "fsdp1.drop-idle-grads"
DEVICE = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)
        self.down = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.add(x, self.down(torch.tanh(self.up(x))))


class Chain(nn.Module):
    def __init__(self, units: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(units))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def training(units: int) -> Iterator[Row]:
    """What is kept while a model is trained, validated and used frozen, and how long a step takes."""
    yield from kept(units)
    for patches in ((SHARDS,), (PAGEABLE,), (SHARDS, PAGEABLE)):
        stock, ours = wrapped(units), wrapped(units)
        with patched(ours, patches):
            times = in_pairs(timed_step(ours), timed_step(stock), ROUNDS)
        names = " and ".join(name.removeprefix("fsdp1.") for name in patches)
        yield Row(f"{units} units: step, {names}", *times, AT_MOST)


def kept(units: int) -> Iterator[Row]:
    """Peak bytes of everything that a patch removes."""
    for what, kind, patch, measure in (
        ("saved gradient shards, peak", "saved_grad_shards", SHARDS, peak_of_step),
        ("pinned parameters, peak", "pinned_params", PAGEABLE, peak_of_step),
        ("host gradients of a frozen model, peak", "cpu_grads", FROZEN, peak_of_frozen),
        ("idle host gradients in a validation, peak", "idle_cpu_grads", IDLE, peak_of_validation),
    ):
        yield Row(f"{units} units: {what}", measure(units, kind, patch), measure(units, kind), None, "bytes")


def peak_of_step(units: int, kind: str, *patches: str) -> int:
    model = wrapped(units)
    with patched(model, patches), MemoryLedger(model) as ledger:
        loss_of(model).backward()
    return int(ledger.peak(kind))


def peak_of_frozen(units: int, kind: str, *patches: str) -> int:
    model = wrapped(units, frozen=True)
    with patched(model, patches), MemoryLedger(model) as ledger:
        loss_of(model)
    return int(ledger.peak(kind))


def peak_of_validation(units: int, kind: str, *patches: str) -> int:
    model = wrapped(units)
    loss_of(model).backward()
    model.zero_grad()
    with torch.no_grad(), patched(model, patches, scope="validation"), MemoryLedger(model) as ledger:
        loss_of(model)
    return int(ledger.peak(kind))


def timed_step(model: FullyShardedDataParallel) -> Callable[[], float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> float:
        dist.barrier()
        start = time.perf_counter()
        loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - start

    return step


def rollout(forwards: int) -> Iterator[Row]:
    """What a rollout of several forwards and its one backward take at their peak: replayed, checkpointed, plain."""
    accumulated: dict[Any, torch.Tensor] = {}
    replayed = peak_of_rollout(forwards, lambda model, x: replay_forward(model, accumulated, x=x), sync=True)
    checkpointed = peak_of_rollout(forwards, lambda model, x: checkpoint(model, x, use_reentrant=False), sync=False)
    plain = peak_of_rollout(forwards, lambda model, x: model(x), sync=False)
    label = f"rollout of {forwards}: peak of live tensors, replay /"
    yield Row(f"{label} torch.utils.checkpoint", replayed, checkpointed, None, "bytes")
    yield Row(f"{label} plain autograd", replayed, plain, None, "bytes")
    held = sum(tensor.numel() * tensor.element_size() for tensor in accumulated.values())
    whole = sum(param.numel() * param.element_size() for param in Chain(ROLLOUT_UNITS).parameters())
    yield Row(
        f"rollout of {forwards}: accumulators / the rank's share", held, whole / dist.get_world_size(), 1.0, "bytes"
    )


def peak_of_rollout(forwards: int, call: Callable[[Any, torch.Tensor], Any], *, sync: bool) -> int:
    model = wrapped(ROLLOUT_UNITS)
    loss_of(model).backward()
    model.zero_grad()
    syncing: AbstractContextManager[Any] = nullcontext() if sync else model.no_sync()
    with Live() as live, syncing:
        losses = [torch.as_tensor(call(model, batch(step))).pow(2).mean() for step in range(forwards)]
        torch.stack(losses).sum().backward()
    return int(live.peak)


class Live(TorchDispatchMode):
    """Counts the bytes of the storages that were made inside and still live, after every operation."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            for tensor in tree_iter(result):
                if isinstance(tensor, torch.Tensor):
                    storage = tensor.untyped_storage()
                    self._live[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self._live = {key: entry for key, entry in self._live.items() if not entry[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self._live.values()))
        return result


def wrapped(units: int, *, frozen: bool = False) -> FullyShardedDataParallel:
    torch.manual_seed(0)
    return FullyShardedDataParallel(
        Chain(units).requires_grad_(not frozen),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        cpu_offload=CPUOffload(offload_params=True),
        use_orig_params=True,
        device_id=DEVICE,
    )


def patched(model: nn.Module, names: Sequence[str], **options: Any) -> AbstractContextManager[Any]:
    entries = [{"name": name, "options": options} for name in names]
    return patchkit.apply({"schema": 1, "patch": entries}, model) if names else nullcontext()


def batch(step: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    return torch.randn(BATCH, WIDTH, generator=generator).to(DEVICE)


def loss_of(model: nn.Module) -> torch.Tensor:
    return torch.as_tensor(model(batch())).pow(2).mean()


def main() -> None:
    what, size, file = sys.argv[1:]
    # Compute devices that are the CPU, and the deprecation of FSDP1, are what is measured here.
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if DEVICE.type == "cpu":
        patchkit.apply({"schema": 1, "patch": [{"name": "fsdp1.cpu-rehearsal"}]})
    else:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    if what == "bytes":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    else:
        dist.init_process_group("gloo" if torch.cuda.device_count() < 2 else "nccl")
    rows = list({"training": training, "rollout": rollout, "bytes": kept}[what](int(size)))
    if dist.get_rank() == 0:
        Path(file).write_text(json.dumps([dataclasses.asdict(row) for row in rows]), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
