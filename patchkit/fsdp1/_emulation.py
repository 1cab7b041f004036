"""What an accelerator does and a CPU doesn't, for handles that offload: the substance of ``fsdp1.cpu-rehearsal``."""

from __future__ import annotations

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import handle_torch_function, has_torch_function_unary

from ._units import Handle, same_storage

__all__ = [
    "copy_shard_to_device",
    "drop_host_gradient",
    "is_pinned",
    "is_rehearsed",
    "is_unsharded",
    "pin_memory",
    "synchronize",
]


class _Storages:
    """A set of storages that keeps none of them alive.

    A weak reference keeps a storage's address from being given to another one, so a tensor whose storage has an address
    in the set is a view of the storage that was added.
    """

    def __init__(self) -> None:
        self._refs: dict[int, StorageWeakRef] = {}
        self._limit = 64

    def add(self, tensor: torch.Tensor) -> None:
        if len(self._refs) >= self._limit:
            self._refs = {key: ref for key, ref in self._refs.items() if not ref.expired()}
            self._limit = max(64, 2 * len(self._refs))
        storage = tensor.untyped_storage()
        self._refs[storage._cdata] = StorageWeakRef(storage)

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._refs


_PINNED = _Storages()


def pin_memory(self: torch.Tensor, device: torch.device | str | None = None) -> torch.Tensor:
    """Stand in for ``Tensor.pin_memory``: an ordinary copy that counts as pinned."""
    if has_torch_function_unary(self):
        answer: torch.Tensor = handle_torch_function(torch.Tensor.pin_memory, (self,), self, device=device)
        return answer
    if self.device.type != "cpu" or self.layout != torch.strided:
        raise RuntimeError(f"cannot pin {self.type()!r} only dense CPU tensors can be pinned")
    if self in _PINNED:
        return self
    pinned = torch.empty_strided(self.size(), self.stride(), dtype=self.dtype, device=self.device).copy_(self)
    _PINNED.add(pinned)
    return pinned


def is_pinned(self: torch.Tensor, device: torch.device | str | None = None) -> bool:
    """Stand in for ``Tensor.is_pinned``."""
    if has_torch_function_unary(self):
        return bool(handle_torch_function(torch.Tensor.is_pinned, (self,), self, device=device))
    return self.layout == torch.strided and self in _PINNED


def synchronize(self: object) -> None:
    """Stand in for ``Stream.synchronize``: everything on a CPU stream is done when it returns."""


def is_rehearsed(handle: Handle) -> bool:
    """Tell whether ``handle`` offloads from a compute device that is the CPU itself."""
    return handle._offload_params and handle.device.type == "cpu"


def is_unsharded(handle: Handle) -> bool:
    """Tell whether ``handle``'s flat parameter is at its full size, on the compute device."""
    return handle.uses_sharded_strategy and not handle.is_sharded(handle.flat_param)


def drop_host_gradient(handle: Handle) -> None:
    """Do what ``prepare_gradient_for_backward`` does with a gradient that lives on the host: let go of it.

    On an accelerator the device tells; here, what the gradient is a view of, or its shape: autograd never makes a
    gradient of the shard's shape, only of the unsharded one.
    """
    flat_param = handle.flat_param
    gradient, host = flat_param.grad, flat_param._cpu_grad
    if gradient is None:
        return
    of_shard = handle.is_sharded(gradient) and gradient.size() != flat_param._unpadded_unsharded_size
    if not of_shard and not (host is not None and same_storage(gradient, host)):
        return
    if handle._keep_low_precision_grads and host is not None and host.dtype != flat_param._local_shard.dtype:
        host.data = host.to(flat_param._local_shard.dtype)
    flat_param.grad = None


def copy_shard_to_device(handle: Handle) -> bool:
    """Do what ``pre_unshard`` does for a shard that lives on the host: compute on a copy of it.

    Returns:
        Whether there was anything to copy.
    """
    flat_param = handle.flat_param
    low_precision = handle._uses_param_mixed_precision and not handle._force_full_precision
    if low_precision or is_unsharded(handle):
        return False
    flat_param.data = flat_param.clone()
    if handle._use_orig_params:
        if handle.is_sharded(flat_param):
            handle._use_sharded_views()
        else:
            handle._use_unsharded_views(as_params=True)
    return True
