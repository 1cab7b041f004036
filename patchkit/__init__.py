"""A declarative monkeypatch manager with an audit log.

    applied = patchkit.apply("manifests/lowmem.toml", model)
    with applied.reverted("fsdp1.drop-offloaded-grad-shards"): ...
    applied.revert()

Names are loaded when they are first used: importing patchkit alone imports none of its dependencies.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import errors as errors
    from ._api import apply as apply
    from ._api import plan as plan
    from ._applied import Applied as Applied
    from ._applied import PatchStatus as PatchStatus
    from ._applied import Report as Report
    from ._context import Context as Context
    from ._plan import Plan as Plan
    from .contract import Contract as Contract
    from .contract import Fingerprint as Fingerprint
    from .contract import Symbol as Symbol
    from .contract import load_contracts as load_contracts
    from .errors import PatchkitError as PatchkitError
    from .manifest import Manifest as Manifest
    from .manifest import load_manifest as load_manifest
    from .patch import Patch as Patch
    from .patch import PatchOptions as PatchOptions
    from .patch import Probe as Probe
    from .registry import register as register
    from .registry import replace as replace
    from .registry import wrap as wrap

    __version__: str

__all__ = [
    "Applied",
    "Context",
    "Contract",
    "Fingerprint",
    "Manifest",
    "Patch",
    "PatchOptions",
    "PatchStatus",
    "PatchkitError",
    "Plan",
    "Probe",
    "Report",
    "Symbol",
    "__version__",
    "apply",
    "errors",
    "load_contracts",
    "load_manifest",
    "plan",
    "register",
    "replace",
    "wrap",
]

_HOMES = {
    "Applied": "_applied",
    "Context": "_context",
    "Contract": "contract",
    "Fingerprint": "contract",
    "Manifest": "manifest",
    "Patch": "patch",
    "PatchOptions": "patch",
    "PatchStatus": "_applied",
    "PatchkitError": "errors",
    "Plan": "_plan",
    "Probe": "patch",
    "Report": "_applied",
    "Symbol": "contract",
    "apply": "_api",
    "load_contracts": "contract",
    "load_manifest": "manifest",
    "plan": "_api",
    "register": "registry",
    "replace": "registry",
    "wrap": "registry",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        value: object = version("patchkit")
    elif name == "errors":
        value = importlib.import_module(".errors", __name__)
    elif name in _HOMES:
        value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
