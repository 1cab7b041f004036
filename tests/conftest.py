"""What every test starts from: an environment of its own, and no clock in property tests."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, settings

# A property must hold however slow the machine is: nothing here looks at the clock.
_TIMELESS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("short", _TIMELESS)
settings.register_profile("long", _TIMELESS, max_examples=1000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests marked `long`, and more examples of properties")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("long" if config.getoption("--long") else "short")


def pytest_collection_modifyitems(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    skip = pytest.mark.skip(reason="runs only with --long")
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what the caller's shell says to patchkit, and about colours, away from the tests."""
    for name in list(os.environ):
        if name.startswith("PATCHKIT_") or name in {"NO_COLOR", "FORCE_COLOR", "COLUMNS"}:
            monkeypatch.delenv(name)
