"""Runs of the command line: what they came to, and those in processes of their own."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORLD = Path(__file__).parent / "world"


@dataclass(frozen=True)
class Run:
    """What a command came to."""

    code: int
    out: str
    err: str

    def shown(self, *arguments: str) -> str:
        """Return it in the form of a golden file: the same on every machine and for every version."""
        text = (
            f"$ patchkit {' '.join(arguments)}\n(exit code {self.code})\n\n--- stdout\n{self.out}--- stderr\n{self.err}"
        )
        version = importlib.metadata.version("patchkit")
        text = text.replace(f"'{sys.platform}'", "'<platform>'")
        return text.replace(f'"version": "{version}"', '"version": "<version>"').replace(str(WORLD), "<world>")


def environment(*path: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a process that finds patchkit, and the packages in the folders of ``path``."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT])), **variables}


def process(*arguments: str | Path, path: tuple[Path, ...] = (WORLD,), **variables: str) -> Run:
    """Run a command in a process of its own, in the folder of the world."""
    done = subprocess.run(
        [sys.executable, "-m", "patchkit", *map(str, arguments)],
        cwd=WORLD,
        env=environment(*path, **variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return Run(done.returncode, done.stdout, done.stderr)


def distribution(folder: Path, patch: str, module: str, source: str) -> Path:
    """Write a distribution that declares one patch, ``module:Thing``, and return the folder to put on the path."""
    (folder / f"{module}.py").write_text(source, encoding="utf-8")
    metadata = folder / f"{module}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n", encoding="utf-8")
    points = f"[patchkit.patches]\n{patch} = {module}:Thing\n"
    (metadata / "entry_points.txt").write_text(points, encoding="utf-8")
    return folder
