"""Real gloo processes that run functions of test modules by name, so that many tests share one start of torch."""

from __future__ import annotations

import faulthandler
import gc
import importlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[2]
LIMIT_S = 90.0
# How long the other ranks may go on once one has failed: they usually wait for it in a collective.
GRACE_S = 5.0


class RankError(AssertionError):
    """A rank failed, or gave no answer in time; the message has what each rank said."""


class RankPool:
    """Processes of one gloo group, started when they are needed, and again after a failure.

    Args:
        ranks: How many.
    """

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self._workers: list[_Worker] = []
        self._folder = tempfile.TemporaryDirectory(prefix="patchkit-ranks-")

    def __call__(self, function: Callable[..., Any], /, **arguments: Any) -> list[Any]:
        """Run a module-level function in every rank, and return what it returned there.

        Raises:
            RankError: A rank raised, or not all answered within the time limit.
        """
        if not self._workers:
            self._start()
        for worker in self._workers:
            worker.connection.send((function.__module__, function.__qualname__, arguments))
        answers = self._gather()
        if all(worker.rank in answers and answers[worker.rank][0] for worker in self._workers):
            return [answers[rank][1] for rank in range(self.ranks)]
        reports = [self._describe(worker, answers) for worker in self._workers]
        self.stop()
        raise RankError("\n".join(reports))

    def __enter__(self) -> RankPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._folder.cleanup()

    def stop(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.stop()
        self._workers = []

    def _start(self) -> None:
        folder = Path(tempfile.mkdtemp(dir=self._folder.name))
        # Larger blocks are mapped and unmapped one by one, so that resident memory follows what is allocated.
        os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", "131072")
        self._workers = [_Worker(rank, self.ranks, folder) for rank in range(self.ranks)]

    def _gather(self) -> dict[int, tuple[bool, Any]]:
        answers: dict[int, tuple[bool, Any]] = {}
        deadline = time.monotonic() + LIMIT_S
        pending = {worker.connection: worker for worker in self._workers}
        while pending and (left := deadline - time.monotonic()) > 0:
            for connection in wait(list(pending), timeout=left):
                worker = pending.pop(connection)  # type: ignore[call-overload]
                answers[worker.rank] = worker.receive()
                if not answers[worker.rank][0]:
                    deadline = min(deadline, time.monotonic() + GRACE_S)
        return answers

    def _describe(self, worker: _Worker, answers: dict[int, tuple[bool, Any]]) -> str:
        if worker.rank not in answers:
            return f"--- rank {worker.rank} gave no answer:\n{worker.dump_stacks()}"
        good, answer = answers[worker.rank]
        return f"--- rank {worker.rank} answered" if good else f"--- rank {worker.rank} failed:\n{answer}"


class _Worker:
    def __init__(self, rank: int, ranks: int, folder: Path) -> None:
        self.rank = rank
        self._log = folder / f"rank-{rank}.log"
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, rank, ranks, str(folder / "store"), str(self._log)), daemon=True
        )
        self._process.start()
        theirs.close()

    def receive(self) -> tuple[bool, Any]:
        try:
            answer: tuple[bool, Any] = self.connection.recv()
        except EOFError:
            self._process.join(GRACE_S)
            return False, f"it ended with exit code {self._process.exitcode}\n{self._tail()}"
        return answer

    def dump_stacks(self) -> str:
        """Let a rank that hangs write down where."""
        if self._process.is_alive() and self._process.pid is not None:
            os.kill(self._process.pid, signal.SIGUSR1)
            self._process.join(1.0)
        return self._tail()

    def stop(self) -> None:
        self.connection.close()
        self._process.join(GRACE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-6000:] if self._log.exists() else ""


def _serve(connection: Connection, rank: int, ranks: int, store: str, log: str) -> None:
    with open(log, "w", buffering=1) as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
        faulthandler.register(signal.SIGUSR1, file=stream, all_threads=True)
        if str(ROOT) not in sys.path:
            sys.path.insert(0, str(ROOT))
        # What is recorded without a manifest that says where.
        os.environ["PATCHKIT_AUDIT"] = f"{log}.audit"
        import torch
        import torch.distributed as dist

        # Compute devices that are the CPU, and the deprecation of FSDP1, are what these tests are about.
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        cards = torch.cuda.device_count()
        if cards:
            torch.cuda.set_device(rank % cards)
        # NCCL wants a card for each rank.
        dist.init_process_group(
            "nccl" if cards >= ranks else "gloo",
            init_method=f"file://{store}",
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=LIMIT_S),
        )
        before = _touched()
        # What is imported by now stays: collecting garbage after each function needn't look at it.
        gc.collect()
        gc.freeze()
        while (request := _receive(connection)) is not None:
            connection.send(_answer(*request, before))
        dist.destroy_process_group()


def _receive(connection: Connection) -> tuple[str, str, dict[str, Any]] | None:
    try:
        request: tuple[str, str, dict[str, Any]] = connection.recv()
    except EOFError:
        return None
    return request


def _answer(module: str, name: str, arguments: dict[str, Any], before: dict[str, Any]) -> tuple[bool, Any]:
    try:
        function = getattr(importlib.import_module(module), name)
        result = function(**arguments)
        gc.collect()
        left = [site for site, found in _touched().items() if found is not before[site]]
        assert left == [], f"left behind: {left}"
    except BaseException:
        return False, traceback.format_exc()
    return True, result


def _touched() -> dict[str, Any]:
    """What the patches touch in the process, as raw namespaces hold it: every test must leave it as it was."""
    import torch
    from torch.distributed.fsdp import _flat_param, _runtime_utils

    namespaces: list[Any] = [torch.Tensor, torch.cpu.Stream, _runtime_utils, _flat_param.FlatParamHandle]
    return {
        f"{namespace.__name__}.{name}": vars(namespace).get(name)
        for namespace in namespaces
        for name in (
            "pin_memory",
            "is_pinned",
            "synchronize",
            "_post_reduce_grad_callback",
            "_offload_grad",
            "_reduce_grad",
            "prepare_gradient_for_backward",
            "pre_unshard",
            "init_flat_param_attributes",
        )
    }
