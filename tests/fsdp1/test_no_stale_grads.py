"""``fsdp1.no-stale-grads``: what was zeroed stays away, and everything else is stock's to the last bit."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
import torch

from tests.fsdp1._models import Skipping, skip, skipping
from tests.fsdp1._pool import RankPool
from tests.fsdp1._toy import (
    DROP_SHARDS,
    FSDP,
    NO_STALE,
    PAGEABLE,
    Case,
    batch,
    build,
    difference,
    gradients,
    handles,
    hooks_and_overrides,
    loss_of,
    parameters,
    parity,
    patched,
    rehearsed,
    train,
    train_step,
)

TWICE = "reentrant twice"


# Effect


@rehearsed
def came_back(case: Case, names: list[str]) -> dict[str, Any]:
    """After zero_grad and a forward without a backward: gradients that are there, and what an extra step does."""
    model = build(case)
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(patched(name, model=model))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with torch.no_grad():
            model(batch(9))
        found = {"before the first step": sum(param.grad is not None for param in parameters(model))}
        train_step(model, case, 0, optimizer)
        with torch.no_grad():
            model(batch(1))
        found["after zero_grad"] = sum(param.grad is not None for param in parameters(model))
        before = [param.detach().clone() for param in parameters(model)]
        optimizer.step()
        found["moved"] = sum(not torch.equal(a, b) for a, b in zip(before, parameters(model), strict=True))
        model(batch(2))
        found["under grad mode"] = sum(param.grad is not None for param in parameters(model))
    return found


@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP"])
def test_zeroed_gradients_stay_away(ranks: RankPool, strategy: str) -> None:
    """A forward brings no gradient back, and an extra optimizer step moves nothing; in stock all come back and move."""
    case = Case(strategy=strategy)
    for found in ranks(came_back, case=case, names=[]):
        assert min(found["before the first step"], found["after zero_grad"], found["moved"]) > 0
    nothing = {"before the first step": 0, "after zero_grad": 0, "moved": 0, "under grad mode": 0}
    assert ranks(came_back, case=case, names=[NO_STALE]) == [nothing] * 2


@pytest.mark.parametrize("names", [[NO_STALE, DROP_SHARDS, PAGEABLE], [PAGEABLE, DROP_SHARDS, NO_STALE]])
def test_beside_other_patches(ranks: RankPool, names: list[str]) -> None:
    """In any order with the other patches."""
    nothing = {"before the first step": 0, "after zero_grad": 0, "moved": 0, "under grad mode": 0}
    assert ranks(came_back, case=Case(), names=names) == [nothing] * 2


@rehearsed
def unused_unit(use_orig_params: bool, names: list[str], no_sync: bool) -> dict[str, bool]:
    """Gradients of a block that takes no part in the second iteration, and of one that does."""
    case = Case(use_orig_params=use_orig_params)
    model = skipping(case)
    with patched(*names, model=model) if names else ExitStack():
        loss_of(model, batch(0)).backward()
        if no_sync:
            with model.no_sync():
                loss_of(model, batch(1)).backward()
        model.zero_grad()
        skip(model, (1,))
        loss_of(model, batch(2)).backward()
        first, second = handles(model)[1:3]
        grads = {
            "used": [param.grad for param in first.flat_param._params or [first.flat_param]],
            "unused": [param.grad for param in second.flat_param._params or [second.flat_param]],
        }
        return {name: any(grad is not None for grad in found) for name, found in grads.items()}


@pytest.mark.parametrize("no_sync", [False, True])
@pytest.mark.parametrize("use_orig_params", [True, False])
def test_unit_that_takes_no_part(ranks: RankPool, use_orig_params: bool, no_sync: bool) -> None:
    """A unit that takes no part in an iteration gets no gradient; in stock it can get the last one's."""
    stock = ranks(unused_unit, use_orig_params=use_orig_params, names=[], no_sync=no_sync)
    assert stock == [{"used": True, "unused": not use_orig_params}] * 2
    ours = ranks(unused_unit, use_orig_params=use_orig_params, names=[NO_STALE], no_sync=no_sync)
    assert ours == [{"used": True, "unused": False}] * 2


@rehearsed
def without_gradient(use_orig_params: bool) -> bool:
    """Whether a unit whose output is used, but not in the loss, gets a gradient of the iteration before."""

    class Detached(Skipping):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for index, block in enumerate(self.blocks):
                y = block(x)
                x = x + 0 * y.detach() if index in self.skipped else y
            return torch.as_tensor(self.head(x))

    model = skipping(Case(use_orig_params=use_orig_params), Detached)
    with patched(NO_STALE, model=model):
        loss_of(model, batch(0)).backward()
        model.zero_grad()
        skip(model, (1,))
        loss_of(model, batch(1)).backward()
        flat_param = handles(model)[2].flat_param
        return any(param.grad is not None for param in flat_param._params or [flat_param])


@pytest.mark.parametrize("use_orig_params", [True, False])
def test_unit_without_a_gradient(ranks: RankPool, use_orig_params: bool) -> None:
    """A unit that ran, and got no gradient, has none."""
    assert ranks(without_gradient, use_orig_params=use_orig_params) == [False, False]


# Parity


@rehearsed
def stock_parity(case: Case) -> float | str:
    return parity(NO_STALE, case=case)


@pytest.mark.parametrize(
    "case",
    [
        Case(),
        Case(mode=TWICE),
        Case(use_orig_params=False),
        Case(strategy="SHARD_GRAD_OP"),
        Case(strategy="HYBRID_SHARD"),
        Case(precision="bf16"),
        Case(precision="keep-bf16"),
        Case(precision="keep-bf16", set_to_none=False, use_orig_params=False),
        Case(set_to_none=False),
        Case(clip=0.01),
        Case(backwards=2),
        Case(backwards=3, no_sync=(0, 1)),
        Case(backwards=3, no_sync=(1,)),
        Case(backwards=3, no_sync=(1,), use_orig_params=False),
    ],
    ids=str,
)
def test_equals_stock(ranks: RankPool, case: Case) -> None:
    """Losses, gradients, clipped norms and parameters of three steps are those of stock FSDP1, to the last bit."""
    assert ranks(stock_parity, case=case) == [0.0, 0.0]


@rehearsed
def accumulated_over(case: Case, *, unused_second: bool) -> float | str:
    """Two backward passes, of which a unit takes part in the first or in both: under no_sync, then synchronized."""

    def run(model: FSDP) -> list[torch.Tensor | None]:
        with model.no_sync():
            loss_of(model, batch(0)).backward()
        skip(model, (1,) if unused_second else ())
        loss_of(model, batch(1)).backward()
        return gradients(model)

    stock, model = run(skipping(case)), skipping(case)
    with patched(NO_STALE, model=model):
        return difference([stock], [run(model)])


@pytest.mark.parametrize("unused_second", [False, True])
def test_accumulation_under_no_sync(ranks: RankPool, unused_second: bool) -> None:
    """Gradients that wait under no_sync are kept, also for a unit that takes no part in the last pass."""
    assert ranks(accumulated_over, case=Case(), unused_second=unused_second) == [0.0, 0.0]


@rehearsed
def partly_zeroed() -> float | str:
    """The biases are zeroed by hand, a forward follows, and then another training step."""

    def run(model: FSDP) -> list[list[torch.Tensor | None]]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss_of(model, batch(0)).backward()
        for name, param in model.named_parameters():
            param.grad = None if name.endswith("bias") else param.grad
        with torch.no_grad():
            model(batch(1))
        between = gradients(model)
        optimizer.step()
        optimizer.zero_grad()
        return [between, *train(model, Case(), optimizer=optimizer)]

    stock, model = run(build()), build()
    with patched(NO_STALE, model=model):
        return difference(stock, run(model))


def test_partly_zeroed(ranks: RankPool) -> None:
    """Gradients that were not zeroed survive a forward, as in stock; those that were don't come back."""
    assert ranks(partly_zeroed) == [0.0, 0.0]


@rehearsed
def unsharded_gradients() -> list[float | str]:
    """What summon_full_params shows of gradients: after a backward, and after zero_grad and a forward."""

    def shown(model: FSDP) -> list[torch.Tensor | None]:
        # Writing back gradients that are None is an error in stock FSDP1.
        with FSDP.summon_full_params(model, with_grads=True, writeback=False):
            return [None if param.grad is None else param.grad.clone() for param in model.parameters()]

    def run(model: FSDP) -> list[list[torch.Tensor | None]]:
        loss_of(model, batch(0)).backward()
        first = [shown(model), gradients(model)]
        model.zero_grad()
        return [*first, shown(model), gradients(model)]

    stock, model = run(build()), build()
    with patched(NO_STALE, model=model):
        ours = run(model)
        with torch.no_grad():
            model(batch(1))
        afterwards = [*shown(model), *gradients(model)]
    # Stock brings the gradient back here too.
    return [
        difference(stock[:3], ours[:3]),
        difference([[None] * len(ours[3]), [None] * len(afterwards)], [ours[3], afterwards]),
    ]


def test_unsharded_gradients(ranks: RankPool) -> None:
    """summon_full_params(with_grads=True) shows a gradient that is there, and none that was zeroed."""
    assert ranks(unsharded_gradients) == [[0.0, 0.0]] * 2


# Life


@rehearsed
def reverted_in_training(when: str) -> tuple[float | str, Any]:
    def run(model: FSDP, applied: Any) -> list[list[torch.Tensor | None]]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        seen = [train_step(model, Case(), 0, optimizer)]
        loss = loss_of(model, batch(10))
        if when == "before backward":
            applied.revert()
        loss.backward()
        if when == "after backward":
            applied.revert()
        seen.append(gradients(model))
        optimizer.step()
        optimizer.zero_grad()
        if when == "after zero_grad":
            applied.revert()
        return [*seen, train_step(model, Case(), 2, optimizer)]

    class Nothing:
        def revert(self) -> None: ...

    stock = run(build(), Nothing())
    model = build()
    untouched = hooks_and_overrides(model)
    ours = run(model, patched(NO_STALE, model=model))
    return difference(stock, ours), hooks_and_overrides(model) == untouched


@pytest.mark.parametrize("when", ["before backward", "after backward", "after zero_grad"])
def test_reverted_in_training(ranks: RankPool, when: str) -> None:
    """Wherever in a step it is reverted, the training goes on as in stock, and nothing is left on the model."""
    assert ranks(reverted_in_training, when=when) == [(0.0, True)] * 2


@rehearsed
def applied_late() -> list[int]:
    """Gradients that are there after zero_grad and a forward, when it is applied then; and one step later."""
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_step(model, Case(), 0, optimizer)
    with torch.no_grad():
        model(batch(1))
    with patched(NO_STALE, model=model) as applied:
        left = sum(param.grad is not None for param in parameters(model))
        train_step(model, Case(), 1, optimizer)
        with applied.reverted(), torch.no_grad():
            model(batch(2))
        applied.verify()
        return [left, sum(param.grad is not None for param in parameters(model))]


def test_applied_late(ranks: RankPool) -> None:
    """Gradients that came back before it was applied, or while it was suspended, are gone at once."""
    assert ranks(applied_late) == [[0, 0]] * 2
