"""``fsdp1.cpu-rehearsal``: the real FSDP1 with CPU offload, on a machine without an accelerator.

Every place where FSDP1 of torch 2.13.0 compares devices or addresses, or depends on what only an accelerator does.

Emulated, wherever a handle offloads and its compute device is the CPU:

* ``Tensor.pin_memory``, ``Tensor.is_pinned``: there is no pinned memory without an accelerator. An ordinary copy counts
  as pinned; pinning it again returns the tensor itself, as torch does.
* ``Stream.synchronize``: absent from ``torch.cpu.Stream``; the final callback of a backward pass calls it to wait for
  offloaded gradients.
* ``FlatParamHandle.prepare_gradient_for_backward`` (``flat_param.grad.device != flat_param.device``,
  ``grad_offloaded``): a gradient on the host is let go of. On the CPU it would be carried over as
  ``_saved_grad_shard`` and added to the new one: wrong with ``use_orig_params=True`` from the second step on, and the
  error hides a shard that was dropped too early. NO_SHARD, where shapes say nothing, is told by the storage of
  ``_cpu_grad``. The cast that ``keep_low_precision_grads`` asks for is made on ``_cpu_grad``, as on an accelerator.
* ``FlatParamHandle.pre_unshard`` (``self.flat_param.device != self.device``): computing starts from a copy of the
  host's shard. On the CPU the shard itself would be computed on, so that code which takes the one for the other
  passes, and ``_catch_all_reshard`` (``flat_param.data_ptr() == _local_shard.data_ptr()``) takes an unsharded NO_SHARD
  parameter for a resharded one.
* ``FlatParamHandle.flat_param_to``, with which ``to_cpu`` takes unsharded parameters off the device before it frees
  them there (full state dicts and ``summon_full_params`` with ``offload_to_cpu``): a copy, as on an accelerator. On
  the CPU nothing would be copied, and freed memory read. Since torch 2.14 ``to_cpu`` asks for the device and leaves
  on it what is on the CPU: the same values, and nothing is freed.

Not before torch 2.2: gloo of 2.1 can't gather into, or scatter from, one tensor, which FSDP1 asks of it.

Not needed:

* ``_init_device_handle``, ``_get_compute_device``, ``_move_module_to_device``, ``_get_device_from_device_id``,
  ``_check_single_device_module``: constructor only. ``device_id=torch.device("cpu")`` answers all of them.
* ``_init_param_handle_from_params``, ``_check_flat_params_on_expected_device``, ``init_flat_param_attributes``,
  ``_check_on_cpu``, ``_use_sharded_flat_param``: they ask whether offloaded parameters are on the CPU, and they are.
* ``_use_low_precision_shard``: ``.to(device)`` makes no copy on the CPU, but the cast after it does.
* ``_use_unsharded_grad_views`` (``param.device != view.device``): both branches leave the same gradient, in a new
  tensor or in the old one.
* ``_all_gather_flat_param`` (``is_cpu``): another entry point of the collective, the same bytes.
* ``needs_unshard``, ``_check_storage_freed``, ``_writeback_orig_params``: they ask storages, which behave alike.
* Other state dicts and optimizer state dicts (``buffer.device``, ``param.device``, ``value.device.type``): they move
  what is elsewhere, and nothing is.

Can only be seen on a GPU, and is unproven until it has run on one:

* order and lifetime across streams: ``record_stream`` (``_no_dispatch_record_stream`` returns early for CPU tensors),
  ``wait_stream``, events and ``non_blocking`` copies, which are all immediate here;
* the assertions of ``_check_on_compute_device``, ``FullyShardedDataParallel.forward`` and
  ``_check_grad_to_accumulate``, which can't fail here, and ``handle.device`` in the order check of
  ``TORCH_DISTRIBUTED_DEBUG=DETAIL``;
* ``ShardedGradScaler``, which treats CPU gradients beside a device scaler separately, and ``clip_grad_norm_``, which
  computes the norm on the compute device: other kernels, other last bits;
* what pinned memory costs: rounding to powers of two, the host allocator's cache, copy speed;
* the device's own memory: the peaks that this process can count are of tensors, not of the caching allocator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ..contract import Contract
from ..errors import VerifyError
from ..patch import Context, Patch, Probe
from ._contracts import contract_of
from ._facts import refuse_accelerator
from ._units import Handle

__all__ = ["CpuRehearsal"]

# Imported there from wherever it lives: flat_param.py in torch 2.1, _flat_param.py since 2.2.
_HANDLE = "torch.distributed.fsdp._runtime_utils:FlatParamHandle"


class CpuRehearsal(Patch):
    """Make FSDP1 with CPU offload run, and run right, where there is no accelerator."""

    name: ClassVar[str] = "fsdp1.cpu-rehearsal"
    summary: ClassVar[str] = "runs the real FSDP1 CPU offload without an accelerator, as it would run with one"
    why: ClassVar[str] = (
        "FSDP1 with CPU offload pins memory and synchronizes streams, which fails without an accelerator. With these "
        "two shimmed it runs, but with a compute device that is the CPU itself it takes branches that no GPU takes: "
        "its gradients are wrong, and real defects stay invisible."
    )
    how: ClassVar[str] = (
        "Puts pin_memory (an ordinary copy), is_pinned and Stream.synchronize in place, and makes the two device "
        "comparisons that decide what is computed answer as on an accelerator for handles that offload. Wrap with "
        'device_id=torch.device("cpu") and the gloo backend. The docstring of patchkit.fsdp1.cpu_rehearsal lists every '
        "comparison, and what can only be seen on a GPU."
    )
    until: ClassVar[str] = "FSDP1 supports the CPU as compute device together with CPU offload."
    contract: ClassVar[Contract] = contract_of("fsdp1.cpu-rehearsal")
    probe: ClassVar[Probe | None] = Probe("patchkit.fsdp1._probes.cpu_rehearsal:probe", ranks=2)

    def check(self, ctx: Context) -> None:
        """Refuse a machine with an accelerator: there, FSDP1 should use it."""
        refuse_accelerator(self.name)

    def install(self, ctx: Context) -> None:
        """Put the missing functions in place, and wrap what moves or compares."""
        import torch

        from . import _emulation

        ctx.set(torch.Tensor, "pin_memory", _emulation.pin_memory)
        ctx.set(torch.Tensor, "is_pinned", _emulation.is_pinned)
        ctx.wrap(f"{_HANDLE}.prepare_gradient_for_backward", _drop_host_gradient_first)
        ctx.wrap(f"{_HANDLE}.pre_unshard", _copy_shard_too)
        ctx.wrap(f"{_HANDLE}.flat_param_to", _leave_the_device)
        if not hasattr(torch.cpu.Stream, "synchronize") or ctx.holds(torch.cpu.Stream, "synchronize"):
            ctx.set(torch.cpu.Stream, "synchronize", _emulation.synchronize)

    def verify(self, ctx: Context) -> None:
        """Pin something, and wait for a stream."""
        import torch

        tensor = torch.zeros(1)
        try:
            pinned = tensor.pin_memory()
            stream: Any = torch.cpu.Stream()
            stream.synchronize()
        except (AttributeError, RuntimeError) as error:
            raise VerifyError(
                f"{self.name}: expected to pin memory and wait for a stream: {error}", patch=self.name
            ) from error
        if tensor.is_pinned() or not pinned.is_pinned() or pinned.pin_memory() is not pinned:
            raise VerifyError(
                f"{self.name}: expected Tensor.pin_memory to return a copy that counts as pinned, found "
                f"{torch.Tensor.pin_memory!r} and {torch.Tensor.is_pinned!r}, which don't go together.",
                patch=self.name,
            )


def _drop_host_gradient_first(original: Callable[[Handle], None]) -> Callable[[Handle], None]:
    from ._emulation import drop_host_gradient, is_rehearsed

    def prepare_gradient_for_backward(self: Handle) -> None:
        if is_rehearsed(self):
            drop_host_gradient(self)
        original(self)

    return prepare_gradient_for_backward


def _copy_shard_too(original: Callable[[Handle], bool]) -> Callable[[Handle], bool]:
    from ._emulation import copy_shard_to_device, is_rehearsed

    def pre_unshard(self: Handle) -> bool:
        ran = original(self)
        return (is_rehearsed(self) and copy_shard_to_device(self)) or ran

    return pre_unshard


def _leave_the_device(original: Callable[..., None]) -> Callable[..., None]:
    from ._emulation import is_rehearsed, is_unsharded

    def flat_param_to(self: Handle, *args: Any, **kwargs: Any) -> None:
        if is_rehearsed(self) and is_unsharded(self):
            self.flat_param.data = self.flat_param.data.clone()
        original(self, *args, **kwargs)

    return flat_param_to
