"""``fsdp1.no-stale-grads``: a gradient that was zeroed stays away."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from ..contract import Contract
from ..errors import VerifyError
from ..patch import Context, Patch, Probe
from ._contracts import contract_of
from ._units import Handle, offloaded_units, refuse_unsharded, shown

__all__ = ["NoStaleGrads"]

_Method = Callable[[Handle], None]
# Per handle, from the beginning of its part in a backward pass to its end: whether it had a gradient before.
_Notes = weakref.WeakKeyDictionary[Handle, bool]


class NoStaleGrads(Patch):
    """Keep FSDP1 from bringing back a gradient that was set to None, or that belongs to an earlier iteration."""

    name: ClassVar[str] = "fsdp1.no-stale-grads"
    summary: ClassVar[str] = "keeps gradients that were zeroed, or are an earlier iteration's, from coming back"
    why: ClassVar[str] = (
        "With CPU offload and use_orig_params=True, any forward after zero_grad(set_to_none=True), under no_grad too, "
        "shows every parameter the last step's gradient again: an extra optimizer.step() moves the weights, and guards "
        "take it for a real one. With use_orig_params=False, a unit that takes no part in an iteration is given the "
        "gradient of the iteration before."
    )
    how: ClassVar[str] = (
        "Overrides three methods of each unit's handle, because the property that is at fault (sharded_grad, which "
        "takes the host gradient whatever it holds) can't be overridden for one model alone. "
        "_use_sharded_grad_views shows no gradient where the flat parameter has none; prepare_gradient_for_backward "
        "notes whether it had one; prepare_gradient_for_optim takes it away again where the unit was not reduced and "
        "had none before. Nothing is computed, and no memory is kept."
    )
    until: ClassVar[str] = "FlatParamHandle.sharded_grad no longer returns a host gradient that was zeroed."
    contract: ClassVar[Contract] = contract_of("fsdp1.no-stale-grads")
    resources: ClassVar[tuple[str, ...]] = ("model",)
    probe: ClassVar[Probe | None] = Probe("patchkit.fsdp1._probes.no_stale_grads:probe", ranks=2)

    def check(self, ctx: Context) -> None:
        """Refuse a model without offloading units, and units that aren't sharded."""
        refuse_unsharded(self.name, offloaded_units(ctx))

    def install(self, ctx: Context) -> None:
        """Override the methods that show, save and bring back gradients, and drop those that are back already."""
        handles = [handle for _, handle in offloaded_units(ctx)]
        notes = _Notes()
        for handle in handles:
            stale = _Stale(weakref.ref(handle))
            ctx.action(f"drop what came back of {handle.flat_param._fqns[0]}", stale.drop, _nothing, on=handle)
        ctx.wrap_each(handles, "_use_sharded_grad_views", _show_current)
        ctx.wrap_each(handles, "prepare_gradient_for_backward", lambda original: _note_before(original, notes))
        ctx.wrap_each(handles, "prepare_gradient_for_optim", lambda original: _take_away_after(original, notes))

    def verify(self, ctx: Context) -> None:
        """Look for views of a host gradient that their flat parameter doesn't have."""
        from ._pending import shows_stale_gradient

        stale = [unit.label for unit, handle in offloaded_units(ctx) if shows_stale_gradient(handle)]
        if stale:
            raise VerifyError(
                f"{self.name}: expected no gradients that were zeroed, found that some came back in {shown(stale)}. "
                "Somebody else shows them: take that patch out.",
                patch=self.name,
            )


@dataclass(frozen=True)
class _Stale:
    """Gradients of one unit that were zeroed, and came back before the patch was there."""

    handle: weakref.ref[Handle]

    def drop(self) -> None:
        from ._pending import drop_stale_views, shows_stale_gradient

        handle = self.handle()
        if handle is not None and shows_stale_gradient(handle):
            drop_stale_views(handle)


def _nothing() -> None:
    """What was dropped is brought back by stock FSDP1's next forward."""


def _show_current(original: _Method) -> _Method:
    def _use_sharded_grad_views(self: Handle) -> None:
        if _has_current_gradient(self):
            original(self)
            return
        flat_param = self.flat_param
        for param in (*flat_param._params, *flat_param._shared_params):
            param.grad = None

    return _use_sharded_grad_views


def _has_current_gradient(handle: Handle) -> bool:
    from torch.distributed.fsdp._common_utils import HandleTrainingState

    flat_param = handle.flat_param
    state = handle._training_state
    if state == HandleTrainingState.BACKWARD_POST:
        # Called after the reduction, whose result is on the host now.
        return True
    if state == HandleTrainingState.SUMMON_FULL_PARAMS and hasattr(flat_param, "_saved_grad_shard"):
        # The flat parameter's gradient is unsharded at the moment, and the shard is saved.
        return flat_param._saved_grad_shard is not None
    # Parameters may have been zeroed since FSDP1 last looked.
    handle._reset_flat_param_grad_info_if_needed()
    return flat_param.grad is not None


def _note_before(original: _Method, notes: _Notes) -> _Method:
    def prepare_gradient_for_backward(self: Handle) -> None:
        flat_param = self.flat_param
        notes[self] = flat_param.grad is not None
        original(self)
        # keep_low_precision_grads narrows the host gradient at the end of a pass. FSDP1 widens it here, but only where
        # a gradient is left, and so has depended on the one that came back.
        host, dtype = flat_param._cpu_grad, flat_param._local_shard.dtype
        if self._keep_low_precision_grads and host is not None and host.dtype != dtype:
            host.data = host.to(dtype)

    return prepare_gradient_for_backward


def _take_away_after(original: _Method, notes: _Notes) -> _Method:
    def prepare_gradient_for_optim(self: Handle) -> None:
        flat_param = self.flat_param
        # _post_backward_called alone may be left from a pass under no_sync.
        took_part = getattr(self, "_ran_pre_backward_hook", False)
        has_gradient = flat_param.grad is not None or (
            took_part and (flat_param._post_backward_called or notes.get(self, False))
        )
        notes.pop(self, None)
        original(self)
        if not has_gradient:
            flat_param.grad = None

    return prepare_gradient_for_optim
