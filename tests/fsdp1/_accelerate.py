"""A real ``Accelerator`` with an FSDP plugin, in a rank of the pool, and everything of it taken back afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from tests.fsdp1._toy import DEVICE, FSDP, WIDTH, patched

CPU_FSDP = "accelerate.cpu-fsdp"
PRECISION = "fsdp1.precision"


class Norm(nn.Module):
    """A norm that computes in the type of what it is given, as autocast on the CPU doesn't let torch's own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * torch.as_tensor(self.weight)


class Layer(nn.Module):
    """A block with a norm, which has a path of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = Norm()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.act = nn.Tanh()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.as_tensor(self.act(self.linear(self.norm(x).to(x.dtype))))


class Net(nn.Module):
    """Layers with buffers, under the name that Accelerate looks for."""

    _no_split_modules = ("Layer",)

    def __init__(self, layer: type[nn.Module] = Layer) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer() for _ in range(3))
        self.head = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("scale", torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return torch.as_tensor(self.head(x)) * torch.as_tensor(self.scale)


class OtherLayer(Layer):
    """A block of another class."""


class OtherNet(Net):
    _no_split_modules = ("OtherLayer",)

    def __init__(self) -> None:
        super().__init__(OtherLayer)


def net(kind: type[Net] = Net) -> Any:
    torch.manual_seed(0)
    return kind()


def plugin(**options: Any) -> Any:
    from accelerate.utils import FullyShardedDataParallelPlugin

    defaults = {
        "auto_wrap_policy": "transformer_based_wrap",
        "cpu_offload": True,
        "use_orig_params": False,
        "sync_module_states": False,
        "cpu_ram_efficient_loading": False,
    }
    return FullyShardedDataParallelPlugin(**{**defaults, **options})


@contextmanager
def accelerated(*, mixed_precision: str = "bf16", **options: Any) -> Iterator[Any]:
    """Make an accelerator whose plugin has these options."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState

    environment = dict(os.environ)
    os.environ.update(
        RANK=str(dist.get_rank()),
        LOCAL_RANK=str(dist.get_rank()),
        WORLD_SIZE=str(dist.get_world_size()),
        LOCAL_WORLD_SIZE=str(dist.get_world_size()),
        OMP_NUM_THREADS="1",
    )
    with ExitStack() as stack:
        stack.callback(_put_back, environment)
        if DEVICE.type == "cpu":
            stack.enter_context(patched(CPU_FSDP))
        stack.callback(AcceleratorState._reset_state, True)
        stack.callback(GradientState._reset_state)
        yield Accelerator(mixed_precision=mixed_precision, fsdp_plugin=plugin(**options), cpu=DEVICE.type == "cpu")


def another(accelerator: Any) -> Any:
    """Make a second accelerator, which shares the plugin of the first."""
    from accelerate import Accelerator

    return Accelerator(mixed_precision=accelerator.mixed_precision, cpu=DEVICE.type == "cpu")


def _put_back(environment: dict[str, str]) -> None:
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    os.environ.update(environment)


def unit_precisions(model: nn.Module) -> dict[str, Any]:
    """The type that each unit computes in, by the path of its module."""
    names = {module: name.replace("_fsdp_wrapped_module.", "") for name, module in model.named_modules()}
    return {
        names[unit].removesuffix("_fsdp_wrapped_module").strip("."): unit.mixed_precision.param_dtype
        for unit in FSDP.fsdp_modules(model)
    }
