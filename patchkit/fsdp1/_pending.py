"""Gradients that somebody still needs, and backward passes that are still to come."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterable
from typing import Any

from torch.distributed.fsdp import _runtime_utils
from torch.distributed.fsdp._common_utils import TrainingState

from ..errors import RefusedError
from ._units import Handle, Unit, same_storage, shown

__all__ = ["drop_stale_views", "has_gradient", "refuse_pending", "shows_stale_gradient"]


def has_gradient(handle: Handle) -> bool:
    """Tell whether a parameter of ``handle`` has a gradient that is its own.

    With offload and ``use_orig_params=True``, stock FSDP1 shows the parameters views of the host gradient after every
    forward, also when they were set to None before (``FlatParamHandle.sharded_grad``, torch 2.1 to 2.15). Such views
    are told from real ones by the flat parameter's own gradient, which FSDP1 sets to the host gradient at the end of a
    backward pass, and to None in the first forward after all parameters were zeroed.
    """
    flat_param = handle.flat_param
    if not handle._use_orig_params:
        return flat_param.grad is not None
    host = getattr(flat_param, "_cpu_grad", None)
    offloaded = host is not None and flat_param.grad is not None and same_storage(flat_param.grad, host)
    return any(
        param.grad is not None and (offloaded or host is None or not same_storage(param.grad, host))
        for param in flat_param._params
    )


def shows_stale_gradient(handle: Handle) -> bool:
    """Tell whether the parameters of ``handle`` show a host gradient that isn't theirs (any more)."""
    flat_param = handle.flat_param
    host = getattr(flat_param, "_cpu_grad", None)
    if host is None or not handle._use_orig_params or has_gradient(handle):
        return False
    return any(param.grad is not None for param in flat_param._params)


def drop_stale_views(handle: Handle) -> None:
    """Let go of what still refers to the host gradient of a handle that has no gradient of its own."""
    flat_param = handle.flat_param
    for param in (*(flat_param._params or ()), *(flat_param._shared_params or ()), flat_param):
        param.grad = None


def refuse_pending(patch: str, units: Iterable[Unit], what: str) -> None:
    """Refuse while a gradient or a backward pass would be lost.

    Args:
        patch: Who refuses, for the message.
        units: The units to look at; those without a handle are passed over.
        what: What would lose it: ``"dropping host gradients"``.

    Raises:
        RefusedError: A unit has a gradient, is inside a forward or backward pass, or awaits a backward pass.
    """
    handled = [(unit, unit.handle) for unit in units if unit.handle is not None]
    with_gradient = [unit.label for unit, handle in handled if has_gradient(handle)]
    if with_gradient:
        raise RefusedError(
            f"{patch}: expected units without gradients, found some in {len(with_gradient)} ({shown(with_gradient)}), "
            f"which {what} would lose. Call optimizer.zero_grad(set_to_none=True) first.",
            patch=patch,
        )
    running = [unit.label for unit, _ in handled if unit.module.training_state != TrainingState.IDLE]
    if running:
        raise RefusedError(
            f"{patch}: expected a model that does nothing at the moment, found {len(running)} units inside a forward "
            f"or backward pass ({shown(running)}). Wait for its end; after an error in one, let an ordinary step run.",
            patch=patch,
        )
    awaiting = _awaiting_backward(handled)
    if awaiting:
        raise RefusedError(
            f"{patch}: expected no backward pass to come, found a forward with gradients on, whose output still lives, "
            f"in {len(awaiting)} units ({shown(awaiting)}): its backward needs what {what} would drop. Run that "
            "backward, or let go of the output; run forwards that are for looking only under torch.no_grad().",
            patch=patch,
        )


def _awaiting_backward(handled: list[tuple[Unit, Handle]]) -> list[str]:
    # Set by a forward under grad mode, taken away at the end of the backward pass: also there for ever where the output
    # was thrown away. Whether it was, only the hooks on its graph can tell.
    marks = ("_post_backward_hook_state", "_post_backward_hook_handle")
    marked = {
        id(handle): unit.label
        for unit, handle in handled
        if handle._needs_pre_backward_unshard or any(hasattr(handle.flat_param, mark) for mark in marks)
    }
    if not marked:
        return []
    gc.collect()
    hook = _runtime_utils._pre_backward_hook
    alive: dict[int, None] = {}
    for obj in gc.get_objects():
        if type(obj) is functools.partial and obj.func is hook:
            handle: Any = obj.args[2]
            alive[id(handle)] = None
    return [label for ident, label in marked.items() if ident in alive]
