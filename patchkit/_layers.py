"""What one patch puts on a site, and how several of them are chained."""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ._bind import twin_of
from ._shares import NOBODY, Change, Share, Targets
from ._signature import misfit
from ._site import ABSENT, AnySite
from .errors import InstallError, NothingToDoError, OrderError

__all__ = ["Entries", "Entry", "Layer", "Make", "active_layers", "changed", "describe_object", "entry_of"]

Make = Callable[[Callable[..., Any]], Callable[..., Any]]

_ARRIVALS = itertools.count()


class Layer:
    """What one patch puts on a site: a wrapper around what is below, or a value instead of it.

    Args:
        patch: Name of the patch.
        ident: Tells this layer from the patch's other layers on the site; equal for equal applications.
        variant: Digest of the options; two applications that differ in it can't share a layer.
        make: Builds the wrapper around the next callable, for a wrapping layer.
        value: The replacement, for a replacing layer; ``ABSENT`` deletes.
        priority: Higher is further outside.
        targets: The layer is on only while this set is not empty.
    """

    __slots__ = ("_memo", "arrival", "ident", "make", "patch", "priority", "targets", "value", "variant")

    def __init__(
        self,
        patch: str,
        ident: object,
        variant: str,
        *,
        make: Make | None = None,
        value: object = ABSENT,
        priority: int = 0,
        targets: Targets | None = None,
    ) -> None:
        self.patch = patch
        self.ident = ident
        self.variant = variant
        self.make = make
        self.value = value
        self.priority = priority
        self.targets = targets
        self.arrival = next(_ARRIVALS)
        self._memo: tuple[Callable[..., Any], Callable[..., Any]] | None = None

    def build(self, below: Callable[..., Any]) -> Callable[..., Any]:
        """Return the wrapper around ``below``, the same object for the same ``below``."""
        memo = self._memo
        if memo is None or memo[0] is not below:
            assert self.make is not None
            wrapper = self.make(below)
            if not callable(wrapper):
                raise InstallError(
                    f"{self.patch}: expected a wrapper around {describe_object(below)}, got "
                    f"{describe_object(wrapper)}, which can't be called. Let make return the function that it defines.",
                    patch=self.patch,
                )
            if wrapper is below:
                raise NothingToDoError(
                    f"{self.patch}: expected a wrapper around {describe_object(below)}, got that very object back, "
                    "which changes nothing. Return a function that calls it.",
                    patch=self.patch,
                )
            problem = misfit(wrapper, below, by_position=self._is_strangers(below))
            if problem is not None:
                raise InstallError(
                    f"{self.patch}: the wrapper around {describe_object(below)} can't be called like it: {problem}. "
                    "Give it the same parameters.",
                    patch=self.patch,
                )
            if isinstance(wrapper, types.FunctionType):
                # A function that isn't a closure over what is below may be one of the author's own, which has a name
                # elsewhere and metadata of its own: a twin is installed in its place.
                wrapper = wrapper if _closes_over(wrapper, below) else twin_of(wrapper)
                updated = functools.WRAPPER_UPDATES if isinstance(below, types.FunctionType) else ()
                functools.update_wrapper(wrapper, below, updated=updated)
            self._memo = memo = below, wrapper
        return memo[1]

    def _is_strangers(self, below: object) -> bool:
        """Tell whether what stands on a module's function was put there by another project, under names of its own."""
        label = self.ident[0] if isinstance(self.ident, tuple) else ""
        home = str(label).partition(":")[0] if ":" in str(label) else ""
        module = getattr(below, "__module__", None)
        return bool(home and module) and str(module).partition(".")[0] != home.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Entry:
    """A layer on a site, and who owns it there."""

    layer: Layer
    share: Share

    @property
    def active(self) -> bool:
        """Whether the layer is on."""
        return self.share.active and (self.layer.targets is None or len(self.layer.targets) > 0)


Entries = tuple[Entry, ...]


def entry_of(entries: Entries, layer: Layer) -> Entry | None:
    """Return the entry that stands for the same application of the same patch, if there is one."""
    return next(
        (entry for entry in entries if entry.layer.variant == layer.variant and _alike(entry.layer, layer)), None
    )


def changed(entries: Entries, layer: Layer, change: Change, owner: object, site: AnySite) -> Entries:
    """Return the entries after ``owner`` has changed its share in ``layer``, the very same ones if nothing changes.

    An entry without owners is left out.

    Raises:
        OrderError: The patch is applied there with other options.
    """
    old = entry_of(entries, layer)
    share = change(old.share if old is not None else NOBODY, owner)
    if share == (old.share if old is not None else NOBODY):
        return entries
    if old is None:
        if layer.targets is None and any(_alike(entry.layer, layer) for entry in entries):
            raise OrderError(
                f"{site.path}: expected {layer.patch!r} with the options that it is already applied with, found other "
                "ones. Revert the first application before applying it differently.",
                patch=layer.patch,
            )
        return (*entries, Entry(layer, share))
    new = (Entry(old.layer, share),) if share.owners else ()
    return tuple(kept for entry in entries for kept in (new if entry is old else (entry,)))


def _alike(layer: Layer, other: Layer) -> bool:
    return layer.patch == other.patch and layer.ident == other.ident


def active_layers(entries: Iterable[Entry]) -> list[Layer]:
    """The layers that are on, innermost first."""
    on = [entry.layer for entry in entries if entry.active]
    return sorted(on, key=lambda layer: (layer.priority, layer.arrival))


def describe_object(obj: object) -> str:
    """Say what ``obj`` is and where it was defined, without its value."""
    if obj is ABSENT:
        return "nothing"
    kind = type(obj)
    inner: Any = obj
    if issubclass(kind, (staticmethod, classmethod, types.MethodType)):
        inner = inner.__func__
    elif issubclass(kind, property):
        inner = inner.fget
    if type(inner) is types.FunctionType:
        # By its globals: ``__module__`` may have been copied from what it wraps.
        module = inner.__globals__.get("__name__")
        place = f" ({inner.__code__.co_filename}:{inner.__code__.co_firstlineno})"
        return f"{kind.__name__} {module}.{inner.__qualname__}{place}"
    if issubclass(type(inner), (type, types.BuiltinFunctionType)):
        return f"{kind.__name__} {inner.__module__}.{inner.__qualname__}"
    return f"an object of type {kind.__module__}.{kind.__qualname__}"


def _closes_over(function: types.FunctionType, below: object) -> bool:
    for cell in function.__closure__ or ():
        try:
            if cell.cell_contents is below:
                return True
        except ValueError:
            # The cell has no contents yet.
            continue
    return False
