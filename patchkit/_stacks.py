"""Several patches on one site.

A stack remembers what a site held before patchkit came (raw, in its own namespace) and the layers above
it. Whenever a layer comes, goes, is suspended or resumed, the chain is built anew from the bottom and the
site is set once: every wrapper calls what is next now, whatever the order of arrival and departure, and a
call costs no more than the wrappers themselves.

Stacks don't change: each move makes others. A thousand instances that are patched alike share one.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from ._bind import taking_self, taking_self_of_class
from ._layers import Entries, Layer, active_layers, describe_object
from ._names import Names
from ._site import ABSENT, AnySite, ItemSite, open_descriptor
from .errors import ForeignChangeError, InstallError, SiteError

__all__ = ["InstanceStack", "ModuleStack", "Stack", "stack_on"]

# Values of these types are the same if they are equal: nobody can tell one from another, and some mappings (the
# environment, for one) make a new object for each look.
_VALUES = (str, bytes, int, float, complex, bool)

# Functions that are or were bound to instances: a deep copy of such an instance carries one with it.
_OVERRIDES: weakref.WeakSet[Callable[..., Any]] = weakref.WeakSet()


class Stack:
    """What is known about a site: a class's attribute, or an item of a mapping.

    Args:
        original: What the site held before patchkit came, in the form in which it is remembered.
        entries: The layers on it.
        ours: What patchkit has left on the site: the last of these, or an earlier one if an interrupt came between.
    """

    __slots__ = ("entries", "original", "ours")

    def __init__(self, original: object, entries: Entries = (), ours: tuple[object, ...] | None = None) -> None:
        self.original = original
        self.entries = entries
        self.ours = (original,) if ours is None else ours

    @property
    def is_shared(self) -> bool:
        """Whether the stack may stand for several sites, of one kind of owner or of several."""
        return False

    def has_settled_on(self, form: object) -> bool:
        """Whether the last move was carried through, and left just that on the site."""
        return len(self.ours) == 1 and (form is self.ours[0] or _as_function(form) is _as_function(self.ours[0]))

    def moved(self, entries: Entries, ours: tuple[object, ...]) -> Stack:
        """Return the stack after a move, or in the middle of one."""
        return type(self)(self.original, entries, ours)

    def joined(self, site: AnySite) -> Sequence[AnySite]:
        """Return all sites that stand for one object with ``site``, which is one of them from now on."""
        return (site,)

    def value_of(self, form: object, site: AnySite) -> object:
        """Return what a site holds that is remembered as ``form``."""
        return form

    def holds(self, found: object, form: object, site: AnySite) -> bool:
        """Tell whether ``found`` is what is remembered as ``form``."""
        return found is form or (type(found) is type(form) and isinstance(found, _VALUES) and found == form)

    def foreign(self, site: AnySite, intended: object) -> ForeignChangeError | None:
        """Return an error if somebody else has put something on the site, unless it is just what is intended."""
        if not self.entries and len(self.ours) == 1:
            # Made a moment ago from what the site held.
            return None
        for place in self.joined(site):
            found = place.read()
            if self.holds(found, self.ours[-1], place) or place.owner is None:
                continue
            if any(self.holds(found, form, place) for form in (*self.ours, intended)):
                continue
            return ForeignChangeError(
                f"{place.path}: {self._instead(found)}. Somebody changed the site after patchkit did; take that change "
                "out first, then try again.",
                site=place.path,
                found=describe_object(found),
            )
        return None

    def problem(self, site: AnySite) -> str | None:
        """Say in what way ``site`` doesn't hold what patchkit put there, or return ``None``."""
        found = site.read()
        return None if self.holds(found, self.ours[-1], site) or site.owner is None else self._instead(found)

    def compose(self, site: AnySite, entries: Entries) -> object:
        """Return the form of what the site should hold with these layers.

        Raises:
            SiteError: A wrapping layer stands on something that can't be called.
            Exception: What a layer's ``make`` raises.
        """
        layers = active_layers(entries)
        if not layers:
            return self.original
        own = self.original is not ABSENT
        raw = self.value_of(self.original, site) if own else site.inherited()
        start = 0
        for index, layer in enumerate(layers):
            if layer.make is None:
                raw, start, own = layer.value, index + 1, True
        return raw if start == len(layers) else self.chain(site, raw, layers[start:], own=own)

    def chain(self, site: AnySite, raw: object, layers: list[Layer], *, own: bool) -> object:
        """Return ``raw`` with wrappers around it, of the same descriptor kind."""
        opened = None if raw is ABSENT else open_descriptor(raw)
        if opened is None:
            raise SiteError(
                f"{site.path}: expected something that can be called, found {describe_object(raw)}."
                + (site.nearest() if raw is ABSENT else " Use replace for attributes that aren't functions.")
            )
        function, rewrap = opened
        chained = _wrapped(function, layers)
        return _in_class(site, raw, chained) if raw is function and isinstance(site.owner, type) else rewrap(chained)

    def put(self, site: AnySite, form: object) -> None:
        """Set the site. Harmless when repeated, also after it was interrupted half-way."""
        site.write(self.value_of(form, site))

    def _instead(self, found: object) -> str:
        return f"expected {describe_object(self.ours[-1])} as patchkit left it, found {describe_object(found)}"


class ModuleStack(Stack):
    """What is known about a module's attribute, with the other names of the same object in whatever module."""

    __slots__ = ("names",)

    def __init__(
        self, original: object, entries: Entries = (), ours: tuple[object, ...] | None = None, *, names: Names
    ) -> None:
        super().__init__(original, entries, ours)
        self.names = names

    def moved(self, entries: Entries, ours: tuple[object, ...]) -> Stack:
        return ModuleStack(self.original, entries, ours, names=self.names)

    def joined(self, site: AnySite) -> Sequence[AnySite]:
        self.names.add(site)
        return self.names.sites

    def problem(self, site: AnySite) -> str | None:
        found = super().problem(site)
        stale = self.names.stale(self.ours[-1]) if found is None else []
        if stale:
            found = (
                f"expected every name of it to be patched too, found {', '.join(stale)} bound to "
                f"{describe_object(self.original)}, which was there before"
            )
        return found

    def put(self, site: AnySite, form: object) -> None:
        for place in self.names.sites:
            if place.read() is not form:
                place.write(form)
        self.names.bind(self.ours, form)


class InstanceStack(Stack):
    """What is known about an instance's attribute, or about that of many instances alike.

    Wrappers on an instance take ``self`` and are bound as methods: a deep copy of the instance then carries a method of
    the copy, where a closure would go on acting for the original. Methods of the instance itself are not remembered as
    such, since they would keep it alive.
    """

    __slots__ = ()

    @property
    def is_shared(self) -> bool:
        return self.original is ABSENT

    def value_of(self, form: object, site: AnySite) -> object:
        return form.of(site.owner) if isinstance(form, _Remembered) else form

    def holds(self, found: object, form: object, site: AnySite) -> bool:
        if isinstance(form, _Remembered):
            return type(found) is types.MethodType and found.__func__ is form.function and found.__self__ is site.owner
        return super().holds(found, form, site)

    def chain(self, site: AnySite, raw: object, layers: list[Layer], *, own: bool) -> object:
        if not callable(raw) and open_descriptor(raw) is None:
            raise SiteError(f"{site.path}: expected a method, found {describe_object(raw)}.")
        function = taking_self(raw, site.owner) if own else taking_self_of_class(raw)
        chained = _wrapped(function, layers)
        _OVERRIDES.add(chained)
        return _Remembered(chained)


class _Remembered:
    """A function that becomes a method of the instance that it is put on."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def of(self, owner: object) -> object:
        """Return the method."""
        return ABSENT if owner is None else types.MethodType(self.function, owner)


class _OwnMethod(_Remembered):
    """A method of the very instance that held it."""

    __slots__ = ("_ref",)

    def __init__(self, method: types.MethodType) -> None:
        super().__init__(method.__func__)
        self._ref = weakref.ref(method)

    def of(self, owner: object) -> object:
        # If nobody has the same method any more, nobody can tell another one from it.
        return self._ref() or super().of(owner)


_UNTOUCHED = InstanceStack(ABSENT)


def _as_function(form: object) -> object:
    return form.function if isinstance(form, _Remembered) else form


def stack_on(site: AnySite, writable: set[tuple[type, str]]) -> Stack:
    """Return a stack for a site that has none.

    Args:
        site: The site.
        writable: Types of instances, with attributes, that were found to be writable; added to.

    Raises:
        SiteError: The site can't be written.
    """
    if isinstance(site, ItemSite):
        return Stack(site.read())
    owner = site.ref()
    kind = type(owner), site.attr
    if kind not in writable:
        site.require_writable()
        if isinstance(owner, type):
            return Stack(site.read())
        if isinstance(owner, types.ModuleType):
            original = site.read()
            return ModuleStack(original, names=Names(site, original))
        writable.add(kind)
    original = site.read()
    if original is ABSENT:
        return _UNTOUCHED
    if type(original) is types.MethodType and original.__func__ in _OVERRIDES:
        # It came with a deep copy of a patched instance, whose class still has what the override stands on.
        return InstanceStack(ABSENT, ours=(_Remembered(original.__func__),))
    if type(original) is types.MethodType and original.__self__ is owner:
        return InstanceStack(_OwnMethod(original))
    return InstanceStack(original)


def _wrapped(function: Callable[..., Any], layers: list[Layer]) -> Callable[..., Any]:
    return reduce(lambda below, layer: layer.build(below), layers, function)


def _in_class(site: AnySite, raw: object, chained: Callable[..., Any]) -> object:
    binds = hasattr(type(chained), "__get__")
    if not hasattr(type(raw), "__get__"):
        # A built-in, a class or an object with __call__ gets no self: neither must the function around it.
        return staticmethod(chained) if binds else chained
    if not binds:
        raise InstallError(
            f"{site.path}: expected a function as the wrapper of a method, found {describe_object(chained)}, which "
            "would not be given self. Let make return a function."
        )
    return chained
