"""Layers on sites, and the targets that they act for, as records of the journal.

Handles share a layer: doing counts an owner, undoing takes it away, and the layer follows the count.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Sequence

from ._layers import Entries, Layer, entry_of
from ._locks import LOCK
from ._moves import move, move_on, settle, standing_stack
from ._shares import Change, Share, Targets
from ._site import ABSENT, AnySite
from ._stacks import Stack
from .errors import RevertError

__all__ = ["LayerRecord", "TargetsRecord"]


class LayerRecord:
    """One layer put on one or many sites."""

    def __init__(self, layer: Layer, sites: Sequence[AnySite]) -> None:
        self.layer = layer
        self.sites = sites

    def describe(self) -> str:
        first = self.sites[0].path
        return first if len(self.sites) == 1 else f"{first} and {len(self.sites) - 1} more"

    def change(self) -> tuple[str, object, object, int]:
        """What is on the first site, before and after, and on how many sites the layer is."""
        site = self.sites[0]
        stack = standing_stack(site)
        before = stack.value_of(stack.original, site) if stack is not None else ABSENT
        return site.path, site.inherited() if before is ABSENT else before, site.read(), len(self.sites)

    def has_effect(self) -> bool:
        """Whether something is other than it was, or would be if another handle hadn't suspended the layer."""
        with LOCK:
            return any(self._has_effect_on(site) for site in self.sites)

    def _has_effect_on(self, site: AnySite) -> bool:
        stack = standing_stack(site)
        entry = entry_of(stack.entries, self.layer) if stack is not None else None
        if stack is None or entry is None:
            return False
        if not entry.share.active:
            return True
        # A wrapper is never what it wraps; a value may be what was there anyway.
        is_other = self.layer.make is not None or len(stack.entries) > 1
        return entry.active and (is_other or not stack.holds(site.read(), stack.original, site))

    def stock_function(self) -> object:
        """Return the function that was on the first site before, or ``None`` if it was no function."""
        stack = standing_stack(self.sites[0])
        original = stack.original if stack is not None else None
        function = original.__func__ if isinstance(original, (staticmethod, classmethod)) else original
        return function if isinstance(function, types.FunctionType) else None

    def do(self) -> None:
        if self.layer.targets is not None:
            self.layer.targets.watch(self._settle)
        move(self, Share.acquire)

    def undo(self) -> None:
        errors = move_on(self, Share.release)
        if self.layer.targets is not None and not errors:
            self.layer.targets.unwatch(self._settle)
        if errors:
            raise errors[0] if len(errors) == 1 else _together(errors)

    def suspend(self) -> None:
        # A layer that acts for targets goes with them: other models may still need it.
        if self.layer.targets is None:
            move(self, Share.suspend)

    def resume(self) -> None:
        if self.layer.targets is None:
            move(self, Share.resume)

    def problem(self) -> str | None:
        # A look in the middle of somebody else's move would see a problem where there is none.
        with LOCK:
            return self._problem()

    def _problem(self) -> str | None:
        proven: Entries = ()
        for site in self.sites:
            stack = standing_stack(site)
            if stack is None:
                found = None if site.owner is None else f"expected the layer of {self.layer.patch!r}, found none"
            else:
                # Sites alike have the very same entries.
                found = None if stack.entries is proven else self._absence(stack)
                proven = stack.entries
                found = found or stack.problem(site)
            if found is not None:
                return f"{site.path}: {found}"
        return None

    def _absence(self, stack: Stack) -> str | None:
        entry = entry_of(stack.entries, self.layer)
        if entry is None:
            return f"expected the layer of {self.layer.patch!r}, found none"
        if not entry.share.active:
            return f"expected the layer of {self.layer.patch!r}, found that another handle has suspended it"
        return None

    def _settle(self) -> None:
        settle(self.sites)


def _together(errors: list[Exception]) -> RevertError:
    lines = [str(error) for error in errors]
    return RevertError("\n".join(lines), stranded=lines, exceptions=errors)


class TargetsRecord:
    """Objects added to the set that a patch acts for."""

    def __init__(self, targets: Targets, objects: Sequence[object]) -> None:
        self.targets = targets
        self._refs = [weakref.ref(obj) for obj in objects]

    def describe(self) -> str:
        return f"{len(self._refs)} targets"

    def has_effect(self) -> bool:
        """Not by itself, since it takes a layer that acts for the targets, or would if another handle let it."""
        return any(obj not in self.targets for obj in self._alive())

    def do(self) -> None:
        self._change(Share.acquire)

    def undo(self) -> None:
        self._change(Share.release)

    def suspend(self) -> None:
        self._change(Share.suspend)

    def resume(self) -> None:
        self._change(Share.resume)

    def problem(self) -> str | None:
        missing = [obj for obj in self._alive() if obj not in self.targets]
        if not missing:
            return None
        suspended = sum(map(self.targets.owns, missing))
        return (
            f"expected the patch to act for {len(self._refs)} targets, found {suspended} of them that another handle "
            f"has suspended, and {len(missing) - suspended} that it doesn't know"
        )

    def _alive(self) -> list[object]:
        return [obj for ref in self._refs if (obj := ref()) is not None]

    def _change(self, change: Change) -> None:
        self.targets.change(self._alive(), change, self)
