"""Walking the FSDP1 units of a model: the one place that knows where FSDP1 keeps what."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import RefusedError, ResourceError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ..patch import Context

__all__ = [
    "Handle",
    "State",
    "Unit",
    "WeakUnits",
    "described_model",
    "is_initialised",
    "offloaded_units",
    "outermost_units",
    "plain_path",
    "refuse_unsharded",
    "same_storage",
    "selected_units",
    "shown",
    "storage_bytes",
    "trainable_names",
    "units_of",
]

# Names that wrappers add to the path of a module, and that nobody writes in a glob.
_WRAPPERS = frozenset({"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"})


class Handle(Protocol):
    """What the patches use of ``FlatParamHandle``; tensors hang on the flat parameter as plain attributes."""

    flat_param: Any
    device: torch.device
    uses_sharded_strategy: bool
    _offload_params: bool
    _use_orig_params: bool
    _keep_low_precision_grads: bool
    _needs_pre_backward_unshard: bool
    _force_full_precision: bool
    _uses_param_mixed_precision: bool
    _fwd_bwd_param_dtype: torch.dtype
    _training_state: Any
    _ran_pre_backward_hook: bool
    _prefetched: bool
    _fully_sharded_module: Any

    def is_sharded(self, tensor: torch.Tensor) -> bool: ...

    def _reset_flat_param_grad_info_if_needed(self) -> None: ...

    def _use_sharded_views(self) -> None: ...

    def _use_unsharded_views(self, as_params: bool) -> None: ...


class State(Protocol):
    """What the patches use of ``_FSDPState``, which for FSDP1 is the wrapping module itself."""

    _is_root: bool | None
    _handle: Handle | None
    _all_fsdp_states: list[State]
    _exec_order_data: Any
    _device_handle: Any


@dataclass(frozen=True, slots=True)
class Unit:
    """One FSDP1 unit.

    Attributes:
        path: Path of the wrapped module in the model, as people write it: without the names that wrappers add.
        module: The wrapping module, which is FSDP1's state as well.
        handle: Its handle; None for a unit that manages no parameters of its own.
    """

    path: str
    module: Any
    handle: Handle | None

    @property
    def label(self) -> str:
        """The unit in messages."""
        return repr(self.path) if self.path else "the root"


class WeakUnits:
    """Units that are not kept alive; calling it returns those that still live."""

    def __init__(self, units: Iterable[Unit]) -> None:
        self._units = [(unit.path, weakref.ref(unit.module)) for unit in units]

    def __call__(self) -> list[Unit]:
        return [
            Unit(path, module, module._handle) for path, reference in self._units if (module := reference()) is not None
        ]


def units_of(model: nn.Module) -> Iterator[Unit]:
    """Yield the FSDP1 units of ``model``, parents before children."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    seen: set[int] = set()
    pending: list[tuple[str, nn.Module]] = [("", model)]
    while pending:
        path, module = pending.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        if isinstance(module, FullyShardedDataParallel):
            yield Unit(path, module, module._handle)  # type: ignore[arg-type]
        for name, child in reversed(module._modules.items()):
            if child is not None:
                pending.append((path if name in _WRAPPERS else f"{path}.{name}" if path else name, child))


def selected_units(ctx: Context) -> list[Unit]:
    """Return the FSDP1 units of ``ctx.model`` that the manifest entry selects.

    Raises:
        ResourceError: The model is no module.
        RefusedError: The model is not wrapped in FSDP1.
    """
    from torch import nn

    model = ctx.model
    patch = ctx.patch.name
    if not isinstance(model, nn.Module):
        raise ResourceError(
            f"{patch}: expected a torch.nn.Module as the model, found {type(model).__qualname__}. "
            "Pass the wrapped model: patchkit.apply(manifest, model).",
            patch=patch,
        )
    units = ctx.once(("FSDP1 units", id(model)), lambda: list(units_of(model)))
    if not units:
        raise RefusedError(
            f"{patch}: expected a model wrapped in FSDP1 (FullyShardedDataParallel), found {described_model(model)} "
            "without any FSDP1 unit. Wrap the model first, then apply the manifest.",
            patch=patch,
        )
    return [unit for unit in units if ctx.selects(unit.path)]


def outermost_units(ctx: Context) -> list[Unit]:
    """Return the units of ``ctx.model`` that no other unit of it is wrapped around: one of them is FSDP1's root."""
    found: list[Unit] = []
    for unit in ctx.once(("FSDP1 units", id(ctx.model)), lambda: list(units_of(ctx.model))):
        # Parents come before children.
        if not any(unit.path.startswith(f"{outer.path}." if outer.path else "") for outer in found):
            found.append(unit)
    return found


def offloaded_units(ctx: Context) -> list[tuple[Unit, Handle]]:
    """Return those of the selected units that offload to the CPU, with their handles.

    Raises:
        ResourceError: The model is no module.
        RefusedError: The model is not wrapped in FSDP1, or none of the selected units offloads.
    """
    units = selected_units(ctx)
    offloaded = [(unit, unit.handle) for unit in units if unit.handle is not None and unit.handle._offload_params]
    if units and not offloaded:
        raise RefusedError(
            f"{ctx.patch.name}: expected FSDP1 units with CPU offload, found {len(units)} and none that offloads. Wrap "
            "the model with cpu_offload=CPUOffload(offload_params=True), or take the patch out of the manifest.",
            patch=ctx.patch.name,
        )
    return offloaded


def refuse_unsharded(patch: str, units: Sequence[tuple[Unit, Handle]]) -> None:
    """Refuse units that aren't sharded.

    Raises:
        RefusedError: A unit uses NO_SHARD.
    """
    whole = [unit.label for unit, handle in units if not handle.uses_sharded_strategy]
    if whole:
        raise RefusedError(
            f"{patch}: expected sharded units, found {len(whole)} with NO_SHARD ({shown(whole)}), where FSDP1 keeps "
            "gradients in another way, and its numerics with CPU offload are in doubt "
            "(https://github.com/pytorch/pytorch/issues/118245). A single rank makes every unit NO_SHARD. Use "
            "FULL_SHARD on two ranks or more, or take the patch out of the manifest.",
            patch=patch,
        )


def is_initialised(unit: Unit) -> bool:
    """Tell whether FSDP1's lazy initialisation has already dealt with ``unit``.

    ``FSDP.apply`` initialises and then forgets that it did, so the shard counts as well.
    """
    return unit.module._is_root is not None or hasattr(getattr(unit.handle, "flat_param", None), "_local_shard")


def trainable_names(unit: Unit, handle: Handle) -> list[str]:
    """Return the names of the unit's parameters that require a gradient.

    The original parameters are asked where FSDP1 keeps them: the flat parameter learns of ``requires_grad_`` on
    them only in the next forward.
    """
    flat_param = handle.flat_param
    prefix = f"{unit.path}." if unit.path else ""
    names = [plain_path(f"{prefix}{fqn}") for fqn in flat_param._fqns]
    if not handle._use_orig_params:
        return names if flat_param.requires_grad else []
    return [name for name, param in zip(names, flat_param._params, strict=True) if param.requires_grad]


def plain_path(path: str) -> str:
    """Return the path of a module or parameter without the names that wrappers add."""
    return ".".join(name for name in path.split(".") if name not in _WRAPPERS)


def shown(names: Sequence[str]) -> str:
    """List the first few of many names, for messages."""
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def same_storage(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Tell whether two tensors are views of one storage; unlike addresses, this is right for freed ones too."""
    return bool(a.untyped_storage()._cdata == b.untyped_storage()._cdata)


def storage_bytes(tensor: torch.Tensor | None) -> int:
    """Return the bytes behind a tensor, all of its storage counted; 0 for None."""
    return 0 if tensor is None else tensor.untyped_storage().nbytes()


def described_model(model: object) -> str:
    """Say what kind of thing was given as a model, for messages."""
    from torch import nn

    if not isinstance(model, nn.Module):
        return f"a {type(model).__qualname__}"
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError:
        return type(model).__qualname__
    is_fsdp2 = any(isinstance(module, FSDPModule) for module in model.modules())
    return f"a {type(model).__qualname__}" + (" under FSDP2 (fully_shard)" if is_fsdp2 else "")
