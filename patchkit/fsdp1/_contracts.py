"""What each patch of this collection needs of torch, read from ``contracts.toml`` beside this file."""

from __future__ import annotations

import functools
from importlib import resources

from ..contract import Contract, load_contracts

__all__ = ["contract_of"]


def contract_of(patch: str) -> Contract:
    """Return the contract of the patch of that name."""
    return _contracts()[patch]


@functools.cache
def _contracts() -> dict[str, Contract]:
    return load_contracts(resources.files(__package__) / "contracts.toml")
