"""Real FSDP1 in gloo processes; everything in this folder is skipped where there is no torch."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fsdp1._pool import RankPool


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker("fsdp1")


@pytest.fixture(scope="session")
def ranks() -> Iterator[RankPool]:
    """Two gloo processes."""
    with RankPool(2) as pool:
        yield pool


@pytest.fixture(scope="session")
def four_ranks() -> Iterator[RankPool]:
    """Four gloo processes."""
    with RankPool(4) as pool:
        yield pool


if find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]
