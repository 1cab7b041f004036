"""``replay_forward``: what it refuses, what is left after an error, and how long things live."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import nn

from patchkit.errors import PatchkitError
from patchkit.fsdp1 import replay_forward
from patchkit.fsdp1._memory import MemoryLedger
from tests.fsdp1._pool import RankPool
from tests.fsdp1._toy import (
    FSDP,
    SHARD_BYTES,
    Toy,
    batch,
    build,
    difference,
    gradients,
    hooks_and_overrides,
    loss_of,
    parameters,
    rehearsed,
    train,
)

Gradients = dict[Any, torch.Tensor]


def replayed(model: FSDP, accumulated: Gradients, step: int = 0, **options: Any) -> torch.Tensor:
    """The loss of one replayed forward."""
    return torch.as_tensor(replay_forward(model, accumulated, x=batch(step), **options)).pow(2).mean()


def fresh() -> tuple[FSDP, Gradients]:
    return build(), {}


def message(call: Any) -> str:
    try:
        call()
    except (PatchkitError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "it went through"


# Refusals, of the forward


@dataclass
class Opaque:
    tensor: torch.Tensor


class Situation:
    """A model, what it is replayed with, and what keeps a graph alive meanwhile."""

    def __init__(self) -> None:
        self.model = build()
        self.target: Any = self.model
        self.accumulated: Any = {}
        self.inputs: dict[str, Any] = {"x": batch(0)}
        self.syncing: Any = nullcontext()
        self.kept: Any = None

    def no_tensor(self) -> None:
        self.inputs = {"x": 3}

    def two_devices(self) -> None:
        self.inputs["y"] = torch.empty(2, device="meta")

    def another_device(self) -> None:
        self.inputs = {"x": torch.empty(2, device="meta")}

    def no_sync(self) -> None:
        loss_of(self.model, batch(0)).backward()
        self.model.zero_grad()
        self.syncing = self.model.no_sync()

    def plain_module(self) -> None:
        self.target = Toy()

    def part_of_a_model(self) -> None:
        loss_of(self.model, batch(0)).backward()
        self.model.zero_grad()
        whole: Any = self.model
        self.target = whole.module.blocks[0]

    def no_mapping(self) -> None:
        self.accumulated = MappingProxyType({})

    def gradients(self) -> None:
        loss_of(self.model, batch(0)).backward()

    def pending_backward(self) -> None:
        self.kept = loss_of(self.model, batch(0))

    def hidden_tensor(self) -> None:
        self.inputs["more"] = Opaque(batch(1))

    def another_dictionary(self) -> None:
        self.kept = replayed(self.model, {})

    def another_dictionary_after_its_backward(self) -> None:
        self.kept = {}
        replayed(self.model, self.kept).backward()

    def old_dictionary(self) -> None:
        replayed(self.model, self.accumulated).backward()
        for param, gradient in self.accumulated.items():
            param.grad = gradient
        torch.optim.SGD(self.model.parameters(), lr=0.1).step()
        self.model.zero_grad()


@rehearsed
def refused(name: str) -> tuple[str, bool]:
    """What the forward says, and whether nothing has changed."""
    situation = Situation()
    getattr(situation, name)()
    before = gradients(situation.model)
    with situation.syncing:
        said = message(lambda: replay_forward(situation.target, situation.accumulated, **situation.inputs))
    untouched = difference([before], [gradients(situation.model)]) == 0.0
    if isinstance(situation.kept, torch.Tensor):
        situation.kept.backward()
    return said, untouched


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("no_tensor", "RefusedError: fsdp1.replay_forward: expected a tensor among the inputs"),
        ("two_devices", "RefusedError: fsdp1.replay_forward: expected inputs on one device, found cpu, meta"),
        ("another_device", "RefusedError: fsdp1.replay_forward: expected inputs on the CPU or a CUDA device"),
        ("no_sync", "RefusedError: fsdp1.replay_forward: expected gradients that are reduced at once"),
        ("plain_module", "ResourceError: fsdp1.replay_forward: expected a model that is wrapped in FSDP1"),
        ("part_of_a_model", "RefusedError: fsdp1.replay_forward: expected a whole model, found a unit of a larger one"),
        ("no_mapping", "ResourceError: fsdp1.replay_forward: expected a dictionary"),
        ("gradients", "RefusedError: fsdp1.replay_forward: expected units without gradients"),
        ("pending_backward", "RefusedError: fsdp1.replay_forward: expected no backward pass to come"),
        ("hidden_tensor", "RefusedError: fsdp1.replay_forward: expected tensors in nestings"),
        ("another_dictionary", "RefusedError: fsdp1.replay_forward: expected the dictionary that was given to the"),
        (
            "another_dictionary_after_its_backward",
            "RefusedError: fsdp1.replay_forward: expected the dictionary that this rollout's gradients are in",
        ),
        ("old_dictionary", "RefusedError: fsdp1.replay_forward: expected an empty dictionary, or one of this"),
    ],
)
def test_refuses_at_once(ranks: RankPool, name: str, expected: str) -> None:
    """What can't be replayed right is refused by the forward, before anything runs; the model goes on."""
    for said, untouched in ranks(refused, name=name):
        assert said.startswith(expected)
        assert untouched


@rehearsed
def next_rollout() -> float | str:
    """A second rollout after a step with a cleared dictionary, and with a new one while the old one is gone."""
    model, accumulated = fresh()
    replayed(model, accumulated).backward()
    accumulated.clear()
    replayed(model, accumulated, 1).backward()
    first: list[torch.Tensor | None] = [accumulated[p].clone() for p in parameters(model) if p in accumulated]
    accumulated = {}
    replayed(model, accumulated, 1).backward()
    return difference([first], [[accumulated[param] for param in parameters(model) if param in accumulated]])


def test_next_rollout(ranks: RankPool) -> None:
    """A dictionary that was cleared, or a new one in place of one that is gone, starts from nothing."""
    assert ranks(next_rollout) == [0.0, 0.0]


# Refusals, of the backward


@rehearsed
def changed_in_between(what: str) -> str:
    model, accumulated = fresh()
    x = batch(0).detach().clone()
    output = torch.as_tensor(replay_forward(model, accumulated, x=x))
    loss = output.pow(2).mean()
    if what == "an input":
        x.add_(1)
    elif what == "the weights":
        with torch.no_grad():
            parameters(model)[0].add_(1)
    elif what == "the weights, by a step":
        for param in parameters(model):
            param.grad = torch.ones_like(param)
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        model.zero_grad()
    elif what == "no_sync":
        with model.no_sync():
            said = message(lambda: loss.backward(retain_graph=True))
        loss.backward()
        return said
    elif what == "backward twice":
        loss.backward()
        return message(loss.backward)
    said = message(loss.backward)
    assert accumulated == {}
    assert all(param.grad is None for param in parameters(model))
    return said


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("an input", "RuntimeError: one of the variables needed for gradient computation has been modified"),
        ("the weights", "RefusedError: fsdp1.replay_forward: expected the weights of the forward"),
        ("the weights, by a step", "RefusedError: fsdp1.replay_forward: expected the weights of the forward"),
        ("no_sync", "RefusedError: fsdp1.replay_forward: expected gradients that are reduced at once"),
        ("backward twice", "RuntimeError: Trying to backward through the graph a second time"),
    ],
)
def test_refuses_what_was_changed(ranks: RankPool, what: str, expected: str) -> None:
    """Inputs or weights that were written into since the forward are noticed, as by plain autograd."""
    for said in ranks(changed_in_between, what=what):
        assert said.startswith(expected)


@rehearsed
def output_changed() -> float | str:
    """An output that is changed in place, against one that is not."""

    def run(in_place: bool) -> list[torch.Tensor | None]:
        model, accumulated = fresh()
        output = torch.as_tensor(replay_forward(model, accumulated, x=batch(0)))
        (output.mul_(2) if in_place else output * 2).pow(2).mean().backward()
        return [accumulated.get(param) for param in parameters(model)]

    return difference([run(False)], [run(True)])


def test_output_changed_in_place(ranks: RankPool) -> None:
    """An output may be changed in place: nothing that the backward needs depends on it."""
    assert ranks(output_changed) == [0.0, 0.0]


@rehearsed
def second_derivative() -> str:
    model, accumulated = fresh()
    x = batch(0)
    output = torch.as_tensor(replay_forward(model, accumulated, x=x))
    (gradient,) = torch.autograd.grad(output.pow(2).sum(), x, create_graph=True)
    return message(gradient.pow(2).sum().backward)


def test_second_derivative(ranks: RankPool) -> None:
    """Gradients of gradients are refused by autograd itself."""
    for said in ranks(second_derivative):
        assert "once_differentiable" in said


@rehearsed
def retained() -> float | str:
    model, accumulated = fresh()
    loss = replayed(model, accumulated)
    loss.backward(retain_graph=True)
    once = [None if (found := accumulated.get(param)) is None else 2 * found for param in parameters(model)]
    loss.backward()
    return difference([once], [[accumulated.get(param) for param in parameters(model)]])


def test_retained_graph(ranks: RankPool) -> None:
    """A graph that is retained can be gone through again, and counts again."""
    assert ranks(retained) == [0.0, 0.0]


# Errors


class Failing(Toy):
    fails = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index, block in enumerate(self.blocks):
            x = self._call(block, x)
            if self.fails and index == 2:
                raise ValueError("in the middle of a forward")
        return torch.as_tensor(self.head(x))


@rehearsed
def after_an_error(where: str) -> list[Any]:
    """Whether accumulators and slots are as before, and how replays and training go on."""

    def failing() -> Any:
        torch.manual_seed(0)
        return build(model=Failing())

    model, stock = failing(), failing()
    untouched = hooks_and_overrides(model)
    accumulated: Gradients = {}
    replayed(model, accumulated).backward()
    before = {param: gradient.clone() for param, gradient in accumulated.items()}
    said = ""
    loss = replayed(model, accumulated, 1) if where != "second forward" else None
    try:
        if loss is None:
            model.module.fails = True
            replayed(model, accumulated, 1)
        elif where == "replay":
            model.module.fails = True
            loss.backward()
        else:

            def fail(grad: torch.Tensor) -> None:
                raise ValueError("in the middle of a backward")

            class Hooked(nn.Module):
                def forward(self, x: torch.Tensor) -> torch.Tensor:
                    if x.requires_grad:
                        x.register_hook(fail)
                    return x

            model.module.blocks[1].module.add_module("hooked", Hooked())
            up = model.module.blocks[1].module.up
            original = up.forward
            up.forward = lambda x: original(model.module.blocks[1].module.hooked(x))
            try:
                loss.backward()
            finally:
                up.forward = original
                del model.module.blocks[1].module.hooked
    except ValueError as error:
        said = str(error)
    model.module.fails = False
    same = set(before) == set(accumulated) and all(torch.equal(before[p], accumulated[p]) for p in before)
    slots = all(param.grad is None for param in parameters(model))
    # What was replayed before, and a rollout after it.
    again: Gradients = {}
    accumulated.clear()
    replayed(model, again, 2).backward()
    expected: Gradients = {}
    replayed(stock, expected, 2).backward()
    goes_on = difference(
        [[expected.get(param) for param in parameters(stock)]], [[again.get(param) for param in parameters(model)]]
    )
    trains = difference(train(stock), train(model))
    return [bool(said), same, slots, goes_on, trains, hooks_and_overrides(model) == untouched]


@pytest.mark.parametrize("where", ["second forward", "replay", "replay's backward"])
def test_after_an_error(ranks: RankPool, where: str) -> None:
    """An error in the second forward, the replay or its backward leaves gradients and slots as they were.

    The next rollout and ordinary training go on as if nothing had been.
    """
    assert ranks(after_an_error, where=where) == [[True, True, True, 0.0, 0.0, True]] * 2


# Memory


@rehearsed
def measured(forwards: int) -> list[int]:
    """Peak of host gradients and of saved shards in the backward, and bytes of the accumulators."""
    model, accumulated = fresh()
    losses = [replayed(model, accumulated, step) for step in range(forwards)]
    with MemoryLedger(model) as ledger:
        torch.stack(losses).sum().backward()
    held = sum(gradient.untyped_storage().nbytes() for gradient in accumulated.values())
    return [ledger.peak("cpu_grads"), ledger.peak("saved_grad_shards"), held]


def test_memory_is_flat(ranks: RankPool) -> None:
    """Gradients of one forward and one accumulator for each shard, for 1, 3 and 10 forwards alike."""
    found = [ranks(measured, forwards=forwards) for forwards in (1, 3, 10)]
    assert found == [[[SHARD_BYTES] * 3] * 2] * 3


@rehearsed
def lifetimes() -> dict[str, int]:
    """What lives when the loss is gone, without the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        model, accumulated = fresh()
        outputs = [torch.as_tensor(replay_forward(model, accumulated, x=batch(step))) for step in range(3)]
        pending = [weakref.ref(output.grad_fn) for output in outputs]
        loss = torch.stack([output.pow(2).mean() for output in outputs]).sum()
        loss.backward()
        accumulators = [weakref.ref(gradient) for gradient in accumulated.values()]
        count = len(accumulators)
        del loss, outputs
        graphs = sum(reference() is not None for reference in pending)
        accumulated.clear()
        left = sum(reference() is not None for reference in accumulators)
        # One that was never gone through, and its accumulator.
        output = torch.as_tensor(replay_forward(model, accumulated, x=batch(0)))
        unused = weakref.ref(output.grad_fn)
        del output
        return {"accumulators": count, "left": left, "graphs": graphs, "unused": int(unused() is not None)}
    finally:
        gc.enable()


def test_nothing_lives_on(ranks: RankPool) -> None:
    """When the loss and the dictionary are gone, so is everything: no reference cycle waits for the collector."""
    for found in ranks(lifetimes):
        assert found.pop("accumulators") > 0
        assert found == {"left": 0, "graphs": 0, "unused": 0}


@rehearsed
def offloaded_inputs() -> int:
    """How often a model that ran 20 replays has more memory behind it than before."""
    model, accumulated = fresh()
    replayed(model, accumulated).backward()
    gc.collect()
    before = sum(isinstance(obj, torch.Tensor) for obj in gc.get_objects())
    for step in range(20):
        replayed(model, accumulated, step).backward()
    gc.collect()
    return sum(isinstance(obj, torch.Tensor) for obj in gc.get_objects()) - before


def test_no_growth(ranks: RankPool) -> None:
    """Twenty replays leave no tensor behind that was not there after the first."""
    assert ranks(offloaded_inputs) == [0, 0]
