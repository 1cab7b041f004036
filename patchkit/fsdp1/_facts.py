"""What the engine can't know by itself: whether torch finds an accelerator here."""

from __future__ import annotations

from ..errors import RefusedError

__all__ = ["accelerator", "refuse_accelerator"]


def accelerator() -> bool:
    """Tell whether torch can compute on something else than the CPU; False where there is no torch."""
    try:
        import torch
    except ImportError:
        return False
    # `torch.accelerator` came with torch 2.6; before, CUDA stands for all.
    api = getattr(torch, "accelerator", torch.cuda)
    return bool(api.is_available())


def refuse_accelerator(patch: str) -> None:
    """Refuse a machine with an accelerator, which a rehearsal has no use for.

    Raises:
        RefusedError: There is one.
    """
    if accelerator():
        raise RefusedError(
            f"{patch}: expected a machine without an accelerator, found one. There is nothing to rehearse: take the "
            "patch out of the manifest, or give its entry the condition when = { accelerator = false }.",
            patch=patch,
        )
