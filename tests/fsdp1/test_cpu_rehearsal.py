"""``fsdp1.cpu-rehearsal``: what runs without an accelerator is what would run with one."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullStateDictConfig, StateDictType, _runtime_utils
from torch.distributed.fsdp._flat_param import FlatParamHandle

from patchkit.errors import RefusedError
from tests.fsdp1._pool import RankPool
from tests.fsdp1._toy import (
    CPU,
    FSDP,
    REHEARSAL,
    Case,
    batch,
    build,
    difference,
    full_parameters,
    gradients,
    handles,
    loss_of,
    naive_drop,
    patched,
    plain,
    reference,
    rehearsed,
    swapped,
    train,
    worst,
)


def against_reference(case: Case, device_comparisons: bool = True) -> list[float]:
    """Train with FSDP1 and in a single process: how far apart gradients are after each step, and parameters last."""
    whole, history = reference(case, world=2)
    comparison = FlatParamHandle.prepare_gradient_for_backward
    apart: list[float] = []
    with patched(REHEARSAL), ExitStack() as stack:
        if not device_comparisons:
            stack.enter_context(swapped(FlatParamHandle, "prepare_gradient_for_backward", comparison))
        model = build(case)

        def compare(step: int) -> None:
            with FSDP.summon_full_params(model, with_grads=True):
                found = [param.grad for param in model.parameters()]
            apart.append(worst((a, b) for a, b in zip(found, history[step].values(), strict=True) if a is not None))

        train(model, case, after_backward=compare if case.use_orig_params else None)
        apart.append(worst(zip(full_parameters(model), whole.parameters(), strict=True)))
    return apart


@pytest.mark.parametrize(
    "case",
    [
        Case(),
        Case(mode="twice"),
        Case(mode="checkpointed twice"),
        Case(strategy="SHARD_GRAD_OP"),
        Case(strategy="NO_SHARD"),
        Case(use_orig_params=False),
    ],
    ids=["full-shard", "twice", "checkpointed", "shard-grad-op", "no-shard", "flat-params"],
)
def test_equals_a_single_process(ranks: RankPool, case: Case) -> None:
    """Stock FSDP1 under the rehearsal has the gradients and parameters of a single process, to the last bit."""
    for apart in ranks(against_reference, case=case):
        assert set(apart) == {0.0}
        assert len(apart) == (4 if case.use_orig_params else 1)


def test_shims_alone_are_wrong(ranks: RankPool) -> None:
    """With pinning and streams shimmed but devices compared as they are, FSDP1 is wrong from the second step on."""
    for apart in ranks(against_reference, case=Case(), device_comparisons=False):
        assert apart[0] == 0.0
        assert min(apart[1:]) > 1e-3


def naive_against_stock() -> dict[str, float | str]:
    case = Case(mode="reentrant twice", steps=1)
    plain_comparison = FlatParamHandle.prepare_gradient_for_backward

    def compare() -> float | str:
        stock = train(build(case), case)
        with naive_drop():
            return difference(stock, train(build(case), case))

    with patched(REHEARSAL):
        seen = compare()
        with swapped(FlatParamHandle, "prepare_gradient_for_backward", plain_comparison):
            hidden = compare()
    return {"rehearsed": seen, "shims only": hidden}


def test_shows_a_shard_that_was_dropped_too_early(ranks: RankPool) -> None:
    """A defect that a GPU would have is seen under the rehearsal, and hidden where devices are compared as they are."""
    for found in ranks(naive_against_stock):
        assert found["shims only"] == 0.0
        assert isinstance(found["rehearsed"], float)
        assert found["rehearsed"] > 1e-3


def unpatched_forward() -> str:
    try:
        build()(batch(0))
    except RuntimeError as error:
        return str(error)
    return "it ran"


def test_needed_at_all(ranks: RankPool) -> None:
    """Without the rehearsal FSDP1 with CPU offload doesn't run here."""
    assert "it ran" not in ranks(unpatched_forward)


@rehearsed
def taken_to_the_host() -> list[float]:
    """How far the usual checkpoint and a summoning are from the parameters, on the rank that gets them."""
    case = Case(steps=1)
    model = build(case)
    train(model, case)
    expected = full_parameters(model)
    on_host = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, on_host):
        saved = model.state_dict()
    with FSDP.summon_full_params(model, offload_to_cpu=True, rank0_only=True, writeback=False):
        summoned = [param.detach().clone() for param in model.parameters()]
    if dist.get_rank() != 0:
        return []
    in_order = [saved[name] for name, _ in plain(case).named_parameters()]
    return [worst(zip(found, expected, strict=True)) for found in (in_order, summoned)]


def test_full_parameters_on_the_host(ranks: RankPool) -> None:
    """The usual checkpoint, taken to the host on one rank, holds the parameters and not memory that was freed."""
    assert ranks(taken_to_the_host) == [[0.0, 0.0], []]


@rehearsed
def two_backwards(strategy: str) -> bool:
    """Whether two backward passes without ``no_sync`` leave what the second one alone leaves."""
    case = Case(strategy=strategy, steps=1)
    both = build(case)
    loss_of(both, batch(0)).backward()
    loss_of(both, batch(1)).backward()
    second = build(case)
    loss_of(second, batch(1)).backward()
    return difference([gradients(both)], [gradients(second)]) == 0.0


@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"])
def test_loses_what_an_accelerator_loses(ranks: RankPool, strategy: str) -> None:
    """With offload, FSDP1 documents that it can't accumulate outside ``no_sync``: the rehearsal loses it as well."""
    assert ranks(two_backwards, strategy=strategy) == [True, True]


@rehearsed
def low_precision_host_gradients() -> list[str]:
    """Types of the root's host gradient: after a step, while the next backward pass fills it, and after that."""
    case = Case(precision="keep-bf16", set_to_none=False, steps=1)
    model = build(case)
    train(model, case)
    seen = [str(handles(model)[0].flat_param._cpu_grad.dtype)]
    original = _runtime_utils._offload_grad

    def watch(state: Any, handle: Any, grad_to_offload: torch.Tensor) -> None:
        if handle is handles(model)[0]:
            seen.append(str(handle.flat_param._cpu_grad.dtype))
        original(state, handle, grad_to_offload)

    with swapped(_runtime_utils, "_offload_grad", watch):
        loss_of(model, batch(1)).backward()
    return [*seen, str(handles(model)[0].flat_param._cpu_grad.dtype)]


def test_widens_low_precision_host_gradients(ranks: RankPool) -> None:
    """``keep_low_precision_grads`` narrows the host gradient after a step, and it is wide again while it is filled."""
    assert ranks(low_precision_host_gradients) == [["torch.bfloat16", "torch.float32", "torch.bfloat16"]] * 2


def pinning() -> dict[str, bool]:
    plain = torch.arange(6.0).reshape(2, 3).t()
    with patched(REHEARSAL):
        pinned = plain.pin_memory()
        copied = pinned.data_ptr() != plain.data_ptr() and torch.equal(pinned, plain)
        seen = {
            "copies": copied,
            "keeps strides": pinned.stride() == plain.stride(),
            "counts as pinned": pinned.is_pinned() and pinned[0].is_pinned() and not plain.is_pinned(),
            "pins once": pinned.pin_memory() is pinned and pinned.pin_memory(device=CPU) is pinned,
            "a copy isn't pinned": not pinned.clone().is_pinned(),
            "accepts a device": plain.pin_memory(device=CPU).is_pinned() and plain.pin_memory("cuda").is_pinned(),
            "passes gradients": _passes_gradients(),
            "refuses sparse": _refuses_sparse(),
        }
    return {**seen, "forgets on revert": not pinned.is_pinned()}


def _passes_gradients() -> bool:
    leaf = torch.ones(2, requires_grad=True)
    leaf.pin_memory().sum().backward()
    return leaf.grad is not None and leaf.grad.tolist() == [1.0, 1.0]


def _refuses_sparse() -> bool:
    try:
        torch.eye(2).to_sparse().pin_memory()
    except RuntimeError as error:
        return "only dense CPU tensors can be pinned" in str(error)
    return False


def test_pinning_behaves_like_pinning(ranks: RankPool) -> None:
    """A pinned tensor is another tensor of the same values and strides, is known as pinned, and is pinned once."""
    for seen in ranks(pinning):
        assert [name for name, holds in seen.items() if not holds] == []


def recycled_addresses() -> int:
    """How many of many short-lived tensors count as pinned because an address was used before."""
    with patched(REHEARSAL):
        wrong = 0
        for _ in range(300):
            torch.ones(64).pin_memory()
            wrong += torch.ones(64).is_pinned()
    return wrong


def test_a_freed_tensor_is_forgotten(ranks: RankPool) -> None:
    """Memory that was pinned once doesn't count as pinned when another tensor gets it."""
    assert ranks(recycled_addresses) == [0, 0]


def presence() -> list[tuple[bool, bool]]:
    def present() -> tuple[bool, bool]:
        return "pin_memory" in vars(torch.Tensor), hasattr(torch.cpu.Stream, "synchronize")

    seen = [present()]
    first = patched(REHEARSAL)
    second = patched(REHEARSAL)
    seen.append(present())
    first.revert()
    second.verify()
    seen.append(present())
    second.revert()
    return [*seen, present()]


def test_leaves_with_the_last_owner(ranks: RankPool) -> None:
    """Applied twice and reverted twice, it is gone only then, and what was absent is absent again."""
    absent, there = (False, False), (True, True)
    assert ranks(presence) == [[absent, there, there, absent]] * 2


def with_an_accelerator() -> str:
    from patchkit.fsdp1 import _facts

    with swapped(_facts, "accelerator", lambda: True):
        try:
            patched(REHEARSAL)
        except RefusedError as error:
            return str(error)
    return "not refused"


def test_refuses_an_accelerator(ranks: RankPool) -> None:
    """Where there is an accelerator there is nothing to rehearse; the message says what to do."""
    for message in ranks(with_an_accelerator):
        assert "expected a machine without an accelerator, found one" in message
        assert "when = { accelerator = false }" in message


def aliasing(strategy: str) -> list[bool]:
    """Whether a unit computes on the very memory that the host keeps: in its first forward, in its second."""
    found: list[bool] = []
    with patched(REHEARSAL):
        model = build(Case(strategy=strategy))
        flat_param = handles(model)[0].flat_param
        # Kept, so that nothing else gets its address.
        before = flat_param.untyped_storage()

        def look(module: Any, args: Any) -> None:
            kept = {before.data_ptr(), flat_param._local_shard.untyped_storage().data_ptr()}
            found.append(flat_param.untyped_storage().data_ptr() in kept)

        model.get_submodule("_fsdp_wrapped_module").register_forward_pre_hook(look)
        model(batch(0))
        model(batch(1))
    return found


@pytest.mark.parametrize("strategy", ["FULL_SHARD", "NO_SHARD"])
def test_computes_on_a_copy_of_the_shard(ranks: RankPool, strategy: str) -> None:
    """As with an accelerator, what a unit computes on is not the memory that the host keeps, sharded or not."""
    assert ranks(aliasing, strategy=strategy) == [[False, False]] * 2
