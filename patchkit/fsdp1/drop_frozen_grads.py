"""``fsdp1.drop-frozen-grads``: no host gradients for a model that never gets any."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, ClassVar

from ..contract import Contract
from ..errors import RefusedError, VerifyError
from ..patch import Context, Patch, Probe
from ._contracts import contract_of
from ._units import (
    Handle,
    WeakUnits,
    offloaded_units,
    plain_path,
    selected_units,
    shown,
    storage_bytes,
    trainable_names,
    units_of,
)

__all__ = ["DropFrozenGrads", "is_kept_frozen", "refuse_unfrozen"]

_Initialiser = Callable[[Handle], None]


class DropFrozenGrads(Patch):
    """Keep FSDP1 from allocating pinned host gradients for a frozen model."""

    name: ClassVar[str] = "fsdp1.drop-frozen-grads"
    summary: ClassVar[str] = "gives frozen offloaded units four bytes of host gradient instead of a pinned shard"
    why: ClassVar[str] = (
        "Before the first forward, FSDP1 allocates a pinned host gradient of the size of the shard for every offloaded "
        "unit, also for a text encoder or a teacher that never gets a gradient: one more model of pinned memory."
    )
    how: ClassVar[str] = (
        "Overrides init_flat_param_attributes of each unit's handle: the gradient that it allocates becomes one zero, "
        "expanded to the shard's shape, and is not pinned. FSDP1 allocates again only where it finds None, so no later "
        "forward pins anything, and the pinned memory that an earlier one left is returned to the system once, at "
        "installation. A hook before each unit's forward refuses as soon as a parameter requires a gradient. Reverting "
        "allocates zeros as FSDP1 does; what a unit's gradient held before it was frozen is not kept."
    )
    upstream: ClassVar[str] = "https://github.com/pytorch/pytorch/issues/91165"
    until: ClassVar[str] = "FSDP1 allocates host gradients only for parameters that require one."
    contract: ClassVar[Contract] = contract_of("fsdp1.drop-frozen-grads")
    resources: ClassVar[tuple[str, ...]] = ("model",)
    probe: ClassVar[Probe | None] = Probe("patchkit.fsdp1._probes.drop_frozen_grads:probe", ranks=2)

    def check(self, ctx: Context) -> None:
        """Refuse a model without offloading units, and one that is not frozen."""
        units = offloaded_units(ctx)
        trainable = [name for unit, handle in units for name in trainable_names(unit, handle)]
        if not ctx.modules:
            known = {id(param) for _, handle in units for param in handle.flat_param._params or [handle.flat_param]}
            trainable += [
                plain_path(name)
                for name, param in ctx.model.named_parameters()
                if param.requires_grad and id(param) not in known
            ]
        if trainable:
            raise _unfrozen(trainable)

    def install(self, ctx: Context) -> None:
        """Override the initialisers, replace what is allocated already, and watch for parameters that are unfrozen."""
        guard = _Guard(WeakUnits(unit for unit, _ in offloaded_units(ctx)))
        ctx.action("look for parameters that require a gradient", guard.look, _nothing, on=ctx.model)
        handles = [handle for _, handle in offloaded_units(ctx)]
        ctx.wrap_each(handles, "init_flat_param_attributes", _give_placeholder)
        freed = _Freed()
        for handle in handles:
            buffer = _Buffer(handle, freed)
            ctx.action(
                f"drop the host gradient of {handle.flat_param._fqns[0]}", buffer.drop, buffer.restore, on=handle
            )
        ctx.action("return freed pinned memory to the system", freed.give_back, _nothing, on=ctx.model)
        for unit in selected_units(ctx):
            ctx.hook(unit.module, "forward_pre_hook", refuse_unfrozen)

    def verify(self, ctx: Context) -> None:
        """Look at the host gradients that exist by now, each must be the placeholder, and for unfrozen parameters."""
        from ._modes import allocated

        trainable = [name for unit, handle in offloaded_units(ctx) for name in trainable_names(unit, handle)]
        if trainable:
            raise VerifyError(str(_unfrozen(trainable)), patch=self.name)
        kept = [
            f"{unit.label} ({storage_bytes(handle.flat_param._cpu_grad)} bytes)"
            for unit, handle in offloaded_units(ctx)
            if allocated(handle)
        ]
        if kept:
            raise VerifyError(
                f"{self.name}: expected no host gradients but placeholders, found allocated ones in {shown(kept)}.",
                patch=self.name,
            )


def refuse_unfrozen(module: Any, args: tuple[Any, ...]) -> None:
    """Refuse the forward of a unit, before FSDP1 starts it, if a parameter requires a gradient.

    The root of a call looks at every guarded unit below it, so that nothing is left half-way; a unit that is called
    by another one looks only at itself. The hook itself is the mark of a guarded unit: it holds no state, so it can be
    copied and pickled with the model.
    """
    units = units_of(module) if module._is_root is not False else [next(units_of(module))]
    trainable = [
        name
        for unit in units
        if unit.handle is not None and is_kept_frozen(unit.module)
        for name in trainable_names(unit, unit.handle)
    ]
    if trainable:
        raise _unfrozen(trainable)


def is_kept_frozen(module: Any) -> bool:
    """Tell whether the patch keeps the unit of ``module`` without a host gradient at present."""
    return refuse_unfrozen in module._forward_pre_hooks.values()


def _unfrozen(names: list[str]) -> RefusedError:
    return RefusedError(
        f"{DropFrozenGrads.name}: expected a model without parameters that require a gradient, found {len(names)} that "
        f"do ({shown(names)}). Freeze them with requires_grad_(False), or take the patch out (applied.revert()) to "
        "train them.",
        patch=DropFrozenGrads.name,
    )


def _give_placeholder(original: _Initialiser) -> _Initialiser:
    def init_flat_param_attributes(self: Handle) -> None:
        from ._modes import initialise_with_placeholder

        initialise_with_placeholder(self, original)

    return init_flat_param_attributes


class _Guard:
    """Looks again whether units are frozen, when the patch is brought back after a suspension."""

    def __init__(self, units: WeakUnits) -> None:
        self._units = units

    def look(self) -> None:
        from ._pending import refuse_pending

        units = self._units()
        trainable = [name for unit in units if unit.handle for name in trainable_names(unit, unit.handle)]
        if trainable:
            raise _unfrozen(trainable)
        # A unit that was frozen again may have a forward behind it whose backward needs the host gradient.
        trained = [unit for unit in units if unit.handle and unit.handle.flat_param.requires_grad]
        refuse_pending(DropFrozenGrads.name, trained, "dropping the host gradients")


class _Freed:
    """How much pinned memory was let go of and not yet returned."""

    def __init__(self) -> None:
        self.bytes = 0

    def give_back(self) -> None:
        from ._host_memory import empty_host_cache

        if self.bytes:
            empty_host_cache()
            self.bytes = 0


class _Buffer:
    """The host gradient of one unit that is initialised already, or will be while the patch is installed."""

    def __init__(self, handle: Handle, freed: _Freed) -> None:
        self._handle = weakref.ref(handle)
        self._freed = freed

    def drop(self) -> None:
        from ._modes import is_placeholder, make_placeholder

        handle = self._handle()
        gradient = getattr(handle.flat_param, "_cpu_grad", None) if handle is not None else None
        if handle is not None and gradient is not None and not is_placeholder(gradient):
            self._freed.bytes += storage_bytes(gradient)
            handle.flat_param._cpu_grad = make_placeholder(gradient)

    def restore(self) -> None:
        from ._modes import is_placeholder

        handle = self._handle()
        if handle is None or not is_placeholder(getattr(handle.flat_param, "_cpu_grad", None)):
            return
        import torch

        zeros = torch.zeros_like(handle.flat_param._local_shard, device="cpu")
        try:
            handle.flat_param._cpu_grad = zeros.pin_memory()
        except RuntimeError:
            # Where nothing can be pinned (any more), FSDP1's next forward says so itself.
            handle.flat_param._cpu_grad = None


def _nothing() -> None:
    """Looking needs no inverse, nor does memory that was returned: it is asked for again when it is needed."""
