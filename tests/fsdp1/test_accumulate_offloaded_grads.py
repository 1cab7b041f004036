"""``fsdp1.accumulate-offloaded-grads``: passes add up as without offload, and nothing that was zeroed does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import torch

from patchkit.errors import PatchkitError
from patchkit.fsdp1._memory import MemoryLedger
from tests.fsdp1._models import skip, skipping
from tests.fsdp1._pool import RankPool
from tests.fsdp1._toy import (
    ACCUMULATE,
    BLOCK_BYTES,
    DROP_IDLE,
    DROP_SHARDS,
    FSDP,
    NO_STALE,
    PAGEABLE,
    SHARD_BYTES,
    Case,
    batch,
    build,
    difference,
    full_parameters,
    gradients,
    hooks_and_overrides,
    loss_of,
    parity,
    patched,
    plain,
    rehearsed,
    train,
    worst,
    wrap,
)

TWICE = "reentrant twice"
Steps = Callable[[FSDP], None]


# Against FSDP1 without offload, which accumulates


@rehearsed
def against_no_offload(case: Case, names: list[str]) -> tuple[float | str, float | str]:
    """Stock with offload, and patched, against stock without: gradients and parameters of three steps."""
    fields = {name: getattr(case, name) for name in case.__dataclass_fields__}
    expected = train(build(Case(**{**fields, "offload": False})), case)
    stock = difference(expected, train(build(case), case))
    model = build(case)
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(patched(name, model=model))
        return stock, difference(expected, train(model, case))


ACCUMULATING = [
    Case(backwards=2),
    Case(backwards=3, use_orig_params=False),
    Case(backwards=2, strategy="SHARD_GRAD_OP"),
    Case(backwards=2, strategy="HYBRID_SHARD"),
    Case(backwards=2, set_to_none=False),
    Case(backwards=2, clip=0.01),
    Case(backwards=2, precision="reduce-bf16"),
    Case(backwards=2, precision="bf16"),
    Case(backwards=2, mode=TWICE),
    Case(backwards=3, mode=TWICE, use_orig_params=False),
    Case(backwards=4, no_sync=(1,)),
    Case(backwards=4, no_sync=(0, 2)),
    Case(backwards=4, no_sync=(1, 2), use_orig_params=False),
    Case(backwards=3, no_sync=(1,), mode=TWICE),
]


@pytest.mark.parametrize("case", ACCUMULATING, ids=str)
def test_adds_up_as_without_offload(ranks: RankPool, case: Case) -> None:
    """Several passes before a step give what FSDP1 without offload gives, to the last bit; stock with offload loses."""
    for stock, ours in ranks(against_no_offload, case=case, names=[ACCUMULATE]):
        assert stock != 0.0
        assert ours == 0.0


@pytest.mark.parametrize(
    "names",
    [
        [ACCUMULATE, DROP_SHARDS],
        [DROP_SHARDS, ACCUMULATE],
        [NO_STALE, ACCUMULATE, PAGEABLE, DROP_SHARDS],
        [DROP_SHARDS, ACCUMULATE, NO_STALE],
    ],
    ids=lambda names: " ".join(name.removeprefix("fsdp1.") for name in names),
)
@pytest.mark.parametrize(
    "case",
    [Case(backwards=3), Case(backwards=3, mode=TWICE), Case(backwards=4, no_sync=(1,), mode=TWICE)],
    ids=str,
)
def test_beside_other_patches(ranks: RankPool, names: list[str], case: Case) -> None:
    """So it does beside the others, in any order, and where units reduce twice in each pass."""
    assert [ours for _, ours in ranks(against_no_offload, case=case, names=names)] == [0.0, 0.0]


def test_replicas_of_shards(four_ranks: RankPool) -> None:
    """With HYBRID_SHARD over two by two ranks, where reduction ends on another stream."""
    case = Case(backwards=2, strategy="HYBRID_SHARD", mode=TWICE)
    assert [ours for _, ours in four_ranks(against_no_offload, case=case, names=[ACCUMULATE])] == [0.0] * 4


# Against a single process


@rehearsed
def against_single_process() -> tuple[float, float]:
    """Three passes, a step, twice: parameters of a single process, and what they are apart, stock and patched."""
    world = torch.distributed.get_world_size()

    def trained(model: Any, single: bool) -> Any:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(2):
            for index in range(3):
                for rank in range(world) if single else [None]:
                    scale = world if single else 1
                    (loss_of(model, batch(10 * step + index, rank)) / scale).backward()
            optimizer.step()
            optimizer.zero_grad()
        return model

    expected = [param.detach() for param in trained(plain(), single=True).parameters()]
    stock = full_parameters(trained(build(), single=False))
    model = build()
    with patched(ACCUMULATE, DROP_SHARDS, model=model):
        ours = full_parameters(trained(model, single=False))
    return worst(zip(expected, stock, strict=True)), worst(zip(expected, ours, strict=True))


def test_equals_a_single_process(ranks: RankPool) -> None:
    """Parameters are those of a single process on all batches, but for the order in which ranks are averaged."""
    for stock, ours in ranks(against_single_process):
        assert stock > 1e-3
        assert ours < 1e-7


# One pass is stock's


@rehearsed
def stock_parity(case: Case) -> float | str:
    return parity(ACCUMULATE, case=case)


@pytest.mark.parametrize(
    "case",
    [
        Case(),
        Case(mode=TWICE),
        Case(use_orig_params=False),
        Case(precision="keep-bf16"),
        Case(precision="keep-bf16", set_to_none=False, use_orig_params=False),
        Case(strategy="SHARD_GRAD_OP", set_to_none=False),
        Case(backwards=3, no_sync=(0, 1)),
    ],
    ids=str,
)
def test_one_pass_is_stock(ranks: RankPool, case: Case) -> None:
    """Where only one pass synchronizes before a step, everything is stock's to the last bit."""
    assert ranks(stock_parity, case=case) == [0.0, 0.0]


# What was zeroed, and what took no part


def backward(model: FSDP, step: int) -> None:
    loss_of(model, batch(step)).backward()


def no_grad_forwards(model: FSDP) -> None:
    with torch.no_grad():
        model(batch(7))
        model(batch(8))


def failing_backward(model: FSDP) -> None:
    x = batch(5)

    def fail(grad: torch.Tensor) -> None:
        raise ValueError("in the middle of a backward")

    x.register_hook(fail)
    try:
        loss_of(model, x).backward()
    except ValueError:
        pass


def zero_after_forward(model: FSDP) -> None:
    loss = loss_of(model, batch(1))
    model.zero_grad()
    loss.backward()


def zeroed_under_no_sync(model: FSDP) -> None:
    with model.no_sync():
        backward(model, 2)
    model.zero_grad()
    backward(model, 1)


SEQUENCES: dict[str, list[Steps]] = {
    "zeroed": [lambda m: backward(m, 0), lambda m: m.zero_grad(), lambda m: backward(m, 1)],
    "zeroed, and forwards without gradients": [
        lambda m: backward(m, 0),
        lambda m: m.zero_grad(),
        no_grad_forwards,
        lambda m: backward(m, 1),
    ],
    "zeroed between forward and backward": [lambda m: backward(m, 0), zero_after_forward],
    "zeroed after no_sync": [lambda m: backward(m, 0), zeroed_under_no_sync],
    "zeroed after a failed backward": [
        lambda m: backward(m, 0),
        failing_backward,
        lambda m: m.zero_grad(),
        lambda m: backward(m, 1),
    ],
}


@rehearsed
def zeroed(sequence: str, names: list[str], use_orig_params: bool) -> float | str:
    """Gradients after a sequence, against those of its last pass alone."""
    case = Case(use_orig_params=use_orig_params)
    model, alone = build(case), build(case)
    backward(alone, 1)
    with patched(*names, model=model):
        for step in SEQUENCES[sequence]:
            step(model)
        return difference([gradients(alone)], [gradients(model)])


@pytest.mark.parametrize("use_orig_params", [True, False])
@pytest.mark.parametrize("sequence", sorted(SEQUENCES))
def test_what_was_zeroed_is_not_added(ranks: RankPool, sequence: str, use_orig_params: bool) -> None:
    """A gradient that was zeroed never counts again, though stock FSDP1 brings it back; dropping shards or not."""
    if "failed" in sequence and not use_orig_params:
        pytest.skip("after a failed backward, stock FSDP1 gives the root no gradient in the next one")
    for names in ([ACCUMULATE], [ACCUMULATE, DROP_SHARDS]):
        found = ranks(zeroed, sequence=sequence, names=names, use_orig_params=use_orig_params)
        assert found == [0.0, 0.0]


@rehearsed
def partly(names: list[str]) -> list[float | str]:
    """A block that takes part in the first pass only, one in the second only, against a model without offload."""

    def run(offload: bool, names: list[str]) -> list[torch.Tensor | None]:
        model = skipping(Case(offload=offload))
        with patched(*names, model=model) if names else ExitStack():
            skip(model, (1,))
            backward(model, 0)
            skip(model, (2,))
            backward(model, 1)
            with torch.no_grad():
                model(batch(7))
            return gradients(model)

    return [difference([run(False, [])], [run(True, names)])]


@pytest.mark.parametrize("names", [[ACCUMULATE], [ACCUMULATE, DROP_SHARDS], [ACCUMULATE, NO_STALE]], ids=str)
def test_units_that_take_part_in_some(ranks: RankPool, names: list[str]) -> None:
    """Units that take part in only one of the passes keep that pass's gradient."""
    assert ranks(partly, names=names) == [[0.0]] * 2


# Memory


@rehearsed
def peaks() -> list[int]:
    found = []
    for names in ([ACCUMULATE], [ACCUMULATE, DROP_SHARDS]):
        model = build()
        with patched(*names, model=model):
            backward(model, 0)
            with MemoryLedger(model) as ledger:
                backward(model, 1)
            found.append(ledger.peak("saved_grad_shards"))
    return found


def test_shards_on_the_device(ranks: RankPool) -> None:
    """It keeps no shard on the device for longer: the whole model's as in stock, the largest unit's where they drop."""
    assert ranks(peaks) == [[SHARD_BYTES, BLOCK_BYTES]] * 2


# Life


@rehearsed
def refused(situation: str) -> str:
    model = build(Case(strategy="NO_SHARD" if situation == "NO_SHARD" else "FULL_SHARD"))
    if situation == "optimizer in backward":
        from torch.distributed.optim import _apply_optimizer_in_backward

        model = wrap(plain())
        _apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.1})
    with ExitStack() as stack:
        if situation == "dropped":
            stack.enter_context(torch.no_grad())
            stack.enter_context(patched(DROP_IDLE, model=model))
            model(batch(0))
        try:
            patched(ACCUMULATE, model=model).revert()
        except PatchkitError as error:
            return str(error)
    return "it was applied"


@pytest.mark.parametrize(
    ("situation", "expected"),
    [
        ("NO_SHARD", "expected sharded units"),
        ("optimizer in backward", "expected no optimizer that steps at the end of a backward pass"),
        ("dropped", "expected no model whose host gradients were dropped"),
    ],
)
def test_refuses_what_it_cannot_make_right(ranks: RankPool, situation: str, expected: str) -> None:
    """NO_SHARD, an optimizer in backward, and a model without host gradients are refused."""
    for said in ranks(refused, situation=situation):
        assert said.startswith(f"{ACCUMULATE}: {expected}")


@rehearsed
def coming_and_going() -> tuple[float | str, float | str, bool]:
    """One of two reverted while the other stays; then all: accumulation, stock afterwards, and what is left."""

    def passes(model: FSDP) -> list[torch.Tensor | None]:
        model.zero_grad()
        backward(model, 0)
        backward(model, 1)
        return gradients(model)

    model = build()
    before = hooks_and_overrides(model)
    accumulate = patched(ACCUMULATE, model=model)
    drop = patched(DROP_SHARDS, model=model)
    both = passes(model)
    drop.revert()
    one = passes(model)
    drop = patched(DROP_SHARDS, model=model)
    with accumulate.reverted():
        passes(model)
    again = passes(model)
    accumulate.revert()
    stock, ours = passes(build()), passes(model)
    drop.revert()
    same = difference([both, both], [one, again])
    return same, difference([stock], [ours]), hooks_and_overrides(model) == before


def test_coming_and_going(ranks: RankPool) -> None:
    """Reverting one of two leaves the other right; afterwards FSDP1 loses again what stock loses."""
    assert ranks(coming_and_going) == [(0.0, 0.0, True)] * 2


@rehearsed
def two_models() -> bool:
    """Whether a model that was not given accumulates."""
    model, other = build(), build()
    with patched(ACCUMULATE, model=model):
        backward(other, 0)
        backward(other, 1)
    alone = build()
    backward(alone, 1)
    return difference([gradients(alone)], [gradients(other)]) != 0.0


@rehearsed
def each_of_two_models() -> list[float | str]:
    """Two models, each with an application of its own: gradients of two passes, and after the first one is reverted."""

    def passes(model: FSDP) -> list[torch.Tensor | None]:
        backward(model, 0)
        backward(model, 1)
        found = gradients(model)
        model.zero_grad()
        return found

    expected = passes(build(Case(offload=False)))
    models = [build(), build()]
    applied = [patched(ACCUMULATE, DROP_SHARDS, model=model) for model in models]
    found = [difference([expected], [passes(model)]) for model in models]
    applied[0].revert()
    found.append(difference([expected], [passes(models[1])]))
    applied[1].revert()
    return found


def test_each_of_two_models(ranks: RankPool) -> None:
    """Two models that are given one after the other both accumulate, and the second still does without the first."""
    assert ranks(each_of_two_models) == [[0.0, 0.0, 0.0]] * 2


def test_is_local(ranks: RankPool) -> None:
    """A model that it was not given is left alone."""
    assert ranks(two_models) == [False, False]
