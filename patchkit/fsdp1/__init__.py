"""Patches that keep FSDP1 training with CPU offload inside a small host and device memory.

One patch is one file. None of them imports torch before it is installed, so that contracts can be judged where
torch is not installed at all.

Beside the patches, which manifests select, this package has functions to call.
"""

from __future__ import annotations

from ._release import release_completed_gradients
from ._replay import replay_forward

__all__ = ["release_completed_gradients", "replay_forward"]
