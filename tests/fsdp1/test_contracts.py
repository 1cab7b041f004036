"""The contracts of the collection: they fit the torch at hand, and a torch that lacks what they name is refused."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest

from patchkit.contract import InstalledSource, SourceFile, Verdict, judge, load_contracts
from patchkit.contract._source import parse_source
from patchkit.registry import find
from tests.fsdp1._pool import RankPool
from tests.fsdp1._toy import DROP_FROZEN, DROP_SHARDS, PAGEABLE, REHEARSAL, patched

ROOT = Path(__file__).parents[2]
CONTRACTS = load_contracts(ROOT / "patchkit" / "fsdp1" / "contracts.toml")
# Those for a library that isn't here, such as Accelerate in an old lane, can't be judged.
NAMES = [
    name
    for name, contract in sorted(CONTRACTS.items())
    if all(find_spec(requirement.partition(">")[0]) is not None for requirement in contract.requires)
]
RUNTIME = "torch.distributed.fsdp._runtime_utils"
FLAT_PARAM = "torch.distributed.fsdp._flat_param"
ORDER = "torch.distributed.fsdp._exec_order_utils"


INSTALLED = InstalledSource()


class AlteredTorch:
    """The torch at hand with another version, or with other text in one module."""

    def __init__(self, module: str = "", old: str = "", new: str = "", *, version: str | None = None) -> None:
        self.label = "altered"
        self.children = INSTALLED.children
        self._edit = module, old, new
        self._version = version

    def version(self, distribution: str) -> str | None:
        return (self._version if distribution == "torch" else None) or INSTALLED.version(distribution)

    def module(self, name: str) -> SourceFile | None:
        file = INSTALLED.module(name)
        module, old, new = self._edit
        if file is None or name != module:
            return file
        spec = find_spec("torch")
        assert spec is not None
        assert spec.origin is not None
        text = (Path(spec.origin).parents[1] / file.path).read_text(encoding="utf-8")
        assert old in text
        return SourceFile(name, file.path, parse_source(text.replace(old, new).encode()))


def test_every_patch_has_one() -> None:
    """The file has a contract for each patch of the collection, and each patch the file's."""
    declared = {point.name for point in entry_points(group="patchkit.patches") if ".fsdp1." in point.value}
    assert set(CONTRACTS) == declared
    assert {name: find(name).contract for name in CONTRACTS} == CONTRACTS


@pytest.mark.parametrize("name", NAMES)
def test_fits_this_torch(name: str) -> None:
    """The torch that the project is developed with is one that every patch was proven on."""
    judgement = judge(CONTRACTS[name], INSTALLED)
    assert (judgement.verdict, judgement.findings) == (Verdict.OK, ())


@pytest.mark.parametrize(
    ("name", "module", "old", "new", "verdict"),
    [
        (DROP_SHARDS, RUNTIME, "_post_reduce_grad_callback(state, handle, grad_to_offload)", "None", Verdict.BROKEN),
        (DROP_SHARDS, RUNTIME, "    _offload_grad(state, handle, grad_to_offload)", "    pass", Verdict.BROKEN),
        (DROP_SHARDS, RUNTIME, "_saved_grad_shard", "_kept_shard", Verdict.BROKEN),
        (DROP_SHARDS, RUNTIME, "def _post_reduce_grad_callback", "def _after_reduction", Verdict.BROKEN),
        (
            DROP_SHARDS,
            RUNTIME,
            "    grad_to_offload: torch.Tensor,\n):",
            "    shard: torch.Tensor,\n):",
            Verdict.BROKEN,
        ),
        (
            DROP_SHARDS,
            RUNTIME,
            "_saved_grad_shard += sharded_grad",
            "_saved_grad_shard -= sharded_grad",
            Verdict.CHANGED,
        ),
        (DROP_SHARDS, ORDER, "self._iter += 1", "self._iter += 2", Verdict.CHANGED),
        (PAGEABLE, FLAT_PARAM, ".pin_memory()", ".clone()", Verdict.BROKEN),
        (PAGEABLE, FLAT_PARAM, "def init_flat_param_attributes", "def init_attributes", Verdict.BROKEN),
        (PAGEABLE, RUNTIME, "handle.init_flat_param_attributes()", "handle.init_attributes()", Verdict.BROKEN),
        (DROP_FROZEN, RUNTIME, "handle.flat_param._cpu_grad is None", "not handle._grads", Verdict.CHANGED),
        (DROP_FROZEN, FLAT_PARAM, "torch.zeros_like(", "torch.empty_like(", Verdict.BROKEN),
        (REHEARSAL, FLAT_PARAM, "def pre_unshard(self)", "def pre_unshard(self, stream)", Verdict.BROKEN),
        (REHEARSAL, FLAT_PARAM, "self.flat_param_to(self.device", "self.flat_param.to(self.device", Verdict.BROKEN),
        (DROP_SHARDS, RUNTIME, "# synchronized in the post-backward callback", "# or so", Verdict.OK),
    ],
)
def test_notices_what_is_gone(name: str, module: str, old: str, new: str, verdict: Verdict) -> None:
    """What is gone makes the contract ``broken``, another body ``changed``; another comment is nothing."""
    assert judge(CONTRACTS[name], AlteredTorch(module, old, new)).verdict is verdict


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("version", "verdict"),
    [
        ("2.0.1", Verdict.EXCLUDED),
        ("2.2.0", Verdict.OK),
        ("2.13.0+cu128", Verdict.OK),
        ("2.15.0", Verdict.OK),
        ("2.16.0", Verdict.EXCLUDED),
    ],
)
def test_range_of_releases(name: str, version: str, verdict: Verdict) -> None:
    """The releases up to 2.15 are inside: earlier ones lack the callback, later ones nobody has looked at."""
    assert judge(CONTRACTS[name], AlteredTorch(version=version)).verdict is verdict


@pytest.mark.parametrize("name", NAMES)
def test_first_release(name: str) -> None:
    """The patches are for 2.1 too; the rehearsal isn't, since gloo of 2.1 lacks what FSDP1 calls."""
    expected = Verdict.EXCLUDED if name == REHEARSAL else Verdict.OK
    assert judge(CONTRACTS[name], AlteredTorch(version="2.1.0")).verdict is expected


@pytest.mark.parametrize("name", NAMES)
def test_patches_are_read_without_torch(name: str) -> None:
    """Loading a patch and its contract imports no torch: ``verify`` must work where there is none."""
    code = f"import sys; from patchkit.registry import find; find({name!r}); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "False"


def sites_of_the_rehearsal() -> list[str]:
    with patched(REHEARSAL) as applied:
        return [site for status in applied.report().patches for site in status.sites]


def test_sites_are_those_of_the_contract(ranks: RankPool) -> None:
    """What the contract calls a site is what the patch changes."""
    declared = [symbol.path for symbol in CONTRACTS[REHEARSAL].symbols if symbol.role == "site"]
    for sites in ranks(sites_of_the_rehearsal):
        changed = {site.replace("torch.cpu:Stream.synchronize", "torch.cpu:Stream") for site in sites}
        assert changed == set(declared)
