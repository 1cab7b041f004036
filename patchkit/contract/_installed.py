"""The library that this interpreter would import, or has imported. Looking at it imports nothing."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence

from ._files import Place, find_module, find_top
from ._source import FileSource, recorded_version

__all__ = ["InstalledSource"]


class InstalledSource(FileSource):
    """What this interpreter would import, editable installs included, found without importing it.

    The top-level package is found by the import system, which runs no code of the library for that; what lies below
    is found by joining paths. A package that is already imported is found where it was imported from.

    Args:
        path: Folders to search instead of ``sys.path``.
    """

    def __init__(self, path: Sequence[str] | None = None) -> None:
        super().__init__("installed")
        self._path = list(path) if path is not None else None

    @property
    def is_of_process(self) -> bool:
        """Whether it is what this process imports, and has imported."""
        return self._path is None

    def version(self, distribution: str) -> str | None:
        return recorded_version(distribution, self._path)

    def _place(self, name: str) -> Place | None:
        place = super()._place(name)
        return self._place_in_process(name) if place is None and self._path is None else place

    def _place_in_process(self, name: str) -> Place | None:
        """Find what no folder has by that path, but this process: by another name, or on a path made at run time."""
        module = sys.modules.get(name)
        spec = _attribute(module, "__spec__")
        if isinstance(spec, importlib.machinery.ModuleSpec):
            # What is put into sys.modules under a second name still has the first one, as os.path has.
            return super()._place(spec.name) if spec.name != name else _place_of(name, spec)
        if module is not None:
            return Place("", "", (), name)
        parent, _, last = name.rpartition(".")
        folders = _attribute(sys.modules.get(parent), "__path__") if parent else None
        if not isinstance(folders, Iterable):
            return None
        locations = tuple(folder for folder in folders if isinstance(folder, str))
        root = os.path.dirname(locations[0]) if locations else ""
        return find_module([last], Place("", root, locations))

    def _top(self, name: str) -> Place | None:
        if self._path is not None:
            return find_top(name, self._path)
        spec = _spec(name)
        return _place_of(name, spec) if spec is not None else None


def _spec(name: str) -> importlib.machinery.ModuleSpec | None:
    """Find a top-level module as an import would, in the form that has a file if there is one."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        # A module in sys.modules without a spec, or a finder that is broken.
        spec = None
    if spec is None or spec.origin == "frozen":
        # Frozen modules of the standard library have their source on the path all the same.
        found = importlib.machinery.PathFinder.find_spec(name)
        return found if found is not None else spec
    return spec


def _place_of(name: str, spec: importlib.machinery.ModuleSpec) -> Place | None:
    locations = tuple(spec.submodule_search_locations or ())
    origin = spec.origin or ""
    if os.path.isfile(origin):
        folder = os.path.dirname(origin)
        root = os.path.dirname(folder) if locations else folder
        if origin.endswith(".py"):
            return Place(origin, root, locations)
        return find_top(name, [root]) or Place("", root, locations, origin)
    if locations and not origin:
        return Place("", os.path.dirname(locations[0]), locations)
    # Built in, or in an archive.
    return Place("", "", locations, origin or "built-in")


def _attribute(module: object, name: str) -> object:
    """Return what a module has under a name, without asking a lazy one to load itself."""
    try:
        namespace = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return None
    return namespace.get(name)
