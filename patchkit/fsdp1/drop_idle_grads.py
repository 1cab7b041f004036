"""``fsdp1.drop-idle-grads``: no host gradients while a trainable model only looks."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Literal

from pydantic import Field

from ..contract import Contract
from ..errors import RefusedError, VerifyError
from ..patch import Context, Patch, PatchOptions, Probe
from ._contracts import contract_of
from ._units import Handle, Unit, WeakUnits, offloaded_units, refuse_unsharded, selected_units, shown, units_of
from .drop_frozen_grads import is_kept_frozen

__all__ = ["DropIdleGrads", "IdleOptions", "refuse_gradients"]

_Method = Callable[[Handle], None]


class IdleOptions(PatchOptions):
    """What the patch is told in the manifest."""

    scope: Literal["validation", "replay"] = Field(
        "validation",
        description="'validation': grad mode is off from entry to exit. 'replay': the caller may have grad mode on, "
        "the model's forwards run under no_grad.",
    )


class DropIdleGrads(Patch):
    """Drop the pinned host gradients of a trainable model for a time in which it gets none."""

    name: ClassVar[str] = "fsdp1.drop-idle-grads"
    summary: ClassVar[str] = "drops idle host gradients during validation, or the forwards of a rollout"
    why: ClassVar[str] = (
        "Once a model was trained, FSDP1 keeps a pinned host gradient as large as its parameters, also while it is "
        "validated or rolled out, and allocates what was released in the next forward, under no_grad too: memory that "
        "a second model, or a checkpoint that is written, could use."
    )
    how: ClassVar[str] = (
        "While applied, each unit's host gradient is one zero, expanded to the shard's shape; the initialiser is "
        "overridden to make it so from the start, and _use_sharded_grad_views to show no parameter a view of it. FSDP1 "
        "allocates only where it finds None: nothing is allocated inside, and on leaving the placeholder becomes None, "
        "so the next forward allocates what training needs. A hook before each unit's forward refuses grad mode. Apply "
        "it as a context manager around the time in question."
    )
    upstream: ClassVar[str] = "https://github.com/pytorch/pytorch/issues/134051 (host memory that stays allocated)"
    until: ClassVar[str] = "FSDP1 allocates host gradients in the backward pass that fills them."
    contract: ClassVar[Contract] = contract_of("fsdp1.drop-idle-grads")
    Options: ClassVar[type[PatchOptions]] = IdleOptions
    resources: ClassVar[tuple[str, ...]] = ("model",)
    probe: ClassVar[Probe | None] = Probe("patchkit.fsdp1._probes.drop_idle_grads:probe", ranks=2)

    def check(self, ctx: Context) -> None:
        """Refuse grad mode where the scope forbids it, gradients, a backward pass to come, and unsharded units."""
        refuse_unsharded(self.name, offloaded_units(ctx))
        _Guard(WeakUnits(selected_units(ctx)), ctx.options.scope).look()

    def install(self, ctx: Context) -> None:
        """Look again (also when it is brought back), override what allocates and shows, and drop what is there."""
        guard = _Guard(WeakUnits(selected_units(ctx)), ctx.options.scope)
        ctx.action("look for gradients that are needed", guard.look, _nothing, on=ctx.model)
        units = offloaded_units(ctx)
        handles = [handle for _, handle in units]
        ctx.wrap_each(handles, "init_flat_param_attributes", _give_placeholder)
        ctx.wrap_each(handles, "_use_sharded_grad_views", _show_nothing)
        for unit, handle in units:
            buffer = _Buffer(unit, handle)
            ctx.action(
                f"drop the host gradient of {handle.flat_param._fqns[0]}", buffer.drop, buffer.restore, on=handle
            )
        ctx.action("return freed pinned memory to the system", _give_back, _nothing, on=ctx.model)
        for unit in selected_units(ctx):
            ctx.hook(unit.module, "forward_pre_hook", refuse_gradients)
            ctx.hook(unit.module, "forward_hook", refuse_graph)

    def verify(self, ctx: Context) -> None:
        """Look at the host gradients that exist by now: each must be the placeholder."""
        from ._modes import allocated

        kept = [unit.label for unit, handle in offloaded_units(ctx) if allocated(handle)]
        if kept:
            raise VerifyError(
                f"{self.name}: expected no host gradients but placeholders, found allocated ones in {shown(kept)}.",
                patch=self.name,
            )


class _Guard:
    """Looks for what dropping the host gradients of some units would lose."""

    def __init__(self, units: WeakUnits, scope: str) -> None:
        self._units = units
        self._scope = scope

    def look(self) -> None:
        import torch

        from ._pending import refuse_pending

        if self._scope == "validation" and torch.is_grad_enabled():
            raise RefusedError(
                f"{DropIdleGrads.name}: expected grad mode off, found it on. Enter torch.no_grad() before the manifest "
                'is applied, and leave it after; or, for forwards that switch it off themselves, say scope = "replay".',
                patch=DropIdleGrads.name,
            )
        refuse_pending(DropIdleGrads.name, self._units(), "dropping the host gradients")


def refuse_gradients(module: Any, args: tuple[Any, ...]) -> None:
    """Refuse the forward of a unit under grad mode, before FSDP1 starts it, and of a root that got gradients.

    A forward that is itself decorated with ``torch.no_grad`` is let through; ``refuse_graph`` looks at what it returns.
    The hook itself is the mark of a guarded unit: it holds no state, so it can be copied and pickled with the model.
    """
    import torch

    from ._pending import has_gradient

    if torch.is_grad_enabled() and not _switches_off_itself(module.module):
        raise _under_grad_mode()
    if module._is_root is False:
        return
    given = [unit.label for unit in units_of(module) if unit.handle is not None and has_gradient(unit.handle)]
    if given:
        raise RefusedError(
            f"{DropIdleGrads.name}: expected no gradients while they are dropped, found some in {shown(given)}, which "
            "this forward would lose. Revert the patch before gradients are set.",
            patch=DropIdleGrads.name,
        )


def refuse_graph(module: Any, args: tuple[Any, ...], output: Any) -> None:
    """Refuse an output that a backward pass could start from."""
    import torch
    from torch.utils import _pytree

    leaves = _pytree.tree_flatten(output)[0]
    if any(isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None for leaf in leaves):
        raise _under_grad_mode()


def _under_grad_mode() -> RefusedError:
    return RefusedError(
        f"{DropIdleGrads.name}: expected forwards under torch.no_grad(), found one with grad mode on, whose backward "
        "would find no host gradients. Run it under no_grad, or revert the patch before it.",
        patch=DropIdleGrads.name,
    )


def _switches_off_itself(module: Any) -> bool:
    # What torch.no_grad() and torch.inference_mode() return as decorators.
    forward = getattr(type(module), "forward", None)
    code = getattr(forward, "__code__", None)
    return code is not None and code.co_name == "decorate_context"


def _give_placeholder(original: _Method) -> _Method:
    def init_flat_param_attributes(self: Handle) -> None:
        from ._modes import initialise_with_placeholder

        initialise_with_placeholder(self, original)

    return init_flat_param_attributes


def _show_nothing(original: _Method) -> _Method:
    def _use_sharded_grad_views(self: Handle) -> None:
        from ._modes import is_placeholder

        flat_param = self.flat_param
        if not is_placeholder(flat_param._cpu_grad):
            original(self)
            return
        for param in (*flat_param._params, *flat_param._shared_params):
            param.grad = None

    return _use_sharded_grad_views


class _Buffer:
    """The host gradient of one unit."""

    def __init__(self, unit: Unit, handle: Handle) -> None:
        self._module = weakref.ref(unit.module)
        self._handle = weakref.ref(handle)

    def drop(self) -> None:
        from ._modes import allocated, make_placeholder
        from ._pending import drop_stale_views

        handle = self._handle()
        if handle is not None and allocated(handle):
            # Views that came back after zero_grad, and the flat parameter's own reference, would keep the memory.
            drop_stale_views(handle)
            handle.flat_param._cpu_grad = make_placeholder(handle.flat_param._local_shard)

    def restore(self) -> None:
        from ._modes import is_placeholder

        module, handle = self._module(), self._handle()
        if module is None or handle is None or is_kept_frozen(module):
            return
        if is_placeholder(getattr(handle.flat_param, "_cpu_grad", None)):
            # FSDP1 allocates in the next forward what it finds to be None.
            handle.flat_param._cpu_grad = None


def _give_back() -> None:
    from ._host_memory import empty_host_cache

    empty_host_cache()


def _nothing() -> None:
    """Looking and returning memory need no inverse."""
