"""``fsdp1.precision``: float32 where it is asked for, through a real Accelerator; the plugin is itself afterwards."""

from __future__ import annotations

import warnings
from contextlib import ExitStack, nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import CPUOffload, MixedPrecision
from torch.distributed.fsdp.wrap import CustomPolicy, ModuleWrapPolicy

import patchkit
from patchkit.errors import PatchkitError
from patchkit.fsdp1._memory import MemoryLedger
from tests.fsdp1._accelerate import (
    PRECISION,
    Layer,
    Net,
    Norm,
    OtherNet,
    accelerated,
    another,
    net,
    unit_precisions,
)
from tests.fsdp1._pool import RankPool
from tests.fsdp1._toy import (
    DEVICE,
    FSDP,
    Record,
    batch,
    difference,
    gradients,
    handles,
    loss_of,
    parameters,
    rehearsed,
)

pytestmark = pytest.mark.skipif(find_spec("accelerate") is None, reason="needs accelerate")

FLOAT, BF16, HALF = torch.float32, torch.bfloat16, torch.float16
SETTINGS = ("use_orig_params", "mixed_precision_policy", "auto_wrap_policy")


def configured(model: Any, accelerator: Any, **options: Any) -> patchkit.Applied:
    entry = {"name": PRECISION, "options": options}
    manifest = {"schema": 1, "patch": [entry], "audit": {"policy": "off"}}
    return patchkit.apply(manifest, model, accelerator=accelerator)


def message(call: Any) -> str:
    try:
        call()
    except PatchkitError as error:
        return f"{type(error).__name__}: {error}"
    return "it went through"


def settings(accelerator: Any) -> list[Any]:
    return [getattr(accelerator.state.fsdp_plugin, name) for name in SETTINGS]


def unchanged(accelerator: Any, before: list[Any]) -> bool:
    return all(a is b for a, b in zip(settings(accelerator), before, strict=True))


# Policies


def custom(module: nn.Module) -> Any:
    """Wrap layers, the second of a kind with a precision of its own."""
    if isinstance(module, Norm):
        return {"mixed_precision": MixedPrecision(param_dtype=HALF)}
    return isinstance(module, Layer)


POLICIES: dict[str, dict[str, Any]] = {
    "transformer_based_wrap": {"auto_wrap_policy": "transformer_based_wrap"},
    "size_based_wrap": {"auto_wrap_policy": "size_based_wrap", "min_num_params": 250},
    "no_wrap": {"auto_wrap_policy": "no_wrap"},
    "ModuleWrapPolicy": {"auto_wrap_policy": ModuleWrapPolicy({Layer})},
    "CustomPolicy": {"auto_wrap_policy": CustomPolicy(custom)},
}


@rehearsed
def wrapped(policy: str) -> list[dict[str, Any]]:
    """What the units of a model compute in: as the policy wraps it, and with two modules in float32."""
    found = []
    for paths in ([], ["layers.1.norm", "layers.1.act", "layers.2"]):
        with accelerated(**POLICIES[policy]) as accelerator, ExitStack() as stack:
            model = net()
            if paths:
                stack.enter_context(configured(model, accelerator, float32=paths))
            found.append(unit_precisions(accelerator.prepare_model(model)))
    return found


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_kind_of_policy(ranks: RankPool, policy: str) -> None:
    """What each kind of policy wraps stays wrapped as it says; named modules are units of their own, in float32.

    What lies inside of a named module is in float32 too, and one without parameters is passed over.
    """
    for stock, ours in ranks(wrapped, policy=policy):
        expected = {**stock, "layers.1.norm": FLOAT, "layers.2": FLOAT}
        expected.update((path, FLOAT) for path in stock if path.startswith("layers.2."))
        assert ours == expected
    assert len(stock) == {"no_wrap": 1, "CustomPolicy": 7}.get(policy, 4 + (policy == "size_based_wrap"))


# What really flows


@rehearsed
def flows(offload: bool) -> dict[str, Any]:
    """Types of what modules compute, of reductions and of buffers; identities; bytes of saved shards."""
    with accelerated(cpu_offload=offload) as accelerator:
        plain = net()
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
        computed: dict[str, Any] = {}
        for name, module in plain.named_modules():
            if isinstance(module, (nn.Linear, Norm)):
                module.register_forward_hook(partial(note, computed, name))
        with configured(plain, accelerator, float32=["layers.1", "layers.0.norm"]) as applied:
            model, prepared = accelerator.prepare(plain, optimizer)
            with MemoryLedger(model) as ledger:
                loss = loss_of(model, batch(0))
                accelerator.backward(loss)
            norm = accelerator.clip_grad_norm_(model.parameters(), 0.1)
            before = [param.detach().clone() for param in parameters(model)]
            prepared.step()
            prepared.zero_grad()
            moved = any(not torch.equal(a, b) for a, b in zip(before, parameters(model), strict=True))
            applied.verify()
        held = {id(param) for group in prepared.param_groups for param in group["params"]}
        return {
            "computed": computed,
            "reduced": {path: unit._handle._reduce_dtype for path, unit in units(model).items()},
            "buffer": model.module.scale.dtype,
            "kept": held == {id(param) for param in model.parameters()},
            "moved": moved and norm.isfinite().item(),
            "shards": ledger.peak("saved_grad_shards"),
            "largest": max(handle.flat_param.untyped_storage().nbytes() for handle in handles(model)),
        }


def note(found: dict[str, Any], name: str, module: nn.Module, args: Any, output: torch.Tensor) -> None:
    found[name] = output.dtype


def units(model: FSDP) -> dict[str, Any]:
    return dict(zip(unit_precisions(model), FSDP.fsdp_modules(model), strict=True))


@pytest.mark.parametrize("offload", [True, False])
def test_what_flows(ranks: RankPool, offload: bool) -> None:
    """Named modules compute and reduce in float32, the rest in bfloat16; buffers are float32; the optimizer's
    parameters are the model's; with offload, shards are dropped unit by unit.
    """
    named = ("layers.1.", "layers.0.norm")
    for found in ranks(flows, offload=offload):
        # What autocast makes of a norm that isn't named is its own affair.
        computed = {name: dtype for name, dtype in found["computed"].items() if name != "layers.2.norm"}
        assert computed == {name: FLOAT if name.startswith(named) else BF16 for name in computed}
        assert found["reduced"] == {
            path: FLOAT if path in ("layers.1", "layers.0.norm") else BF16 for path in found["reduced"]
        }
        assert (found["buffer"], found["kept"], found["moved"]) == (FLOAT, True, True)
        assert not offload or 0 < found["shards"] <= found["largest"]


@rehearsed
def against_hand_wrapped() -> float | str:
    """Losses, gradients and parameters of a model without named modules, against one that was wrapped by hand."""

    def trained(model: Any, autocast: bool) -> Record:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        seen: Record = []
        for step in range(3):
            with torch.autocast(DEVICE.type, dtype=BF16) if autocast else nullcontext():
                loss = loss_of(model, batch(step))
            loss.backward()
            seen.append([loss.detach(), *gradients(model)])
            optimizer.step()
            optimizer.zero_grad()
            seen.append([param.detach().clone() for param in parameters(model)])
        return seen

    with accelerated() as accelerator:
        model = net()
        with configured(model, accelerator):
            ours = trained(accelerator.prepare_model(model), autocast=False)
    by_hand = FSDP(
        net(),
        device_id=DEVICE,
        cpu_offload=CPUOffload(offload_params=True),
        use_orig_params=True,
        auto_wrap_policy=ModuleWrapPolicy({Layer}),
        mixed_precision=MixedPrecision(param_dtype=BF16, reduce_dtype=BF16, buffer_dtype=FLOAT),
    )
    return difference(trained(by_hand, autocast=True), ours)


def test_the_rest_is_as_wrapped_by_hand(ranks: RankPool) -> None:
    """Everything that isn't named trains as in FSDP1 wrapped by hand with the same precision, to the last bit."""
    assert ranks(against_hand_wrapped) == [0.0, 0.0]


# Several models, several accelerators


@rehearsed
def two_models(same_options: bool, first_prepared: int) -> list[Any]:
    """Two models of other classes, both configured before they are prepared, with one plugin; then reverted."""
    with accelerated() as accelerator:
        second = another(accelerator)
        before = settings(accelerator)
        models = [net(), net(OtherNet)]
        options = [["layers.0.norm"], ["layers.0.norm"] if same_options else ["layers.2"]]
        applied = [
            configured(model, each, float32=paths)
            for model, each, paths in zip(models, (accelerator, second), options, strict=True)
        ]
        prepared: dict[int, Any] = {}
        for index in (first_prepared, 1 - first_prepared):
            prepared[index] = accelerator.prepare_model(models[index])
        found: list[Any] = [
            [path for path, dtype in unit_precisions(prepared[index]).items() if dtype == FLOAT] for index in range(2)
        ]
        found.append([len(unit_precisions(prepared[index])) for index in range(2)])
        applied[first_prepared].revert()
        third = net(OtherNet) if first_prepared == 0 else net()
        found.append(len(unit_precisions(accelerator.prepare_model(third))))
        applied[1 - first_prepared].revert()
        return [*found, unchanged(accelerator, before)]


@pytest.mark.parametrize("first_prepared", [0, 1])
@pytest.mark.parametrize("same_options", [True, False])
def test_two_models_of_one_plugin(ranks: RankPool, same_options: bool, first_prepared: int) -> None:
    """Each model is wrapped by its own classes and its own named modules, in whatever order they are prepared.

    A model that isn't configured is wrapped as the plugin says; reverted in any order, the plugin is what it was.
    """
    named = ["layers.0.norm"] if same_options else ["layers.2"]
    sizes = [5, 5] if same_options else [5, 4]
    expected = [["layers.0.norm"], named, sizes, 4, True]
    assert ranks(two_models, same_options=same_options, first_prepared=first_prepared) == [expected] * 2


# Refusals


class Refusals:
    """Situations that are refused, each with what is given."""

    def __init__(self, accelerator: Any) -> None:
        self.accelerator = accelerator
        self.model: Any = net()
        self.options: dict[str, Any] = {"float32": ["layers.0"]}

    def fsdp2(self) -> None:
        self.accelerator.state.fsdp_plugin.fsdp_version = 2

    def unknown_path(self) -> None:
        self.options["float32"] = ["layers.0", "layers.0.nrom"]

    def part_of_a_path(self) -> None:
        self.options["float32"] = ["norm"]

    def bare_string(self) -> None:
        self.options["float32"] = "layers.0"

    def generator(self) -> None:
        self.options["float32"] = (f"layers.{index}" for index in range(2))

    def no_plugin(self) -> None:
        self.accelerator.state.fsdp_plugin = None

    def no_accelerator(self) -> None:
        self.accelerator = object()

    def wrapped_model(self) -> None:
        self.model = self.accelerator.prepare_model(self.model)

    def no_module(self) -> None:
        self.model = {"a": 3}

    def half_way(self) -> None:
        # Found out after the first attribute was set.
        self.accelerator.state.fsdp_plugin.mixed_precision_policy = object()


@rehearsed
def refused(situation: str) -> tuple[str, bool, bool]:
    """What it says, and whether plugin and callback are what they were."""
    from torch.distributed.fsdp import _runtime_utils

    with accelerated() as accelerator:
        given = Refusals(accelerator)
        getattr(given, situation)()
        before = settings(accelerator) if situation != "no_plugin" else []
        callback = _runtime_utils._post_reduce_grad_callback
        said = message(lambda: configured(given.model, given.accelerator, **given.options))
        same = situation == "no_plugin" or unchanged(accelerator, before)
        return said, same, _runtime_utils._post_reduce_grad_callback is callback


@pytest.mark.parametrize(
    ("situation", "expected"),
    [
        ("fsdp2", "expected an FSDP plugin with fsdp_version 1, found 2"),
        ("unknown_path", "found 'layers.0.nrom', which a Net doesn't have. Did you mean 'layers.0.norm'"),
        ("part_of_a_path", "found 'norm', which a Net doesn't have"),
        ("bare_string", "float32"),
        ("generator", "got generator at float32"),
        ("no_plugin", "expected an accelerate.Accelerator with an FSDP plugin, found a Accelerator without one"),
        ("no_accelerator", "found a object without one"),
        ("wrapped_model", "expected a model that isn't wrapped yet"),
        ("no_module", "expected"),
        ("half_way", "InstallError"),
    ],
)
def test_refuses(ranks: RankPool, situation: str, expected: str) -> None:
    """What can't be configured is refused, and nothing is left on the plugin or in the process."""
    for said, plugin_same, callback_same in ranks(refused, situation=situation):
        assert expected in said
        assert (plugin_same, callback_same) == (True, True)


@rehearsed
def options_kept() -> list[Any]:
    """float64 buffers are said, half-precision ones are as asked for, and a plugin has one type for all its models."""
    with accelerated() as accelerator:
        model = net()
        model.register_buffer("wide", torch.ones(2, dtype=torch.float64))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with configured(model, accelerator, float32=["layers.0", "layers.1"], buffer_dtype="float16"):
                wrapped_model = accelerator.prepare_model(model)
                loss_of(wrapped_model, batch(0))
                other = message(lambda: configured(net(), accelerator, buffer_dtype="bfloat16"))
            free = message(lambda: configured(net(), accelerator, buffer_dtype="bfloat16").revert())
        said = [str(warning.message) for warning in caught if "float64 buffers (wide)" in str(warning.message)]
        in_float = [path for path, dtype in unit_precisions(wrapped_model).items() if dtype == FLOAT]
        one_type = "expected the buffer_dtype that another model of this plugin is configured with (float16)" in other
        return [len(said), in_float, wrapped_model.module.scale.dtype, one_type, free]


def test_options(ranks: RankPool) -> None:
    """Buffers have the type that was asked for, wide ones are said, and two types on one plugin are refused."""
    assert ranks(options_kept) == [[1, ["layers.0", "layers.1"], HALF, True, "it went through"]] * 2


# Accelerate, as far as it runs


@rehearsed
def saved_and_loaded(folder: str) -> tuple[bool, bool]:
    """Whether a state that was saved comes back, and the model's state dict is whole on rank 0."""
    with accelerated() as accelerator:
        plain = net()
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
        with configured(plain, accelerator, float32=["layers.0.norm"]):
            model, prepared = accelerator.prepare(plain, optimizer)
            accelerator.backward(loss_of(model, batch(0)))
            prepared.step()
            prepared.zero_grad()
            accelerator.save_state(folder)
            saved = [param.detach().clone() for param in parameters(model)]
            accelerator.backward(loss_of(model, batch(1)))
            prepared.step()
            prepared.zero_grad()
            accelerator.load_state(folder)
            same = all(torch.equal(a, b) for a, b in zip(saved, parameters(model), strict=True))
            whole = accelerator.get_state_dict(model)
            names = set(whole) == set(Net().state_dict()) if accelerator.is_main_process else True
        return same, names


def test_saving_and_loading(ranks: RankPool, tmp_path: Path) -> None:
    """save_state, load_state and get_state_dict work on a model that was configured."""
    assert ranks(saved_and_loaded, folder=str(tmp_path)) == [(True, True)] * 2
