"""Probe of ``fsdp1.pageable-params``."""

from __future__ import annotations

from typing import Any

from .._memory import MemoryLedger
from ._kit import Model, expect, expect_same, group, measured, patched, train, wrap

__all__ = ["probe"]


def probe() -> dict[str, Any]:
    """No parameter is pinned, not even for a moment; training is stock's."""
    with group() as device:
        pinned: dict[str, int] = {}
        records = {}
        for name, patches in (("stock", ()), ("patched", ("fsdp1.pageable-params",))):
            model = wrap(Model(), device)
            with patched(patches, model), MemoryLedger(model) as ledger:
                records[name] = train(model, device)
            pinned[f"pinned_{name}"] = ledger.peak("pinned")
            pinned[f"pinned_params_{name}"] = ledger.peak("pinned_params")
        expect_same(records["stock"], records["patched"], "gradients and parameters")
        expect(
            pinned["pinned_params_patched"] == 0 and 2 * pinned["pinned_patched"] == pinned["pinned_stock"],
            f"half of stock's {pinned['pinned_stock']} pinned bytes, found {pinned['pinned_patched']}",
        )
        return measured(device, **pinned)
