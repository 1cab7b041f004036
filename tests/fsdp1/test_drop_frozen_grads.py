"""``fsdp1.drop-frozen-grads``: four bytes of host gradient a unit, and everything that runs is as ever."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from patchkit.errors import RefusedError
from patchkit.fsdp1 import _host_memory
from patchkit.fsdp1._memory import MemoryLedger
from tests.fsdp1._pool import RankPool
from tests.fsdp1._toy import (
    DROP_FROZEN,
    FSDP,
    SHARD_BYTES,
    Case,
    batch,
    build,
    difference,
    full_parameters,
    handles,
    host_gradients,
    loss_of,
    patched,
    rehearsed,
    swapped,
    train,
    wrap,
)

FROZEN = Case(frozen=True)
PLACEHOLDERS = 5 * 4


# Effect


@rehearsed
def measured(use_orig_params: bool, names: list[str]) -> dict[str, tuple[int, int, int]]:
    """Bytes before, at the peak of three steps, the first of which initialises, and at that of a later forward."""
    model = build(Case(frozen=True, use_orig_params=use_orig_params))
    applied = patched(*names, model=model) if names else None
    with MemoryLedger(model) as ledger:
        for step in range(3):
            loss_of(model, batch(step)).backward()
    with MemoryLedger(model) as later, torch.no_grad():
        model(batch(3))
    if applied is not None:
        applied.revert()
    kinds = ("cpu_grads", "pinned")
    return {kind: (ledger.before(kind), ledger.peak(kind), later.peak(kind)) for kind in kinds} | {
        "allocations": (0, ledger.pinned_allocations, later.pinned_allocations)
    }


@pytest.mark.parametrize("use_orig_params", [True, False])
def test_four_bytes_a_unit(ranks: RankPool, use_orig_params: bool) -> None:
    """Stock pins a gradient as large as the model; patched, each unit has four bytes, the first forward included."""
    one, two = SHARD_BYTES, 2 * SHARD_BYTES
    stock = {"cpu_grads": (0, one, one), "pinned": (0, two, two), "allocations": (0, 10, 0)}
    ours = {"cpu_grads": (0, PLACEHOLDERS, PLACEHOLDERS), "pinned": (0, one, one), "allocations": (0, 5, 0)}
    assert ranks(measured, use_orig_params=use_orig_params, names=[]) == [stock] * 2
    assert ranks(measured, use_orig_params=use_orig_params, names=[DROP_FROZEN]) == [ours] * 2


@rehearsed
def installed_late() -> tuple[list[int], int, int]:
    trims: list[int] = []

    def count() -> bool:
        trims.append(1)
        return True

    model = build(FROZEN)
    model(batch(0))
    seen = [host_gradients(model)]
    with swapped(_host_memory, "empty_host_cache", count):
        applied = patched(DROP_FROZEN, model=model)
        seen.append(host_gradients(model))
        model(batch(1))
        model(batch(2))
        seen.append(host_gradients(model))
    with MemoryLedger(model) as ledger:
        applied.revert()
        seen.append(host_gradients(model))
    return seen, len(trims), ledger.pinned_allocations


@rehearsed
def trims_when_installed_in_time() -> int:
    trims: list[int] = []

    def count() -> bool:
        trims.append(1)
        return True

    model = build(FROZEN)
    with swapped(_host_memory, "empty_host_cache", count), patched(DROP_FROZEN, model=model):
        model(batch(0))
        model(batch(1))
    return len(trims)


def test_installed_in_time_nothing_is_trimmed(ranks: RankPool) -> None:
    """Where nothing was pinned there is nothing to return, neither at installation nor in a forward."""
    assert ranks(trims_when_installed_in_time) == [0, 0]


def test_installed_after_the_first_forward(ranks: RankPool) -> None:
    """What is allocated already is freed and returned to the system once; a revert pins zeros again, as FSDP1 would."""
    seen = [SHARD_BYTES, PLACEHOLDERS, PLACEHOLDERS, SHARD_BYTES]
    assert ranks(installed_late) == [(seen, 1, 5)] * 2


@rehearsed
def behaviour(case: Case, patch: bool) -> list[torch.Tensor]:
    """Everything that a frozen model is used for."""
    model = build(case)
    applied = patched(DROP_FROZEN, model=model) if patch else None
    results = []
    for step in range(2):
        x = batch(step)
        y = model(x)
        loss = y.float().pow(2).mean()
        loss.backward()
        assert x.grad is not None
        results += [y.detach(), x.grad]
    with torch.no_grad():
        results.append(model(batch(3)))
    model.eval()
    results.append(model(batch(4)).detach())
    results += full_parameters(model)
    results += [value.detach().clone() for _, value in sorted(model.state_dict().items())]
    assert all(param.grad is None for param in model.parameters())
    if applied is not None:
        applied.verify()
        applied.revert()
    return results


def equal_behaviour(case: Case) -> bool:
    return all(torch.equal(a, b) for a, b in zip(behaviour(case, False), behaviour(case, True), strict=True))


@pytest.mark.parametrize(
    "case",
    [
        Case(frozen=True),
        Case(frozen=True, use_orig_params=False),
        Case(frozen=True, strategy="SHARD_GRAD_OP"),
        Case(frozen=True, strategy="HYBRID_SHARD"),
        Case(frozen=True, strategy="NO_SHARD"),
        Case(frozen=True, precision="bf16"),
        Case(frozen=True, mode="checkpointed twice"),
        Case(frozen=True, mode="reentrant twice"),
    ],
    ids=str,
)
def test_behaves_as_stock(ranks: RankPool, case: Case) -> None:
    """Outputs, input gradients, forwards under no_grad, whole parameters and state dicts are stock's, bit for bit."""
    assert ranks(equal_behaviour, case=case) == [True, True]


# Freezing and unfreezing


@rehearsed
def frozen_after_wrapping() -> tuple[int, bool]:
    model, stock = build(), build()
    for each in (model, stock):
        each.requires_grad_(False)
    with patched(DROP_FROZEN, model=model):
        same = torch.equal(model(batch(0)), stock(batch(0)))
        return host_gradients(model), same and model._all_handles == handles(model)


def test_frozen_after_wrapping(ranks: RankPool) -> None:
    """A model that was wrapped before it was frozen, which FSDP1 learns only in the forward, works like any other."""
    assert ranks(frozen_after_wrapping) == [(PLACEHOLDERS, True)] * 2


@rehearsed
def unfrozen(before_the_first_forward: bool) -> tuple[str, bool, float | str]:
    model, stock = build(FROZEN), build(FROZEN)
    applied = patched(DROP_FROZEN, model=model)
    if not before_the_first_forward:
        loss_of(model, batch(0)).backward()
        loss_of(stock, batch(0)).backward()
    parameter = next(FSDP.fsdp_modules(model)[3].parameters())
    parameter.requires_grad_(True)
    message = ""
    try:
        model(batch(1))
    except RefusedError as error:
        message = str(error)
    parameter.requires_grad_(False)
    with torch.no_grad():
        same = torch.equal(model(batch(2)), stock(batch(2)))
    applied.revert()
    for each in (model, stock):
        each.requires_grad_(True)
    return message, same, difference(train(stock, Case()), train(model, Case()))


@pytest.mark.parametrize("before_the_first_forward", [True, False])
def test_unfreezing_is_refused_before_anything_runs(ranks: RankPool, before_the_first_forward: bool) -> None:
    """A parameter that requires a gradient is named before FSDP1 starts; freezing again works, reverting too."""
    for message, same, trained in ranks(unfrozen, before_the_first_forward=before_the_first_forward):
        assert (
            "expected a model without parameters that require a gradient, found 1 that do (blocks.2.up.weight)"
            in message
        )
        assert "applied.revert()" in message
        assert same
        assert trained == 0.0


@rehearsed
def unfrozen_under_no_grad() -> bool:
    model = build(FROZEN)
    with patched(DROP_FROZEN, model=model), torch.no_grad():
        model.requires_grad_(True)
        try:
            model(batch(0))
        except RefusedError:
            return True
    return False


def test_unfreezing_is_refused_under_no_grad_too(ranks: RankPool) -> None:
    """What requires a gradient is refused at each forward, whatever the grad mode."""
    assert ranks(unfrozen_under_no_grad) == [True, True]


@rehearsed
def unfrozen_in_an_outer_tree() -> tuple[str, bool]:
    """A frozen model inside a larger FSDP1 tree: its guard is not the root of the call."""

    def outer() -> FSDP:
        torch.manual_seed(0)
        return wrap(nn.Sequential(build(FROZEN), nn.Linear(16, 16)), auto_wrap_policy=None)

    model, stock = outer(), outer()
    inner: Any = model.get_submodule("_fsdp_wrapped_module.0")
    with patched(DROP_FROZEN, model=inner):
        first = torch.equal(model(batch(0)), stock(batch(0)))
        parameter = next(FSDP.fsdp_modules(inner)[2].parameters())
        parameter.requires_grad_(True)
        message = ""
        try:
            model(batch(1))
        except RefusedError as error:
            message = str(error)
        parameter.requires_grad_(False)
        x, y = batch(2), batch(2)
        loss_of(model, x).backward()
        loss_of(stock, y).backward()
        assert x.grad is not None
        assert y.grad is not None
        return message, first and torch.equal(x.grad, y.grad)


def test_unfreezing_inside_a_larger_tree(ranks: RankPool) -> None:
    """Below a root that the patch wasn't given, the unit refuses, and the tree goes on once it is frozen again."""
    for message, same in ranks(unfrozen_in_an_outer_tree):
        assert "found 1 that do (up.weight)" in message
        assert same
