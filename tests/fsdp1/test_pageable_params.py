"""``fsdp1.pageable-params``: parameters are never pinned, not even for a moment."""

from __future__ import annotations

import gc
import weakref
from types import MethodType
from typing import Any

import pytest
import torch
from torch import nn

from patchkit.errors import ForeignChangeError, RefusedError, TransactionError, VerifyError
from patchkit.fsdp1._memory import MemoryLedger
from tests.fsdp1._pool import RankPool
from tests.fsdp1._toy import (
    DROP_FROZEN,
    DROP_SHARDS,
    FSDP,
    PAGEABLE,
    SHARD_BYTES,
    Case,
    batch,
    build,
    difference,
    handles,
    hooks_and_overrides,
    loss_of,
    parameters,
    parity,
    patched,
    plain,
    rehearsed,
    swapped,
    train,
    wrap,
)


@rehearsed
def pinned_bytes(*names: str) -> dict[str, tuple[int, int]]:
    model = build()
    applied = patched(*names, model=model) if names else None
    with MemoryLedger(model) as ledger:
        train(model, Case(steps=2))
    if applied is not None:
        applied.verify()
        applied.revert()
    kinds = ("pinned", "pinned_params", "pageable_params")
    return {kind: (ledger.peak(kind), ledger.after(kind)) for kind in kinds}


def stock_bytes() -> dict[str, tuple[int, int]]:
    return pinned_bytes()


def pageable_bytes() -> dict[str, tuple[int, int]]:
    return pinned_bytes(PAGEABLE)


def test_only_gradients_are_pinned(ranks: RankPool) -> None:
    """Stock pins parameters and gradients, and holds parameters twice at first; patched, only gradients are pinned."""
    one, two = SHARD_BYTES, 2 * SHARD_BYTES
    assert ranks(stock_bytes) == [{"pinned": (two, two), "pinned_params": (one, one), "pageable_params": (one, 0)}] * 2
    assert ranks(pageable_bytes) == [{"pinned": (one, one), "pinned_params": (0, 0), "pageable_params": (one, one)}] * 2


@rehearsed
def stock_parity(case: Case) -> list[float | str]:
    return [parity(PAGEABLE, case=case), parity(DROP_SHARDS, PAGEABLE, case=case)]


@pytest.mark.parametrize(
    "case",
    [
        Case(),
        Case(use_orig_params=False),
        Case(strategy="SHARD_GRAD_OP", mode="reentrant twice"),
        Case(strategy="HYBRID_SHARD"),
        Case(precision="bf16"),
        Case(backwards=3, no_sync=(0, 1), clip=0.01),
    ],
    ids=str,
)
def test_equals_stock(ranks: RankPool, case: Case) -> None:
    """Alone and together with ``drop-offloaded-grad-shards``, training is that of stock FSDP1 to the last bit."""
    assert ranks(stock_parity, case=case) == [[0.0, 0.0]] * 2


@rehearsed
def no_shard_parity() -> float | str:
    return parity(PAGEABLE, case=Case(strategy="NO_SHARD"))


def test_equals_stock_without_sharding(ranks: RankPool) -> None:
    """Units that aren't sharded train as in stock FSDP1 too."""
    assert ranks(no_shard_parity) == [0.0, 0.0]


@rehearsed
def identities(use_orig_params: bool) -> list[bool]:
    case = Case(use_orig_params=use_orig_params)
    model = build(case)
    with patched(PAGEABLE, model=model):
        optimizer = torch.optim.Adam(model.parameters())
        held = [id(param) for param in parameters(model)]
        storages = [handle.flat_param.untyped_storage().data_ptr() for handle in handles(model)]
        train(model, case, optimizer=optimizer)
        return [
            [id(param) for param in parameters(model)] == held,
            {id(param) for group in optimizer.param_groups for param in group["params"]} == set(held),
            [handle.flat_param.untyped_storage().data_ptr() for handle in handles(model)] == storages,
            all(handle.flat_param._cpu_grad.is_pinned() for handle in handles(model)),
        ]


@pytest.mark.parametrize("use_orig_params", [True, False])
def test_optimizer_keeps_its_parameters(ranks: RankPool, use_orig_params: bool) -> None:
    """The parameters that an optimizer holds stay the same objects over the same memory; gradients are pinned."""
    assert ranks(identities, use_orig_params=use_orig_params) == [[True] * 4] * 2


@rehearsed
def state_dicts() -> bool:
    case = Case(steps=1)
    stock, model = build(case), build(case)
    train(stock, case)
    with patched(PAGEABLE, model=model):
        train(model, case)
        saved = [each.state_dict() for each in (stock, model)]
        model.load_state_dict(saved[0])
        with FSDP.summon_full_params(model):
            loaded = [param.detach().clone() for param in model.parameters()]
    with FSDP.summon_full_params(stock):
        expected = [param.detach().clone() for param in stock.parameters()]
    return all(torch.equal(saved[0][name], saved[1][name]) for name in saved[0]) and all(
        torch.equal(a, b) for a, b in zip(loaded, expected, strict=True)
    )


def test_state_dicts_equal_stock(ranks: RankPool) -> None:
    """Saving, loading and summoning whole parameters give what stock FSDP1 gives."""
    assert ranks(state_dicts) == [True, True]


# Coming and going


@rehearsed
def reverted_after_training() -> tuple[float | str, list[bool]]:
    case = Case(steps=2)
    stock, model = build(case), build(case)
    applied = patched(PAGEABLE, model=model)
    train(model, case)
    applied.revert()
    train(stock, case)
    found = difference(train(stock, case, first=5), train(model, case, first=5))
    return found, [state[2] == [] for state in hooks_and_overrides(model)]


def test_reverted_after_training(ranks: RankPool) -> None:
    """After a revert training goes on as in stock, and no handle holds an override."""
    assert ranks(reverted_after_training) == [(0.0, [True] * 5)] * 2


@rehearsed
def reverted_before_the_first_forward() -> list[bool]:
    model = build()
    patched(PAGEABLE, model=model).revert()
    train(model, Case(steps=1))
    return [handle.flat_param._local_shard.is_pinned() for handle in handles(model)]


def test_reverted_before_the_first_forward(ranks: RankPool) -> None:
    """Reverted in time, it leaves FSDP1 to pin parameters as ever."""
    assert ranks(reverted_before_the_first_forward) == [[True] * 5] * 2


@rehearsed
def child_then_parent() -> list[list[int]]:
    model = build()
    before = hooks_and_overrides(model)
    child = patched(PAGEABLE, model=FSDP.fsdp_modules(model)[1])
    parent = patched(PAGEABLE, model=model)
    overridden = [[len(state[2]) for state in hooks_and_overrides(model)]]
    child.revert()
    overridden.append([len(state[2]) for state in hooks_and_overrides(model)])
    parent.revert()
    assert hooks_and_overrides(model) == before
    return overridden


def test_child_then_parent(ranks: RankPool) -> None:
    """Applied to a unit and then to the model around it: one override a handle, until its last owner leaves."""
    assert ranks(child_then_parent) == [[[1] * 5, [1] * 5]] * 2


@rehearsed
def applied_again_after_the_first_forward() -> bool:
    model = build()
    with patched(PAGEABLE, model=model):
        train(model, Case(steps=1))
        with patched(PAGEABLE, model=model) as again:
            again.verify()
            return True


def test_applied_again_after_the_first_forward(ranks: RankPool) -> None:
    """Where the patch is in effect already, applying it again is no mistake."""
    assert ranks(applied_again_after_the_first_forward) == [True, True]


@rehearsed
def collected() -> bool:
    model = build()
    applied = patched(PAGEABLE, model=model)
    train(model, Case(steps=1))
    gone = weakref.ref(model)
    del model
    gc.collect()
    found = gone() is None
    applied.revert()
    return found


def test_keeps_no_model_alive(ranks: RankPool) -> None:
    """A model that nobody else holds is collected, applied or not, and its handle can still be reverted."""
    assert ranks(collected) == [True, True]


# Others


def strange_initialiser(handle: Any, *, clones: bool) -> MethodType:
    original = type(handle).init_flat_param_attributes

    def init_flat_param_attributes(self: Any) -> None:
        original(self)
        if clones:
            self.flat_param._local_shard = self.flat_param._local_shard.clone()

    return MethodType(init_flat_param_attributes, handle)


@rehearsed
def replaced_shard() -> tuple[str, list[float | str]]:
    case = Case(steps=2)
    stock = train(build(case), case)
    model, second = build(case), build(case)
    message = ""
    found = []
    for each in (model, second):
        handle = handles(each)[2]
        handle.init_flat_param_attributes = strange_initialiser(handle, clones=True)
        applied = patched(PAGEABLE, model=each)
        try:
            each(batch(0))
        except RefusedError as error:
            message = str(error)
        if each is model:
            # Out with both: stock again.
            applied.revert()
            del handle.init_flat_param_attributes
        else:
            # Out with the stranger's alone, as the message says: that is a change under the patch's feet, so revert,
            # then apply.
            applied.revert()
            del handle.init_flat_param_attributes
            applied = patched(PAGEABLE, model=each)
        found.append(difference(stock, train(each, case)))
        assert each._all_handles == handles(each)
        applied.revert()
    return message, found


def test_refuses_a_replaced_shard(ranks: RankPool) -> None:
    """If another override replaces the shard, the first forward is refused, and the model can still be started anew."""
    for message, found in ranks(replaced_shard):
        assert (
            "expected FSDP1's initialiser to keep the unit's shard where it is, found that it was replaced" in message
        )
        assert "blocks.1" in message or "up.weight" in message
        assert found == [0.0, 0.0]


@rehearsed
def stranger_before() -> tuple[bool, list[bool]]:
    model = build()
    for handle in handles(model):
        handle.init_flat_param_attributes = strange_initialiser(handle, clones=False)
    theirs = [vars(handle)["init_flat_param_attributes"] for handle in handles(model)]
    with patched(PAGEABLE, model=model):
        train(model, Case(steps=1))
        pinned = [handle.flat_param._local_shard.is_pinned() for handle in handles(model)]
    back = [vars(handle)["init_flat_param_attributes"] for handle in handles(model)]
    return all(a is b for a, b in zip(back, theirs, strict=True)), pinned


def test_stranger_before(ranks: RankPool) -> None:
    """An override that was there first runs inside ours, and is the same object after the revert."""
    assert ranks(stranger_before) == [(True, [False] * 5)] * 2


@rehearsed
def stranger_after() -> tuple[str, bool]:
    model = build()
    applied = patched(PAGEABLE, model=model)
    handle = handles(model)[0]
    message = ""
    with swapped(handle, "init_flat_param_attributes", strange_initialiser(handle, clones=False)):
        try:
            applied.revert()
        except TransactionError as error:
            message = f"{error} {error.__cause__}"
        except ForeignChangeError as error:
            message = str(error)
        kept = "strange_initialiser" in vars(handle)["init_flat_param_attributes"].__qualname__
    applied.revert()
    return message, kept and all(state[2] == [] for state in hooks_and_overrides(model))


def test_stranger_after(ranks: RankPool) -> None:
    """An override that came later is not overwritten by a revert, which names it and succeeds once it is gone."""
    for message, clean in ranks(stranger_after):
        assert "strange_initialiser" in message
        assert clean


# Refusing


@rehearsed
def refusal(kind: str) -> str:
    def started() -> FSDP:
        model = build()
        loss_of(model, batch(0)).backward()
        return model

    def applied_a_function() -> FSDP:
        model = build()
        model.apply(lambda module: None)
        return model

    def child_started() -> nn.Module:
        outer = nn.Sequential(build(), build(seed=1))
        outer[1](batch(0))
        return outer

    models: dict[str, Any] = {
        "plain": plain,
        "no offload": lambda: build(Case(offload=False)),
        "started": started,
        "applied a function": applied_a_function,
        "child started": child_started,
    }
    model = models[kind]()
    before = hooks_and_overrides(model)
    try:
        patched(PAGEABLE, model=model)
    except RefusedError as error:
        assert hooks_and_overrides(model) == before
        return str(error)
    return "not refused"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("plain", "expected a model wrapped in FSDP1 (FullyShardedDataParallel), found a Toy without any"),
        ("no offload", "expected FSDP1 units with CPU offload, found 5 and none that offloads"),
        ("started", "expected a model before its first forward, found 5 units that FSDP1 has initialised already"),
        ("applied a function", "expected a model before its first forward, found 5 units"),
        (
            "child started",
            "expected a model before its first forward, found 5 units that FSDP1 has initialised already ('1'",
        ),
    ],
)
def test_refuses(ranks: RankPool, kind: str, expected: str) -> None:
    """What comes too late or has nothing to patch is refused, and nothing is changed."""
    for message in ranks(refusal, kind=kind):
        assert expected in message


@rehearsed
def verified_pinned() -> str:
    model = build()
    with patched(PAGEABLE, model=model) as applied:
        train(model, Case(steps=1))
        flat_param = handles(model)[0].flat_param
        flat_param._local_shard = flat_param._local_shard.pin_memory()
        try:
            applied.verify()
        except VerifyError as error:
            return str(error)
    return "not noticed"


def test_verify_looks_at_the_shards(ranks: RankPool) -> None:
    """A shard that was pinned all the same is found by ``verify``."""
    assert all(
        "expected parameters in pageable memory, found pinned ones in the root" in m for m in ranks(verified_pinned)
    )


@rehearsed
def composed(first: str, second: str) -> tuple[int, int, bool]:
    case = Case(frozen=True)
    model, expected = build(case), build(case)(batch(0))
    with patched(first, model=model), patched(second, model=model), MemoryLedger(model) as ledger:
        same = torch.equal(model(batch(0)), expected)
    return ledger.peak("pinned"), ledger.pinned_allocations, same


@pytest.mark.parametrize("order", [(PAGEABLE, DROP_FROZEN), (DROP_FROZEN, PAGEABLE)], ids=str)
def test_composes_with_frozen_gradients(ranks: RankPool, order: tuple[str, str]) -> None:
    """On a frozen model with both patches, in either order, nothing is pinned at all."""
    assert ranks(composed, first=order[0], second=order[1]) == [(0, 0, True)] * 2


@rehearsed
def nothing_wrapped_twice() -> bool:
    inner = plain()
    model = wrap(inner)
    with patched(PAGEABLE, DROP_SHARDS, model=model):
        loss_of(model, batch(0)).backward()
        return all(handle.flat_param._cpu_grad.is_pinned() for handle in handles(model))


def test_gradients_stay_pinned(ranks: RankPool) -> None:
    """The host gradient is pinned as in stock: only the parameters are not."""
    assert ranks(nothing_wrapped_twice) == [True, True]
