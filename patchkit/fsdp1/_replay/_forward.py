"""The function that people call."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["NAME", "replay_forward"]

NAME = "fsdp1.replay_forward"
_Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]


def replay_forward(
    model: nn.Module,
    accumulated: MutableMapping[Any, torch.Tensor],
    /,
    *,
    context_fn: Callable[[], _Contexts] | None = None,
    **inputs: Any,
) -> Any:
    """Run ``model(**inputs)`` without keeping activations, and run it again when its backward comes.

    FSDP1 has no accumulation of its own with CPU offload outside of ``no_sync``, and finishes reducing and offloading
    in each pass: this is how a rollout of many forwards trains, in the memory of one forward's gradients and one
    accumulator for each shard, however many forwards there are. The second run has the random state of the first, on
    the CPU and on the inputs' CUDA device, and its autocast state; the caller's random state is left as it is.

    After the rollout's backward, hand the gradients over and step::

        for parameter, gradient in accumulated.items():
            parameter.grad = gradient
        model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        accumulated.clear()

    Under ``torch.no_grad()`` it is a plain forward. Not for several threads at once on one model.

    Args:
        model: A module wrapped in FSDP1, with or without CPU offload.
        accumulated: Parameter (what the optimizer has) to gradient: the sum over the backward passes so far, of the
            shape of the parameter's shard and on its device. One for a whole rollout, empty at its beginning.
        context_fn: Returns the context of the first run and that of the second, as for ``torch.utils.checkpoint`` with
            ``use_reentrant=False``.
        inputs: What the model is called with, by name. Tensors in any nesting that ``torch.utils._pytree`` knows; all
            on one device, the CPU or a CUDA device. What requires a gradient gets one. Inputs on a CUDA device are kept
            on the host. An argument called ``context_fn`` can't be passed: wrap the model.

    Returns:
        What the model returns, with a graph.

    Raises:
        ResourceError: ``model`` is not wrapped in FSDP1, or ``accumulated`` is no mutable mapping.
        RefusedError: No tensor among the inputs, several or other devices, ``no_sync``, gradients or a backward pass
            that a replay would lose, or a dictionary that is not this rollout's. Nothing was touched. In the backward,
            also: weights that were changed since the forward; a graph of the gradients (``create_graph=True``).
        RuntimeError: In the backward, autograd's own: an input was changed in place, or the graph was freed.
    """
    from ._function import run

    return run(model, accumulated, context_fn, inputs)
