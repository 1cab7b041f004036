"""Giving pinned memory that nobody uses any more back to the system."""

from __future__ import annotations

from ._facts import accelerator

__all__ = ["empty_host_cache"]


def empty_host_cache() -> bool:
    """Return unused pinned memory to the system, where this build of torch has a function for it.

    Its name changed: ``torch._C._host_emptyCache`` in CUDA builds from 2.5, ``torch.accelerator.empty_host_cache``
    from 2.12; before and in CPU builds there is none, and nothing to return either.

    Returns:
        Whether anything was called.
    """
    import torch

    if not accelerator():
        return False
    public = getattr(getattr(torch, "accelerator", None), "empty_host_cache", None)
    function = public or getattr(torch._C, "_host_emptyCache", None)
    if function is None:
        return False
    function()
    return True
