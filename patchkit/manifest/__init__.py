"""Manifests: which patches to apply, with which options, to what, when, and under which policy."""

from __future__ import annotations

from ._faults import explain_options
from ._load import load_manifest
from ._model import SCHEMA_VERSION, AuditConfig, Manifest, PatchEntry, Policy
from ._origin import Place
from ._schema import manifest_schema
from ._when import When

__all__ = [
    "SCHEMA_VERSION",
    "AuditConfig",
    "Manifest",
    "PatchEntry",
    "Place",
    "Policy",
    "When",
    "explain_options",
    "load_manifest",
    "manifest_schema",
]
