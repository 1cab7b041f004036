"""What the engine can't know by itself: whether torch finds an accelerator here."""

from __future__ import annotations

__all__ = ["accelerator"]


def accelerator() -> bool:
    """Tell whether torch can compute on something else than the CPU; False where there is no torch."""
    try:
        import torch
    except ImportError:
        return False
    # `torch.accelerator` came with torch 2.6; before, CUDA stands for all.
    api = getattr(torch, "accelerator", torch.cuda)
    return bool(api.is_available())
