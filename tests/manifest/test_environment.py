"""The environment of a process: asked without importing what is asked about."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest

from patchkit import _environment
from patchkit._environment import Environment, ProcessEnvironment
from patchkit.errors import PlanError

Install = Callable[[str, str], None]


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Let each test ask for the accelerator as a new process would."""
    _environment._accelerator.cache_clear()
    yield
    _environment._accelerator.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution with a module and one entry point for the fact `accelerator`; hide all other facts."""
    without_distributions = [folder for folder in sys.path if not any(Path(folder).glob("*.dist-info"))]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *without_distributions])

    def install_distribution(name: str, source: str) -> None:
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
        folder = tmp_path / f"{name}-1.5.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n", encoding="utf-8")
        (folder / "entry_points.txt").write_text(
            f"[patchkit.facts]\naccelerator = {name}:ask\nother = {name}:never\n", encoding="utf-8"
        )

    return install_distribution


@pytest.fixture
def module_name(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return a module name of the test's own, and forget the module afterwards."""
    name = f"fact_{request.node.name.partition('[')[0]}"
    yield name
    sys.modules.pop(name, None)


def test_process_environment_is_an_environment() -> None:
    """The real environment has everything that conditions ask for."""
    environment: Environment = ProcessEnvironment()
    assert environment.platform == sys.platform
    assert environment.python.startswith(f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}")


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ((3, 14, 0, "final", 0), "3.14.0"),
        ((3, 14, 0, "alpha", 2), "3.14.0a2"),
        ((3, 14, 0, "beta", 1), "3.14.0b1"),
        ((3, 14, 0, "candidate", 3), "3.14.0rc3"),
    ],
)
def test_python_version(monkeypatch: pytest.MonkeyPatch, info: tuple[int, int, int, str, int], expected: str) -> None:
    """The version of the interpreter is one that packaging can read, pre-releases included."""
    monkeypatch.setattr(sys, "version_info", info)
    assert ProcessEnvironment().python == expected


def test_version_comes_from_metadata(install: Install) -> None:
    """The version of a distribution is read without importing it, whatever its module does."""
    install("explosive", "raise SystemExit('imported')")
    assert ProcessEnvironment().version("explosive") == "1.5"
    assert ProcessEnvironment().version("Explosive") == "1.5"
    assert "explosive" not in sys.modules


def test_version_of_what_is_not_there(install: Install, tmp_path: Path) -> None:
    """A distribution that is not installed, or was removed by half, has no version."""
    (tmp_path / "empty-1.0.dist-info").mkdir()
    (tmp_path / "ruin-1.0.dist-info").mkdir()
    (tmp_path / "ruin-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: ruin\n", encoding="utf-8")
    assert [ProcessEnvironment().version(name) for name in ("absent", "empty", "ruin")] == [None, None, None]


def test_getenv(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables are read as they are now, and a missing one is None."""
    monkeypatch.setenv("PATCHKIT_TEST", "x")
    assert ProcessEnvironment().getenv("PATCHKIT_TEST") == "x"
    monkeypatch.delenv("PATCHKIT_TEST")
    assert ProcessEnvironment().getenv("PATCHKIT_TEST") is None


def test_no_accelerator_without_a_fact(install: Install) -> None:
    """Where no distribution knows about accelerators, there is none."""
    assert ProcessEnvironment().accelerator() is False


@pytest.mark.parametrize("answer", [True, False])
def test_accelerator_is_what_the_entry_point_says(install: Install, module_name: str, answer: bool) -> None:
    """The entry point decides, and other facts of the group are left alone."""
    install(module_name, f"def ask():\n    return {answer}\n")
    assert ProcessEnvironment().accelerator() is answer


def test_accelerator_is_asked_once(install: Install, module_name: str) -> None:
    """The answer is kept for the whole process."""
    install(module_name, "calls = []\ndef ask():\n    calls.append(1)\n    return False\n")
    assert [ProcessEnvironment().accelerator() for _ in range(3)] == [False] * 3
    assert sys.modules[module_name].calls == [1]


def test_one_of_several_says_yes(install: Install, module_name: str) -> None:
    """With several that know about accelerators, one that finds one is enough."""
    install(f"{module_name}_a", "def ask():\n    return False\n")
    install(f"{module_name}_b", "def ask():\n    return True\n")
    assert ProcessEnvironment().accelerator() is True


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise ImportError('no such library')", "ImportError: no such library"),
        ("", "AttributeError: "),
        ("def ask():\n    return 1 / 0\n", "ZeroDivisionError: division by zero"),
        ("def ask():\n    return 'yes'\n", "must answer True or False, got 'yes'"),
        ("def ask():\n    return None\n", "must answer True or False, got None"),
    ],
)
def test_fact_that_fails(install: Install, module_name: str, source: str, reason: str) -> None:
    """A fact that can't be told is an error that names the distribution, not a silent no, and is asked again."""
    install(module_name, source)
    for _ in range(2):
        with pytest.raises(PlanError) as caught:
            ProcessEnvironment().accelerator()
        assert reason in str(caught.value)
        assert f"'{module_name}:ask'" in str(caught.value)
        assert f"(distribution {module_name!r})" in str(caught.value)


def test_fact_without_a_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point that doesn't know its distribution is named by what it has."""
    point = metadata.EntryPoint("accelerator", "nowhere.to_be_found:ask", "patchkit.facts")
    monkeypatch.setattr(metadata, "entry_points", lambda **_: [point])
    with pytest.raises(PlanError, match=r"entry point 'accelerator' = 'nowhere\.to_be_found:ask' of the group"):
        ProcessEnvironment().accelerator()


def test_importing_it_is_cheap() -> None:
    """The environment itself needs none of the libraries that manifests need."""
    code = (
        "import sys, patchkit._environment; print({'pydantic', 'packaging', 'torch', 'structlog'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
