"""The wrap policy that gives modules of one model, named by their paths, float32."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecision, wrap
from torch.distributed.fsdp.wrap import _Policy

from .._shares import Targets

__all__ = ["Float32Policy", "original_of"]

_Kwargs = dict[str, Any]


class Float32Policy(_Policy):
    """Wrap what another policy wraps, and named modules in float32; models that aren't meant as it does.

    Args:
        below: What the plugin has now: the policy that decides for all other modules, or for all of another model.
        plugin: Accelerate's plugin, which turns the policies that it knows into such for one model.
        options: The patch's options, with the paths of the modules.
        models: The models that are meant.
    """

    def __init__(self, below: Any, plugin: Any, options: Any, models: Targets) -> None:
        self.below = below
        self.options = options
        self._plugin = plugin
        self._models = models

    @property
    def is_in_use(self) -> bool:
        """Whether any model is meant at present."""
        return len(self._models) > 0

    def _run_policy(
        self, root_module: nn.Module, ignored_modules: set[nn.Module], root_kwargs: _Kwargs
    ) -> dict[nn.Module, _Kwargs]:
        """Return the modules to wrap, with the arguments to wrap each with (``_Policy._run_policy``, torch 2.1)."""
        if root_module not in self._models:
            return _wrapped_by(self.below, self._plugin, root_module, ignored_modules, root_kwargs)
        found = _wrapped_by(original_of(self.below), self._plugin, root_module, ignored_modules, root_kwargs)
        for path in self.options.float32:
            named = root_module.get_submodule(path)
            if next(named.parameters(), None) is None or named in ignored_modules:
                continue
            inside = [module for module in named.modules() if module in found]
            for module in {named: None, **dict.fromkeys(inside)}:
                kwargs = found.get(module, root_kwargs)
                found[module] = {**kwargs, "mixed_precision": _in_float32(kwargs.get("mixed_precision"))}
        return found


def original_of(policy: Any) -> Any:
    """Return the policy that was there before any of ours."""
    while isinstance(policy, Float32Policy):
        policy = policy.below
    return policy


def _in_float32(precision: MixedPrecision | None) -> MixedPrecision:
    return replace(
        precision or MixedPrecision(),
        param_dtype=torch.float32,
        reduce_dtype=torch.float32,
        buffer_dtype=torch.float32,
        cast_forward_inputs=True,
    )


def _wrapped_by(
    policy: Any, plugin: Any, root: nn.Module, ignored: set[nn.Module], root_kwargs: _Kwargs
) -> dict[nn.Module, _Kwargs]:
    """Return what a policy of any kind wraps of ``root``, as FSDP1 does."""
    resolved = policy if isinstance(policy, _Policy) else _resolved(policy, plugin, root)
    if resolved is None:
        return {}
    if isinstance(resolved, _Policy):
        return dict(resolved._run_policy(root, ignored, root_kwargs))
    wrapped: list[nn.Module] = []

    def note(module: nn.Module, **kwargs: Any) -> nn.Module:
        wrapped.append(module)
        return module

    ignored_params = {param for module in ignored for param in module.parameters()}
    wrap._recursive_wrap(root, resolved, note, ignored, ignored_params, only_wrap_children=True)
    return dict.fromkeys(wrapped, root_kwargs)


def _resolved(policy: Any, plugin: Any, root: nn.Module) -> Callable[..., bool] | _Policy | None:
    """Return what Accelerate would make of ``policy`` for ``root``, without its keeping that for the next model."""
    twin = copy.copy(plugin)
    twin.auto_wrap_policy = policy
    twin.set_auto_wrap_policy(root)
    found: Callable[..., bool] | _Policy | None = twin.auto_wrap_policy
    return found
