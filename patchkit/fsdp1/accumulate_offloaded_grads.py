"""``fsdp1.accumulate-offloaded-grads``: several backward passes before a step add up, outside of ``no_sync`` too."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..contract import Contract
from ..errors import RefusedError
from ..patch import Context, Patch, Probe
from ._contracts import contract_of
from ._passes import Pass, separates_passes
from ._units import Handle, State, Unit, offloaded_units, outermost_units, refuse_unsharded, shown

if TYPE_CHECKING:
    import torch

__all__ = ["AccumulateOffloadedGrads"]

_SITE = "torch.distributed.fsdp._runtime_utils:_post_reduce_grad_callback"
_Method = Callable[[Handle], None]
_Callback = Callable[[State, Handle, "torch.Tensor"], None]


class AccumulateOffloadedGrads(Patch):
    """Add a unit's gradient of earlier backward passes to the one that is offloaded."""

    name: ClassVar[str] = "fsdp1.accumulate-offloaded-grads"
    summary: ClassVar[str] = "adds up offloaded gradients over several backward passes, outside of no_sync too"
    why: ClassVar[str] = (
        "With CPU offload, FSDP1 overwrites the gradient on the host in every backward pass that synchronizes: of "
        "several passes before one optimizer step, only the last counts, silently. Under no_sync gradients do add up, "
        "but unsharded, on the device."
    )
    how: ClassVar[str] = (
        "Overrides prepare_gradient_for_backward of each unit's handle, where FSDP1 lets go of the sharded gradient on "
        "the host, and keeps it in mind; wraps _post_reduce_grad_callback, for the given model alone: at the unit's "
        "first reduction of the pass the earlier gradient is brought to the device on the same stream and added to the "
        "reduced shard, before it is offloaded. That is the order in which FSDP1 without offload adds. A gradient that "
        "was zeroed, or that stock FSDP1 brought back after it was, is not added."
    )
    upstream: ClassVar[str] = (
        "https://github.com/pytorch/pytorch/issues/73784, https://github.com/pytorch/pytorch/issues/73535"
    )
    until: ClassVar[str] = "FSDP1 accumulates offloaded gradients, or people have moved to FSDP2, which does."
    contract: ClassVar[Contract] = contract_of("fsdp1.accumulate-offloaded-grads")
    resources: ClassVar[tuple[str, ...]] = ("model",)
    probe: ClassVar[Probe | None] = Probe("patchkit.fsdp1._probes.accumulate_offloaded_grads:probe", ranks=2)

    def check(self, ctx: Context) -> None:
        """Refuse what can't be made right: unsharded units, optimizers in backward, gradients that are never kept."""
        from ._modes import allocated
        from .drop_frozen_grads import is_kept_frozen

        units = offloaded_units(ctx)
        refuse_unsharded(self.name, units)
        stepping = [unit.label for unit, handle in units if _steps_in_backward(handle)]
        if stepping:
            raise self._refusal(
                f"optimizer that steps at the end of a backward pass, found some in {shown(stepping)}, whose "
                "gradients are gone after every pass. Take the patch out of the manifest"
            )
        placeholders = [
            unit.label
            for unit, handle in units
            if handle.flat_param.requires_grad
            and getattr(handle.flat_param, "_cpu_grad", None) is not None
            and not allocated(handle)
            and not is_kept_frozen(unit.module)
        ]
        if placeholders:
            raise self._refusal(
                f"model whose host gradients were dropped, found it so in {shown(placeholders)}. Leave the "
                "application of fsdp1.drop-idle-grads first"
            )

    def install(self, ctx: Context) -> None:
        """Keep the earlier gradient in mind, and add it."""
        units = offloaded_units(ctx)
        handles = [handle for _, handle in units]
        _EARLIER.watch(units)
        for unit in outermost_units(ctx):
            ctx.hook(unit.module, "forward_pre_hook", _EARLIER.forget_zeroed)
        ctx.wrap_each(handles, "prepare_gradient_for_backward", _keep_in_mind)
        targets = ctx.targets(handles)

        def make(original: _Callback) -> _Callback:
            def _post_reduce_grad_callback(state: State, handle: Handle, grad_to_offload: torch.Tensor) -> None:
                if handle in targets and (gradient := _EARLIER.take(handle)) is not None:
                    _add(gradient, grad_to_offload)
                original(state, handle, grad_to_offload)

            return _post_reduce_grad_callback

        ctx.wrap(_SITE, make, targets=targets)

    def _refusal(self, instead_of: str) -> RefusedError:
        return RefusedError(f"{self.name}: expected no {instead_of}.", patch=self.name)


class _Earlier:
    """The gradients on the host that units had before a pass, from its beginning to their first reduction in it."""

    def __init__(self) -> None:
        self._states: weakref.WeakKeyDictionary[Handle, weakref.ref[State]] = weakref.WeakKeyDictionary()
        self._known: weakref.WeakKeyDictionary[Handle, tuple[torch.Tensor, Pass]] = weakref.WeakKeyDictionary()

    def watch(self, units: Sequence[tuple[Unit, Handle]]) -> None:
        """Learn which state a handle belongs to."""
        for unit, handle in units:
            self._states[handle] = weakref.ref(unit.module)

    def take(self, handle: Handle) -> torch.Tensor | None:
        known = self._known.pop(handle, None)
        return known[0] if known else None

    def note(self, handle: Handle, gradient: torch.Tensor | None) -> None:
        """Take note of what ``handle`` has at the beginning of its part in a pass."""
        reference = self._states.get(handle)
        state = reference() if reference else None
        known = self._known.get(handle)
        if state is None:
            return
        if gradient is None:
            # Zeroed, if it was noted in a pass that has ended: one under no_sync, which leaves it to the next. In the
            # same pass it is a block that is called several times.
            if known is not None and not known[1].is_current(state):
                del self._known[handle]
        elif _is_offloaded_shard(handle, gradient):
            if not _came_back(handle, gradient):
                self._known[handle] = gradient, Pass.of(state)
        elif known is not None:
            # An unsharded gradient waits under no_sync; what was offloaded before it still counts.
            self._known[handle] = known[0], Pass.of(state)

    def forget_zeroed(self, module: Any, args: tuple[Any, ...]) -> None:
        """Forget what was zeroed since; a hook before the forward of the root, where no backward pass runs.

        A pass that failed has left its notes behind, and its number to the next one.
        """
        if not separates_passes(module):
            return
        for handle, reference in list(self._states.items()):
            state, flat_param = reference(), handle.flat_param
            if state is None or state._exec_order_data is not module._exec_order_data:
                continue
            if handle in self._known or hasattr(flat_param, "_saved_grad_shard"):
                handle._reset_flat_param_grad_info_if_needed()
                if flat_param.grad is None:
                    self._known.pop(handle, None)
                    # Between passes of an offloading unit there is one only where a pass has failed.
                    vars(flat_param).pop("_saved_grad_shard", None)


# One for the process: the wrapper of the first application serves all others.
_EARLIER = _Earlier()


def _keep_in_mind(original: _Method) -> _Method:
    def prepare_gradient_for_backward(self: Handle) -> None:
        _EARLIER.note(self, self.flat_param.grad)
        original(self)

    return prepare_gradient_for_backward


def _is_offloaded_shard(handle: Handle, gradient: torch.Tensor) -> bool:
    from ._units import same_storage

    flat_param = handle.flat_param
    host = flat_param._cpu_grad
    if host is not None and same_storage(gradient, host):
        return True
    return gradient.device.type == "cpu" and gradient.size() == flat_param._local_shard.size() != (
        flat_param._unpadded_unsharded_size
    )


def _came_back(handle: Handle, gradient: torch.Tensor) -> bool:
    """Tell whether stock FSDP1 has made a gradient from views of a host gradient that was zeroed.

    It shows those views after a forward, and the next forward copies them, as if they were set by hand, into a gradient
    of the flat parameter (``_writeback_orig_params``): a copy of what the host gradient holds.
    """
    import torch

    from ._units import same_storage

    host = handle.flat_param._cpu_grad
    return host is not None and not same_storage(gradient, host) and torch.equal(gradient, host)


def _add(earlier: torch.Tensor, reduced: torch.Tensor) -> None:
    """Add ``earlier``, on the host, to ``reduced``, on the current stream, on which it will be offloaded too."""
    import torch

    reduced += torch.empty_like(reduced).copy_(earlier, non_blocking=True)


def _steps_in_backward(handle: Handle) -> bool:
    params = handle.flat_param._params or [handle.flat_param]
    return any(hasattr(param, "_in_backward_optimizers") for param in params)
