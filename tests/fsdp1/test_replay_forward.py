"""``replay_forward``: gradients of a rollout, to the last bit, from one accumulator a shard."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import patchkit
from patchkit.fsdp1 import replay_forward
from tests.fsdp1._pool import RankPool
from tests.fsdp1._toy import (
    ACCUMULATE,
    DROP_SHARDS,
    FSDP,
    NO_STALE,
    PAGEABLE,
    WIDTH,
    Block,
    Case,
    batch,
    build,
    difference,
    full_parameters,
    loss_of,
    parameters,
    patched,
    plain,
    rehearsed,
    worst,
)

Gradients = dict[Any, torch.Tensor]


class Rich(nn.Module):
    """A model whose arguments and results are nested, with dropout, and arguments named like the helper's own."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: torch.Tensor, model: list[torch.Tensor] | None = None, accumulated: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        for block in self.blocks:
            x = self.dropout(block(x))
        for extra in model or ():
            x = x + extra
        if accumulated is not None:
            x = x * accumulated["scale"]
        y = self.head(x)
        return {"y": (y, x), "best": y.argmax(-1), "note": "text", "count": 3}


def rich(case: Case = Case(), dropout: float = 0.0) -> FSDP:  # noqa: B008
    torch.manual_seed(0)
    return build(case, model=Rich(dropout))


# A rollout against the same forwards on their own


def chained(call: Callable[[torch.Tensor], torch.Tensor], forwards: int, x: torch.Tensor) -> torch.Tensor:
    """Each forward takes what the one before has returned, and all count."""
    total = torch.zeros(())
    for _ in range(forwards):
        x = call(x)
        total = total + x.float().pow(2).mean()
    return total


@rehearsed
def against_single_process(forwards: int, case: Case, names: list[str]) -> tuple[float, float]:
    """How far parameters after a step, and the input's gradient, are from those of a single process."""
    world = dist.get_world_size()
    single = plain(case)
    inputs = [batch(0, rank) for rank in range(world)]
    for x in inputs:
        (chained(single, forwards, x) / world).backward()
    expected_input = inputs[dist.get_rank()].grad
    torch.optim.SGD(single.parameters(), lr=0.1).step()
    model = build(case)
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(patched(name, model=model))
        accumulated: Gradients = {}
        x = batch(0)
        chained(lambda value: torch.as_tensor(replay_forward(model, accumulated, x=value)), forwards, x).backward()
        assert all(param.grad is None for param in parameters(model))
        for param, gradient in accumulated.items():
            param.grad = gradient
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert expected_input is not None
    assert x.grad is not None
    pairs = zip((param.detach() for param in single.parameters()), full_parameters(model), strict=True)
    return worst(pairs), (expected_input / (1 / world) - x.grad).abs().max().item()


@pytest.mark.parametrize(
    ("forwards", "case"),
    [
        (1, Case()),
        (3, Case()),
        (10, Case()),
        (3, Case(use_orig_params=False)),
        (3, Case(strategy="SHARD_GRAD_OP")),
        (3, Case(offload=False)),
        (3, Case(mode="twice")),
        (3, Case(mode="reentrant twice")),
        (3, Case(mode="checkpointed twice")),
    ],
    ids=str,
)
def test_equals_a_single_process(ranks: RankPool, forwards: int, case: Case) -> None:
    """A chained rollout trains as a single process does by plain autograd, inputs' gradients included.

    Not to the last bit: the sum over ranks and forwards is made in another order.
    """
    for parameters_apart, input_apart in ranks(against_single_process, forwards=forwards, case=case, names=[]):
        assert parameters_apart < 1e-6
        assert input_apart < 1e-6


@pytest.mark.parametrize(
    "names",
    [[DROP_SHARDS, PAGEABLE], [NO_STALE, ACCUMULATE, DROP_SHARDS], [ACCUMULATE]],
    ids=lambda names: " ".join(name.removeprefix("fsdp1.") for name in names),
)
def test_beside_patches(ranks: RankPool, names: list[str]) -> None:
    """So it does beside the patches."""
    for parameters_apart, input_apart in ranks(against_single_process, forwards=3, case=Case(), names=names):
        assert max(parameters_apart, input_apart) < 1e-6


@rehearsed
def against_passes_of_their_own(case: Case) -> float | str:
    """Accumulators against the sum of the gradients of single passes, added in the order of the backward."""
    model, single = build(case), build(case)
    accumulated: Gradients = {}
    losses = [
        torch.as_tensor(replay_forward(model, accumulated, x=batch(step))).float().pow(2).mean() for step in range(3)
    ]
    torch.stack(losses).sum().backward()
    total: list[torch.Tensor | None] = [None] * len(parameters(single))
    for step in reversed(range(3)):
        loss_of(single, batch(step)).backward()
        for index, param in enumerate(parameters(single)):
            if param.grad is not None:
                before = total[index]
                total[index] = param.grad.clone() if before is None else before + param.grad
        single.zero_grad()
    return difference([total], [[accumulated.get(param) for param in parameters(model)]])


@pytest.mark.parametrize("case", [Case(), Case(use_orig_params=False), Case(precision="bf16")], ids=str)
def test_adds_up_to_the_last_bit(ranks: RankPool, case: Case) -> None:
    """What is accumulated is the sum of what FSDP1 gives for each forward alone, last one first."""
    assert ranks(against_passes_of_their_own, case=case) == [0.0, 0.0]


# What a run depends on


@rehearsed
def depends_on(what: str) -> list[float | str]:
    """A forward with dropout, autocast or contexts, plain and replayed: outputs, gradients, random state after it."""

    def once(replay: bool) -> list[torch.Tensor | None]:
        model = rich(dropout=0.5 if what == "dropout" else 0.0)
        seen: list[str] = []

        class Noted:
            def __init__(self, name: str) -> None:
                self.name = name

            def __enter__(self) -> None:
                seen.append(self.name)

            def __exit__(self, *error: object) -> None: ...

        torch.manual_seed(7)
        accumulated: Gradients = {}
        x = batch(0)
        with torch.autocast("cpu", dtype=torch.bfloat16) if what == "autocast" else nullcontext():
            if replay:
                context_fn: Any = (lambda: (Noted("first"), Noted("second"))) if what == "contexts" else None
                output = replay_forward(model, accumulated, context_fn=context_fn, x=x)
            else:
                output = model(x=x)
        torch.randn(3)
        output["y"][0].float().pow(2).mean().backward()
        after = torch.randn(3)
        if replay:
            assert seen == (["first", "second"] if what == "contexts" else [])
        grads = [accumulated.get(param) if replay else param.grad for param in parameters(model)]
        return [output["y"][0].detach(), x.grad, after, *(None if grad is None else grad.clone() for grad in grads)]

    return [difference([once(replay=False)], [once(replay=True)])]


@pytest.mark.parametrize("what", ["dropout", "autocast", "contexts"])
def test_same_state(ranks: RankPool, what: str) -> None:
    """Random state and autocast are the first run's again, contexts are entered, the caller's random state goes on."""
    assert ranks(depends_on, what=what) == [[0.0]] * 2


@rehearsed
def nested() -> list[Any]:
    """Nested inputs of which some require gradients, arguments named like the helper's own, and partial outputs."""

    def once(replay: bool) -> tuple[dict[str, Any], list[torch.Tensor | None]]:
        model = rich()
        accumulated: Gradients = {}
        x, extra, scale = batch(0).detach(), batch(1), batch(2)
        inputs: dict[str, Any] = {
            "x": x,
            "model": [extra, batch(3).detach()],
            "accumulated": {"scale": scale, "unused": 3},
        }
        output = replay_forward(model, accumulated, **inputs) if replay else model(**inputs)
        output["y"][1].pow(2).mean().backward()
        grads = [accumulated.get(param) if replay else param.grad for param in parameters(model)]
        return output, [x.grad, extra.grad, scale.grad, *(None if g is None else g.clone() for g in grads)]

    (stock, expected), (ours, found) = once(replay=False), once(replay=True)
    # Stock gives the parameters behind the unused output zeros, as a replay does.
    return [
        difference([expected], [found]),
        torch.equal(stock["best"], ours["best"]),
        ours["best"].requires_grad,
        (ours["note"], ours["count"]),
    ]


def test_nestings(ranks: RankPool) -> None:
    """Any nesting goes in and out; outputs may get a gradient or not; integers have none, and other leaves pass."""
    assert ranks(nested) == [[0.0, True, False, ("text", 3)]] * 2


class Dropped(torch.autograd.Function):
    """Passes values on, and no gradient back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> None:
        return None


@rehearsed
def uneven() -> float:
    """One rank's output gets no gradient, though it is part of the graph."""
    model = build()
    accumulated: Gradients = {}
    output = torch.as_tensor(replay_forward(model, accumulated, x=batch(0)))
    if dist.get_rank() == 1:
        output = torch.as_tensor(Dropped.apply(output))  # type: ignore[no-untyped-call]
    output.pow(2).mean().backward()
    return float(sum(gradient.abs().sum() for gradient in accumulated.values()))


def test_rank_without_a_gradient(ranks: RankPool) -> None:
    """A rank whose outputs get no gradient takes part in the collectives all the same, with zeros."""
    assert all(total > 0 for total in ranks(uneven))


@rehearsed
def without_gradients() -> tuple[bool, bool, int]:
    """Under no_grad it is a plain forward; a frozen model passes gradients to its input and accumulates nothing."""
    accumulated: Gradients = {}
    model = build()
    with torch.no_grad():
        output = torch.as_tensor(replay_forward(model, accumulated, x=batch(0)))
        same = torch.equal(output, torch.as_tensor(model(batch(0)))) and not output.requires_grad
    frozen = build(Case(frozen=True))
    x, y = batch(0), batch(0)
    torch.as_tensor(replay_forward(frozen, accumulated, x=x)).pow(2).mean().backward()
    loss_of(build(Case(frozen=True)), y).backward()
    return same, x.grad is not None and y.grad is not None and torch.equal(x.grad, y.grad), len(accumulated)


def test_without_gradients(ranks: RankPool) -> None:
    """Without grad mode it is the plain forward; without trainable parameters only the input gets a gradient."""
    assert ranks(without_gradients) == [(True, True, 0)] * 2


@rehearsed
def in_a_replay_manifest() -> tuple[float | str, int]:
    """The forwards of a rollout under manifests/replay.toml, the backward outside."""
    from tests.fsdp1._toy import host_gradients

    def rollout(model: FSDP, manifest: str | None) -> tuple[list[torch.Tensor | None], int]:
        accumulated: Gradients = {}
        with patchkit.apply(manifest, model) if manifest else nullcontext():
            x = batch(0)
            for _ in range(3):
                x = torch.as_tensor(replay_forward(model, accumulated, x=x))
            inside = host_gradients(model)
        x.pow(2).mean().backward()
        return [accumulated.get(param) for param in parameters(model)], inside

    stock, _ = rollout(build(), None)
    ours, inside = rollout(build(), "manifests/replay.toml")
    return difference([stock], [ours]), inside


def test_under_its_manifest(ranks: RankPool) -> None:
    """With manifests/replay.toml around the forwards no host gradients are there, and gradients are the same."""
    assert ranks(in_a_replay_manifest) == [(0.0, 20)] * 2
