"""The command line in a world of its own: a library that isn't torch, and patches for it.

``pytest tests/cli --update-golden`` writes what is printed now over the golden files; look at the difference.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from patchkit import registry
from patchkit.cli import main
from tests.cli.runs import WORLD, Run

Patchkit = Callable[..., Run]
_entry_points = importlib.metadata.entry_points


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write what the command line prints to the golden files"
    )


def _of_the_world(**selection: Any) -> importlib.metadata.EntryPoints:
    """Leave out the patches that are installed beside these tests, which need torch and change."""
    found: Any = _entry_points(**selection)
    return importlib.metadata.EntryPoints(
        point for point in found if selection.get("group") != registry.GROUP or "fsdp1" not in point.value
    )


@pytest.fixture
def patchkit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Patchkit:
    """Run a command in the folder of the world, in this process."""
    monkeypatch.chdir(WORLD)
    monkeypatch.syspath_prepend(str(WORLD))
    monkeypatch.setattr(importlib.metadata, "entry_points", _of_the_world)
    monkeypatch.setattr(registry, "_REGISTERED", {})
    registry._declared.cache_clear()
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str | Path, **environment: str) -> Run:
        with pytest.MonkeyPatch.context() as patched:
            for name, value in environment.items():
                patched.setenv(name, value)
            code = main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Run(code, printed.out, printed.err)

    return run


@pytest.fixture(autouse=True)
def _forget_declared() -> Any:
    yield
    registry._declared.cache_clear()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare what was printed with a golden file, or write it there."""
    update = request.config.getoption("--update-golden", default=False)

    def compare(name: str, actual: str) -> None:
        path = Path(__file__).parent / "golden" / f"{name}.txt"
        if update:
            path.write_text(actual, encoding="utf-8")
        assert path.is_file(), f"there is no golden file {path.name}; make it with --update-golden"
        assert actual == path.read_text(encoding="utf-8")

    return compare
