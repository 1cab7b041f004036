"""``release_completed_gradients``: what it frees, what it refuses, and that everything goes on afterwards."""

from __future__ import annotations

import os
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, ShardedStateDictConfig, StateDictType

import patchkit
from patchkit.audit import read_entries
from patchkit.errors import PatchkitError, RefusedError
from patchkit.fsdp1 import release_completed_gradients
from tests.fsdp1._pool import RankPool
from tests.fsdp1._toy import (
    DROP_FROZEN,
    FSDP,
    NO_STALE,
    SHARD_BYTES,
    Case,
    Toy,
    batch,
    build,
    difference,
    gradients,
    handles,
    host_gradients,
    loss_of,
    parameters,
    patched,
    rehearsed,
    swapped,
    train,
    train_step,
    wrap,
)


def trained(case: Case = Case()) -> tuple[FSDP, torch.optim.Optimizer]:  # noqa: B008
    model = build(case)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train_step(model, case, 0, optimizer)
    return model, optimizer


# Effect


@rehearsed
def freed(case: Case, before: str) -> list[int]:
    """Bytes on the host before, bytes that were freed, bytes on the host after, gradients that are left."""
    model, _ = trained(case)
    if before == "a forward":
        with torch.no_grad():
            model(batch(1))
    elif before == "two forwards":
        with torch.no_grad():
            model(batch(1))
            model(batch(2))
    elif before == "a forward that was thrown away":
        model(batch(1))
    found = [host_gradients(model), release_completed_gradients(model, model)]
    return [*found, host_gradients(model), sum(param.grad is not None for param in parameters(model))]


@pytest.mark.parametrize("before", ["nothing", "a forward", "two forwards", "a forward that was thrown away"])
@pytest.mark.parametrize("use_orig_params", [True, False])
def test_frees_all(ranks: RankPool, use_orig_params: bool, before: str) -> None:
    """Everything is freed after zero_grad; gradients that stock FSDP1 brings back in a forward don't fool the guard."""
    expected = [SHARD_BYTES, SHARD_BYTES, 0, 0]
    assert ranks(freed, case=Case(use_orig_params=use_orig_params), before=before) == [expected] * 2


@rehearsed
def counted() -> list[int]:
    model, _ = trained()
    kept = handles(model)[1].flat_param._cpu_grad
    found = [release_completed_gradients(model), kept.untyped_storage().nbytes()]
    return [*found, release_completed_gradients(model), release_completed_gradients(build())]


def test_counts_what_is_gone(ranks: RankPool) -> None:
    """Memory that something else refers to isn't counted; a second call, and a model that never ran, free nothing."""
    for bytes_freed, kept, again, uninitialised in ranks(counted):
        assert (bytes_freed, again, uninitialised) == (SHARD_BYTES - kept, 0, 0)
        assert kept > 0


@rehearsed
def beside_frozen() -> list[int]:
    model = build(Case(frozen=True))
    with patched(DROP_FROZEN, model=model) as applied:
        with torch.no_grad():
            model(batch(0))
        before = host_gradients(model)
        freed = release_completed_gradients(model)
        applied.verify()
        return [before, freed, host_gradients(model)]


def test_leaves_placeholders(ranks: RankPool) -> None:
    """The placeholders of a frozen model stay where they are."""
    assert ranks(beside_frozen) == [[20, 0, 20]] * 2


# What goes on afterwards


def local_part(value: Any) -> torch.Tensor:
    """A copy of a tensor, or of this rank's part of a sharded one."""
    shards = value.local_shards() if hasattr(value, "local_shards") else None
    tensor = value if shards is None else shards[0].tensor if shards else torch.empty(0)
    return torch.as_tensor(tensor).detach().clone()


@rehearsed
def goes_on(use_orig_params: bool, names: list[str]) -> float | str:
    """Compare clipping, state dicts, optimizer state and later steps with those of a model that was left alone."""
    case = Case(use_orig_params=use_orig_params)

    def run(release: bool) -> list[list[torch.Tensor | None]]:
        model, optimizer = trained(case)
        with patched(*names, model=model) if names else nullcontext():
            if release:
                assert release_completed_gradients(model) == SHARD_BYTES
            seen: list[torch.Tensor | None] = [model.clip_grad_norm_(1.0).detach()]
            # FSDP1's sharded state dict warns of its own deprecation.
            warnings.simplefilter("ignore")
            for kind, config in (
                (StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True)),
                (StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig()),
            ):
                with FSDP.state_dict_type(model, kind, config):
                    seen += [local_part(value) for value in model.state_dict().values()]
                    state = FSDP.optim_state_dict(model, optimizer)["state"]
                    seen += [local_part(entry["momentum_buffer"]) for _, entry in sorted(state.items())]
            if use_orig_params:
                with FSDP.summon_full_params(model, with_grads=True, writeback=False):
                    seen += [None if p.grad is None else p.grad.clone() for p in model.parameters()]
            return [seen, *train(model, case, first=1, optimizer=optimizer)]

    return difference(run(release=False), run(release=True))


@pytest.mark.parametrize("names", [[], [NO_STALE]], ids=str)
@pytest.mark.parametrize("use_orig_params", [True, False])
def test_everything_goes_on(ranks: RankPool, use_orig_params: bool, names: list[str]) -> None:
    """Clipping, full and sharded state dicts, optimizer state, summoned parameters and the next steps are stock's."""
    assert ranks(goes_on, use_orig_params=use_orig_params, names=names) == [0.0, 0.0]


# Refusals


@rehearsed
def refused(situation: str) -> tuple[str, bool]:
    """What it says, and whether both models kept all that they had."""
    other, _ = trained()
    model, optimizer = trained()
    kept: Any = None
    if situation == "gradients":
        loss_of(model, batch(1)).backward()
    elif situation == "gradients of one unit":
        loss_of(model, batch(1)).backward()
        for param in parameters(model)[1:]:
            param.grad = None
    elif situation == "gradients under no_sync":
        with model.no_sync():
            loss_of(model, batch(1)).backward()
    elif situation == "gradients set by hand":
        param = parameters(model)[0]
        param.grad = torch.ones_like(param)
    elif situation == "pending backward":
        kept = loss_of(model, batch(1))
        optimizer.zero_grad()
    elif situation == "inside of a backward":
        said: list[str] = []

        def hook(grad: torch.Tensor) -> None:
            said.append(attempt(other, model))

        x = batch(1)
        x.register_hook(hook)
        loss_of(model, x).backward()
        return said[0], True
    before = gradients(model)
    said_now = attempt(other, model)
    same = difference([before], [gradients(model)]) == 0.0 and host_gradients(other) == SHARD_BYTES
    if kept is not None:
        kept.backward()
    return said_now, same and host_gradients(model) == SHARD_BYTES


def attempt(*models: Any) -> str:
    try:
        return f"it freed {release_completed_gradients(*models)}"
    except RefusedError as error:
        return str(error)


@pytest.mark.parametrize(
    ("situation", "expected"),
    [
        ("gradients", "expected units without gradients, found some in"),
        ("gradients of one unit", "expected units without gradients, found some in 1"),
        ("gradients under no_sync", "expected units without gradients, found some in"),
        ("gradients set by hand", "expected units without gradients, found some in 1"),
        ("pending backward", "expected no backward pass to come, found a forward with gradients on"),
        ("inside of a backward", "expected "),
    ],
)
def test_refuses_what_would_be_lost(ranks: RankPool, situation: str, expected: str) -> None:
    """A gradient or a pending backward in one of the models is refused before any of them is touched."""
    for said, untouched in ranks(refused, situation=situation):
        assert said.startswith(f"fsdp1.release_completed_gradients: {expected}")
        assert untouched


@rehearsed
def wrong_models() -> list[str]:
    said = []
    models: list[Any] = [Toy(), nn.Linear(2, 2), 3, wrap(Toy(), Case(offload=False))]
    for model in models:
        try:
            release_completed_gradients(model)
        except PatchkitError as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


def test_refuses_other_models(ranks: RankPool) -> None:
    """Plain modules, things that are no modules, and models without offload get an error that says what to pass."""
    for said in ranks(wrong_models):
        assert [line.partition(":")[0] for line in said] == ["ResourceError"] * 3 + ["RefusedError"]
        assert "found a Toy. Pass the wrapped models" in said[0]
        assert "found a int" in said[2]
        assert "expected a model with CPU offload" in said[3]


# The audit log


@rehearsed
def recorded(folder: str) -> list[tuple[str, Any]]:
    rank = int(torch.distributed.get_rank())
    path = Path(folder) / f"{rank}.jsonl"
    model, _ = trained()
    manifest = {"schema": 1, "patch": [{"name": NO_STALE}], "audit": {"path": str(path)}}
    with swapped(os, "environ", {**os.environ}):
        os.environ.pop("PATCHKIT_AUDIT", None)
        with patchkit.apply(manifest, model):
            freed = release_completed_gradients(model)
            loss_of(model, batch(1)).backward()
            attempt(model)
    entries = [entry for entry in read_entries(path) if entry.event.startswith("action.")]
    assert {entry.fields["action"] for entry in entries} == {"fsdp1.release_completed_gradients"}
    assert entries[1].fields["freed_bytes"] == freed == SHARD_BYTES
    assert [entry.tx for entry in entries[::2]] == [entry.tx for entry in entries[1::2]]
    return [(entry.event, entry.fields.get("error", {}).get("type")) for entry in entries]


def test_on_the_audit_log(ranks: RankPool, tmp_path: Path) -> None:
    """It is an action on the log of the application made last: intent, and outcome or refusal."""
    refused = ("action.failed", "patchkit.errors.RefusedError")
    expected = [("action.started", None), ("action.completed", None), ("action.started", None), refused]
    assert ranks(recorded, folder=str(tmp_path)) == [expected] * 2
