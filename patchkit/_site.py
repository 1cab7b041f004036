"""One place that can be patched, read and written raw in its own namespace.

Reading through ``getattr`` would bind methods and find inherited values, so a site always looks into the
namespace itself: what it finds is exactly what must be put back, or ``ABSENT`` where nothing was.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import types
import weakref
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any, Final

from .errors import SiteError

__all__ = ["ABSENT", "PLACES", "AnySite", "ItemSite", "Site", "locate", "open_descriptor"]


class _Absent:
    """Stands for "there was nothing here", which ``None`` can't."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<absent>"


ABSENT: Final = _Absent()


PLACES: Final[dict[tuple[int, object], Any]] = {}
"""What is known about places, by their keys. A place is forgotten when its owner is collected."""


class _Ref(weakref.ref[Any]):
    """A weak reference to the owner of the place with this key."""

    __slots__ = ("key",)
    key: tuple[int, object]


def _forget(ref: _Ref) -> None:
    PLACES.pop(ref.key, None)


class Site:
    """An owner (module, class or instance) and an attribute name.

    The owner is held weakly: a site never keeps a model alive.

    Args:
        owner: The module, class or instance in whose own namespace the attribute lives.
        attr: The attribute's name.
        path: How to call the site in messages; made up from the owner if not given.

    Attributes:
        key: Identity of the place, valid while the owner lives.
        ref: Returns the owner, or ``None`` once it has been collected.
    """

    __slots__ = ("_path", "_slot", "attr", "key", "ref")

    def __init__(self, owner: object, attr: str, path: str | None = None) -> None:
        self._bind(owner, attr, path, _slot_of(owner, attr))

    @classmethod
    def each(cls, owners: Iterable[object], attr: str) -> list[Site]:
        """Return a site for each of ``owners``, which are mostly of a few types."""
        slots: dict[type, Any] = {}
        sites = []
        for owner in owners:
            kind = type(owner)
            if kind not in slots:
                slots[kind] = _slot_of(owner, attr)
            site = cls.__new__(cls)
            site._bind(owner, attr, None, slots[kind])
            sites.append(site)
        return sites

    def _bind(self, owner: object, attr: str, path: str | None, slot: Any) -> None:
        self.key = key = (id(owner), attr)
        self.attr = attr
        self._path = path
        self._slot = slot
        self.ref: Callable[[], Any]
        try:
            self.ref = ref = _Ref(owner, _forget)
            ref.key = key
        except TypeError:
            # One of the few types that allow no weak reference.
            self.ref = lambda: owner

    @property
    def owner(self) -> Any:
        """The owner, or ``None`` once it has been collected."""
        return self.ref()

    @property
    def path(self) -> str:
        """The site as ``package.module:Class.attr``; an instance is named by its class."""
        if self._path is not None:
            return self._path
        owner = self.owner
        if isinstance(owner, types.ModuleType):
            return f"{owner.__name__}:{self.attr}"
        cls = owner if isinstance(owner, type) else type(owner)
        suffix = "" if isinstance(owner, type) else " (one instance)"
        return f"{cls.__module__}:{cls.__qualname__}.{self.attr}{suffix}"

    def read(self) -> object:
        """Return what the owner's own namespace holds, undecorated by any descriptor, or ``ABSENT``."""
        owner = self.ref()
        if self._slot is not None and owner is not None:
            try:
                return self._slot.__get__(owner, type(owner))
            except AttributeError:
                return ABSENT
        namespace = getattr(owner, "__dict__", None)
        return ABSENT if namespace is None else namespace.get(self.attr, ABSENT)

    def write(self, value: object) -> None:
        """Put ``value`` into the namespace; ``ABSENT`` deletes, and nothing happens if there is nothing to delete."""
        owner = self.ref()
        if owner is None:
            return
        if self._slot is None and not isinstance(owner, type):
            # The instance's dictionary is used directly: a class such as nn.Module gives its own meaning to setattr.
            if value is ABSENT:
                owner.__dict__.pop(self.attr, None)
            else:
                owner.__dict__[self.attr] = value
        elif value is ABSENT and self.read() is ABSENT:
            return
        elif self._slot is not None:
            self._slot.__delete__(owner) if value is ABSENT else self._slot.__set__(owner, value)
        else:
            delattr(owner, self.attr) if value is ABSENT else setattr(owner, self.attr, value)

    def inherited(self) -> object:
        """Return what attribute access finds beyond the owner's own namespace, raw, or ``ABSENT``."""
        owner = self.ref()
        if isinstance(owner, types.ModuleType):
            return ABSENT
        return _first_in(owner.__mro__[1:] if isinstance(owner, type) else type(owner).__mro__, self.attr)

    def nearest(self) -> str:
        """Return a sentence with the names of the owner that are like this one; empty if there are none."""
        return _nearest(self.ref(), self.attr)

    def require_writable(self) -> None:
        """Raise ``SiteError`` where a write to this site could not take effect or would be refused."""
        owner = self.ref()
        if isinstance(owner, type):
            if not owner.__flags__ & (1 << 9):  # Py_TPFLAGS_HEAPTYPE: only heap types take new attributes
                raise SiteError(
                    f"{self.path}: expected a class written in Python, found the C type {owner.__qualname__!r}, whose "
                    "attributes can't be set. Patch the place that calls it instead."
                )
            return
        if isinstance(owner, types.ModuleType) or self._slot is not None:
            return
        found = self.inherited()
        if inspect.isdatadescriptor(found):
            raise SiteError(
                f"{self.path}: expected an attribute that an instance can override, found a {type(found).__name__} on "
                "the class, which always wins over the instance. Patch the class instead."
            )
        if not hasattr(owner, "__dict__"):
            raise SiteError(
                f"{self.path}: expected an instance with attributes of its own, found {type(owner).__qualname__!r} "
                "with neither __dict__ nor such a slot. Patch the class instead."
            )


def _nearest(owner: object, name: str) -> str:
    near = difflib.get_close_matches(name, dir(owner), n=3)
    return f" Nearest names: {', '.join(near)}." if near else ""


def _slot_of(owner: object, attr: str) -> Any:
    """Return the descriptor through which an instance holds ``attr`` in a slot, or ``None``."""
    if isinstance(owner, (type, types.ModuleType)):
        return None
    found = _first_in(type(owner).__mro__, attr)
    return found if isinstance(found, types.MemberDescriptorType) else None


def _first_in(classes: Iterable[type], attr: str) -> object:
    for cls in classes:
        namespace = cls.__dict__
        if attr in namespace:
            found: object = namespace[attr]
            return found
    return ABSENT


class ItemSite:
    """A key of a mapping, such as an entry of a registry dictionary."""

    __slots__ = ("_path", "attr", "key", "mapping")

    def __init__(self, mapping: MutableMapping[Any, Any], key: object, path: str | None = None) -> None:
        self.mapping = mapping
        self.attr = key
        self.key = id(mapping), key
        self._path = path

    @property
    def owner(self) -> object:
        """The mapping."""
        return self.mapping

    @property
    def path(self) -> str:
        """The site in messages."""
        return self._path or f"{type(self.mapping).__name__}[{self.attr!r}]"

    def read(self) -> object:
        """Return the item, or ``ABSENT``."""
        return self.mapping.get(self.attr, ABSENT)

    def write(self, value: object) -> None:
        """Set the item; ``ABSENT`` deletes."""
        if value is ABSENT:
            self.mapping.pop(self.attr, None)
        else:
            self.mapping[self.attr] = value

    def inherited(self) -> object:
        """Nothing stands behind an item."""
        return ABSENT

    def nearest(self) -> str:
        """Return a sentence with the keys that are like this one; empty if there are none."""
        near = difflib.get_close_matches(str(self.attr), map(str, self.mapping), n=3)
        return f" Nearest keys: {', '.join(near)}." if near else ""

    def require_writable(self) -> None:
        """Any item can be set."""


AnySite = Site | ItemSite


def locate(path: str) -> Site:
    """Resolve ``package.module:Class.attr`` to a site, importing the module.

    Args:
        path: Module and, after the colon, the attribute; dots walk through classes.

    Returns:
        The site. The attribute itself may be absent: whoever patches it decides whether that is an error.

    Raises:
        SiteError: The form is wrong, the module can't be imported, or an owner on the way is missing.
    """
    module_name, colon, qualname = path.partition(":")
    if not (colon and module_name and qualname):
        raise SiteError(f"expected a site of the form 'package.module:Class.attr', got {path!r}.")
    try:
        owner: object = importlib.import_module(module_name)
    except ImportError as error:
        raise SiteError(
            f"{path}: expected an importable module {module_name!r}, but importing it failed: {error}. Install the "
            "library that the patch is for, or correct the site."
        ) from error
    *parents, attr = qualname.split(".")
    for name in parents:
        try:
            # A module may make its classes when they are asked for; a class's own namespace is read raw.
            owner = getattr(owner, name) if isinstance(owner, types.ModuleType) else inspect.getattr_static(owner, name)
        except AttributeError:
            where = getattr(owner, "__name__", owner)
            raise SiteError(f"{path}: expected {name!r} in {where!r}, found none.{_nearest(owner, name)}") from None
    return Site(owner, attr, path)


def open_descriptor(raw: object) -> tuple[Callable[..., Any], Callable[[Callable[..., Any]], object]] | None:
    """Split what a namespace holds into its function and a way to wrap another function the same.

    Returns:
        The function and a rewrapper that keeps the descriptor kind (function, staticmethod, classmethod,
        property), or ``None`` for something that can't be called.
    """
    if isinstance(raw, (staticmethod, classmethod)):
        kind = type(raw)
        return raw.__func__, kind
    if isinstance(raw, property):
        if raw.fget is None:
            return None
        return raw.fget, lambda function: type(raw)(function, raw.fset, raw.fdel, raw.__doc__)
    if callable(raw):
        return raw, lambda function: function
    return None
