"""``fsdp1.drop-offloaded-grad-shards``: a gradient shard leaves the device as soon as the host has it."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..contract import Contract
from ..errors import VerifyError
from ..patch import Context, Patch, Probe
from ._contracts import contract_of
from ._passes import Pass, separates_passes
from ._units import Handle, State, offloaded_units, outermost_units, refuse_unsharded

if TYPE_CHECKING:
    import torch

__all__ = ["DROPPED", "SITE", "DropOffloadedGradShards", "dropping"]

SITE = "torch.distributed.fsdp._runtime_utils:_post_reduce_grad_callback"
_Callback = Callable[[State, Handle, "torch.Tensor"], None]


class DropOffloadedGradShards(Patch):
    """Drop the reduced gradient shard of a unit once its copy to the host is under way."""

    name: ClassVar[str] = "fsdp1.drop-offloaded-grad-shards"
    summary: ClassVar[str] = "frees each unit's gradient shard on the device as soon as it is offloaded"
    why: ClassVar[str] = (
        "FSDP1 copies the reduced gradient of a unit to the host, and keeps the shard on the device until the end of "
        "the backward pass in case it is added to. At the end the gradients of the whole sharded model lie on the "
        "device."
    )
    how: ClassVar[str] = (
        "Wraps _post_reduce_grad_callback for the units of the given model. When the original has enqueued the copy, "
        "the shard is deleted. If the same unit reduces again in the same backward pass (a checkpointed block that is "
        "called twice), its gradient is brought back from the host on the same stream and added to as FSDP1 would "
        "have, so the result is the same bit for bit. Left alone are units with an optimizer in backward, and shards "
        "that the host gradient can't hold without loss."
    )
    upstream: ClassVar[str] = "https://github.com/pytorch/pytorch/issues/106029"
    until: ClassVar[str] = "FSDP1 frees offloaded gradient shards itself, or people have moved to FSDP2, which does."
    contract: ClassVar[Contract] = contract_of("fsdp1.drop-offloaded-grad-shards")
    resources: ClassVar[tuple[str, ...]] = ("model",)
    probe: ClassVar[Probe | None] = Probe("patchkit.fsdp1._probes.drop_offloaded_grad_shards:probe", ranks=2)

    def check(self, ctx: Context) -> None:
        """Refuse a model without offloading units, and units that aren't sharded."""
        refuse_unsharded(self.name, offloaded_units(ctx))

    def install(self, ctx: Context) -> None:
        """Wrap the callback, for the handles of the model alone."""
        targets = ctx.targets([handle for _, handle in offloaded_units(ctx)])
        for unit in outermost_units(ctx):
            ctx.hook(unit.module, "forward_pre_hook", DROPPED.begin_anew)
        ctx.action("bring back the shards of a pass that runs", _nothing, DROPPED.bring_back, on=ctx.model)

        ctx.wrap(SITE, dropping(targets.__contains__), targets=targets)

    def verify(self, ctx: Context) -> None:
        """Look whether the function that reduces still calls the callback by the name that was wrapped."""
        from torch.distributed.fsdp import _runtime_utils

        reduce: Any = inspect.unwrap(_runtime_utils._reduce_grad)
        code = getattr(reduce, "__code__", None)
        if (
            code is None
            or reduce.__globals__ is not vars(_runtime_utils)
            or "_post_reduce_grad_callback" not in code.co_names
        ):
            raise VerifyError(
                f"{self.name}: expected torch.distributed.fsdp._runtime_utils._reduce_grad to call "
                f"_post_reduce_grad_callback, found {getattr(reduce, '__module__', None)}."
                f"{getattr(reduce, '__qualname__', reduce)} in its place, which doesn't. Take that replacement out.",
                patch=self.name,
            )


def dropping(is_target: Callable[[Handle], bool]) -> Callable[[_Callback], _Callback]:
    """Return what wraps FSDP1's callback so that the shards of the handles that are meant are dropped."""

    def make(original: _Callback) -> _Callback:
        def _post_reduce_grad_callback(state: State, handle: Handle, grad_to_offload: torch.Tensor) -> None:
            if not is_target(handle):
                return original(state, handle, grad_to_offload)
            flat_param = handle.flat_param
            if DROPPED.in_this_backward(state, handle):
                grad_to_offload = flat_param._saved_grad_shard = _add_to_earlier(flat_param, grad_to_offload)
            elif not _holds(flat_param._cpu_grad, grad_to_offload):
                return original(state, handle, grad_to_offload)
            host = flat_param._cpu_grad
            version = host._version
            original(state, handle, grad_to_offload)
            # Another patch may stand below and not offload at all: what was not copied is not dropped. An optimizer in
            # backward has taken the gradient by now, and left no shard.
            if host._version != version and hasattr(flat_param, "_saved_grad_shard"):
                DROPPED.note(state, handle, flat_param._saved_grad_shard)
                del flat_param._saved_grad_shard
            else:
                DROPPED.forget(handle)
            return None

        return _post_reduce_grad_callback

    return make


class _Dropped:
    """In which backward pass the shard of a handle was last dropped, and what it was like."""

    def __init__(self) -> None:
        self._last: weakref.WeakKeyDictionary[Handle, _Drop] = weakref.WeakKeyDictionary()

    def note(self, state: State, handle: Handle, shard: torch.Tensor) -> None:
        self._last[handle] = _Drop(Pass.of(state), weakref.ref(state), shard.device, shard.dtype)

    def forget(self, handle: Handle) -> None:
        self._last.pop(handle, None)

    def in_this_backward(self, state: State, handle: Handle) -> bool:
        last = self._last.get(handle)
        return last is not None and last.when.is_current(state)

    def begin_anew(self, module: Any, args: tuple[Any, ...]) -> None:
        """Forget what a pass that failed has left behind; a hook before a unit's forward."""
        if self._last and separates_passes(module):
            for handle, last in list(self._last.items()):
                if last.when.order() is module._exec_order_data:
                    del self._last[handle]

    def bring_back(self) -> None:
        """Give units that were reduced in a pass that still runs their shards again, for stock FSDP1 to add to."""
        import torch

        for handle, last in list(self._last.items()):
            state, flat_param = last.state(), handle.flat_param
            if state is not None and last.when.is_current(state) and not hasattr(flat_param, "_saved_grad_shard"):
                # The copy to the host may still run, on a stream of FSDP1's.
                state._device_handle.synchronize()
                host = flat_param._cpu_grad
                flat_param._saved_grad_shard = torch.empty_like(host, dtype=last.dtype, device=last.device).copy_(host)
        self._last.clear()


# One for the process: the wrapper of the first application serves all others.
DROPPED = _Dropped()


@dataclass(frozen=True)
class _Drop:
    when: Pass
    state: weakref.ref[State]
    device: torch.device
    dtype: torch.dtype


def _add_to_earlier(flat_param: Any, new: torch.Tensor) -> torch.Tensor:
    """Bring back what was offloaded earlier in this backward pass, and add ``new`` to it.

    Everything runs on the current stream, on which the earlier copy to the host was enqueued, so it is ordered after
    it.
    """
    import torch

    earlier = torch.empty_like(new).copy_(flat_param._cpu_grad, non_blocking=True)
    earlier += new
    return earlier


def _holds(host: torch.Tensor, shard: torch.Tensor) -> bool:
    """Tell whether the host gradient holds ``shard`` without loss, so that it can come back.

    It doesn't where ``keep_low_precision_grads`` has narrowed the host gradient in an earlier step, or where the hook
    that communicates gradients returns them in a wider type than the parameter's.
    """
    import torch

    return torch.promote_types(host.dtype, shard.dtype) == host.dtype


def _nothing() -> None:
    """There is nothing to bring back where the patch is (again)."""
