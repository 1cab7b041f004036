"""``fsdp1.drop-offloaded-grad-shards`` comes and goes, meets strangers, and refuses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import _runtime_utils

from patchkit.errors import ForeignChangeError, PatchkitError, RefusedError, ResourceError, VerifyError
from patchkit.fsdp1._memory import MemoryLedger
from tests.fsdp1._pool import RankPool
from tests.fsdp1._toy import (
    BLOCK_BYTES,
    DROP_FROZEN,
    DROP_SHARDS,
    FSDP,
    PAGEABLE,
    SHARD_BYTES,
    WIDTH,
    Block,
    Case,
    batch,
    build,
    difference,
    gradients,
    handles,
    hooks_and_overrides,
    loss_of,
    parameters,
    patched,
    peak_of_shards,
    plain,
    rehearsed,
    swapped,
    train,
    wrap,
)

TWICE = "reentrant twice"


# Coming and going


@rehearsed
def reverts() -> list[float | str]:
    case = Case(mode=TWICE, steps=1)
    stock, model = build(case), build(case)
    optimizers = [torch.optim.Adam(each.parameters()) for each in (stock, model)]

    def step(first: int, after: Callable[[int], None] | None = None) -> float | str:
        records = [
            train(stock, case, first=first, optimizer=optimizers[0]),
            train(model, case, first=first, optimizer=optimizers[1], after_backward=after),
        ]
        return difference(*records)

    applied = patched(DROP_SHARDS, model=model)
    found = [step(0)]
    with applied.reverted():
        found.append(step(1))
    found.append(step(2))
    found.append(step(3, after=lambda _: applied.revert()))
    found.append(step(4))
    return found


def test_reverting_inside_training(ranks: RankPool) -> None:
    """Suspended for a step, resumed, reverted between a backward pass and its step: every step is that of stock."""
    assert ranks(reverts) == [[0.0] * 5] * 2


@rehearsed
def two_models() -> list[tuple[int, int, int]]:
    one, two, never = build(), build(seed=1), build(seed=2)
    first = patched(DROP_SHARDS, model=one)
    second = patched(DROP_SHARDS, model=two)

    def look() -> tuple[int, int, int]:
        return peak_of_shards(one), peak_of_shards(two), peak_of_shards(never)

    seen = [look()]
    first.revert()
    seen.append(look())
    second.revert()
    return [*seen, look()]


def test_two_models(ranks: RankPool) -> None:
    """Each model is patched on its own; another one in the same process never is."""
    small, whole = BLOCK_BYTES, SHARD_BYTES
    assert ranks(two_models) == [[(small, small, whole), (whole, small, whole), (whole, whole, whole)]] * 2


@rehearsed
def applied_twice() -> list[int]:
    model = build()
    first, second = patched(DROP_SHARDS, model=model), patched(DROP_SHARDS, model=model)
    seen = [peak_of_shards(model)]
    first.revert()
    seen.append(peak_of_shards(model))
    second.revert()
    return [*seen, peak_of_shards(model)]


def test_applied_twice(ranks: RankPool) -> None:
    """The patch leaves with its last owner."""
    assert ranks(applied_twice) == [[BLOCK_BYTES, BLOCK_BYTES, SHARD_BYTES]] * 2


@rehearsed
def taken_into_another_tree() -> tuple[float | str, int]:
    """Blocks that were trained in one tree are wrapped into another one; the same without the patch."""
    case = Case(mode=TWICE, steps=1)

    def run(*names: str) -> tuple[list[Any], int]:
        old = build(case)
        applied = patched(*names, model=old) if names else None
        train(old, case)
        new = plain(case)
        new.register_module("blocks", old.get_submodule("_fsdp_wrapped_module.blocks"))
        tree = wrap(new, auto_wrap_policy=None)
        with torch.no_grad():
            tree(batch(0))
        for handle in handles(tree):
            # Whatever is on the host before a backward pass, the first reduction overwrites it.
            handle.flat_param._cpu_grad.fill_(7.0)
        record = train(tree, case, first=1)
        peak = peak_of_shards(tree)
        if applied is not None:
            applied.revert()
        return record, peak

    stock, _ = run()
    ours, peak = run(DROP_SHARDS)
    return difference(stock, ours), peak


def test_units_taken_into_another_tree(ranks: RankPool) -> None:
    """A unit that goes on in another tree keeps the patch, and nothing of its past is added; the new root is stock."""
    assert ranks(taken_into_another_tree) == [(0.0, 2 * 544)] * 2


@rehearsed
def wrapped_later() -> int:
    inner = wrap(plain(), auto_wrap_policy=None)
    applied = patched(DROP_SHARDS, model=inner)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner
            self.late = wrap(nn.Linear(WIDTH, WIDTH))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(self.late(self.inner(x)))

    outer = wrap(Outer(), auto_wrap_policy=None)
    try:
        with MemoryLedger(outer) as ledger:
            loss_of(outer, batch(0)).backward()
        return ledger.peak("saved_grad_shards")
    finally:
        applied.revert()


def test_units_wrapped_later_are_stock(ranks: RankPool) -> None:
    """A unit that was added after the patch keeps its shard to the end of the pass, beside the largest patched one."""
    assert ranks(wrapped_later) == [544 + SHARD_BYTES] * 2


@rehearsed
def copied() -> str:
    model = build()
    with patched(DROP_SHARDS, model=model):
        try:
            copy.deepcopy(model)
        except TypeError as error:
            return str(error)
    return "copied"


def test_fsdp1_models_cant_be_copied(ranks: RankPool) -> None:
    """A deep copy of a wrapped model is refused by FSDP1 itself, so there is no copy that the patch could act for."""
    assert all("cannot pickle" in answer for answer in ranks(copied))


# Others


@rehearsed
def optimizer_in_backward() -> tuple[float | str, list[bool]]:
    # Imported here: it warns of its own use of torch.jit, which is an error where pytest collects.
    from torch.distributed.optim import _apply_optimizer_in_backward

    def build_with_optimizers() -> FSDP:
        model = build()
        _apply_optimizer_in_backward(torch.optim.SGD, FSDP.fsdp_modules(model)[1].parameters(), {"lr": 0.1})
        return model

    def run(model: FSDP) -> list[list[torch.Tensor | None]]:
        record = []
        for step in range(3):
            loss_of(model, batch(step)).backward()
            record.append([*gradients(model), *(param.detach().clone() for param in parameters(model))])
            for param in parameters(model):
                param.grad = None
        return record

    stock = run(build_with_optimizers())
    model = build_with_optimizers()
    with patched(DROP_SHARDS, model=model):
        return difference(stock, run(model)), [handle._has_optim_in_backward for handle in handles(model)]


def test_optimizer_in_backward_is_left_alone(ranks: RankPool) -> None:
    """A unit whose optimizer steps inside the backward pass is stepped as in stock; the others keep their gradients."""
    assert ranks(optimizer_in_backward) == [(0.0, [False, True, False, False, False])] * 2


def stranger(calls: list[str], *, offloads: bool = True) -> Callable[..., None]:
    original = _runtime_utils._post_reduce_grad_callback

    def callback(state: Any, handle: Any, grad_to_offload: torch.Tensor) -> None:
        calls.append("called")
        if offloads:
            original(state, handle, grad_to_offload)

    return callback


@rehearsed
def with_stranger_before(offloads: bool) -> tuple[int, int, bool]:
    calls: list[str] = []
    with swapped(_runtime_utils, "_post_reduce_grad_callback", stranger(calls, offloads=offloads)):
        theirs = _runtime_utils._post_reduce_grad_callback
        model = build()
        with patched(DROP_SHARDS, model=model), MemoryLedger(model) as ledger:
            loss_of(model, batch(0)).backward()
            kept = sum(hasattr(handle.flat_param, "_saved_grad_shard") for handle in handles(model))
        return len(calls), kept, _runtime_utils._post_reduce_grad_callback is theirs and ledger.samples != []


def test_stranger_before(ranks: RankPool) -> None:
    """Another project's patch that was there first stays below ours, is called, and stands again after the revert."""
    assert ranks(with_stranger_before, offloads=True) == [(5, 0, True)] * 2


@rehearsed
def drops_only_what_was_copied() -> bool:
    """Whether a shard is still there when the callback below ours did not offload it."""
    seen = []
    with swapped(_runtime_utils, "_post_reduce_grad_callback", stranger([], offloads=False)):
        model = build()
        with patched(DROP_SHARDS, model=model):
            ours = _runtime_utils._post_reduce_grad_callback

            def look(state: Any, handle: Any, grad_to_offload: torch.Tensor) -> None:
                ours(state, handle, grad_to_offload)
                seen.append(hasattr(handle.flat_param, "_saved_grad_shard"))

            with swapped(_runtime_utils, "_post_reduce_grad_callback", look):
                loss_of(model, batch(0)).backward()
    return seen == [True] * 5


def test_drops_only_what_was_copied(ranks: RankPool) -> None:
    """If what stands below doesn't copy the gradient to the host, its shard is not dropped."""
    assert ranks(drops_only_what_was_copied) == [True, True]


@rehearsed
def with_stranger_after() -> tuple[int, bool, str]:
    calls: list[str] = []
    model = build()
    applied = patched(DROP_SHARDS, model=model)
    message = ""
    with swapped(_runtime_utils, "_post_reduce_grad_callback", stranger(calls)):
        theirs = _runtime_utils._post_reduce_grad_callback
        peak = peak_of_shards(model)
        try:
            applied.revert()
        except PatchkitError as error:
            chained: BaseException = error if isinstance(error, ForeignChangeError) else error.__cause__ or error
            message = str(chained)
        untouched = _runtime_utils._post_reduce_grad_callback is theirs
    applied.revert()
    return peak, untouched, message


def test_stranger_after(ranks: RankPool) -> None:
    """Another project's patch on top of ours works with it, is never overwritten by a revert, and is named by it."""
    for peak, untouched, message in ranks(with_stranger_after):
        assert peak == BLOCK_BYTES
        assert untouched
        assert "_post_reduce_grad_callback" in message
        assert "stranger.<locals>.callback" in message


@rehearsed
def unreachable_callback() -> str:
    model = build()
    with swapped(_runtime_utils, "_reduce_grad", lambda state, handle: None):
        try:
            patched(DROP_SHARDS, model=model)
        except VerifyError as error:
            return str(error)
    return "not noticed"


def test_verify_notices_that_nobody_calls_the_callback(ranks: RankPool) -> None:
    """Where somebody replaced the function that calls the callback, the patch would do nothing: that is an error."""
    assert all(
        "expected torch.distributed.fsdp._runtime_utils._reduce_grad to call" in m for m in ranks(unreachable_callback)
    )


# Failing and refusing


@rehearsed
def fails_half_way() -> tuple[str, bool, int]:
    model = build()
    before = hooks_and_overrides(model)
    message = ""
    try:
        # The model is trainable, so the last patch refuses when the first two would be installed.
        patched(DROP_SHARDS, PAGEABLE, DROP_FROZEN, model=model)
    except RefusedError as error:
        message = str(error)
    return message, hooks_and_overrides(model) == before, peak_of_shards(model)


def test_nothing_stays_after_a_failure(ranks: RankPool) -> None:
    """A manifest of which one patch refuses leaves the model as it was."""
    for message, untouched, peak in ranks(fails_half_way):
        assert "expected a model without parameters that require a gradient" in message
        assert untouched
        assert peak == SHARD_BYTES


@rehearsed
def refusal(kind: str) -> str:
    models: dict[str, Callable[[], Any]] = {
        "plain": plain,
        "no offload": lambda: build(Case(offload=False)),
        "no shard": lambda: build(Case(strategy="NO_SHARD")),
        "one rank": lambda: wrap(plain(), process_group=[dist.new_group([r]) for r in (0, 1)][dist.get_rank()]),
        "no module": lambda: "a string",
        "no such block": build,
        "no model": lambda: None,
    }
    entry = {"modules": ["blocks.7"]} if kind == "no such block" else {}
    try:
        patched(DROP_SHARDS, model=models[kind](), **entry)
    except (RefusedError, ResourceError) as error:
        return f"{type(error).__name__}: {error}"
    return "not refused"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("plain", "RefusedError: .*: expected a model wrapped in FSDP1 .*, found a Toy without any FSDP1 unit. Wrap"),
        ("no offload", "RefusedError: .*: expected FSDP1 units with CPU offload, found 5 and none that offloads. Wrap"),
        (
            "no shard",
            "RefusedError: .*: expected sharded units, found 5 with NO_SHARD .*issues/118245.* Use FULL_SHARD",
        ),
        (
            "one rank",
            "RefusedError: .*: expected sharded units, found 5 with NO_SHARD .*A single rank makes every unit",
        ),
        ("no module", "ResourceError: .*expected a torch.nn.Module as the model, found str. Pass"),
        (
            "no such block",
            "ResourceError: .*expected each glob of 'modules' to select a module, found none for 'blocks.7'",
        ),
        ("no model", "ResourceError: .*'model'"),
    ],
)
def test_refuses(ranks: RankPool, kind: str, expected: str) -> None:
    """What the patch can't be right for is refused before anything is touched; the message says what to do."""
    import re

    for message in ranks(refusal, kind=kind):
        assert re.match(expected, message, re.DOTALL), message


@rehearsed
def only_some_blocks() -> int:
    model = build()
    with patched(DROP_SHARDS, model=model, modules=["blocks.[01]"]):
        return peak_of_shards(model)


def test_selected_modules_only(ranks: RankPool) -> None:
    """``modules`` of a manifest entry selects units by the paths that people write."""
    # Blocks 3 and 2 stay as in stock; blocks 1 and 0 come and go; the root, which is smaller, is the last.
    assert ranks(only_some_blocks) == [3 * BLOCK_BYTES] * 2


def test_blocks_are_what_the_bytes_say(ranks: RankPool) -> None:
    """The figures above are those of the toy: a block has two linear layers of the width."""
    assert sum(param.numel() for param in Block().parameters()) * 4 // 2 == BLOCK_BYTES
