"""The toy model of the field notes, how it is wrapped and trained, and comparing two trainings bit for bit.

A rank's shard of the whole model is 4,896 bytes: four blocks of 1,088 and a root of 544.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from typing import Any, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils.checkpoint import checkpoint

import patchkit
from patchkit.fsdp1._memory import MemoryLedger

P = ParamSpec("P")
R = TypeVar("R")

WIDTH = 16
BLOCK_BYTES = 1088
ROOT_BYTES = 544
SHARD_BYTES = 4 * BLOCK_BYTES + ROOT_BYTES
CPU = torch.device("cpu")
# Where there is an accelerator the same tests run on it; ranks may share it.
DEVICE = torch.device("cuda") if torch.cuda.is_available() else CPU
FSDP = FullyShardedDataParallel

REHEARSAL = "fsdp1.cpu-rehearsal"
DROP_SHARDS = "fsdp1.drop-offloaded-grad-shards"
PAGEABLE = "fsdp1.pageable-params"
DROP_FROZEN = "fsdp1.drop-frozen-grads"
NO_STALE = "fsdp1.no-stale-grads"
DROP_IDLE = "fsdp1.drop-idle-grads"
ACCUMULATE = "fsdp1.accumulate-offloaded-grads"

PRECISIONS = {
    "bf16": MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
    "reduce-bf16": MixedPrecision(reduce_dtype=torch.bfloat16),
    "keep-bf16": MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, keep_low_precision_grads=True),
}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)
        self.down = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.as_tensor(self.down(torch.tanh(self.up(x))))


class Toy(nn.Module):
    """Four blocks and a head; ``mode`` says how a block is called."""

    def __init__(self, mode: str = "plain") -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(WIDTH, WIDTH)
        self.mode = mode

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = self._call(block, x)
        return torch.as_tensor(self.head(x))

    def _call(self, block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        if self.mode == "plain":
            return torch.as_tensor(block(x))
        if self.mode == "twice":
            return torch.as_tensor(block(block(x)))
        # A block called twice, each call checkpointed on its own: with reentrant checkpointing it reduces twice.
        reentrant = self.mode == "reentrant twice"
        once = checkpoint(block, x, use_reentrant=reentrant)
        return torch.as_tensor(checkpoint(block, once, use_reentrant=reentrant))


@dataclass(frozen=True)
class Case:
    """How a model is built and trained."""

    mode: str = "plain"
    strategy: str = "FULL_SHARD"
    use_orig_params: bool = True
    precision: str | None = None
    offload: bool = True
    frozen: bool = False
    backwards: int = 1
    no_sync: tuple[int, ...] = ()
    set_to_none: bool = True
    clip: float | None = None
    anomaly: bool = False
    steps: int = 3

    def __str__(self) -> str:
        """Name what is not as usual, for the names of tests."""
        changed = {field.name: getattr(self, field.name) for field in fields(self)}
        return (
            "-".join(f"{name}={changed[name]}" for name in changed if changed[name] != getattr(Case, name)) or "plain"
        )


def build(case: Case = Case(), *, seed: int = 0, model: nn.Module | None = None) -> FSDP:
    """Build the toy (or take ``model``) and wrap it: each block a unit, and the root."""
    return wrap(plain(case, seed=seed) if model is None else model, case)


def plain(case: Case = Case(), *, seed: int = 0) -> Toy:
    torch.manual_seed(seed)
    return Toy(case.mode).requires_grad_(not case.frozen)


def wrap(model: nn.Module, case: Case = Case(), **options: Any) -> FSDP:
    if case.strategy.startswith("HYBRID"):
        options["process_group"] = hybrid_groups()
    return FSDP(
        model,
        device_id=DEVICE,
        cpu_offload=CPUOffload(offload_params=case.offload),
        use_orig_params=case.use_orig_params,
        sharding_strategy=ShardingStrategy[case.strategy],
        mixed_precision=PRECISIONS[case.precision] if case.precision else None,
        **{"auto_wrap_policy": ModuleWrapPolicy({Block}), **options},
    )


@functools.cache
def hybrid_groups() -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    """Shards over pairs of ranks, replicas over the rest: 2x1 for two ranks, 2x2 for four."""
    rank, world = dist.get_rank(), dist.get_world_size()
    pairs = [dist.new_group([first, first + 1]) for first in range(0, world, 2)]
    columns = [dist.new_group(list(range(column, world, 2))) for column in range(2)]
    return pairs[rank // 2], columns[rank % 2]


def patched(*names: str, model: Any = None, **entry: Any) -> patchkit.Applied:
    """Apply patches by name, with nothing on an audit log."""
    entries = [{"name": name, **entry} for name in names]
    return patchkit.apply({"schema": 1, "patch": entries, "audit": {"policy": "off"}}, model)


def rehearsed(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function run under the rehearsal where it is needed; the pool checks that all of it is gone afterwards."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with patched(REHEARSAL) if DEVICE is CPU else nullcontext():
            return function(*args, **kwargs)

    return run


def handles(model: nn.Module) -> list[Any]:
    return [unit._handle for unit in FSDP.fsdp_modules(model) if unit._handle is not None]


def parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that an optimizer sees, in the order of the units."""
    return [param for handle in handles(model) for param in (handle.flat_param._params or [handle.flat_param])]


def gradients(model: nn.Module) -> list[torch.Tensor | None]:
    """Copies of what the optimizer would see as gradients."""
    return [None if param.grad is None else param.grad.detach().clone() for param in parameters(model)]


def batch(step: int, rank: int | None = None) -> torch.Tensor:
    rank = dist.get_rank() if rank is None else rank
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(4, WIDTH, generator=generator).to(DEVICE).requires_grad_()


def loss_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(model(x)).float().pow(2).mean()


Record = list[list["torch.Tensor | None"]]


def train(
    model: FSDP,
    case: Case = Case(),
    *,
    first: int = 0,
    optimizer: torch.optim.Optimizer | None = None,
    after_backward: Callable[[int], None] | None = None,
) -> Record:
    """Train for ``case.steps`` steps; returns losses, gradients and parameters of each step."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    return [train_step(model, case, step, optimizer, after_backward) for step in range(first, first + case.steps)]


def train_step(
    model: FSDP,
    case: Case,
    step: int,
    optimizer: torch.optim.Optimizer,
    after_backward: Callable[[int], None] | None = None,
) -> list[torch.Tensor | None]:
    seen: list[torch.Tensor | None] = []
    with torch.autograd.set_detect_anomaly(True) if case.anomaly else nullcontext():
        for index in range(case.backwards):
            syncing: AbstractContextManager[Any] = model.no_sync() if index in case.no_sync else nullcontext()
            with syncing:
                loss = loss_of(model, batch(10 * step + index))
                loss.backward()
            seen.append(loss.detach())
    if after_backward is not None:
        after_backward(step)
    if case.clip is not None:
        seen.append(model.clip_grad_norm_(case.clip).detach())
    seen += gradients(model)
    optimizer.step()
    optimizer.zero_grad(set_to_none=case.set_to_none)
    return [*seen, *(param.detach().clone() for param in parameters(model))]


def difference(one: Record, other: Record) -> float | str:
    """Return the largest absolute difference, 0.0 for equal bits; or in words what can't be compared."""
    worst = 0.0
    pairs = [pair for a, b in zip(one, other, strict=True) for pair in zip(a, b, strict=True)]
    for a, b in pairs:
        if a is None or b is None:
            if a is not b:
                return f"None against {(a if b is None else b)!r}"
        elif a.dtype != b.dtype or a.shape != b.shape:
            return f"{a.dtype} {tuple(a.shape)} against {b.dtype} {tuple(b.shape)}"
        elif a.numel() and not torch.equal(a, b):
            worst = max(worst, (a.double() - b.double()).abs().max().item())
    return worst


def parity(*names: str, case: Case) -> float | str:
    """Compare a training under patches with the stock one."""
    stock = train(build(case), case)
    model = build(case)
    with patched(*names, model=model):
        return difference(stock, train(model, case))


def reference(case: Case, world: int) -> tuple[Toy, list[dict[str, torch.Tensor]]]:
    """Train in a single process on the batches of all ranks; gradients are averaged as FSDP1 does it."""
    model = plain(case).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = []
    for step in range(case.steps):
        mean = {name: torch.zeros_like(param) for name, param in model.named_parameters()}
        for rank in range(world):
            optimizer.zero_grad()
            loss_of(model, batch(10 * step, rank)).backward()
            for name, param in model.named_parameters():
                assert param.grad is not None
                mean[name] += param.grad / world
        for name, param in model.named_parameters():
            param.grad = mean[name].clone()
        optimizer.step()
        history.append(mean)
    return model, history


def full_parameters(model: FSDP) -> list[torch.Tensor]:
    with FSDP.summon_full_params(model):
        return [param.detach().clone() for param in model.parameters()]


def worst(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> float:
    return max((a - b).abs().max().item() for a, b in pairs)


def naive_drop() -> AbstractContextManager[None]:
    """The first version of drop-offloaded-grad-shards: delete after the first reduction, whatever comes then."""
    from torch.distributed.fsdp import _runtime_utils

    original = _runtime_utils._post_reduce_grad_callback

    def callback(state: Any, handle: Any, grad_to_offload: torch.Tensor) -> None:
        original(state, handle, grad_to_offload)
        if hasattr(handle.flat_param, "_saved_grad_shard"):
            del handle.flat_param._saved_grad_shard

    return swapped(_runtime_utils, "_post_reduce_grad_callback", callback)


class swapped:
    """Set an attribute for a while, as a stranger would."""

    def __init__(self, owner: Any, name: str, value: Any) -> None:
        self._owner, self._name, self._value = owner, name, value

    def __enter__(self) -> None:
        self._before = vars(self._owner).get(self._name, self)
        setattr(self._owner, self._name, self._value)

    def __exit__(self, *error: object) -> None:
        if self._before is self:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)


def hooks_and_overrides(model: nn.Module) -> Sequence[tuple[int, int, list[str]]]:
    """What patches leave on the units of a model: hooks before and after forward, and overrides on the handle."""
    return [
        (
            len(unit._forward_pre_hooks),
            len(unit._forward_hooks),
            [
                name
                for name in getattr(unit._handle, "__dict__", ())
                if callable(getattr(type(unit._handle), name, None))
            ],
        )
        for unit in FSDP.fsdp_modules(model)
    ]


def peak_of_shards(model: FSDP) -> int:
    """Bytes of saved gradient shards at the worst moment of a training step; none are left after it."""
    with MemoryLedger(model) as ledger:
        train(model, Case(steps=1))
    assert ledger.after("saved_grad_shards") == 0
    return ledger.peak("saved_grad_shards")


def host_gradients(model: nn.Module) -> int:
    """Bytes of host gradients that are allocated now."""
    with MemoryLedger(model) as ledger:
        return ledger.before("cpu_grads")
