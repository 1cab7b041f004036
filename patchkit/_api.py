"""The two calls that most people need."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._plan import Plan, make_plan
from .manifest import Manifest, load_manifest

if TYPE_CHECKING:
    from ._applied import Applied

__all__ = ["apply", "plan"]


def apply(
    manifest: str | os.PathLike[str] | Manifest | Mapping[str, Any], model: Any = None, /, **resources: Any
) -> Applied:
    """Apply the patches of a manifest: all of them, verified, or none.

    Applying the same patch to the same target twice does it once; each handle then owns one reference, and the
    patch leaves with the last. May be called from any thread.

    Args:
        manifest: Path of a TOML file, a ``Manifest``, or a mapping with the same keys.
        model: One module, or a mapping of names to modules that entries select with ``on = "name"``.
        resources: Further objects that patches ask for by name.

    Returns:
        The handle; as a context manager it reverts on leaving.

    Raises:
        PatchkitError: One of the classes in ``patchkit.errors``; nothing is left changed, unless it is a
            ``RevertError``, which names what is.
    """
    # A plan is often all that is asked for, and needs none of this.
    from ._transaction import execute

    return execute(make_plan(load_manifest(manifest)), model, resources)


def plan(manifest: str | os.PathLike[str] | Manifest | Mapping[str, Any]) -> Plan:
    """Say what ``apply`` would do, or why not, without importing what would be patched.

    Args:
        manifest: As for ``apply``.

    Returns:
        The plan.

    Raises:
        ManifestError: The manifest is missing or wrong.
        PlanError: The plan can't be made.
    """
    return make_plan(load_manifest(manifest))
