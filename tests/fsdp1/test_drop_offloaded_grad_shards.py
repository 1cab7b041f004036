"""``fsdp1.drop-offloaded-grad-shards``: less on the device, the same gradients to the last bit."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import _runtime_utils

from tests.fsdp1._pool import RankPool
from tests.fsdp1._toy import (
    BLOCK_BYTES,
    DROP_SHARDS,
    FSDP,
    PAGEABLE,
    SHARD_BYTES,
    Case,
    Toy,
    batch,
    build,
    difference,
    gradients,
    loss_of,
    naive_drop,
    parity,
    patched,
    peak_of_shards,
    plain,
    rehearsed,
    swapped,
    train,
    wrap,
)

TWICE = "reentrant twice"


# Effect


@rehearsed
def peaks(case: Case) -> list[int]:
    model = build(case)
    stock = peak_of_shards(model)
    with patched(DROP_SHARDS, model=model):
        inside = peak_of_shards(model)
    return [stock, inside, peak_of_shards(model)]


@pytest.mark.parametrize("use_orig_params", [True, False])
def test_peak_is_the_largest_unit(ranks: RankPool, use_orig_params: bool) -> None:
    """Saved shards reach the whole model in stock FSDP1, one block when patched, and the whole model after a revert."""
    expected = [SHARD_BYTES, BLOCK_BYTES, SHARD_BYTES]
    assert ranks(peaks, case=Case(use_orig_params=use_orig_params)) == [expected, expected]


# Parity


@rehearsed
def stock_parity(case: Case) -> float | str:
    return parity(DROP_SHARDS, case=case)


@pytest.mark.parametrize(
    "case",
    [
        Case(),
        Case(mode="twice"),
        Case(mode="checkpointed twice"),
        Case(strategy="SHARD_GRAD_OP"),
        Case(strategy="HYBRID_SHARD"),
        Case(strategy="HYBRID_SHARD", mode=TWICE),
        Case(use_orig_params=False),
        Case(precision="bf16"),
        Case(precision="reduce-bf16"),
        Case(precision="reduce-bf16", mode=TWICE),
        Case(precision="keep-bf16"),
        Case(precision="keep-bf16", set_to_none=False, use_orig_params=False),
        Case(set_to_none=False),
        Case(clip=0.01),
        Case(anomaly=True, mode=TWICE),
        Case(backwards=3, no_sync=(0, 1)),
        Case(backwards=3, no_sync=(1,), mode="checkpointed twice"),
        Case(backwards=3, no_sync=(1,)),
    ],
    ids=str,
)
def test_equals_stock(ranks: RankPool, case: Case) -> None:
    """Losses, gradients, clipped norms and parameters of three steps are those of stock FSDP1, to the last bit."""
    assert ranks(stock_parity, case=case) == [0.0, 0.0]


@rehearsed
def naive_and_patched(case: Case) -> tuple[float | str, float | str]:
    stock = train(build(case), case)
    with naive_drop():
        naive = difference(stock, train(build(case), case))
    return naive, parity(DROP_SHARDS, case=case)


@pytest.mark.parametrize(
    "case",
    [
        Case(mode=TWICE),
        Case(mode=TWICE, use_orig_params=False),
        Case(mode=TWICE, strategy="SHARD_GRAD_OP"),
        Case(mode=TWICE, backwards=2),
        Case(mode=TWICE, backwards=3, no_sync=(0, 1)),
        Case(mode=TWICE, backwards=3, no_sync=(1,)),
        Case(mode=TWICE, set_to_none=False),
    ],
    ids=str,
)
def test_unit_that_reduces_twice(ranks: RankPool, case: Case) -> None:
    """A reentrantly checkpointed block that is called twice reduces twice in one backward pass: nothing is lost.

    A version that only deletes the shard loses the first reduction, and this test sees it.
    """
    for naive, ours in ranks(naive_and_patched, case=case):
        assert isinstance(naive, float)
        assert naive > 1e-3
        assert ours == 0.0


@rehearsed
def lost_by_both() -> tuple[bool, bool]:
    """Whether two backward passes without ``no_sync`` leave only the second one's gradients: stock, patched."""

    def only_second(model: FSDP) -> bool:
        loss_of(model, batch(0)).backward()
        loss_of(model, batch(1)).backward()
        both = gradients(model)
        alone = build()
        loss_of(alone, batch(1)).backward()
        return difference([both], [gradients(alone)]) == 0.0

    stock = only_second(build())
    model = build()
    with patched(DROP_SHARDS, model=model):
        return stock, only_second(model)


def test_two_backward_passes_lose_what_stock_loses(ranks: RankPool) -> None:
    """Outside ``no_sync``, FSDP1 with offload keeps the last backward pass alone; the patch doesn't change that."""
    assert ranks(lost_by_both) == [(True, True), (True, True)]


@rehearsed
def after_a_failed_backward(set_to_none: bool) -> list[bool]:
    """Whether gradients are right in the pass after one that failed: stock, patched."""

    def right(model: FSDP) -> bool:
        x = batch(0)
        x.register_hook(fail)
        with contextlib.suppress(ValueError):
            loss_of(model, x).backward()
        model.zero_grad(set_to_none=set_to_none)
        loss_of(model, batch(1)).backward()
        alone = build()
        loss_of(alone, batch(1)).backward()
        return difference([gradients(alone)], [gradients(model)]) == 0.0

    stock, model = right(build()), build()
    with patched(DROP_SHARDS, model=model):
        return [stock, right(model)]


def fail(grad: torch.Tensor) -> None:
    raise ValueError("in the middle of a backward")


@pytest.mark.parametrize("set_to_none", [True, False])
def test_after_a_failed_backward(ranks: RankPool, set_to_none: bool) -> None:
    """The pass after one that failed is right, where stock adds shards that the failed one has left."""
    assert ranks(after_a_failed_backward, set_to_none=set_to_none) == [[False, True]] * 2


@rehearsed
def taken_out_between_reductions(how: str, passes: int) -> float | str:
    """The patch leaves, or leaves and comes back, between the two reductions of a block in one pass."""
    case = Case(mode=TWICE)
    stock = train(build(case), case)
    model = build(case)
    applied = patched(DROP_SHARDS, model=model)
    seen = 0

    def between(module: nn.Module, given: object, output: object) -> None:
        nonlocal seen, applied
        seen += 1
        if seen != passes:
            return
        if how == "reverted":
            applied.revert()
        elif how == "suspended":
            with applied.reverted():
                pass
        else:
            applied.revert()
            applied = patched(DROP_SHARDS, model=model)

    # The second call of a block in the forward is the first to be reduced in the backward.
    block_of(model).register_full_backward_hook(between)
    found = difference(stock, train(model, case))
    applied.revert()
    assert seen == 6
    return found


@pytest.mark.parametrize("passes", [1, 2, 3])
@pytest.mark.parametrize("how", ["reverted", "suspended", "applied again"])
def test_taken_out_between_reductions(ranks: RankPool, how: str, passes: int) -> None:
    """Reverted, suspended or applied again in the middle of a pass, gradients are stock's to the last bit."""
    assert ranks(taken_out_between_reductions, how=how, passes=passes) == [0.0, 0.0]


def block_of(model: Any) -> nn.Module:
    block: nn.Module = model.module.blocks[1]
    return block


def low_precision_hook(parameter_type: torch.dtype, grad: torch.Tensor, output: torch.Tensor) -> None:
    """Communicate in bfloat16 and return ``parameter_type``, as torch's own low-precision hooks do on a GPU."""
    reduced = torch.empty_like(output, dtype=torch.bfloat16)
    dist.reduce_scatter_tensor(reduced, grad.to(torch.bfloat16) / dist.get_world_size())
    output.data = reduced.to(parameter_type)


@rehearsed
def hooked_parity(parameter_type: str) -> tuple[float | str, int]:
    case = Case(mode=TWICE)

    def hooked() -> FSDP:
        model = build(case)
        for unit in FSDP.fsdp_modules(model):
            unit._comm_hook, unit._comm_hook_state = low_precision_hook, getattr(torch, parameter_type)
        return model

    # FSDP1 leaves the type to the hooks on this list.
    with swapped(_runtime_utils, "LOW_PRECISION_HOOKS", [low_precision_hook]):
        stock = train(hooked(), case)
        model = hooked()
        with patched(DROP_SHARDS, model=model):
            return difference(stock, train(model, case)), peak_of_shards(model)


@pytest.mark.parametrize(
    ("parameter_type", "peak"),
    [("float32", BLOCK_BYTES), ("bfloat16", BLOCK_BYTES // 2), ("float64", 2 * SHARD_BYTES)],
)
def test_low_precision_communication_hook(ranks: RankPool, parameter_type: str, peak: int) -> None:
    """Whatever type a communication hook returns shards in: one that the host can't hold without loss stays."""
    assert ranks(hooked_parity, parameter_type=parameter_type) == [(0.0, peak)] * 2


def test_replicas_of_shards(four_ranks: RankPool) -> None:
    """With HYBRID_SHARD over two by two ranks, where reduction ends on another stream, gradients are those of stock."""
    assert four_ranks(stock_parity, case=Case(strategy="HYBRID_SHARD", mode=TWICE)) == [0.0] * 4


class Mixed(nn.Module):
    """Blocks that are half frozen, a block without a gradient, and a unit without parameters of its own around them."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Toy(TWICE)
        for block in self.inner.blocks:
            block.up.requires_grad_(False)
        self.inner.blocks[1].requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.inner(x))


@rehearsed
def mixed_parity() -> tuple[float | str, bool, int]:
    def mixed() -> FSDP:
        torch.manual_seed(0)
        model = Mixed()
        model.register_module("inner", wrap(model.inner))
        return wrap(model, auto_wrap_policy=None)

    stock = train(mixed(), Case())
    model = mixed()
    with patched(DROP_SHARDS, model=model):
        found = difference(stock, train(model, Case()))
        return found, model._handle is None, peak_of_shards(model)


def test_mixed_units_and_a_root_without_a_handle(ranks: RankPool) -> None:
    """Units that are partly frozen, wholly frozen or without parameters, and nested roots, are right as well."""
    assert ranks(mixed_parity) == [(0.0, True, BLOCK_BYTES)] * 2


@rehearsed
def compiled_parity() -> float | str:
    def compiled() -> FSDP:
        model = plain()
        for block in model.blocks:
            block.compile(backend="aot_eager")
        return wrap(model)

    stock = train(compiled(), Case())
    model = compiled()
    with patched(DROP_SHARDS, PAGEABLE, model=model):
        return difference(stock, train(model, Case()))


def test_compiled_blocks(ranks: RankPool) -> None:
    """Blocks under torch.compile train as they do in stock FSDP1."""
    assert ranks(compiled_parity) == [0.0, 0.0]
