"""Counting the bytes that FSDP1 keeps for a model, from the tensors themselves.

::

    with MemoryLedger(model) as ledger:
        step()
    ledger.peak("saved_grad_shards")

Samples are taken before and after every unit's forward and at every unit's reduction, when the reduced shard of that
unit exists and has not reached the host yet: between these points FSDP1 neither keeps nor drops anything for longer
than the call of one function, so the largest sample is the true peak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import _runtime_utils
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

from ._units import Handle, Unit, units_of

__all__ = ["KINDS", "MemoryLedger", "Sample"]

KINDS: Mapping[str, str] = {
    "saved_grad_shards": "reduced gradient shards kept on the compute device",
    "cpu_grads": "gradients allocated on the host",
    "idle_cpu_grads": "gradients allocated on the host for units of which no parameter has a gradient",
    "pinned_params": "parameter shards in pinned host memory",
    "pageable_params": "parameter shards in ordinary host memory",
    "pinned": "all pinned memory that was there or asked for while the ledger was open, and still lives",
}
"""What is counted, and what it is."""


@dataclass(frozen=True)
class Sample:
    """What was there at one moment.

    Attributes:
        where: ``enter``, ``exit``, ``forward UNIT``, ``forwarded UNIT``, ``reduced UNIT``, or the name given to
        ``sample``. bytes: Bytes of each kind; each storage is counted once.
    """

    where: str
    bytes: Mapping[str, int]


class MemoryLedger:
    """Samples what FSDP1 keeps for ``model`` while the context is open; leaves nothing behind.

    Not reentrant, and for one thread: a second ledger over the same model is another object. Patches may come and go
    inside, except on ``_runtime_utils._offload_grad``, where the ledger itself stands.

    Attributes:
        samples: All samples in order.
        pinned_allocations: How many tensors were pinned while the ledger was open.
    """

    def __init__(self, model: nn.Module) -> None:
        self.samples: list[Sample] = []
        self._units: list[tuple[Unit, Handle]] = [
            (unit, unit.handle) for unit in units_of(model) if unit.handle is not None
        ]
        self._by_handle = {id(handle): unit for unit, handle in self._units}
        self._pins = _Pins()
        self._stack = ExitStack()

    @property
    def pinned_allocations(self) -> int:
        """How many tensors were pinned while the ledger was open."""
        return self._pins.allocations

    def sample(self, where: str) -> Sample:
        """Count everything now, and note it under the name ``where``."""
        sample = Sample(where, {**_count(handle for _, handle in self._units), "pinned": self._pins.live()})
        self.samples.append(sample)
        return sample

    def peak(self, kind: str) -> int:
        """Return the most bytes of ``kind`` (see ``KINDS``) that there were at any moment."""
        sampled = max(sample.bytes[kind] for sample in self.samples)
        return max(sampled, self._pins.peak) if kind == "pinned" else sampled

    def before(self, kind: str) -> int:
        """Return the bytes of ``kind`` at the first sample, which is taken on entry."""
        return self.samples[0].bytes[kind]

    def after(self, kind: str) -> int:
        """Return the bytes of ``kind`` at the last sample; once the context is left, the one taken on leaving."""
        return self.samples[-1].bytes[kind]

    def __enter__(self) -> MemoryLedger:
        with ExitStack() as stack:
            for handle in (handle for _, handle in self._units):
                self._pins.expect(handle)
            for unit, _ in self._units:
                stack.callback(unit.module.register_forward_pre_hook(self._before_forward).remove)
                stack.callback(unit.module.register_forward_hook(self._after_forward).remove)
            stack.callback(_put(_runtime_utils, "_offload_grad", self._watch_offload(_runtime_utils._offload_grad)))
            stack.enter_context(self._pins)
            self.sample("enter")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.sample("exit")
        self._stack.close()

    def _before_forward(self, module: nn.Module, args: object) -> None:
        self.sample(f"forward {self._label(module)}")

    def _after_forward(self, module: nn.Module, args: object, output: object) -> None:
        self.sample(f"forwarded {self._label(module)}")

    def _label(self, module: Any) -> str:
        return self._by_handle[id(module._handle)].label

    def _watch_offload(self, original: Callable[[Any, Handle, torch.Tensor], None]) -> Callable[..., None]:
        def _offload_grad(state: Any, handle: Handle, grad_to_offload: torch.Tensor) -> None:
            if id(handle) in self._by_handle:
                self.sample(f"reduced {self._by_handle[id(handle)].label}")
            original(state, handle, grad_to_offload)

        return _offload_grad


class _Pins(TorchFunctionMode):
    """Sees every tensor that is pinned, also one that lives for a moment only."""

    def __init__(self) -> None:
        super().__init__()
        self.allocations = 0
        self.peak = 0
        self._known: dict[int, tuple[StorageWeakRef, int]] = {}

    def expect(self, handle: Handle) -> None:
        """Take note of what ``handle`` has pinned already."""
        for name in ("_local_shard", "_cpu_grad"):
            tensor = getattr(handle.flat_param, name, None)
            if tensor is not None and tensor.is_pinned():
                self._note(tensor)

    def live(self) -> int:
        """Return the bytes that are pinned now."""
        self._known = {key: entry for key, entry in self._known.items() if not entry[0].expired()}
        total = sum(size for _, size in self._known.values())
        self.peak = max(self.peak, total)
        return total

    def _note(self, tensor: torch.Tensor) -> bool:
        storage = tensor.untyped_storage()
        entry = self._known.get(storage._cdata)
        if entry is not None and not entry[0].expired():
            return False
        self._known[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.live()
        return True

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.Tensor.pin_memory and self._note(result):
            self.allocations += 1
        return result


def _count(handles: Iterable[Handle]) -> dict[str, int]:
    """Count what hangs on the flat parameters, each storage once."""
    counts = dict.fromkeys(KINDS, 0)
    seen: set[tuple[str, int]] = set()

    def add(kind: str, tensor: torch.Tensor | None) -> None:
        if tensor is not None:
            storage = tensor.untyped_storage()
            if (kind, storage._cdata) not in seen:
                seen.add((kind, storage._cdata))
                counts[kind] += storage.nbytes()

    for handle in handles:
        flat_param = handle.flat_param
        gradient = getattr(flat_param, "_cpu_grad", None)
        add("saved_grad_shards", getattr(flat_param, "_saved_grad_shard", None))
        add("cpu_grads", gradient)
        if all(param.grad is None for param in flat_param._params or [flat_param]):
            add("idle_cpu_grads", gradient)
        for shard in _host_shards(handle):
            add("pinned_params" if shard.is_pinned() else "pageable_params", shard)
    return counts


def _host_shards(handle: Handle) -> list[torch.Tensor]:
    # From the lazy initialisation to the unit's first reshard, the flat parameter still holds what it was built with.
    flat_param = handle.flat_param
    shards = [flat_param._local_shard] if hasattr(flat_param, "_local_shard") else []
    if not shards or (flat_param.device.type == "cpu" and handle.is_sharded(flat_param)):
        shards.append(flat_param.data)
    return shards


def _put(owner: Any, name: str, value: object) -> Callable[[], None]:
    """Set an attribute; returns what puts the old value back, unless somebody else has set another one since."""
    old = getattr(owner, name)
    setattr(owner, name, value)

    def restore() -> None:
        if getattr(owner, name) is value:
            setattr(owner, name, old)

    return restore
