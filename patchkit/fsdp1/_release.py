"""Giving back the host gradients of models that have no gradients at the moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import RefusedError, ResourceError
from ._units import Unit, described_model, units_of

if TYPE_CHECKING:
    from torch import nn

__all__ = ["release_completed_gradients"]

_NAME = "fsdp1.release_completed_gradients"


def release_completed_gradients(*models: nn.Module) -> int:
    """Drop every host gradient of models wrapped in FSDP1, after their optimizer's step.

    For the time between ``optimizer.zero_grad(set_to_none=True)`` and the next forward: before a checkpoint is written
    or resumed from, or before another model needs the memory. FSDP1 allocates again in the next forward
    (``_runtime_utils._pre_forward``, torch 2.1 to 2.15). Until then clipping, ``summon_full_params``, state dicts and
    optimizer state dicts work as ever. Pinned memory that became free is returned to the system where this build of
    torch can. Units without offload, frozen ones under ``fsdp1.drop-frozen-grads``, and models that FSDP1 has not
    initialised yet have nothing to drop.

    It is on the audit log as an action, beside the application made last in this process.

    Args:
        models: Modules that are wrapped in FSDP1, or have units wrapped in it below them.

    Returns:
        How many bytes were freed, each storage counted once; memory that something else still refers to isn't counted.

    Raises:
        ResourceError: Something else than such a module was given.
        RefusedError: A parameter of any of the models has a gradient, or a backward pass is still to come. Nothing
            was dropped, of none of the models.
        AuditError: The intent can't be recorded, and the audit policy is ``required``. Nothing was dropped.
    """
    from .._recorder import recorded_action

    with recorded_action(_NAME) as outcome:
        freed = _release(models)
        outcome["freed_bytes"] = freed
    return freed


def _release(models: tuple[nn.Module, ...]) -> int:
    from torch.multiprocessing.reductions import StorageWeakRef

    from ._host_memory import empty_host_cache
    from ._modes import allocated
    from ._pending import drop_stale_views, refuse_pending

    units = [unit for model in models for unit in _units(model)]
    refuse_pending(_NAME, units, "dropping the host gradients")
    dropped: dict[int, tuple[StorageWeakRef, int]] = {}
    for unit in units:
        handle = unit.handle
        if handle is not None and allocated(handle):
            storage = handle.flat_param._cpu_grad.untyped_storage()
            dropped[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
            del storage
            drop_stale_views(handle)
            handle.flat_param._cpu_grad = None
    freed = sum(size for reference, size in dropped.values() if reference.expired())
    if freed:
        empty_host_cache()
    return freed


def _units(model: Any) -> list[Unit]:
    from torch import nn

    units = list(units_of(model)) if isinstance(model, nn.Module) else []
    if not units:
        raise ResourceError(
            f"{_NAME}: expected modules that are wrapped in FSDP1 (FullyShardedDataParallel), found "
            f"{described_model(model)}. Pass the wrapped models: release_completed_gradients(model)."
        )
    if all(unit.handle is None or not unit.handle._offload_params for unit in units):
        raise RefusedError(
            f"{_NAME}: expected a model with CPU offload, found {described_model(model)} and no unit that offloads: "
            "its gradients are on the compute device, where zero_grad(set_to_none=True) frees them."
        )
    return units
