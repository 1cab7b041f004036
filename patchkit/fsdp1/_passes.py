"""Telling one backward pass of a tree of FSDP1 units from the next."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

from ._units import State

__all__ = ["Pass", "separates_passes"]


@dataclass(frozen=True)
class Pass:
    """One backward pass.

    It is told by the tree's execution order data, whose counter FSDP1 advances at the end of each pass
    (``_ExecOrderData.next_iter``, torch 2.1 to 2.15). One that fails doesn't advance it: ``separates_passes`` tells the
    next one from it. A unit that is taken into
    another tree gets other data, with a counter of its own.
    """

    order: weakref.ref[Any]
    number: int

    @classmethod
    def of(cls, state: State) -> Pass:
        """Return the pass that runs, or the next one."""
        order = state._exec_order_data
        return cls(weakref.ref(order), order._iter)

    def is_current(self, state: State) -> bool:
        """Tell whether no pass has ended since."""
        order = state._exec_order_data
        return self.number == order._iter and self.order() is order


def separates_passes(module: Any) -> bool:
    """Tell whether a forward of ``module`` that begins now lies between two backward passes: the root's, in none."""
    import torch

    return bool(module._is_root) and torch._C._current_graph_task_id() == -1
