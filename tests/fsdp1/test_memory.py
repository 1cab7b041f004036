"""Counting bytes: the ledger agrees with the toy's figures and with the process's own, and leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import _runtime_utils

from patchkit.fsdp1._memory import KINDS, MemoryLedger
from tests.fsdp1._pool import RankPool
from tests.fsdp1._toy import (
    BLOCK_BYTES,
    DROP_FROZEN,
    DROP_SHARDS,
    FSDP,
    PAGEABLE,
    SHARD_BYTES,
    Case,
    batch,
    build,
    hooks_and_overrides,
    loss_of,
    patched,
    rehearsed,
    swapped,
    train,
    wrap,
)


@rehearsed
def stock_figures() -> dict[str, tuple[int, int, int]]:
    model = build()
    with MemoryLedger(model) as ledger:
        train(model, Case(steps=1))
    return {kind: (ledger.before(kind), ledger.peak(kind), ledger.after(kind)) for kind in KINDS}


def test_figures_of_stock(ranks: RankPool) -> None:
    """Before, at the peak and after a step of the toy, as FSDP1 keeps them: the field notes' figures."""
    whole, twice = SHARD_BYTES, 2 * SHARD_BYTES
    assert (
        ranks(stock_figures)
        == [
            {
                "saved_grad_shards": (0, whole, 0),
                "cpu_grads": (0, whole, whole),
                "idle_cpu_grads": (0, whole, whole),
                "pinned_params": (0, whole, whole),
                "pageable_params": (whole, whole, 0),
                "pinned": (0, twice, twice),
            }
        ]
        * 2
    )


@rehearsed
def where_samples_are_taken() -> list[tuple[str, int]]:
    model = build()
    with MemoryLedger(model) as ledger:
        loss_of(model, batch(0)).backward()
        ledger.sample("step end")
    return [(sample.where, sample.bytes["saved_grad_shards"]) for sample in ledger.samples]


def test_samples_at_every_unit(ranks: RankPool) -> None:
    """Samples lie around every unit's forward, and at its reduction while the shard is there."""
    names = [f"'blocks.{index}'" for index in range(4)]
    forwards = [f"{verb} {name}" for name in names for verb in ("forward", "forwarded")]
    expected = [
        ("enter", 0),
        ("forward the root", 0),
        *((where, 0) for where in forwards),
        ("forwarded the root", 0),
        *((f"reduced {name}", (count + 1) * BLOCK_BYTES) for count, name in enumerate(reversed(names))),
        ("reduced the root", SHARD_BYTES),
        ("step end", 0),
        ("exit", 0),
    ]
    assert ranks(where_samples_are_taken) == [expected, expected]


@rehearsed
def left_behind() -> bool:
    model = build()
    before = hooks_and_overrides(model), _runtime_utils._offload_grad
    try:
        with MemoryLedger(model):
            model(batch(0))
            raise ZeroDivisionError
    except ZeroDivisionError:
        return (hooks_and_overrides(model), _runtime_utils._offload_grad) == before
    return False


def test_leaves_nothing_behind(ranks: RankPool) -> None:
    """After the context, also when it is left by an exception, hooks and functions are what they were."""
    assert ranks(left_behind) == [True, True]


@rehearsed
def momentary_pins() -> tuple[int, int, int]:
    model = build()
    with MemoryLedger(model) as ledger:
        for _ in range(3):
            torch.ones(100).pin_memory()
    return ledger.pinned_allocations, ledger.peak("pinned"), ledger.after("pinned")


def test_sees_what_is_pinned_for_a_moment(ranks: RankPool) -> None:
    """A pinned tensor that is gone before the next sample counts for the peak, and not afterwards."""
    assert ranks(momentary_pins) == [(3, 400, 0)] * 2


@rehearsed
def other_model() -> tuple[int, int]:
    one, two = build(), build(seed=1)
    with MemoryLedger(one) as first, MemoryLedger(two) as second:
        train(one, Case(steps=1))
    return first.peak("saved_grad_shards"), second.peak("saved_grad_shards")


def test_counts_one_model(ranks: RankPool) -> None:
    """Two ledgers may be open at once, each over its own model."""
    assert ranks(other_model) == [(SHARD_BYTES, 0)] * 2


# The independent count

LAYER = 1024
LAYERS = 12
LARGE_UNIT = (LAYER * LAYER + LAYER) * 4 // 2
LARGE_SHARD = LAYERS * LARGE_UNIT


def resident() -> int:
    """Bytes of this process that are in memory, as the kernel counts them."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def large(trainable: bool) -> FSDP:
    torch.manual_seed(0)
    layers = nn.Sequential(*(wrap(nn.Linear(LAYER, LAYER), auto_wrap_policy=None) for _ in range(LAYERS)))
    return wrap(layers.requires_grad_(trainable), auto_wrap_policy=None)


@rehearsed
def resident_peak(names: list[str], frozen: bool, trained: bool) -> int:
    """How far the process grows over the first forward, or, if ``trained``, over the second training step."""
    model = large(not frozen)
    applied = patched(*names, model=model) if names else None
    original = _runtime_utils._offload_grad
    seen: list[int] = []

    def step() -> None:
        with torch.set_grad_enabled(trained):
            y = model(torch.ones(2, LAYER))
        if trained:
            y.pow(2).mean().backward()
        seen.append(resident())

    def reduced(state: Any, handle: Any, grad_to_offload: torch.Tensor) -> None:
        seen.append(resident())
        original(state, handle, grad_to_offload)

    for unit in FSDP.fsdp_modules(model):
        unit.register_forward_pre_hook(lambda module, args: seen.append(resident()))
    with swapped(_runtime_utils, "_offload_grad", reduced):
        if trained:
            step()
        start = resident()
        seen.clear()
        step()
    if applied is not None:
        applied.revert()
    return max(seen) - start


@pytest.mark.parametrize(
    ("names", "frozen", "saved"),
    [
        ([DROP_SHARDS], False, LARGE_SHARD - LARGE_UNIT),
        ([PAGEABLE], False, LARGE_SHARD),
        ([DROP_FROZEN], True, LARGE_SHARD),
        ([DROP_FROZEN, PAGEABLE], True, 2 * LARGE_SHARD),
    ],
    ids=["drop-offloaded-grad-shards", "pageable-params", "drop-frozen-grads", "both"],
)
def test_the_process_agrees(ranks: RankPool, names: list[str], frozen: bool, saved: int) -> None:
    """What a patch saves by the ledger's count, the process saves by the kernel's too: at least half of it."""
    trained = names == [DROP_SHARDS]
    stock = ranks(resident_peak, names=[], frozen=frozen, trained=trained)
    ours = ranks(resident_peak, names=names, frozen=frozen, trained=trained)
    for before, after in zip(stock, ours, strict=True):
        assert before - after > 0.5 * saved
