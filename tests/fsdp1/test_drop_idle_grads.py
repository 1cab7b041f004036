"""``fsdp1.drop-idle-grads``: no host gradients while a model only looks, and training goes on as in stock."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import pytest
import torch

from patchkit.errors import PatchkitError
from patchkit.fsdp1._memory import MemoryLedger
from tests.fsdp1._pool import RankPool
from tests.fsdp1._toy import (
    DROP_FROZEN,
    DROP_IDLE,
    DROP_SHARDS,
    FSDP,
    NO_STALE,
    PAGEABLE,
    SHARD_BYTES,
    Case,
    Toy,
    batch,
    build,
    difference,
    handles,
    hooks_and_overrides,
    host_gradients,
    loss_of,
    parameters,
    patched,
    rehearsed,
    train,
    train_step,
    wrap,
)

PLACEHOLDERS = 5 * 4


def idle(model: Any, scope: str = "validation") -> Any:
    return patched(DROP_IDLE, model=model, options={"scope": scope})


def no_grad(scope: str) -> AbstractContextManager[Any]:
    """What the caller has around the application."""
    return torch.no_grad() if scope == "validation" else nullcontext()


def looks(model: FSDP, scope: str, step: int = 7) -> torch.Tensor:
    with torch.no_grad():
        return torch.as_tensor(model(batch(step)))


# Effect


@rehearsed
def measured(scope: str, first: bool, use_orig_params: bool) -> dict[str, tuple[int, int, int]]:
    """Bytes before, at the peak of, and after two forwards without gradients, stock and patched."""
    found = {}
    for name in ("stock", "patched"):
        model = build(Case(use_orig_params=use_orig_params))
        if not first:
            train(model, Case(steps=1))
        with no_grad(scope):
            with ExitStack() as stack:
                if name == "patched":
                    stack.enter_context(idle(model, scope))
                ledger = stack.enter_context(MemoryLedger(model))
                looks(model, scope)
                looks(model, scope, 8)
            found[name] = (ledger.before("cpu_grads"), ledger.peak("cpu_grads"), host_gradients(model))
    return found


@pytest.mark.parametrize("use_orig_params", [True, False])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("scope", ["validation", "replay"])
def test_four_bytes_a_unit(ranks: RankPool, scope: str, first: bool, use_orig_params: bool) -> None:
    """Inside there are placeholders, from the first forward of all on; outside nothing until the next training step."""
    placeholders = 0 if first else PLACEHOLDERS
    stock = 0 if first else SHARD_BYTES
    expected = {"stock": (stock, SHARD_BYTES, SHARD_BYTES), "patched": (placeholders, PLACEHOLDERS, 0)}
    assert ranks(measured, scope=scope, first=first, use_orig_params=use_orig_params) == [expected] * 2


# Parity


@rehearsed
def goes_on(scope: str, case: Case, names: list[str], first: bool) -> float | str:
    """Train, look, and train on, with the outputs that were seen."""

    def run(apply: bool) -> list[list[torch.Tensor | None]]:
        model = build(case)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        with patched(*names, model=model) if names else nullcontext():
            seen = [] if first else train(model, case, optimizer=optimizer)
            optimizer.zero_grad()
            with no_grad(scope), idle(model, scope) if apply else nullcontext():
                seen.append([looks(model, scope)])
                assert not apply or all(param.grad is None for param in parameters(model))
            return [*seen, *train(model, case, first=3, optimizer=optimizer)]

    return difference(run(apply=False), run(apply=True))


@pytest.mark.parametrize(
    "case",
    [
        Case(),
        Case(use_orig_params=False),
        Case(strategy="SHARD_GRAD_OP"),
        Case(strategy="HYBRID_SHARD"),
        Case(precision="bf16"),
        Case(precision="keep-bf16"),
        Case(mode="reentrant twice", clip=0.1),
        Case(backwards=2, no_sync=(0,)),
    ],
    ids=str,
)
def test_training_goes_on(ranks: RankPool, case: Case) -> None:
    """Outputs inside, and the next training steps, are those of stock FSDP1 to the last bit."""
    assert ranks(goes_on, scope="validation", case=case, names=[], first=False) == [0.0, 0.0]


@pytest.mark.parametrize("names", [[], [NO_STALE], [DROP_SHARDS, PAGEABLE, NO_STALE]], ids=str)
@pytest.mark.parametrize("scope", ["validation", "replay"])
def test_before_the_first_step(ranks: RankPool, scope: str, names: list[str]) -> None:
    """So they are when FSDP1 initialises inside, and beside other patches."""
    assert ranks(goes_on, scope=scope, case=Case(), names=names, first=True) == [0.0, 0.0]


# Refusals


def attempt(model: Any, scope: str) -> str:
    try:
        idle(model, scope).revert()
    except PatchkitError as error:
        return str(error)
    return "it was applied"


@rehearsed
def refused(situation: str, scope: str) -> tuple[str, bool]:
    """What it says, and whether the model goes on as if nothing had been tried."""
    strategy = "NO_SHARD" if situation == "NO_SHARD" else "FULL_SHARD"
    model, stock = build(Case(strategy=strategy)), build(Case(strategy=strategy))
    before = hooks_and_overrides(model)
    kept: list[torch.Tensor] = []
    for each in (model, stock):
        if situation in ("pending backward", "zeroed with a pending backward"):
            kept.append(loss_of(each, batch(0)))
        elif situation == "gradients":
            loss_of(each, batch(0)).backward()
        if situation == "zeroed with a pending backward":
            each.zero_grad()
    with torch.no_grad() if situation != "grad mode" else nullcontext():
        said = attempt(model, scope)
    untouched = hooks_and_overrides(model) == before
    for loss in kept:
        loss.backward()
    return said, untouched and difference(train(stock), train(model)) == 0.0


@pytest.mark.parametrize(
    ("situation", "scope", "expected"),
    [
        ("grad mode", "validation", "expected grad mode off, found it on"),
        ("gradients", "validation", "expected units without gradients, found some in 5"),
        ("gradients", "replay", "expected units without gradients, found some in 5"),
        ("pending backward", "validation", "expected no backward pass to come"),
        ("pending backward", "replay", "expected no backward pass to come"),
        ("zeroed with a pending backward", "replay", "expected no backward pass to come"),
        ("NO_SHARD", "validation", "expected sharded units, found 5 with NO_SHARD"),
    ],
)
def test_refuses_what_would_be_lost(ranks: RankPool, situation: str, scope: str, expected: str) -> None:
    """Grad mode, gradients, a backward to come and unsharded units are refused, and nothing is touched."""
    for said, goes_on in ranks(refused, situation=situation, scope=scope):
        assert said.startswith(f"fsdp1.drop-idle-grads: {expected}")
        assert goes_on


class NoGradToy(Toy):
    """A model whose own forward switches grad mode off."""

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)


@rehearsed
def forwards(first: bool) -> dict[str, str]:
    """What forwards under grad mode come to inside of a replay, and afterwards."""
    found = {}
    for name, plain in (("plain", Toy()), ("decorated", NoGradToy())):
        torch.manual_seed(0)
        model = build(model=plain)
        if not first:
            looks(model, "replay")
        with idle(model, "replay"):
            try:
                found[name] = f"it ran, and gave {model(batch(0)).requires_grad}"
            except PatchkitError as error:
                found[name] = str(error)
            looks(model, "replay")
        found[f"{name}, afterwards"] = str(host_gradients(model))
    torch.manual_seed(0)
    stock = build(model=Toy())
    torch.manual_seed(0)
    ruined = build(model=Toy())
    with idle(ruined, "replay"):
        try:
            ruined(batch(0))
        except PatchkitError:
            found["trains"] = ""
    found["trains"] += str(difference(train(stock), train(ruined)))
    return found


@pytest.mark.parametrize("first", [True, False])
def test_forward_under_grad_mode(ranks: RankPool, first: bool) -> None:
    """It is refused before FSDP1 starts, so the very first one leaves a model that trains; a decorated one runs."""
    for found in ranks(forwards, first=first):
        assert "expected forwards under torch.no_grad(), found one with grad mode on" in found["plain"]
        assert found["decorated"] == "it ran, and gave False"
        assert found["plain, afterwards"] == found["decorated, afterwards"] == "0"
        assert found["trains"] == "0.0"


@rehearsed
def gradient_set_inside() -> tuple[str, bool]:
    model = build()
    train(model, Case(steps=1))
    param = parameters(model)[0]
    given = torch.ones_like(param)
    with torch.no_grad(), idle(model):
        param.grad = given
        try:
            model(batch(0))
        except PatchkitError as error:
            said = str(error)
    return said, param.grad is given


def test_gradient_set_inside(ranks: RankPool) -> None:
    """A gradient that is set inside is neither dropped by the next forward nor on leaving."""
    for said, kept in ranks(gradient_set_inside):
        assert "expected no gradients while they are dropped, found some in" in said
        assert kept


# Life


@rehearsed
def left_in_any_order() -> tuple[bool, float | str, int]:
    """Two models and both scopes, left in another order than entered; an exception in a forward; a copy."""
    model, other, stock = build(), build(), build()
    before = hooks_and_overrides(model), hooks_and_overrides(other)
    train(model, Case(steps=1))
    train(stock, Case(steps=1))
    first = idle(model, "replay")
    second = idle(other, "replay")
    again = idle(model, "replay")
    outer = patched(PAGEABLE, model=other)

    def fail(*args: Any) -> None:
        raise ValueError("in the middle of a forward")

    toy: Any = model.module
    hook = toy.blocks[1].register_forward_hook(fail)
    with torch.no_grad():
        try:
            model(batch(0))
        except ValueError:
            hook.remove()
        peak = host_gradients(model)
        model(batch(1))
        other(batch(1))
    first.revert()
    assert host_gradients(model) == PLACEHOLDERS
    second.revert()
    again.revert()
    outer.revert()
    clean = (hooks_and_overrides(model), hooks_and_overrides(other)) == before
    return clean, difference(train(stock, first=1), train(model, first=1)), peak


def test_left_in_any_order(ranks: RankPool) -> None:
    """Contexts may be left in any order; a forward that fails leaves no buffer; nothing is left on the models."""
    assert ranks(left_in_any_order) == [(True, 0.0, PLACEHOLDERS)] * 2


@rehearsed
def with_other_overrides() -> list[bool]:
    """An override that was there before comes back; one that somebody took away inside is no error."""
    model = build()
    handle = handles(model)[0]
    calls: list[str] = []
    original = handle.init_flat_param_attributes

    def theirs() -> None:
        calls.append("theirs")
        original()

    handle.init_flat_param_attributes = theirs
    with idle(model, "replay"):
        looks(model, "replay")
    comes_back = handle.init_flat_param_attributes is theirs
    removed = build()
    applied = idle(removed, "replay")
    del handles(removed)[0].init_flat_param_attributes
    try:
        applied.revert()
        said = ""
    except PatchkitError as error:
        said = str(error)
    return [comes_back, calls == ["theirs"], "init_flat_param_attributes" in said or said == ""]


def test_with_other_overrides(ranks: RankPool) -> None:
    """Overrides of others are called and come back; one that was taken away is at most said."""
    assert ranks(with_other_overrides) == [[True, True, True]] * 2


@rehearsed
def suspended() -> list[Any]:
    model = build()
    train(model, Case(steps=1))
    seen: list[Any] = []
    with torch.no_grad(), idle(model) as applied:
        seen.append(host_gradients(model))
        with applied.reverted():
            looks(model, "validation")
            seen.append(host_gradients(model))
        seen.append(host_gradients(model))
        try:
            with applied.reverted(), torch.enable_grad():
                loss_of(model, batch(0)).backward()
        except PatchkitError as error:
            seen.append("expected units without gradients" in str(error))
        seen.append(sum(param.grad is not None for param in parameters(model)) > 0)
    return seen


def test_suspending(ranks: RankPool) -> None:
    """Suspended it is stock; brought back it looks again, and refuses where a gradient would be lost."""
    assert ranks(suspended) == [[PLACEHOLDERS, SHARD_BYTES, PLACEHOLDERS, True, True]] * 2


class Both(torch.nn.Module):
    """A frozen part and one that trains, each wrapped."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = wrap(Toy().requires_grad_(False))
        self.model = wrap(Toy())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.model(self.encoder(x)))


@rehearsed
def beside_frozen() -> list[int]:
    torch.manual_seed(0)
    whole: Any = Both()
    with patched(DROP_FROZEN, model=whole.encoder) as frozen:
        loss_of(whole, batch(0)).backward()
        whole.zero_grad()
        with torch.no_grad(), idle(whole):
            whole(batch(1))
            seen = [host_gradients(whole)]
        frozen.verify()
        seen.append(host_gradients(whole))
        loss_of(whole, batch(2)).backward()
        return [*seen, host_gradients(whole)]


def test_beside_frozen_units(ranks: RankPool) -> None:
    """Units that drop-frozen-grads keeps without gradients stay so afterwards."""
    assert ranks(beside_frozen) == [[2 * PLACEHOLDERS, PLACEHOLDERS, SHARD_BYTES + PLACEHOLDERS]] * 2


@rehearsed
def compiled() -> float | str:
    """Blocks under torch.compile, trained, validated inside, and trained on."""

    def run(apply: bool) -> list[list[torch.Tensor | None]]:
        torch.manual_seed(0)
        plain = Toy()
        for block in plain.blocks:
            block.compile(backend="aot_eager")
        model = wrap(plain)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        seen = [train_step(model, Case(), 0, optimizer)]
        with torch.no_grad(), idle(model) if apply else nullcontext():
            seen.append([looks(model, "validation")])
        return [*seen, train_step(model, Case(), 1, optimizer)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return difference(run(apply=False), run(apply=True))


def test_compiled_blocks(ranks: RankPool) -> None:
    """A validation between training steps of compiled blocks gives what stock FSDP1 gives."""
    assert ranks(compiled) == [0.0, 0.0]
