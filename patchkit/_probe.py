"""Running a patch's own check of its effect for real, in processes of its own.

``python -m patchkit._probe TARGET RESULT`` is what each of these processes runs.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from .errors import RefusedError
from .patch import Patch

__all__ = ["ProbeResult", "run_probe"]

_TIMEOUT_S = 300.0
_POLL_S = 0.05
_TAIL = 4000


@dataclass(frozen=True)
class ProbeResult:
    """What a probe came to.

    Attributes:
        patch: Name of the patch.
        status: ``proven``; ``failed``; ``refused`` where the patch can't be tried here; ``none`` if it has no probe.
        measured: What rank 0 measured.
        error: Why it isn't proven.
    """

    patch: str
    status: Literal["proven", "failed", "refused", "none"]
    measured: dict[str, Any] = field(default_factory=dict)
    error: str = ""


def run_probe(patch: Patch, *, timeout_s: float = _TIMEOUT_S) -> ProbeResult:
    """Run the probe of ``patch`` in as many processes as it has ranks, and wait for all of them.

    A rank that fails ends the others. Nothing is changed in this process.

    Args:
        patch: The patch.
        timeout_s: Seconds after which processes that still run are killed, and the probe counts as failed.

    Returns:
        The result.
    """
    probe = patch.probe
    if probe is None:
        return ProbeResult(patch.name, "none", error="this patch has no probe")
    with tempfile.TemporaryDirectory(prefix="patchkit-probe-") as folder:
        ranks: list[_Rank] = []
        try:
            port = _free_port()
            ranks.extend(_Rank(Path(folder), rank, probe.ranks, probe.target, port) for rank in range(probe.ranks))
            late, blamed = _wait(ranks, timeout_s)
        finally:
            for started in ranks:
                started.kill()
        failed = [rank for rank in ranks if rank.outcome().get("status") != "proven"]
        if not failed:
            return ProbeResult(patch.name, "proven", ranks[0].outcome()["measured"])
        # A rank that died without a word is what the complaints of others come from; a rank that was killed because of
        # others has nothing to say.
        silent = [rank for rank in blamed if not rank.outcome()]
        first = next(iter(silent or blamed or failed))
        outcome = first.outcome()
        reason = outcome.get("error") or (f"no answer within {timeout_s:g} s" if late else first.ending())
        return ProbeResult(
            patch.name,
            "refused" if outcome.get("status") == "refused" else "failed",
            error=f"rank {first.rank}: {reason}" + ("" if outcome else f"\n{first.output()}"),
        )


class _Rank:
    def __init__(self, folder: Path, rank: int, ranks: int, target: str, port: int) -> None:
        self.rank = rank
        self._result = folder / f"result-{rank}.json"
        self._output = folder / f"output-{rank}.txt"
        environment = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            # A patch of one's own is found by whatever way it was found here.
            "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path),
        }
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "patchkit._probe", target, str(self._result)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )

    def kill(self) -> None:
        if self.process.poll() is None:
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
        self.process.wait()

    def ending(self) -> str:
        code = self.process.returncode
        if code >= 0:
            return f"it ended with exit code {code} and no answer"
        try:
            return f"it was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"it was killed by signal {-code}"

    def outcome(self) -> dict[str, Any]:
        try:
            loaded: dict[str, Any] = json.loads(self._result.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return loaded

    def output(self) -> str:
        return self._output.read_text(encoding="utf-8", errors="replace")[-_TAIL:]


def _wait(ranks: list[_Rank], timeout_s: float) -> tuple[bool, list[_Rank]]:
    """Wait until all have ended or one has failed; return whether it took too long, and the ranks to blame."""
    deadline = time.monotonic() + timeout_s
    while True:
        running = [rank for rank in ranks if rank.process.poll() is None]
        failed = [rank for rank in ranks if rank.process.returncode not in (None, 0)]
        if failed or not running:
            return False, failed
        if time.monotonic() >= deadline:
            return True, running
        time.sleep(_POLL_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _main(target: str, result: str) -> int:
    module_name, _, function_name = target.partition(":")
    try:
        measured = getattr(importlib.import_module(module_name), function_name)()
        if not isinstance(measured, dict):
            raise TypeError(f"expected {target} to return a dictionary of what it measured, found {measured!r}")
        outcome = {"status": "proven", "measured": measured}
    except RefusedError as error:
        outcome = {"status": "refused", "error": str(error)}
    except Exception as error:
        outcome = {"status": "failed", "error": f"{type(error).__name__}: {error}"}
    Path(result).write_text(json.dumps(outcome), encoding="utf-8")
    return 0 if outcome["status"] == "proven" else 1


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
