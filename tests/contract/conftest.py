"""The hand-made library that tests of contracts judge."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.libraries import Library


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "library")
