"""Every test gets a lab of its own, with an audit log in its own folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine._kit import Lab, no_syncing


@pytest.fixture(autouse=True)
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    with no_syncing():
        made = Lab(tmp_path, monkeypatch)
        yield made
        made.close()
