"""The random and autocast state of the first run, for the second one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

__all__ = ["RunState"]


class RunState:
    """What a run on ``device`` depends on beside its inputs, as it is when this is made."""

    def __init__(self, device: torch.device) -> None:
        self._random = torch.get_rng_state()
        self._cuda = [] if device.index is None else [device.index]
        self._cuda_random = [torch.cuda.get_rng_state(index) for index in self._cuda]
        kinds = ["cpu", "cuda"] if self._cuda else ["cpu"]
        self._autocast = [(kind, *_autocast_of(kind)) for kind in kinds]
        self._caches = torch.is_autocast_cache_enabled()

    @contextmanager
    def again(self) -> Iterator[None]:
        """Have that state inside, and what was there before outside."""
        with ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng(devices=self._cuda))
            torch.set_rng_state(self._random)
            for index, state in zip(self._cuda, self._cuda_random, strict=True):
                torch.cuda.set_rng_state(state, index)
            for kind, enabled, dtype in self._autocast:
                autocast = torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=self._caches)
                stack.enter_context(autocast)
            yield


def _autocast_of(kind: str) -> tuple[bool, torch.dtype]:
    try:
        return torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
    except (TypeError, AttributeError):
        # Before torch 2.4 each kind had functions of its own.
        if kind == "cpu":
            return torch.is_autocast_cpu_enabled(), torch.get_autocast_cpu_dtype()
        return torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()
