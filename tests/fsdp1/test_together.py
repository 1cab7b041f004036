"""The collection as people use it: several patches at once, through a whole loop, and nothing more on the wire."""

from __future__ import annotations

import gc
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import _runtime_utils

import patchkit
from patchkit.fsdp1 import release_completed_gradients, replay_forward
from tests.fsdp1._models import mixed
from tests.fsdp1._pool import RankPool
from tests.fsdp1._toy import (
    ACCUMULATE,
    DROP_SHARDS,
    FSDP,
    NO_STALE,
    PAGEABLE,
    Case,
    Record,
    batch,
    build,
    difference,
    full_parameters,
    gradients,
    hooks_and_overrides,
    host_gradients,
    loss_of,
    patched,
    plain,
    rehearsed,
    swapped,
    train,
    wrap,
)

TRAINING = [ACCUMULATE, NO_STALE, DROP_SHARDS, PAGEABLE]
ORDERS = [TRAINING, TRAINING[::-1], [PAGEABLE, ACCUMULATE, DROP_SHARDS, NO_STALE]]


def loop(model: FSDP, *, ours: bool) -> Record:
    """Train, validate, release, save, roll out by replay, train: what is seen on the way."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    seen: Record = train(model, Case(steps=2, clip=0.1), optimizer=optimizer)
    with torch.no_grad(), patchkit.apply("manifests/validation.toml", model) if ours else nullcontext():
        seen.append([torch.as_tensor(model(batch(50)))])
    if ours:
        assert host_gradients(model) == 0
        release_completed_gradients(model)
    seen.append([param.detach().clone() for param in full_parameters(model)])
    accumulated: dict[Any, torch.Tensor] = {}
    losses: list[torch.Tensor] = []
    with patchkit.apply("manifests/replay.toml", model) if ours else nullcontext():
        losses += [torch.as_tensor(replay_forward(model, accumulated, x=batch(60 + step))).mean() for step in range(2)]
    torch.stack(losses).sum().backward()
    for param, gradient in accumulated.items():
        param.grad = gradient
    seen.append(gradients(model))
    optimizer.step()
    optimizer.zero_grad()
    return [*seen, *train(model, Case(steps=2, backwards=2, no_sync=(0,)), first=7, optimizer=optimizer)]


@rehearsed
def whole_loop(names: list[str], use_orig_params: bool) -> tuple[float | str, bool]:
    case = Case(use_orig_params=use_orig_params)
    stock = loop(build(case), ours=False)
    model = build(case)
    before = hooks_and_overrides(model)
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(patched(name, model=model))
        found = difference(stock, loop(model, ours=True))
    return found, hooks_and_overrides(model) == before


@pytest.mark.parametrize("use_orig_params", [True, False])
@pytest.mark.parametrize("names", ORDERS, ids=["as written", "reversed", "mixed"])
def test_whole_loop(ranks: RankPool, names: list[str], use_orig_params: bool) -> None:
    """A loop under all patches that go with training, applied in any order, is the stock loop to the last bit."""
    assert ranks(whole_loop, names=names, use_orig_params=use_orig_params) == [(0.0, True)] * 2


def compiled() -> FSDP:
    toy = plain()
    for block in toy.blocks:
        block.compile(backend="aot_eager")
    return wrap(toy)


KINDS: dict[str, tuple[Callable[[], FSDP], Case]] = {
    "nested roots": (mixed, Case()),
    "compiled blocks": (compiled, Case()),
    "anomaly detection": (build, Case(anomaly=True)),
    "checkpointed blocks": (lambda: build(Case(mode="checkpointed twice")), Case()),
}


@rehearsed
def kind_of_model(kind: str) -> list[float | str]:
    """Training with a validation in between, stock and under all patches, applied late and taken out early."""
    make, case = KINDS[kind]

    def run(model: FSDP, names: list[str]) -> Record:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        seen = train(model, case, optimizer=optimizer)
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(patched(name, model=model))
            seen += train(model, case, first=3, optimizer=optimizer)
            with torch.no_grad(), patchkit.apply("manifests/validation.toml", model) if names else nullcontext():
                seen.append([torch.as_tensor(model(batch(50)))])
            seen += train(model, case, first=6, optimizer=optimizer)
        return [*seen, *train(model, case, first=9, optimizer=optimizer)]

    warnings.simplefilter("ignore")
    return [difference(run(make(), []), run(make(), [ACCUMULATE, NO_STALE, DROP_SHARDS]))]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_kinds_of_models(ranks: RankPool, kind: str) -> None:
    """Nested roots, frozen parts, compiled and checkpointed blocks, and anomaly detection train as in stock."""
    assert ranks(kind_of_model, kind=kind) == [[0.0]] * 2


@rehearsed
def with_a_stranger(first: bool) -> tuple[float | str, int]:
    """Another project's patch on the callback, there before ours or put there after: accumulation, and its calls."""
    calls = 0
    original = _runtime_utils._post_reduce_grad_callback

    def theirs(below: Callable[..., None]) -> Callable[..., None]:
        def callback(state: Any, handle: Any, grad_to_offload: torch.Tensor) -> None:
            nonlocal calls
            calls += 1
            below(state, handle, grad_to_offload)

        return callback

    case = Case(backwards=2)
    expected = train(build(Case(offload=False)), case)
    model = build(case)
    if first:
        _runtime_utils._post_reduce_grad_callback = theirs(original)
    applied = patched(ACCUMULATE, DROP_SHARDS, model=model)
    ours = _runtime_utils._post_reduce_grad_callback
    if not first:
        _runtime_utils._post_reduce_grad_callback = theirs(ours)
    found = difference(expected, train(model, case))
    if not first:
        _runtime_utils._post_reduce_grad_callback = _runtime_utils._post_reduce_grad_callback.__closure__[
            0
        ].cell_contents
    applied.revert()
    _runtime_utils._post_reduce_grad_callback = original
    return found, calls


@pytest.mark.parametrize("first", [True, False])
def test_with_a_stranger(ranks: RankPool, first: bool) -> None:
    """Another project's wrapper on the same callback is called, and gradients are right, whoever came first."""
    assert ranks(with_a_stranger, first=first) == [(0.0, 3 * 2 * 5)] * 2


def counted(calls: Counter[str], name: str) -> Callable[..., Any]:
    original = getattr(dist, name)

    def count(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return original(*args, **kwargs)

    return count


@rehearsed
def collectives(names: list[str]) -> dict[str, int]:
    """How often a step, a validation and a second step call each collective."""
    model = build()
    calls: Counter[str] = Counter()
    kinds = [name for name in dir(dist) if name.startswith(("all_gather", "reduce_scatter", "all_reduce", "broadcast"))]
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(patched(name, model=model))
        for name in kinds:
            if callable(getattr(dist, name)):
                stack.enter_context(swapped(dist, name, counted(calls, name)))
        train(model, Case(steps=2))
        with torch.no_grad():
            loss_of(model, batch(9))
    return dict(calls)


def test_no_more_collectives(ranks: RankPool) -> None:
    """The patches send nothing: every collective runs as often as in stock FSDP1."""
    stock = ranks(collectives, names=[])
    assert sum(stock[0].values()) > 0
    assert ranks(collectives, names=TRAINING) == stock


@rehearsed
def tensors_left(names: list[str]) -> int:
    """How many more tensors there are after ten more steps."""
    model = build()
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(patched(name, model=model))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, Case(), optimizer=optimizer)
        before = alive()
        train(model, Case(steps=10), optimizer=optimizer)
        return alive() - before


def alive() -> int:
    gc.collect()
    return sum(issubclass(type(obj), torch.Tensor) for obj in gc.get_objects())


def test_no_growth(ranks: RankPool) -> None:
    """Ten steps leave no tensor behind that was not there after the first three."""
    assert ranks(tensors_left, names=TRAINING) == [0, 0]
