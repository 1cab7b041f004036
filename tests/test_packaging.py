"""What is in the wheel: the package with its data, its licence, its command and its entry points, and nothing else."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent

PATCHES = {
    "accelerate.cpu-fsdp": "patchkit.fsdp1.accelerate_cpu_fsdp:AccelerateCpuFsdp",
    "fsdp1.accumulate-offloaded-grads": "patchkit.fsdp1.accumulate_offloaded_grads:AccumulateOffloadedGrads",
    "fsdp1.cpu-rehearsal": "patchkit.fsdp1.cpu_rehearsal:CpuRehearsal",
    "fsdp1.drop-frozen-grads": "patchkit.fsdp1.drop_frozen_grads:DropFrozenGrads",
    "fsdp1.drop-idle-grads": "patchkit.fsdp1.drop_idle_grads:DropIdleGrads",
    "fsdp1.drop-offloaded-grad-shards": "patchkit.fsdp1.drop_offloaded_grad_shards:DropOffloadedGradShards",
    "fsdp1.no-stale-grads": "patchkit.fsdp1.no_stale_grads:NoStaleGrads",
    "fsdp1.pageable-params": "patchkit.fsdp1.pageable_params:PageableParams",
    "fsdp1.precision": "patchkit.fsdp1.precision:Precision",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build the wheel with the backend that is installed here; no index is asked."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [path] = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def file_in(wheel: zipfile.ZipFile, name: str) -> str:
    """Return the text of a file of the wheel's ``.dist-info`` folder."""
    [member] = [member for member in wheel.namelist() if member.endswith(f".dist-info/{name}")]
    return wheel.read(member).decode("utf-8")


def metadata_of(wheel: zipfile.ZipFile) -> Message:
    return Parser().parsestr(file_in(wheel, "METADATA"))


def entry_points_of(wheel: zipfile.ZipFile) -> dict[str, dict[str, str]]:
    parser = ConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # names keep their case
    parser.read_string(file_in(wheel, "entry_points.txt"))
    return {section: dict(parser[section]) for section in parser.sections()}


def test_wheel_holds_the_package_and_its_data(wheel: zipfile.ZipFile) -> None:
    """Every module and data file of the package is in the wheel."""
    source = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "patchkit").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in wheel.namelist() if name.startswith("patchkit/")}
    assert packed == source
    assert {"patchkit/py.typed", "patchkit/fsdp1/contracts.toml"} <= packed


def test_wheel_holds_nothing_else(wheel: zipfile.ZipFile) -> None:
    """Tests, scripts and caches stay at home."""
    strangers = [name for name in wheel.namelist() if not name.startswith(("patchkit/", "patchkit-"))]
    assert strangers == []


def test_licence_is_an_expression_with_its_file(wheel: zipfile.ZipFile) -> None:
    """The licence is declared as PEP 639 wants it: an SPDX expression, the file, no classifier."""
    metadata = metadata_of(wheel)
    classifiers = metadata.get_all("Classifier", [])
    assert metadata["License-Expression"] == "MIT"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert [name for name in classifiers if name.startswith("License ::")] == []
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel.namelist())


def test_torch_is_an_extra(wheel: zipfile.ZipFile) -> None:
    """Installing the core never brings torch; only the extras of the patches for it do."""
    requirements = map(Requirement, metadata_of(wheel).get_all("Requires-Dist", []))
    assert [str(found.marker) for found in requirements if found.name == "torch"] == [
        'extra == "accelerate"',
        'extra == "fsdp1"',
    ]


def test_entry_points(wheel: zipfile.ZipFile) -> None:
    """The command, the shipped patches and the shipped facts are found by their entry points."""
    assert entry_points_of(wheel) == {
        "console_scripts": {"patchkit": "patchkit.cli:main"},
        "patchkit.facts": {"accelerator": "patchkit.fsdp1._facts:accelerator"},
        "patchkit.patches": PATCHES,
    }


def test_entry_points_lead_somewhere(wheel: zipfile.ZipFile) -> None:
    """Each entry point names a module of the wheel, and something that this module defines at its top."""
    astray = []
    for section in entry_points_of(wheel).values():
        for name, value in section.items():
            module, _, attribute = value.partition(":")
            path = module.replace(".", "/")
            members = {f"{path}.py", f"{path}/__init__.py"} & set(wheel.namelist())
            if not any(attribute in top_level_names(wheel.read(member)) for member in members):
                astray.append(f"{name} = {value}")
    assert astray == []


def top_level_names(source: bytes) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
    return names


def test_wheel_works_without_the_repository(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """The package of the wheel imports and runs its command from anywhere, with the version of its metadata."""
    wheel.extractall(tmp_path)
    code = "import patchkit; print(patchkit.__file__); print(patchkit.__version__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [str(tmp_path / "patchkit/__init__.py"), metadata_of(wheel)["Version"]]
