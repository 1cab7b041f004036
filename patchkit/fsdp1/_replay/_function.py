"""The node of the graph that stands for a whole forward."""

from __future__ import annotations

import weakref
from collections.abc import Callable, MutableMapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from ...errors import RefusedError
from ._forward import NAME
from ._inputs import Nest, device_of
from ._slots import Slots
from ._state import RunState

__all__ = ["run"]

_Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]

# Forwards whose backward is still to come.
_PENDING = weakref.WeakKeyDictionary[nn.Module, "weakref.WeakSet[_Run]"]()


def run(
    model: nn.Module,
    accumulated: MutableMapping[Any, torch.Tensor],
    context_fn: Callable[[], _Contexts] | None,
    inputs: dict[str, Any],
) -> Any:
    """See ``replay_forward``."""
    slots = Slots(model, accumulated)
    nest, tensors = Nest.taken_apart(inputs)
    device = device_of(tensors)
    nest.refuse_hidden()
    first, second = context_fn() if context_fn else (nullcontext(), nullcontext())
    if not torch.is_grad_enabled():
        with first:
            return model(**inputs)
    pending = _PENDING.setdefault(model, weakref.WeakSet())
    if any(other.accumulated is not accumulated for other in pending):
        raise RefusedError(
            f"{NAME}: expected the dictionary that was given to the forwards before, whose backward is still to come, "
            "found another one. Pass one dictionary for the whole rollout."
        )
    slots.refuse_what_would_be_lost()
    this = _Run(model, accumulated, slots, nest, device, second)
    # Something has to require a gradient for the outputs to have a graph, though no input may.
    anchor = torch.empty(0, device=device, requires_grad=True)
    with first:
        outputs = _Replay.apply(this, anchor, *tensors)  # type: ignore[no-untyped-call]
    pending.add(this)
    return this.result(outputs)


class _Run:
    """One forward, and what its replay needs beside the tensors."""

    def __init__(
        self,
        model: nn.Module,
        accumulated: MutableMapping[Any, torch.Tensor],
        slots: Slots,
        nest: Nest,
        device: torch.device,
        context: AbstractContextManager[Any],
    ) -> None:
        self.accumulated = accumulated
        self._model = model
        self._slots = slots
        self._nest = nest
        self._device = device
        self._context = context
        self._state = RunState(device)
        self._versions: list[int] = []
        self._outputs: Nest | None = None

    def first(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Run without a graph."""
        try:
            with torch.no_grad():
                self._outputs, outputs = Nest.taken_apart(self._model(**self._nest.with_tensors(tensors)))
        except BaseException:
            self._slots.recover()
            raise
        # Stock FSDP1 shows the parameters views of the host gradient after every forward.
        self._slots.clear()
        self._versions = self._slots.versions()
        return outputs

    def result(self, outputs: tuple[torch.Tensor, ...]) -> Any:
        """Return what the model returned, with tensors that have a graph."""
        assert self._outputs is not None
        return self._outputs.with_tensors(outputs)

    def again(self, tensors: list[torch.Tensor], gradients: tuple[torch.Tensor | None, ...]) -> None:
        """Run with a graph, and backward through it, into the slots and from there into the accumulators."""
        self._slots.refuse_what_would_be_lost()
        if self._slots.versions() != self._versions:
            raise RefusedError(
                f"{NAME}: expected the weights of the forward, found that they were changed in place since, by an "
                "optimizer's step perhaps: the replay would compute something else. Run the backward before the step."
            )
        try:
            with torch.enable_grad(), self._state.again(), self._context:
                _, outputs = Nest.taken_apart(self._model(**self._nest.with_tensors(tensors)))
            self._backward(outputs, gradients)
            self._slots.take()
        except BaseException:
            self._slots.recover()
            raise
        finally:
            _PENDING.get(self._model, set()).discard(self)

    def _backward(self, outputs: list[torch.Tensor], gradients: tuple[torch.Tensor | None, ...]) -> None:
        pairs = [pair for pair in zip(outputs, gradients, strict=True) if pair[0].requires_grad]
        wanted = [(output, gradient) for output, gradient in pairs if gradient is not None]
        # Other ranks may have a gradient for what this one has none for, and wait for it in their collectives.
        wanted = wanted or [(output, torch.zeros_like(output)) for output, _ in pairs]
        if wanted:
            torch.autograd.backward([output for output, _ in wanted], [gradient for _, gradient in wanted])

    def on_device(self, tensor: torch.Tensor, requires_grad: bool) -> torch.Tensor:
        """Return a leaf with the values of an input that was kept."""
        return tensor.detach().to(self._device, non_blocking=True).requires_grad_(requires_grad)


class _Replay(torch.autograd.Function):
    """A forward without activations; its backward runs it again."""

    @staticmethod
    def forward(ctx: Any, this: _Run, anchor: torch.Tensor, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        outputs = this.first(list(tensors))
        # Autograd frees these with the graph, and checks that nobody writes into them.
        ctx.save_for_backward(*(tensor if tensor.device.type == "cpu" else tensor.to("cpu") for tensor in tensors))
        ctx.this = this
        ctx.differentiable = [tensor.requires_grad for tensor in tensors]
        ctx.mark_non_differentiable(
            *(output for output in outputs if not (output.is_floating_point() or output.is_complex()))
        )
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        this: _Run = ctx.this
        leaves = [
            this.on_device(tensor, requires_grad)
            for tensor, requires_grad in zip(ctx.saved_tensors, ctx.differentiable, strict=True)
        ]
        this.again(leaves, gradients)
        return None, None, *(leaf.grad for leaf in leaves)
