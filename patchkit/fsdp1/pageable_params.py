"""``fsdp1.pageable-params``: parameters stay in ordinary host memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from ..contract import Contract
from ..errors import RefusedError, VerifyError
from ..patch import Context, Patch, Probe
from ._contracts import contract_of
from ._units import Handle, is_initialised, offloaded_units, same_storage, shown

__all__ = ["PageableParams"]

_Initialiser = Callable[[Handle], None]


class PageableParams(Patch):
    """Keep FSDP1 from copying offloaded parameters into pinned memory; gradients are pinned as before."""

    name: ClassVar[str] = "fsdp1.pageable-params"
    summary: ClassVar[str] = "keeps offloaded parameters in pageable memory: no pinned copy of the model"
    why: ClassVar[str] = (
        "Before the first forward, FSDP1 copies every offloaded shard into pinned memory. For a moment both copies of "
        "a unit exist, and pinned memory is rounded up to powers of two and can't be swapped: on a machine whose host "
        "memory is barely enough for one copy of the model, that copy is one too many."
    )
    how: ClassVar[str] = (
        "Overrides init_flat_param_attributes of each unit's handle. While the original runs, pin_memory on the unit's "
        "own parameter answers with the tensor itself, so no copy is made even for a moment; the gradient is allocated "
        "and pinned as ever. Copies to the device are then made from pageable memory: slower, and not asynchronous."
    )
    upstream: ClassVar[str] = (
        "https://github.com/pytorch/pytorch/issues/95823 (pinned blocks are rounded up); "
        "https://github.com/pytorch/pytorch/issues/70639 (pinning made a run worse)"
    )
    until: ClassVar[str] = (
        "FSDP1 has an option not to pin parameters, as FSDP2 has in CPUOffloadPolicy(pin_memory=False)."
    )
    contract: ClassVar[Contract] = contract_of("fsdp1.pageable-params")
    resources: ClassVar[tuple[str, ...]] = ("model",)
    probe: ClassVar[Probe | None] = Probe("patchkit.fsdp1._probes.pageable_params:probe", ranks=2)

    def check(self, ctx: Context) -> None:
        """Refuse a model without offloading units, and one that FSDP1 has initialised already."""
        late = [
            unit.label
            for unit, handle in offloaded_units(ctx)
            if is_initialised(unit) and not ctx.holds(handle, "init_flat_param_attributes")
        ]
        if late:
            raise RefusedError(
                f"{self.name}: expected a model before its first forward, found {len(late)} units that FSDP1 has "
                f"initialised already ({shown(late)}): their parameters are pinned. Apply the manifest after wrapping, "
                "and before anything that runs the model, its state_dict or its apply.",
                patch=self.name,
            )

    def install(self, ctx: Context) -> None:
        """Override the initialiser of each unit."""
        ctx.wrap_each([handle for _, handle in offloaded_units(ctx)], "init_flat_param_attributes", _keep_pageable)

    def verify(self, ctx: Context) -> None:
        """Look at the shards of units that are initialised by now: none may be pinned."""
        pinned = [
            unit.label
            for unit, handle in offloaded_units(ctx)
            if hasattr(handle.flat_param, "_local_shard") and handle.flat_param._local_shard.is_pinned()
        ]
        if pinned:
            raise VerifyError(
                f"{self.name}: expected parameters in pageable memory, found pinned ones in {shown(pinned)}.",
                patch=self.name,
            )


def _keep_pageable(original: _Initialiser) -> _Initialiser:
    def init_flat_param_attributes(self: Handle) -> None:
        from ._lazy_init import forget_lazy_init
        from ._modes import KeepPageable

        shard = self.flat_param.data
        with KeepPageable(shard):
            original(self)
        if not same_storage(self.flat_param._local_shard, shard):
            forget_lazy_init(self)
            raise RefusedError(
                f"{PageableParams.name}: expected FSDP1's initialiser to keep the unit's shard where it is, found "
                f"that it was replaced, in the unit of {self.flat_param._fqns[0]!r}. Somebody overrides "
                "init_flat_param_attributes too: take that override out, or revert this patch. FSDP1's initialisation "
                "was taken back, so the next "
                "forward starts it again.",
                patch=PageableParams.name,
            )

    return init_flat_param_attributes
