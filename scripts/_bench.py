"""Measure what patchkit costs, side by side with the same thing done by hand.

Both sides of a comparison run in turn, many times, and the ratio of their medians is printed: machines are noisy and
absolute times mean little on another one.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MethodType
from typing import Any

from scripts._bench_fsdp1 import fsdp1
from scripts._bench_rows import Row, in_turn

ROOT = Path(__file__).resolve().parent.parent


def calls() -> Iterator[Row]:
    """A call through an installed wrapper, against a closure written by hand and wrapt."""
    import wrapt

    import patchkit

    library = _module("bench_library", "def function(a, b=1):\n    return a\n")
    by_hand = library.function

    def closure(original: Callable[..., Any]) -> Callable[..., Any]:
        def function(a: Any, b: Any = 1) -> Any:
            return original(a, b)

        return function

    hand = closure(by_hand)
    wrapped = wrapt.FunctionWrapper(by_hand, lambda original, instance, args, kwargs: original(*args, **kwargs))

    @patchkit.wrap("bench_library:function", name="bench.decorated", summary="Bench.")
    def decorated(original: Callable[..., Any], a: Any, b: Any = 1) -> Any:
        return original(a, b)

    def timer(function: Callable[..., Any]) -> Callable[[], float]:
        def run(function: Callable[..., Any] = function, count: int = 200_000) -> float:
            start = time.perf_counter()
            for _ in range(count):
                function(1, 2)
            return (time.perf_counter() - start) / count

        return run

    with patchkit.apply(_manifest("bench.decorated")) as applied:
        installed = library.function
        yield Row("call: decorator form / closure by hand", *in_turn(timer(installed), timer(hand), 15), 1.1)
        yield Row("call: decorator form / wrapt.FunctionWrapper", *in_turn(timer(installed), timer(wrapped), 9), 1 / 3)
        with applied.reverted():
            suspended = library.function
            yield Row("call: while suspended / never patched", *in_turn(timer(suspended), timer(by_hand), 15), 1.1)


def imports() -> Iterator[Row]:
    """``import patchkit``, against importing what it is made of."""
    ours, theirs = _python("-c", "import patchkit"), _python("-c", "import pydantic, structlog")
    nothing = statistics.median(_python("-c", "pass")() for _ in range(9))
    a, b = in_turn(ours, theirs, 11)
    yield Row("import patchkit / import pydantic, structlog (whole process)", a, b, 0.5)
    yield Row("the same without the interpreter's own start", max(a - nothing, 0.0), b - nothing, None)


def verify() -> Iterator[Row]:
    """``patchkit verify`` as a command, against importing what it judges."""
    command = _python("-m", "patchkit", "verify", "manifests/lowmem.toml")
    yield Row(
        "verify manifests/lowmem.toml / import torch.distributed.fsdp",
        *in_turn(command, _python("-W", "ignore", "-c", "import torch.distributed.fsdp"), 5),
        1 / 6,
    )


def apply() -> Iterator[Row]:
    """Apply and revert ``lowmem.toml``, against a loop by hand that does the same overrides."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        from torch.testing._internal.distributed.fake_pg import FakeStore

    import patchkit

    manifest = patchkit.load_manifest(ROOT / "manifests" / "lowmem.toml")
    # Two ranks, of which only this one exists: on a single rank FSDP1 doesn't shard.
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())

    def ours(model: Any) -> Callable[[], float]:
        def run() -> float:
            start = time.perf_counter()
            patchkit.apply(manifest, model).revert()
            return time.perf_counter() - start

        return run

    def by_hand(model: Any, rebind: Rebind) -> Callable[[], float]:
        def run() -> float:
            start = time.perf_counter()
            _apply_by_hand(model, rebind)()
            return time.perf_counter() - start

        return run

    rows = {}
    for units in (10, 100, 1000):
        blocks = [nn.Sequential(nn.Linear(8, 8)) for _ in range(units - 1)]
        model = FullyShardedDataParallel(
            nn.Sequential(*blocks, nn.Linear(8, 8)),
            auto_wrap_policy=ModuleWrapPolicy({nn.Sequential}),
            cpu_offload=CPUOffload(offload_params=True),
            use_orig_params=True,
            device_id=torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu"),
        )
        gc.collect()
        what = f"apply and revert lowmem.toml, {units} units / loop by hand"
        rows[units] = Row(what, *in_turn(ours(model), by_hand(model, _every_name), 15), 2.0 if units == 1000 else None)
        yield rows[units]
    bare = "the same / loop that misses `from … import` copies"
    yield Row(bare, *in_turn(ours(model), by_hand(model, _one_name), 15), None)
    per_unit = (rows[1000].ours - rows[10].ours) / 990
    yield Row("the same, for each further unit", per_unit, (rows[1000].theirs - rows[10].theirs) / 990, 2.0)
    on_the_line = rows[10].ours + per_unit * 90
    yield Row("linear: 100 units measured / on the line from 10 to 1,000", rows[100].ours, on_the_line, None)
    dist.destroy_process_group()


Rebind = Callable[[Any, str, object], None]


def _one_name(module: Any, name: str, value: object) -> None:
    """Set an attribute, as most people do."""
    setattr(module, name, value)


def _every_name(module: Any, name: str, value: object) -> None:
    """Set an attribute, and every other module-level name of what it held, as patchkit does."""
    old = getattr(module, name)
    for other in list(sys.modules.values()):
        namespace = getattr(other, "__dict__", None) or {}
        for key, held in list(namespace.items()):
            if held is old:
                namespace[key] = value


def _apply_by_hand(model: Any, rebind: Rebind) -> Callable[[], None]:
    """Override as a careful person would without patchkit, and return how to undo it."""
    from torch.distributed.fsdp import FullyShardedDataParallel, _runtime_utils

    units = FullyShardedDataParallel.fsdp_modules(model)
    handles = [unit._handle for unit in units if unit._handle is not None and unit._handle._offload_params]
    mine = set(map(id, handles))
    original = _runtime_utils._post_reduce_grad_callback

    def _post_reduce_grad_callback(state: Any, handle: Any, grad_to_offload: Any) -> None:
        original(state, handle, grad_to_offload)
        if id(handle) in mine:
            handle.flat_param.__dict__.pop("_saved_grad_shard", None)

    def init_flat_param_attributes(self: Any) -> None:
        type(self).init_flat_param_attributes(self)

    missing = object()
    undo = []
    for handle in handles:
        undo.append((handle, handle.__dict__.get("init_flat_param_attributes", missing)))
        handle.init_flat_param_attributes = MethodType(init_flat_param_attributes, handle)
    rebind(_runtime_utils, "_post_reduce_grad_callback", _post_reduce_grad_callback)

    def revert() -> None:
        rebind(_runtime_utils, "_post_reduce_grad_callback", original)
        for handle, before in reversed(undo):
            if before is missing:
                del handle.init_flat_param_attributes
            else:
                handle.init_flat_param_attributes = before

    return revert


SECTIONS: dict[str, Callable[[], Iterator[Row]]] = {
    "calls": calls,
    "imports": imports,
    "verify": verify,
    "apply": apply,
    "fsdp1": fsdp1,
}


def main() -> int:
    """Run the sections that were asked for."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"which to run: {', '.join(SECTIONS)}; default: all"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the figures there")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"expected sections of {', '.join(SECTIONS)}, got {unknown[0]!r}")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PATCHKIT_AUDIT"] = str(Path(folder) / "audit.jsonl")
        for name in arguments.sections or SECTIONS:
            for row in SECTIONS[name]():
                print(row, flush=True)
                rows.append(row)
    if arguments.json:
        figures = [{"what": r.what, "unit": r.unit, "ours": r.ours, "theirs": r.theirs, "ratio": r.ratio} for r in rows]
        arguments.json.write_text(json.dumps(figures, indent=2), encoding="utf-8")
    return 0


def _python(*arguments: str) -> Callable[[], float]:
    """Return a function that runs this interpreter with ``arguments`` and measures the whole process."""

    def run() -> float:
        start = time.perf_counter()
        # Compiled modules are kept, as on any machine that runs a command twice.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            check=True,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return time.perf_counter() - start

    return run


def _module(name: str, source: str) -> Any:
    """Make a module from a file, so that it is a library like any other."""
    folder = Path(tempfile.mkdtemp())
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _manifest(*names: str) -> dict[str, Any]:
    return {"schema": 1, "patch": [{"name": name} for name in names]}


if __name__ == "__main__":
    sys.exit(main())
