"""Code in interpreters of its own, for what can't be tried in the interpreter of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def start(code: str, *arguments: object, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start ``code`` with ``arguments`` in ``sys.argv[1:]`` and its streams in pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {}), "PYTHONPATH": str(ROOT)},
    )


def run(code: str, *arguments: object, env: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Run ``code``, which must succeed, and return what it printed on stdout and stderr."""
    process = start(code, *arguments, env=env)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out, err
