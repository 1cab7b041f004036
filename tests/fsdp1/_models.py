"""Models of another kind than the toy."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.fsdp1._toy import FSDP, Case, Toy, build, wrap


class Skipping(Toy):
    """The toy, with blocks that take no part in a forward at present."""

    skipped: tuple[int, ...] = ()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index, block in enumerate(self.blocks):
            x = x if index in self.skipped else self._call(block, x)
        return torch.as_tensor(self.head(x))


def skipping(case: Case, toy: type[Toy] = Skipping) -> FSDP:
    torch.manual_seed(0)
    return build(case, model=toy(case.mode))


def skip(model: Any, blocks: tuple[int, ...]) -> None:
    """Let these blocks take no part from now on."""
    model.module.skipped = blocks


class Mixed(nn.Module):
    """Two nested roots: units that are partly or wholly frozen, in an outer root without parameters of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Toy("reentrant twice"), Toy()
        for block in self.first.blocks:
            block.up.requires_grad_(False)
        self.first.blocks[1].requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.second(self.first(x)))


def mixed() -> FSDP:
    torch.manual_seed(0)
    model = Mixed()
    model.register_module("first", wrap(model.first))
    model.register_module("second", wrap(model.second))
    return wrap(model, auto_wrap_policy=None)
