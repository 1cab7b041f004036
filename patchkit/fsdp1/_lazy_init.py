"""Taking back a lazy initialisation of FSDP1 that failed half-way."""

from __future__ import annotations

import gc
from collections.abc import Iterator

from torch.distributed.fsdp import FullyShardedDataParallel

from ._units import Handle, State

__all__ = ["forget_lazy_init"]


def forget_lazy_init(handle: Handle) -> None:
    """Let the tree that is being initialised at ``handle`` start its lazy initialisation anew in the next forward.

    FSDP1 marks the root as initialised first and never takes that back: after an error it would go on with half of
    its attributes for ever.
    """
    for root in _roots_over(handle):
        for state in root._all_fsdp_states:
            state._is_root = None
            if state._handle is not None:
                for made in ("_local_shard", "_cpu_grad"):
                    vars(state._handle.flat_param).pop(made, None)
        # The next initialisation appends every handle again.
        root._exec_order_data.all_handles.clear()


def _roots_over(handle: Handle) -> Iterator[State]:
    # A handle doesn't know its tree, and the model that the patch was given may be a part of it or a copy's original:
    # in this error path, looking through all objects is the one way that is always right.
    for obj in gc.get_objects():
        is_root = issubclass(type(obj), FullyShardedDataParallel) and obj._is_root
        if is_root and any(state._handle is handle for state in obj._all_fsdp_states):
            yield obj
