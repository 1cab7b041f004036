"""Run the tests of the FSDP1 collection and the probes on a GPU, and print one table."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from scripts import _support

ROOT = Path(__file__).resolve().parent.parent
# Tests that ask what happens where there is no accelerator have nothing to say on one.
LEFT_OUT = ("test_cpu_rehearsal.py", "test_accelerate_cpu_fsdp.py")


def main() -> int:
    """Run everything; 0 where nothing failed, or where there is no GPU and nothing ran."""
    parser = argparse.ArgumentParser(
        prog="scripts/gpu-check",
        description="Run the tests of the FSDP1 collection and the probes on a GPU, and print one table. Ranks share a "
        "single card over gloo; what that can't do is measured with a group that sends nothing, and said so.",
    )
    parser.add_argument("--record", action="store_true", help="add what the probes measured to docs/support.md")
    arguments = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print(f"gpu-check: DID NOT RUN: torch {torch.__version__} finds no CUDA device here. Nothing was proven.")
        return 0
    card = torch.cuda.get_device_name()
    print(f"gpu-check: torch {torch.__version__} on {torch.cuda.device_count()} x {card}", flush=True)
    with tempfile.TemporaryDirectory(prefix="patchkit-gpu-") as folder:
        report = probe(Path(folder) / "verify.json")
        rows = [*tests(Path(folder) / "junit.xml"), *probes(report)]
        if any(patch["probe"] and patch["probe"]["status"] == "refused" for patch in report["patches"]):
            rows += bytes_without_collectives(Path(folder) / "bytes.json")
    for name, outcome, detail in rows:
        print(f"{name:<52} {outcome:<8} {detail}")
    if arguments.record:
        today = dt.datetime.now(dt.timezone.utc).date().isoformat()
        _support.note(f"{torch.__version__} on {card}", today, report)
    return int(any(outcome == "failed" for _, outcome, _ in rows))


def tests(results: Path) -> Iterator[tuple[str, str, str]]:
    """Run the tests, and yield a row for each file."""
    ignored = [f"--ignore=tests/fsdp1/{name}" for name in LEFT_OUT]
    command = [sys.executable, "-m", "pytest", "-q", "tests/fsdp1", *ignored, f"--junitxml={results}"]
    subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
    if not results.exists():
        yield "tests/fsdp1", "failed", "pytest could not be started"
        return
    counts: dict[str, Counter[str]] = {}
    seconds: Counter[str] = Counter()
    # Written by the pytest that was just run.
    for case in ET.parse(results).iter("testcase"):
        name = case.get("classname", "?").rpartition(".")[2]
        state = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")
        counts.setdefault(name, Counter())[state] += 1
        seconds[name] += int(float(case.get("time", "0")) * 1000)
    for name, count in counts.items():
        bad = count["failure"] + count["error"]
        said = ", ".join(f"{number} {state}" for state, number in sorted(count.items()))
        yield f"tests/fsdp1/{name}.py", "failed" if bad else "passed", f"{said} in {seconds[name] / 1000:.1f} s"


def probe(results: Path) -> dict[str, Any]:
    """Run every probe."""
    command = [sys.executable, "-m", "patchkit", "verify", "--probe", "--format", "json", "-o", str(results)]
    subprocess.run(command, cwd=ROOT, check=False)
    report: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
    return report


def probes(report: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield a row for each probe."""
    for patch in report["patches"]:
        found = patch["probe"] or {"status": "refused", "measured": {}, "error": patch["reason"]}
        detail = found["error"] or ", ".join(f"{key} {value}" for key, value in found["measured"].items())
        yield f"probe {patch['name']}", found["status"], " ".join(detail.split())[:160]


def bytes_without_collectives(results: Path) -> Iterator[tuple[str, str, str]]:
    """Measure bytes, which don't depend on what ranks send each other, with a group that sends nothing."""
    command = [sys.executable, "-m", "scripts._bench_ranks", "bytes", "12", str(results)]
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode:
        yield "bytes, fake process group", "failed", f"exit status {done.returncode}"
        return
    for row in json.loads(results.read_text(encoding="utf-8")):
        yield (
            f"bytes, fake process group: {row['what']}",
            "measured",
            f"{row['theirs']:,} stock, {row['ours']:,} patched",
        )


if __name__ == "__main__":
    sys.exit(main())
