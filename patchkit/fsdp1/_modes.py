"""Answering single torch calls inside FSDP1's initialiser, so that what it would allocate is never allocated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ._units import Handle, same_storage

__all__ = [
    "KeepPageable",
    "PlaceholderGradient",
    "allocated",
    "initialise_with_placeholder",
    "is_placeholder",
    "make_placeholder",
]

_Call = Callable[..., Any]


class KeepPageable(TorchFunctionMode):
    """Answer ``pin_memory`` on one storage with the tensor itself; everything else, the gradient too, is as ever."""

    def __init__(self, shard: torch.Tensor) -> None:
        super().__init__()
        self._shard = shard

    def __torch_function__(
        self, func: _Call, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.pin_memory and same_storage(args[0], self._shard):
            return args[0]
        return func(*args, **(kwargs or {}))


class PlaceholderGradient(TorchFunctionMode):
    """Answer the allocation of a flat parameter's host gradient with one element that is seen everywhere.

    The result has the shape, type and device that FSDP1 checks, zeros in it, and four bytes behind it.
    """

    def __init__(self, flat_param: Any) -> None:
        super().__init__()
        self._flat_param = flat_param

    def __torch_function__(
        self, func: _Call, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.zeros_like and args[0] is self._flat_param._local_shard:
            return make_placeholder(args[0])
        if func is torch.Tensor.pin_memory and is_placeholder(args[0]):
            return args[0]
        return func(*args, **(kwargs or {}))


def make_placeholder(shard: torch.Tensor) -> torch.Tensor:
    """Return zeros of the shape of ``shard`` with one element of storage."""
    return torch.zeros((), dtype=shard.dtype, device="cpu").expand(shard.shape)


def is_placeholder(tensor: object) -> bool:
    """Tell whether ``tensor`` is what ``make_placeholder`` makes, or has no more than one element to begin with."""
    return isinstance(tensor, torch.Tensor) and tensor.untyped_storage().nbytes() <= tensor.element_size()


def allocated(handle: Handle) -> bool:
    """Tell whether ``handle`` has a host gradient that takes memory."""
    gradient = getattr(handle.flat_param, "_cpu_grad", None)
    return gradient is not None and not is_placeholder(gradient)


def initialise_with_placeholder(handle: Handle, original: Callable[[Handle], None]) -> None:
    """Run FSDP1's initialiser of ``handle``, so that its host gradient is a placeholder and is never allocated."""
    with PlaceholderGradient(handle.flat_param):
        original(handle)
    if allocated(handle):
        # Another override allocates in a way of its own; all the same nobody needs it.
        handle.flat_param._cpu_grad = make_placeholder(handle.flat_param._local_shard)
