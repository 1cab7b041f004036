"""Inputs and outputs of any nesting, as tensors and the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree

from ...errors import RefusedError
from ._forward import NAME

__all__ = ["Nest", "device_of"]


@dataclass(frozen=True)
class Nest:
    """The form of a nesting without its tensors, which would keep them alive.

    Attributes:
        spec: Its form.
        others: Its leaves, None in place of tensors.
        places: Which leaves are tensors.
    """

    spec: Any
    others: tuple[Any, ...]
    places: tuple[int, ...]

    @classmethod
    def taken_apart(cls, value: Any) -> tuple[Nest, list[torch.Tensor]]:
        """Return the form and the tensors of ``value``."""
        leaves, spec = _pytree.tree_flatten(value)
        places = tuple(place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor))
        others = tuple(None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)
        return cls(spec, others, places), [leaves[place] for place in places]

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Return the nesting with these tensors in it."""
        leaves = list(self.others)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        return _pytree.tree_unflatten(leaves, self.spec)

    def refuse_hidden(self) -> None:
        """Refuse tensors with a graph inside of objects that can't be looked into.

        Raises:
            RefusedError: There is such an object.
        """
        for leaf in self.others:
            inside = getattr(leaf, "__dict__", {}).values() if not isinstance(leaf, (type, torch.nn.Module)) else ()
            if any(isinstance(value, torch.Tensor) and value.requires_grad for value in inside):
                raise RefusedError(
                    f"{NAME}: expected tensors in nestings that torch.utils._pytree knows, found one that requires a "
                    f"gradient inside of a {type(leaf).__qualname__}, which would get none. Pass the tensor itself, or "
                    "register the class with torch.utils._pytree.register_pytree_node."
                )


def device_of(tensors: Sequence[torch.Tensor]) -> torch.device:
    """Return the one device of the inputs.

    Raises:
        RefusedError: There is no tensor, or there are several devices, or one of a kind that can't be replayed.
    """
    devices = list(dict.fromkeys(tensor.device for tensor in tensors))
    if not devices:
        raise RefusedError(
            f"{NAME}: expected a tensor among the inputs, found none. Pass the model's tensors by name: "
            "replay_forward(model, accumulated, x=x)."
        )
    names = ", ".join(map(str, devices))
    if len(devices) > 1:
        raise RefusedError(
            f"{NAME}: expected inputs on one device, found {names}. Move them to the compute device first."
        )
    if devices[0].type not in ("cpu", "cuda"):
        raise RefusedError(
            f"{NAME}: expected inputs on the CPU or a CUDA device, found {names}, whose random state can't be replayed."
        )
    return devices[0]
