"""``fsdp1.accumulate-offloaded-grads``: whatever people do between two passes, gradients are those without offload."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import torch

from tests.fsdp1._pool import RankPool
from tests.fsdp1._toy import (
    ACCUMULATE,
    DROP_SHARDS,
    FSDP,
    NO_STALE,
    Case,
    Record,
    batch,
    build,
    difference,
    gradients,
    loss_of,
    patched,
    rehearsed,
)


def forward_without_gradients(model: FSDP) -> None:
    with torch.no_grad():
        model(batch(99))


def forward_that_is_thrown_away(model: FSDP) -> None:
    model.eval()
    model(batch(98))
    model.train()


def zero_the_biases(model: FSDP) -> None:
    for name, param in model.named_parameters():
        param.grad = None if name.endswith("bias") else param.grad


def halve(model: FSDP) -> None:
    for param in model.parameters():
        if param.grad is not None:
            param.grad.mul_(0.5)


def summon(model: FSDP) -> None:
    with FSDP.summon_full_params(model):
        pass


def freeze_a_block(model: Any) -> None:
    model.module.blocks[0].requires_grad_(False)


BETWEEN: dict[str, Callable[[FSDP], object]] = {
    "nothing": lambda model: None,
    "a forward without gradients": forward_without_gradients,
    "a forward that is thrown away": forward_that_is_thrown_away,
    "biases are zeroed": zero_the_biases,
    "gradients are halved": halve,
    "gradients are clipped": lambda model: model.clip_grad_norm_(0.01),
    "parameters are summoned": summon,
    "a state dict is made": lambda model: model.state_dict(),
    "a block is frozen": freeze_a_block,
}
# Flat parameters have no biases, and can't be frozen in part.
WITHOUT_ORIGINAL = sorted(set(BETWEEN) - {"biases are zeroed", "a block is frozen"})


def passes(model: FSDP, between: str) -> Record:
    """Three passes before a step, with something between the first and the second, twice."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen: Record = []
    for step in range(2):
        loss_of(model, batch(10 * step)).backward()
        BETWEEN[between](model)
        loss_of(model, batch(10 * step + 1)).backward()
        if between == "a block is frozen":
            model.requires_grad_(True)
        loss_of(model, batch(10 * step + 2)).backward()
        seen.append(gradients(model))
        optimizer.step()
        optimizer.zero_grad()
    return seen


@rehearsed
def against_no_offload(between: str, use_orig_params: bool) -> list[float | str]:
    expected = passes(build(Case(offload=False, use_orig_params=use_orig_params)), between)
    found = []
    for names in ([ACCUMULATE], [ACCUMULATE, NO_STALE, DROP_SHARDS]):
        model = build(Case(use_orig_params=use_orig_params))
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(patched(name, model=model))
            found.append(difference(expected, passes(model, between)))
    return found


@pytest.mark.parametrize("between", sorted(BETWEEN))
def test_between_passes(ranks: RankPool, between: str) -> None:
    """With original parameters, alone and beside the other patches."""
    assert ranks(against_no_offload, between=between, use_orig_params=True) == [[0.0, 0.0]] * 2


@pytest.mark.parametrize("between", WITHOUT_ORIGINAL)
def test_between_passes_of_flat_parameters(ranks: RankPool, between: str) -> None:
    """With flat parameters alone."""
    assert ranks(against_no_offload, between=between, use_orig_params=False) == [[0.0, 0.0]] * 2
