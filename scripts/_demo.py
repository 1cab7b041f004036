"""The main job, end to end: FSDP1 with CPU offload on two real processes, stock against patched.

Started as ``scripts/demo``. On a machine without an accelerator the real FSDP1 code runs on the CPU, made runnable by
``manifests/rehearsal.toml``; with CUDA it uses that.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RANKS = 2
WIDTH, BLOCKS, ENCODER_BLOCKS = 512, 16, 4
STEPS = 3
AB_PATCH = "fsdp1.drop-offloaded-grad-shards"


class Run(NamedTuple):
    """What training with or without patches came to."""

    losses: list[float]
    peaks: dict[str, int]


def main() -> int:
    """Start the ranks and wait for them."""
    argparse.ArgumentParser(prog="scripts/demo", description=__doc__).parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch.multiprocessing as mp

    with tempfile.TemporaryDirectory(prefix="patchkit-demo-") as folder:
        mp.spawn(rank_main, args=(folder, time.time()), nprocs=RANKS)
    return 0


def rank_main(rank: int, folder: str, started: float) -> None:
    """Do the main job in one process."""
    warnings.simplefilter("ignore")
    os.environ["PATCHKIT_AUDIT"] = str(Path(folder) / f"audit-rank{rank}.jsonl")
    say = print if rank == 0 else _silent
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    gpus = torch.cuda.device_count()
    device = torch.device("cuda", rank % gpus) if gpus else torch.device("cpu")
    backend = "nccl" if gpus >= RANKS else "gloo"
    dist.init_process_group(backend, init_method=f"file://{folder}/rendezvous", rank=rank, world_size=RANKS)
    try:
        demonstrate(device, say, started)
    finally:
        dist.destroy_process_group()


def demonstrate(device: Any, say: Any, started: float) -> None:
    """Train stock and patched, compare, and take everything out again."""
    import torch

    import patchkit

    before = snapshot()
    with contextlib.ExitStack() as stack:
        if device.type == "cpu":
            say(
                f"1. No accelerator: torch {torch.__version__} rehearses FSDP1's CPU offload on {RANKS} gloo processes."
            )
            stack.enter_context(patchkit.apply(ROOT / "manifests" / "rehearsal.toml"))
        else:
            say(f"1. torch {torch.__version__} on {torch.cuda.get_device_name(device)}, {RANKS} processes.")

        models = build(device)
        say(f"   Stock FSDP1 trains {STEPS} steps: {describe(models)}")
        stock = train(models, device)
        del models

        models = build(device)
        own_before = own_namespaces(models)
        say("2. The same with manifests/lowmem.toml on the transformer, manifests/frozen.toml on the encoder.")
        applied = patchkit.apply(ROOT / "manifests" / "lowmem.toml", models["transformer"])
        frozen = patchkit.apply(ROOT / "manifests" / "frozen.toml", models["encoder"])
        patched = train(models, device)
        _require(patched.losses == stock.losses, f"losses differ: {patched.losses} and {stock.losses}")
        say(f"   Losses, stock and patched, equal to the bit: {', '.join(f'{loss:.6f}' for loss in patched.losses)}")

        say(f"3. One more step from one state, with and without {AB_PATCH}:")
        with applied.reverted(AB_PATCH):
            loss_stock, grads_stock = one_step(models, device)
        loss, grads = one_step(models, device)
        _require(loss == loss_stock, f"losses differ: {loss} and {loss_stock}")
        _require(grads.keys() == grads_stock.keys(), "gradients are there for different parameters")
        unequal = [name for name in grads if not torch.equal(grads[name], grads_stock[name])]
        _require(not unequal and bool(grads), f"gradients differ: {unequal}")
        say(f"   loss {loss:.6f} both times, {len(grads)} gradients of this rank equal to the last bit.")

        say("4. Peak bytes on this rank, counted from the tensors at every unit's forward and reduction:")
        say(table(stock.peaks, patched.peaks))

        applied.verify()
        applied.revert()
        frozen.revert()
        say("5. The end of the audit log:")
        show_log(say)
        changed = [*differences(own_before, own_namespaces(models)), *stack_closed(stack, before)]
    _require(not changed, f"something is not what it was: {changed}")
    say(f"\nAll of this took {time.time() - started:.0f} s.")
    say(f"Every site is what it was: {count(before)} attributes of PyTorch and all units compared by identity.")


def build(device: Any) -> dict[str, Any]:
    """Make a transformer that is trained and an encoder that is frozen, wrapped in FSDP1 block by block."""
    import torch
    from torch import nn
    from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    def transformer(blocks: int) -> nn.Module:
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        return nn.TransformerEncoder(layer, blocks, enable_nested_tensor=False)

    torch.manual_seed(0)
    made = {"transformer": transformer(BLOCKS), "encoder": transformer(ENCODER_BLOCKS).requires_grad_(False)}
    # TransformerEncoder copies one layer, so every block starts alike; make them differ.
    with torch.no_grad():
        for parameter in (
            parameter for model in made.values() for parameter in model.parameters() if parameter.dim() > 1
        ):
            parameter.add_(torch.randn_like(parameter), alpha=0.01)
    return {
        name: FullyShardedDataParallel(
            model,
            auto_wrap_policy=ModuleWrapPolicy({nn.TransformerEncoderLayer}),
            cpu_offload=CPUOffload(offload_params=True),
            use_orig_params=True,
            device_id=device,
        )
        for name, model in made.items()
    }


def train(models: dict[str, Any], device: Any) -> Run:
    """Train a few steps from the beginning, and count what FSDP1 keeps meanwhile."""
    import torch

    from patchkit.fsdp1._memory import MemoryLedger

    optimizer = torch.optim.AdamW(models["transformer"].parameters(), lr=1e-4)
    losses = []
    with MemoryLedger(models["transformer"]) as trained, MemoryLedger(models["encoder"]) as frozen:
        for step in range(STEPS):
            losses.append(_forward_backward(models, device, step))
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    peaks = {
        "saved gradient shards (device)": trained.peak("saved_grad_shards"),
        "gradients of the frozen encoder (host)": frozen.peak("idle_cpu_grads"),
        "pinned parameters (host)": trained.peak("pinned_params") + frozen.peak("pinned_params"),
    }
    return Run(losses, peaks)


def one_step(models: dict[str, Any], device: Any) -> tuple[float, dict[str, Any]]:
    """Compute one loss and its gradients from the present state, and leave the state as it is."""
    loss = _forward_backward(models, device, STEPS)
    named = models["transformer"].named_parameters()
    grads = {name: parameter.grad.clone() for name, parameter in named if parameter.grad is not None}
    models["transformer"].zero_grad(set_to_none=True)
    return loss, grads


def _forward_backward(models: dict[str, Any], device: Any, step: int) -> float:
    import torch
    import torch.distributed as dist

    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    inputs, prompt = (torch.randn(2, 16, WIDTH, generator=generator).to(device) for _ in range(2))
    with torch.no_grad():
        condition = models["encoder"](prompt)
    loss = (models["transformer"](inputs + condition) - inputs).pow(2).mean()
    loss.backward()
    return float(loss)


def describe(models: dict[str, Any]) -> str:
    """Say how large the models are."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    parts = []
    for name, model in models.items():
        units = FullyShardedDataParallel.fsdp_modules(model)
        numel = sum(unit._handle.flat_param.numel() for unit in units if unit._handle is not None)
        parts.append(f"{name} with {numel * RANKS / 1e6:.1f} M parameters in {len(units)} units")
    return ", ".join(parts) + "."


def table(stock: dict[str, int], patched: dict[str, int]) -> str:
    """Lay out what was kept, stock against patched."""
    lines = [f"   {'':<40}{'stock':>14}{'patched':>14}{'ratio':>9}"]
    for kind, before in stock.items():
        after = patched[kind]
        ratio = f"{after / before:.4f}" if before else "-"
        lines.append(f"   {kind:<40}{before:>14,}{after:>14,}{ratio:>9}")
        _require(after < before, f"{kind}: expected less than {before} bytes with the patches, found {after}")
    return "\n".join(lines)


def show_log(say: Any) -> None:
    """Print the end of this rank's audit log as the command line shows it."""
    from patchkit.cli import main as command_line

    sys.stdout.flush()
    if say is print:
        command_line(["log", "--last", "2"])


Namespaces = dict[str, dict[str, object]]


def snapshot() -> Namespaces:
    """Note what the namespaces hold that patches of the collection touch."""
    import torch
    from torch.distributed.fsdp import _flat_param, _runtime_utils

    owners: list[Any] = [torch.Tensor, torch.cpu.Stream, _runtime_utils, _flat_param, _flat_param.FlatParamHandle]
    return {owner.__name__: dict(vars(owner)) for owner in owners}


def own_namespaces(models: dict[str, Any]) -> Namespaces:
    """Note which names the handles of all units have of their own that are functions, and the hooks of all modules."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    noted: Namespaces = {}
    for name, model in models.items():
        for index, unit in enumerate(FullyShardedDataParallel.fsdp_modules(model)):
            own = {key: value for key, value in vars(unit._handle).items() if callable(value)} if unit._handle else {}
            noted[f"handle {index} of {name}"] = own
        for path, module in model.named_modules():
            hooks = [
                *module._forward_pre_hooks.items(),
                *module._forward_hooks.items(),
                *module._backward_hooks.items(),
            ]
            noted[f"hooks of {name}.{path}"] = {str(key): hook for key, hook in hooks}
    return noted


def differences(before: Namespaces, after: Namespaces) -> Iterator[str]:
    """Yield what is not the same object as before, or not present or absent as before."""
    missing = object()
    for owner in before.keys() | after.keys():
        old, new = before.get(owner, {}), after.get(owner, {})
        for name in old.keys() | new.keys():
            if old.get(name, missing) is not new.get(name, missing):
                yield f"{owner}.{name}"


def stack_closed(stack: contextlib.ExitStack, before: Namespaces) -> Iterator[str]:
    """Revert what is still applied, then compare with what was there before anything was."""
    stack.close()
    yield from differences(before, snapshot())


def count(namespaces: Namespaces) -> int:
    """Count the attributes of a snapshot."""
    return sum(map(len, namespaces.values()))


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise SystemExit(f"the demo failed: {otherwise}")


def _silent(*_: object) -> None:
    """Say nothing: only the first rank speaks."""


if __name__ == "__main__":
    sys.exit(main())
