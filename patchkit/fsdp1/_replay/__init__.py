"""Blockwise replay: a forward that keeps no activations, and is run again inside of its backward."""

from __future__ import annotations

from ._forward import replay_forward

__all__ = ["replay_forward"]
