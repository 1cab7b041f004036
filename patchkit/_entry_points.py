"""What the installed distributions declare, however broken one of them is."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["distribution_of", "entry_points"]

_Points = list[importlib.metadata.EntryPoint]


def entry_points(group: str, name: str | None = None) -> tuple[_Points, list[str]]:
    """Return the entry points of a group, and a line for each distribution whose metadata can't be read.

    Args:
        group: The group.
        name: Name of the entry points; any if not given.
    """
    try:
        return _chosen(importlib.metadata.entry_points(group=group), group, name), []
    except Exception:
        # One bad file is enough for that: look at each distribution by itself.
        found: _Points = []
        unreadable: list[str] = []
        for distribution in _each_once():
            try:
                found += _chosen(distribution.entry_points, group, name)
            except Exception as error:
                unreadable.append(
                    f"the entry points of {_label(distribution)} can't be read ({type(error).__name__}: {error}), so "
                    "what it declares is not known. Mend or uninstall that distribution."
                )
        return found, unreadable


def distribution_of(point: importlib.metadata.EntryPoint) -> str | None:
    """Return what to call the distribution that declares an entry point; ``None`` if that isn't known."""
    return _label(point.dist) if point.dist is not None else None


def _chosen(points: Iterable[importlib.metadata.EntryPoint], group: str, name: str | None) -> _Points:
    return [point for point in points if point.group == group and name in (None, point.name)]


def _each_once() -> Iterator[importlib.metadata.Distribution]:
    """Yield the distributions; of several of one name the first on the path, which is the one that is imported."""
    seen: set[str] = set()
    for distribution in importlib.metadata.distributions():
        label = _label(distribution).lower().replace("-", "_")
        if label not in seen:
            seen.add(label)
            yield distribution


def _label(distribution: importlib.metadata.Distribution) -> str:
    """Return its name, or that of the folder of its metadata if they are what can't be read."""
    try:
        return str(distribution.metadata["Name"] or _folder(distribution))
    except Exception:
        return _folder(distribution)


def _folder(distribution: importlib.metadata.Distribution) -> str:
    return Path(str(getattr(distribution, "_path", "a distribution without a name"))).name
