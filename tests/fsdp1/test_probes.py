"""The probes that ``verify --probe`` runs: each patch proves its effect in two processes of its own."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from patchkit._probe import run_probe
from patchkit.registry import find
from tests.fsdp1._toy import ACCUMULATE, DROP_FROZEN, DROP_IDLE, DROP_SHARDS, NO_STALE, PAGEABLE, REHEARSAL

# Seven units of a rank: six blocks and a head.
SHARD = 52416
BLOCK = 8384


@pytest.mark.parametrize(
    ("name", "measured"),
    [
        (REHEARSAL, {"steps": 3, "apart_from_single_process": 0.0}),
        (
            DROP_SHARDS,
            {"largest_unit": BLOCK, "saved_grad_shards_stock": SHARD, "saved_grad_shards_patched": BLOCK},
        ),
        (
            PAGEABLE,
            {
                "pinned_stock": 2 * SHARD,
                "pinned_params_stock": SHARD,
                "pinned_patched": SHARD,
                "pinned_params_patched": 0,
            },
        ),
        (
            DROP_FROZEN,
            {
                "cpu_grads_stock": SHARD,
                "pinned_stock": 2 * SHARD,
                "cpu_grads_patched": 7 * 4,
                "pinned_patched": SHARD,
            },
        ),
        (
            DROP_IDLE,
            {
                "cpu_grads_stock": SHARD,
                "cpu_grads_after_stock": SHARD,
                "cpu_grads_patched": 7 * 4,
                "cpu_grads_after_patched": 0,
            },
        ),
        # Of 26 parameters, those that have a part in this rank's shards.
        (NO_STALE, {"came_back_stock": 13, "came_back_patched": 0}),
        ("fsdp1.precision", {"units": 8, "in_float32": 3, "saved_grad_shards": BLOCK}),
        ("accelerate.cpu-fsdp", {"units": 7}),
        (ACCUMULATE, {"passes": 3, "apart_patched": 0.0, "apart_patched_and_dropped": 0.0}),
    ],
)
def test_proves_the_effect(name: str, measured: dict[str, float]) -> None:
    """The probe passes here, and says what it measured and on what."""
    if "accelerate" in find(name).contract.requires[-1] and find_spec("accelerate") is None:
        pytest.skip("needs accelerate")
    result = run_probe(find(name), timeout_s=120)
    assert (result.status, result.error) == ("proven", "")
    assert {name: result.measured[name] for name in measured} == measured
    assert result.measured["device"] == "cpu (rehearsed)"
