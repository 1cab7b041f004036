"""A real ``Accelerator`` in the ranks of a probe."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from ..._api import apply
from ._kit import manifest_of

if TYPE_CHECKING:
    import torch

__all__ = ["accelerated"]


@contextmanager
def accelerated(device: torch.device, **options: Any) -> Iterator[Any]:
    """Make an accelerator whose FSDP plugin has ``options``, under ``accelerate.cpu-fsdp`` where that is needed."""
    from accelerate import Accelerator
    from accelerate.utils import FullyShardedDataParallelPlugin

    on_cpu = device.type == "cpu"
    # What a launcher sets.
    os.environ.update(LOCAL_RANK=os.environ["RANK"], LOCAL_WORLD_SIZE=os.environ["WORLD_SIZE"], OMP_NUM_THREADS="1")
    defaults = {"auto_wrap_policy": "transformer_based_wrap", "transformer_cls_names_to_wrap": ["Block"]}
    with ExitStack() as stack:
        if on_cpu:
            stack.enter_context(apply(manifest_of("accelerate.cpu-fsdp")))
        plugin = FullyShardedDataParallelPlugin(cpu_offload=True, use_orig_params=True, **{**defaults, **options})
        yield Accelerator(cpu=on_cpu, mixed_precision="bf16", fsdp_plugin=plugin)
