"""``fsdp1.drop-frozen-grads`` comes and goes, meets strangers, selects and refuses."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest
import torch
from torch import nn

from patchkit.errors import RefusedError, VerifyError
from patchkit.fsdp1.drop_frozen_grads import refuse_unfrozen
from tests.fsdp1._pool import RankPool
from tests.fsdp1._toy import (
    DROP_FROZEN,
    FSDP,
    REHEARSAL,
    SHARD_BYTES,
    Block,
    Case,
    batch,
    build,
    difference,
    gradients,
    handles,
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

FROZEN = Case(frozen=True)
PLACEHOLDERS = 5 * 4


# Coming and going


@rehearsed
def reverted_then_trained(use_orig_params: bool, first: bool) -> tuple[float | str, bool]:
    case = Case(frozen=True, use_orig_params=use_orig_params)
    model, stock = build(case), build(case)
    before = hooks_and_overrides(model)
    applied = patched(DROP_FROZEN, model=model)
    if first:
        for each in (model, stock):
            loss_of(each, batch(0)).backward()
    applied.revert()
    clean = hooks_and_overrides(model) == before
    for each in (model, stock):
        each.requires_grad_(True)
    return difference(train(stock, Case()), train(model, Case())), clean


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("use_orig_params", [True, False])
def test_after_a_revert_it_trains_as_stock(ranks: RankPool, use_orig_params: bool, first: bool) -> None:
    """Reverted before or after the first forward, unfrozen and trained: as stock, with no hook or override left."""
    assert ranks(reverted_then_trained, use_orig_params=use_orig_params, first=first) == [(0.0, True)] * 2


@rehearsed
def suspended() -> list[int]:
    model = build(FROZEN)
    with patched(DROP_FROZEN, model=model) as applied:
        model(batch(0))
        seen = [host_gradients(model)]
        with applied.reverted():
            seen.append(host_gradients(model))
            model(batch(1))
        seen.append(host_gradients(model))
        applied.verify()
    return [*seen, host_gradients(model)]


def test_suspending(ranks: RankPool) -> None:
    """Suspended, the host gradients are those of stock; resumed, they are gone again."""
    expected = [PLACEHOLDERS, SHARD_BYTES, PLACEHOLDERS, SHARD_BYTES]
    assert ranks(suspended) == [expected, expected]


@rehearsed
def unfrozen_while_suspended(pending: bool) -> tuple[str, str, float | str]:
    """What resuming says of a model that trains by now, and what its training comes to."""
    model, stock = build(FROZEN), build(Case())
    said, verified = "it was brought back", "it was found in effect"
    applied = patched(DROP_FROZEN, model=model)
    kept: list[torch.Tensor] = []
    try:
        with applied.reverted():
            model.requires_grad_(True)
            if pending:
                kept.append(loss_of(model, batch(0)))
                model.requires_grad_(False)
    except RefusedError as error:
        said = str(error)
    model.requires_grad_(True)
    for loss in kept:
        loss.backward()
        model.zero_grad()
    trained = difference(train(stock, Case()), train(model, Case()))
    model.requires_grad_(False)
    model.zero_grad()
    with applied.reverted():
        pass
    model.requires_grad_(True)
    try:
        applied.verify()
    except VerifyError as error:
        verified = str(error)
    applied.revert()
    return said, verified, trained


@pytest.mark.parametrize("pending", [False, True])
def test_unfrozen_while_suspended(ranks: RankPool, pending: bool) -> None:
    """A model that trains when the patch would be brought back is refused, and trains as in stock.

    So is one that was frozen again before its backward. Unfrozen later, verify sees it.
    """
    for said, verified, trained in ranks(unfrozen_while_suspended, pending=pending):
        assert ("expected no backward pass to come" if pending else "found 18 that do") in said
        assert "expected a model without parameters that require a gradient, found 18" in verified
        assert trained == 0.0


def reverted_where_nothing_can_be_pinned() -> tuple[list[int], bool]:
    """The rehearsal, which can pin, leaves before the patch does."""
    rehearsal = patched(REHEARSAL)
    model = build(FROZEN)
    applied = patched(DROP_FROZEN, model=model)
    with torch.no_grad():
        before = model(batch(0))
    rehearsal.revert()
    applied.revert()
    seen = [host_gradients(model)]
    with patched(REHEARSAL), torch.no_grad():
        same = torch.equal(model(batch(0)), before)
        seen.append(host_gradients(model))
    return seen, same


def test_reverted_where_nothing_can_be_pinned(ranks: RankPool) -> None:
    """A revert succeeds where no memory can be pinned; FSDP1's next forward allocates the gradients itself."""
    assert ranks(reverted_where_nothing_can_be_pinned) == [([0, SHARD_BYTES], True)] * 2


@rehearsed
def child_then_parent() -> list[tuple[list[tuple[int, int]], int]]:
    model = build(FROZEN)

    def look() -> tuple[list[tuple[int, int]], int]:
        return [(hooks, len(overrides)) for hooks, _, overrides in hooks_and_overrides(model)], host_gradients(model)

    child = patched(DROP_FROZEN, model=FSDP.fsdp_modules(model)[1])
    parent = patched(DROP_FROZEN, model=model)
    model(batch(0))
    seen = [look()]
    child.revert()
    seen.append(look())
    parent.revert()
    return [*seen, look()]


def test_child_then_parent(ranks: RankPool) -> None:
    """Applied to a unit, then to the model around it: one hook and one override a unit, until its last owner leaves."""
    once = ([(1, 1)] * 5, PLACEHOLDERS)
    assert ranks(child_then_parent) == [[once, once, ([(0, 0)] * 5, SHARD_BYTES)]] * 2


@rehearsed
def two_models() -> list[tuple[int, int]]:
    one, two = build(FROZEN), build(FROZEN, seed=1)
    first, second = patched(DROP_FROZEN, model=one), patched(DROP_FROZEN, model=two)
    one(batch(0))
    two(batch(0))
    seen = [(host_gradients(one), host_gradients(two))]
    first.revert()
    seen.append((host_gradients(one), host_gradients(two)))
    second.verify()
    second.revert()
    return [*seen, (host_gradients(one), host_gradients(two))]


def test_two_models(ranks: RankPool) -> None:
    """Two models, reverted one after the other."""
    small, whole = PLACEHOLDERS, SHARD_BYTES
    assert ranks(two_models) == [[(small, small), (whole, small), (whole, whole)]] * 2


@rehearsed
def fails_half_way() -> tuple[str, bool, int]:
    """The third of five handles can't be overridden."""
    model = build(FROZEN)
    before = hooks_and_overrides(model)
    real: Callable[..., None] = nn.Module.register_forward_pre_hook  # type: ignore[assignment]
    registered = []

    def stubborn(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        registered.append(module)
        if len(registered) == 3:
            raise RuntimeError("no more hooks")
        return real(module, *args, **kwargs)

    message = ""
    with swapped(nn.Module, "register_forward_pre_hook", stubborn):
        try:
            patched(DROP_FROZEN, model=model)
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
    untouched = hooks_and_overrides(model) == before
    model(batch(0))
    return message, untouched, host_gradients(model)


def test_nothing_stays_after_a_failure_half_way(ranks: RankPool) -> None:
    """When the third hook fails, the hooks and overrides before it are gone again."""
    for message, untouched, host in ranks(fails_half_way):
        assert message.startswith("InstallError")
        assert "no more hooks" in message
        assert untouched
        assert host == SHARD_BYTES


@rehearsed
def collected() -> bool:
    model = build(FROZEN)
    applied = patched(DROP_FROZEN, model=model)
    with torch.no_grad():
        model(batch(0))
    gone = weakref.ref(model)
    del model
    gc.collect()
    found = gone() is None
    applied.revert()
    return found


def test_keeps_no_model_alive(ranks: RankPool) -> None:
    """A model that nobody else holds is collected, and its handle can still be reverted."""
    assert ranks(collected) == [True, True]


def copies_of_the_hook() -> bool:
    return (
        pickle.loads(pickle.dumps(refuse_unfrozen)) is refuse_unfrozen
        and copy.deepcopy(refuse_unfrozen) is refuse_unfrozen
    )


def test_hook_can_be_copied(ranks: RankPool) -> None:
    """The hook holds no state, so it is pickled and copied with whatever module carries it."""
    assert ranks(copies_of_the_hook) == [True, True]


# Others


@rehearsed
def stranger_allocates() -> tuple[int, bool]:
    """Another override allocates the host gradient in a way of its own."""
    model = build(FROZEN)
    for handle in handles(model):

        def init_flat_param_attributes(self: Any) -> None:
            type(self).init_flat_param_attributes(self)
            self.flat_param._cpu_grad = torch.empty(self.flat_param._local_shard.shape)

        handle.init_flat_param_attributes = MethodType(init_flat_param_attributes, handle)
    theirs = [vars(handle)["init_flat_param_attributes"] for handle in handles(model)]
    with patched(DROP_FROZEN, model=model):
        model(batch(0))
        found = host_gradients(model)
    back = [vars(handle)["init_flat_param_attributes"] for handle in handles(model)]
    return found, all(a is b for a, b in zip(back, theirs, strict=True))


def test_stranger_that_allocates(ranks: RankPool) -> None:
    """An override that was there first may allocate as it likes: its gradient is dropped, and it comes back itself."""
    assert ranks(stranger_allocates) == [(PLACEHOLDERS, True)] * 2


@rehearsed
def compiled() -> bool:
    def compiled_model() -> FSDP:
        model = plain(FROZEN)
        for block in model.blocks:
            block.compile(backend="aot_eager")
        return wrap(model)

    model, stock = compiled_model(), compiled_model()
    with patched(DROP_FROZEN, model=model):
        return torch.equal(model(batch(0)), stock(batch(0))) and host_gradients(model) == PLACEHOLDERS


def test_compiled_blocks(ranks: RankPool) -> None:
    """Blocks under torch.compile run as in stock FSDP1."""
    assert ranks(compiled) == [True, True]


# Selecting and refusing


@rehearsed
def only_frozen_blocks() -> tuple[int, float | str]:
    """A model of which only two blocks are frozen, selected by their paths."""

    def half_frozen() -> FSDP:
        model = plain()
        for block in model.blocks[:2]:
            block.requires_grad_(False)
        return wrap(model)

    model, stock = half_frozen(), half_frozen()
    with patched(DROP_FROZEN, model=model, modules=["blocks.[01]"]):
        found = difference(train(stock, Case()), train(model, Case()))
        return host_gradients(model), found


@rehearsed
def only_a_frozen_root() -> bool:
    """The root is frozen and selected, the blocks below it are trained."""

    def frozen_root() -> nn.Module:
        model = plain()
        model.head.requires_grad_(False)
        return nn.Sequential(wrap(model))

    model, stock = frozen_root(), frozen_root()
    with patched(DROP_FROZEN, model=model, modules=["0"]):
        for each in (model, stock):
            loss_of(each, batch(0)).backward()
    return difference([gradients(model)], [gradients(stock)]) == 0.0


def test_units_that_were_not_selected_may_train(ranks: RankPool) -> None:
    """A guarded root looks only at the guarded units below it."""
    assert ranks(only_a_frozen_root) == [True, True]


def test_selected_modules_only(ranks: RankPool) -> None:
    """With ``modules``, the frozen part of a model that trains loses its host gradients, and nothing else changes."""
    assert ranks(only_frozen_blocks) == [(SHARD_BYTES - 2 * 1088 + 2 * 4, 0.0)] * 2


@rehearsed
def refusal(kind: str) -> str:
    def adapter() -> FSDP:
        model = plain(FROZEN)
        model.head.requires_grad_(True)
        return wrap(model, ignored_modules=[model.head])

    def one_trainable() -> FSDP:
        model = build(FROZEN)
        next(FSDP.fsdp_modules(model)[2].parameters()).requires_grad_(True)
        return model

    models: dict[str, Callable[[], nn.Module]] = {
        "plain": Block,
        "no offload": lambda: build(Case(frozen=True, offload=False)),
        "trainable": build,
        "flat and trainable": lambda: build(Case(use_orig_params=False)),
        "one trainable": one_trainable,
        "adapter": adapter,
    }
    model = models[kind]()
    before = hooks_and_overrides(model)
    try:
        patched(DROP_FROZEN, model=model)
    except RefusedError as error:
        assert hooks_and_overrides(model) == before
        return str(error)
    return "not refused"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("plain", "expected a model wrapped in FSDP1 (FullyShardedDataParallel), found a Block without any"),
        ("no offload", "expected FSDP1 units with CPU offload, found 5 and none that offloads"),
        ("trainable", "found 18 that do (head.weight, head.bias, blocks.0.up.weight, …)"),
        ("flat and trainable", "found 18 that do (head.weight, head.bias, blocks.0.up.weight, …)"),
        ("one trainable", "found 1 that do (blocks.1.up.weight)"),
        ("adapter", "found 2 that do (head.weight, head.bias)"),
    ],
)
def test_refuses(ranks: RankPool, kind: str, expected: str) -> None:
    """A model that isn't wrapped, offloaded and frozen is refused, parameters named, and nothing is changed."""
    for message in ranks(refusal, kind=kind):
        assert expected in message


@rehearsed
def verified() -> str:
    model = build(FROZEN)
    with patched(DROP_FROZEN, model=model) as applied:
        model(batch(0))
        flat_param = handles(model)[1].flat_param
        flat_param._cpu_grad = torch.zeros_like(flat_param._local_shard)
        try:
            applied.verify()
        except VerifyError as error:
            return str(error)
    return "not noticed"


def test_verify_looks_at_the_gradients(ranks: RankPool) -> None:
    """A host gradient that was allocated all the same is found by ``verify``."""
    expected = "expected no host gradients but placeholders, found allocated ones in 'blocks.0' (1088 bytes)"
    assert all(expected in message for message in ranks(verified))
