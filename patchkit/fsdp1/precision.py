"""``fsdp1.precision``: modules named by their paths in float32, in a model that Accelerate wraps."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from ..contract import Contract
from ..errors import PatchkitWarning, RefusedError, ResourceError, VerifyError
from ..patch import Context, Patch, PatchOptions, Probe
from ._contracts import contract_of
from ._units import Handle, shown, units_of
from .drop_offloaded_grad_shards import SITE, dropping

__all__ = ["Precision", "PrecisionOptions"]


class PrecisionOptions(PatchOptions):
    """What the patch is told in the manifest."""

    float32: tuple[str, ...] = Field(
        (),
        description="paths of modules that compute, reduce and keep buffers in float32, such as 'blocks.0.norm'",
    )
    buffer_dtype: Literal["float32", "bfloat16", "float16", "float64"] = Field(
        "float32", description="type of the floating-point buffers of all other modules"
    )


class Precision(Patch):
    """Configure an accelerator's FSDP plugin, before ``prepare``, to keep named modules in float32."""

    name: ClassVar[str] = "fsdp1.precision"
    summary: ClassVar[str] = "keeps named modules in float32, and buffers, in a model that Accelerate wraps in FSDP1"
    why: ClassVar[str] = (
        "Accelerate gives a whole model one precision. Norms, embeddings and time embeddings often need float32, and "
        "so do buffers such as rotary frequencies; wrapping by hand to get there gives up Accelerate's prepare."
    )
    how: ClassVar[str] = (
        "Sets three attributes of the accelerator's FullyShardedDataParallelPlugin: use_orig_params, so that the "
        "optimizer keeps its parameters; the buffer type of its precision; and a wrap policy that asks the policy "
        "which was there, of whatever kind, and wraps the named modules by themselves in float32. It decides by the "
        "model that is wrapped, so several models can be configured from one plugin. Accelerate runs the model under "
        "autocast, which would make bfloat16 of float32 again: it is off in the forward of the named modules. With CPU "
        "offload, gradient shards are dropped as by fsdp1.drop-offloaded-grad-shards."
    )
    upstream: ClassVar[str] = "https://github.com/pytorch/pytorch/issues/90318, and accelerate issue 4110"
    until: ClassVar[str] = "Accelerate takes a precision for each module, or people have moved to FSDP2."
    contract: ClassVar[Contract] = contract_of("fsdp1.precision")
    Options: ClassVar[type[PatchOptions]] = PrecisionOptions
    resources: ClassVar[tuple[str, ...]] = ("model", "accelerator")
    probe: ClassVar[Probe | None] = Probe("patchkit.fsdp1._probes.precision:probe", ranks=2)

    def check(self, ctx: Context) -> None:
        """Refuse FSDP2, an accelerator without FSDP, a model that is wrapped already, and paths that don't exist."""
        plugin = self._plugin(ctx)
        version = getattr(plugin, "fsdp_version", 1)
        if version != 1:
            raise RefusedError(
                f"{self.name}: expected an FSDP plugin with fsdp_version 1, found {version}. FSDP2 takes a precision "
                "for each module: fully_shard(module, mp_policy=…).",
                patch=self.name,
            )
        others = _buffer_dtypes(plugin.auto_wrap_policy) - {ctx.options.buffer_dtype}
        if others:
            raise RefusedError(
                f"{self.name}: expected the buffer_dtype that another model of this plugin is configured with "
                f"({', '.join(sorted(others))}), found {ctx.options.buffer_dtype!r}: a plugin has one for all of its "
                "models. Say the same, or give the model an accelerator with a plugin of its own.",
                patch=self.name,
            )
        model = self._model(ctx)
        if next(units_of(model), None) is not None:
            raise RefusedError(
                f"{self.name}: expected a model that isn't wrapped yet, found FSDP1 units in it. Apply the manifest "
                "before accelerator.prepare(model).",
                patch=self.name,
            )
        known = {path: module for path, module in model.named_modules() if path}
        for path in ctx.options.float32:
            if path not in known:
                near = difflib.get_close_matches(path, known, n=3)
                hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
                raise RefusedError(
                    f"{self.name}: expected paths of modules in float32, found {path!r}, which a "
                    f"{type(model).__qualname__} doesn't have.{hint}",
                    patch=self.name,
                )

    def install(self, ctx: Context) -> None:
        """Set what the plugin wraps with."""
        import torch

        from ._wrap_policy import Float32Policy

        model, plugin = self._model(ctx), self._plugin(ctx)
        models = ctx.targets([model, *model.modules()])
        ctx.set(plugin, "use_orig_params", True, targets=models)
        precision = plugin.mixed_precision_policy
        if precision is not None:
            buffers = getattr(torch, ctx.options.buffer_dtype)
            self._warn_of_wide_buffers(model, buffers)
            ctx.set(plugin, "mixed_precision_policy", replace(precision, buffer_dtype=buffers), targets=models)
        named = [model.get_submodule(path) for path in ctx.options.float32]
        with_params = [module for module in named if next(module.parameters(), None) is not None]
        device = ctx.resource("accelerator").device.type
        ctx.wrap_each(with_params, "forward", lambda original: _without_autocast(original, device))
        policy = Float32Policy(plugin.auto_wrap_policy, plugin, ctx.options, models)
        ctx.set(plugin, "auto_wrap_policy", policy, targets=models)
        if getattr(plugin.cpu_offload, "offload_params", False):

            def is_meant(handle: Handle) -> bool:
                return (
                    handle._offload_params and handle.uses_sharded_strategy and handle._fully_sharded_module in models
                )

            ctx.wrap(SITE, dropping(is_meant), targets=models)

    def verify(self, ctx: Context) -> None:
        """Look at the units, if the model was wrapped by now: those of named modules must have float32."""
        import torch

        model = self._model(ctx)
        wrong = [
            unit.label
            for unit in units_of(model)
            if unit.path in ctx.options.float32 and unit.module.mixed_precision.param_dtype != torch.float32
        ]
        if wrong:
            raise VerifyError(
                f"{self.name}: expected float32 in the units of the named modules, found another type in "
                f"{shown(wrong)}.",
                patch=self.name,
            )

    def _plugin(self, ctx: Context) -> Any:
        accelerator = ctx.resource("accelerator")
        plugin = getattr(getattr(accelerator, "state", None), "fsdp_plugin", None)
        if plugin is None:
            raise ResourceError(
                f"{self.name}: expected an accelerate.Accelerator with an FSDP plugin, found a "
                f"{type(accelerator).__qualname__} without one. Make it with Accelerator(fsdp_plugin=…), or launch it "
                "with accelerate launch --use_fsdp.",
                patch=self.name,
            )
        return plugin

    def _model(self, ctx: Context) -> Any:
        from torch import nn

        if not isinstance(ctx.model, nn.Module):
            raise ResourceError(
                f"{self.name}: expected a torch.nn.Module as the model, found {type(ctx.model).__qualname__}.",
                patch=self.name,
            )
        return ctx.model

    def _warn_of_wide_buffers(self, model: Any, dtype: Any) -> None:
        import torch

        wide = [name for name, buffer in model.named_buffers() if buffer.dtype == torch.float64 != dtype]
        if wide:
            warnings.warn(
                f"{self.name}: the model has float64 buffers ({shown(wide)}), which FSDP1 will cast to "
                f"{dtype}; say buffer_dtype = 'float64' to keep them.",
                PatchkitWarning,
                stacklevel=2,
            )


def _without_autocast(original: Callable[..., Any], device: str) -> Callable[..., Any]:
    import torch

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device, enabled=False):
            return original(self, *args, **kwargs)

    return forward


def _buffer_dtypes(policy: Any) -> set[str]:
    from ._wrap_policy import Float32Policy

    found = set()
    while isinstance(policy, Float32Policy):
        if policy.is_in_use:
            found.add(policy.options.buffer_dtype)
        policy = policy.below
    return found
