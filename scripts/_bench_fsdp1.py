"""What the FSDP1 collection saves, and what it costs: stock against patched, in two real processes under torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts._bench_rows import Row

WORKER = "scripts._bench_ranks"
UNITS = (12, 48, 192)
FORWARDS = (1, 3, 10)


def fsdp1() -> Iterator[Row]:
    """Peak bytes and step time, for models of 12, 48 and 192 units; bytes of rollouts of 1, 3 and 10 forwards."""
    for units in UNITS:
        yield from _measured("training", units)
    for forwards in FORWARDS:
        yield from _measured("rollout", forwards)


def _measured(what: str, size: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command += ["-m", WORKER, what, str(size), str(figures)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"scripts/bench: the ranks failed:\n{done.stdout}{done.stderr}")
        for figure in json.loads(figures.read_text(encoding="utf-8")):
            yield Row(**figure)
