"""``accelerate.cpu-fsdp``: Accelerate's FSDP path, on a machine without an accelerator."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

from ..contract import Contract
from ..errors import VerifyError
from ..patch import Context, Patch, Probe
from ._contracts import contract_of
from ._facts import refuse_accelerator

__all__ = ["AccelerateCpuFsdp"]

_SITE = "accelerate.state:AcceleratorState.__init__"


class AccelerateCpuFsdp(Patch):
    """Let an ``Accelerator`` with an FSDP plugin choose FSDP on CPU processes."""

    name: ClassVar[str] = "accelerate.cpu-fsdp"
    summary: ClassVar[str] = "opens Accelerate's FSDP path to CPU processes, for a rehearsal"
    why: ClassVar[str] = (
        "Accelerate chooses FSDP only on processes that have an accelerator each; on CPU processes the plugin is "
        "passed over in silence, and what a script does with it can't be tried without one."
    )
    how: ClassVar[str] = (
        "Wraps AcceleratorState.__init__: where it has chosen DistributedType.MULTI_CPU although there is an FSDP "
        "plugin, what it does on GPU processes is done: the distributed type becomes FSDP, the plugin gets its "
        "precision and is kept; the device is the CPU without an index, as FSDP1 wants it. Goes with "
        "fsdp1.cpu-rehearsal."
    )
    until: ClassVar[str] = "Accelerate supports FSDP on the CPU."
    contract: ClassVar[Contract] = contract_of("accelerate.cpu-fsdp")
    probe: ClassVar[Probe | None] = Probe("patchkit.fsdp1._probes.accelerate_cpu_fsdp:probe", ranks=2)

    def check(self, ctx: Context) -> None:
        """Refuse a machine with an accelerator: there, Accelerate should use it."""
        refuse_accelerator(self.name)

    def install(self, ctx: Context) -> None:
        """Wrap the place where the kind of distribution is chosen."""
        ctx.wrap(_SITE, _choose_fsdp)

    def verify(self, ctx: Context) -> None:
        """Look whether FSDP is still a kind of distribution."""
        from accelerate.utils import DistributedType

        if not hasattr(DistributedType, "FSDP"):
            raise VerifyError(f"{self.name}: expected DistributedType.FSDP in accelerate, found none.", patch=self.name)


def _choose_fsdp(original: Callable[..., None]) -> Callable[..., None]:
    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        is_new = not type(self)._shared_state
        original(self, *args, **kwargs)
        if is_new:
            _use_fsdp(self, kwargs.get("fsdp_plugin"))

    return initialise


def _use_fsdp(state: Any, plugin: Any) -> None:
    import torch
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType

    wanted = plugin is not None or os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    if not wanted or state.distributed_type != DistributedType.MULTI_CPU:
        return
    if state._mixed_precision != "no" and plugin is not None:
        plugin.set_mixed_precision(state._mixed_precision)
    state.fsdp_plugin = plugin
    state.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
    state.device = PartialState._shared_state["device"] = torch.device("cpu")
