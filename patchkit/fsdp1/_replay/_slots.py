"""Where FSDP1 leaves the gradients of a pass, and taking them from there."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, MutableMapping
from typing import Any

from torch import nn
from torch.distributed.fsdp import _runtime_utils
from torch.distributed.fsdp._common_utils import HandleTrainingState, TrainingState
from torch.utils.weak import WeakTensorKeyDictionary

from ...errors import RefusedError, ResourceError
from .._pending import drop_stale_views, refuse_pending
from .._units import Handle, Unit, described_model, units_of
from ._forward import NAME

__all__ = ["Slots"]

# The accumulator that a parameter was last added to, and the parameter's version at that time.
_LAST = WeakTensorKeyDictionary()


class Slots:
    """The gradient slots of a model's parameters.

    Raises:
        ResourceError: ``model`` has no FSDP1 units, or ``accumulated`` is no mutable mapping.
    """

    def __init__(self, model: Any, accumulated: Any) -> None:
        self.units: list[Unit] = list(units_of(model)) if isinstance(model, nn.Module) else []
        if not self.units:
            raise ResourceError(
                f"{NAME}: expected a model that is wrapped in FSDP1 (FullyShardedDataParallel), found "
                f"{described_model(model)}. FSDP2 and plain modules accumulate by themselves: call the model."
            )
        if not isinstance(accumulated, MutableMapping):
            raise ResourceError(
                f"{NAME}: expected a dictionary that gradients are added into, found a "
                f"{type(accumulated).__qualname__}. Pass {{}}, and the same one for the whole rollout."
            )
        self._accumulated = accumulated
        # Those that no other unit is wrapped around.
        below = {id(inner) for unit in self.units for inner in unit.module.modules() if inner is not unit.module}
        self._roots = [unit for unit in self.units if id(unit.module) not in below]

    def refuse_what_would_be_lost(self) -> None:
        """Refuse a situation in which a pass of its own would lose something.

        Raises:
            RefusedError: ``no_sync``, a gradient, a pass that runs or is to come, or another rollout's dictionary.
        """
        if any(unit.module._is_root is False for unit in self._roots):
            raise RefusedError(
                f"{NAME}: expected a whole model, found a unit of a larger one, whose backward FSDP1 doesn't finish "
                "when it is called by itself. Pass the model that is wrapped around it."
            )
        if not all(unit.module._sync_gradients for unit in self.units):
            raise RefusedError(
                f"{NAME}: expected gradients that are reduced at once, found the model under no_sync(). A replay adds "
                "gradients up by itself: leave no_sync()."
            )
        refuse_pending(NAME, self.units, "a replay")
        for param in self.params():
            self._refuse_other_rollout(param)

    def versions(self) -> list[int]:
        """Versions of the parameters, which change when an optimizer, or anybody else, writes into them."""
        return [param._version for param in self.params()]

    def params(self) -> Iterator[nn.Parameter]:
        """Yield the parameters that an optimizer has."""
        for handle in self._handles():
            yield from handle.flat_param._params if handle._use_orig_params else (handle.flat_param,)

    def take(self) -> None:
        """Add the gradients that a pass has left to the accumulators, and empty the slots."""
        found = [(param, param.grad) for param in self.params() if param.grad is not None]
        # What needs memory first, so that an error leaves the accumulators as they were.
        new = [
            (param, grad.detach().to(param.dtype, copy=True)) for param, grad in found if param not in self._accumulated
        ]
        for param, grad in found:
            if param in self._accumulated:
                self._accumulated[param].add_(grad)
        for param, accumulator in new:
            self._accumulated[param] = accumulator
        for param, _ in found:
            _LAST[param] = weakref.ref(self._accumulated[param]), param._version
        self.clear()

    def clear(self) -> None:
        """Empty the slots."""
        for handle in self._handles():
            drop_stale_views(handle)

    def recover(self) -> None:
        """Take back what a run that failed has left half-way: unsharded parameters, states, hooks, gradients."""
        for unit in self.units:
            module, handle = unit.module, unit.handle
            if handle is not None:
                flat_param = handle.flat_param
                if handle.uses_sharded_strategy and not handle.is_sharded(flat_param):
                    _runtime_utils._reshard(module, handle, True)
                for mark in ("_post_backward_hook_state", "_post_backward_hook_handle"):
                    hook = vars(flat_param).pop(mark, None)
                    if hook is not None:
                        (hook[-1] if isinstance(hook, tuple) else hook).remove()
                vars(flat_param).pop("_saved_grad_shard", None)
                flat_param._post_backward_called = False
                handle._ran_pre_backward_hook = False
                handle._needs_pre_backward_unshard = False
                handle._prefetched = False
                handle._training_state = HandleTrainingState.IDLE
            module.training_state = TrainingState.IDLE
            if module._is_root:
                module._post_backward_callback_queued = False
        self.clear()

    def _handles(self) -> Iterator[Handle]:
        for unit in self.units:
            if unit.handle is not None:
                yield unit.handle

    def _refuse_other_rollout(self, param: nn.Parameter) -> None:
        reference, version = _LAST.get(param, (None, -1))
        other = reference() if reference is not None else None
        if other is None:
            return
        ours = self._accumulated.get(param)
        if ours is other and version != param._version:
            raise RefusedError(
                f"{NAME}: expected an empty dictionary, or one of this rollout, found gradients of weights that were "
                "changed since: they would be added to the new ones. Call accumulated.clear() after optimizer.step()."
            )
        if ours is not other and version == param._version:
            raise RefusedError(
                f"{NAME}: expected the dictionary that this rollout's gradients are in, found another one: the step "
                "would miss a part of them. Pass one dictionary for the whole rollout; if the other one is not wanted, "
                "clear() it."
            )
