"""Names to patches: those registered in the process, and those that distributions declare."""

from __future__ import annotations

import difflib
import re
import sys
import types
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint
from typing import NamedTuple, TypeVar, overload

from ._bind import closing_over, twin_of
from ._context import Context
from ._entry_points import distribution_of, entry_points
from ._locks import LOCK
from .contract import Contract, Symbol
from .errors import RegistrationError, UnknownPatchError
from .patch import Patch, validate_patch

__all__ = ["find", "known_names", "register", "replace", "undeclared", "unregister", "wrap"]

GROUP = "patchkit.patches"

_REGISTERED: dict[str, Patch] = {}

P = TypeVar("P", bound=Patch)
F = TypeVar("F", bound=Callable[..., object])


@overload
def register(patch: type[P]) -> type[P]: ...
@overload
def register(patch: P) -> P: ...
def register(patch: type[P] | P) -> type[P] | P:
    """Make a patch known under its name; also a class decorator.

    Registering the same class again, or a newer version of it from the same module (a notebook cell that was
    run twice), replaces it.

    Args:
        patch: A subclass of ``Patch``, or an instance.

    Returns:
        The same object.

    Raises:
        RegistrationError: The declaration is incomplete, or another patch has the name.
    """
    instance = patch() if isinstance(patch, type) else patch
    if not isinstance(instance, Patch):
        raise RegistrationError(
            f"patchkit.register: expected a subclass of patchkit.Patch, or an instance, found {patch!r}."
        )
    _add(instance, "registered in this process")
    return patch


def unregister(name: str) -> None:
    """Forget a patch that was registered in this process; nothing happens if there is none of that name.

    What is applied stays applied. A patch that a distribution declares is found again when it is asked for.
    """
    with LOCK:
        _REGISTERED.pop(name, None)


def known_names() -> list[str]:
    """Return the names of all patches, sorted; declared ones are not loaded for it."""
    return sorted({*_REGISTERED, *_declared().points})


def undeclared() -> tuple[str, ...]:
    """Return a line for each distribution whose metadata can't be read, so that its patches aren't known."""
    return _declared().unreadable


def find(name: str) -> Patch:
    """Return the patch of that name, loading it if a distribution declares it.

    Raises:
        UnknownPatchError: There is none; the nearest names are in the message.
        RegistrationError: The distribution that declares it can't deliver it.
    """
    patch = _REGISTERED.get(name)
    if patch is not None:
        return patch
    points = _declared().points.get(name, ())
    if not points:
        nearest = difflib.get_close_matches(name, known_names(), n=3, cutoff=0.5)
        hint = f" Did you mean {' or '.join(map(repr, nearest))}?" if nearest else ""
        raise UnknownPatchError(
            f"expected the name of a registered patch, found {name!r}.{hint} "
            "'python -m patchkit list' shows all; a patch of your own must be registered before apply."
            + "".join(f"\n  {line}" for line in undeclared()),
            name=name,
            nearest=nearest,
        )
    if len(points) > 1:
        raise RegistrationError(
            f"{name}: expected one distribution to declare it, found {' and '.join(map(_origin, points))}. "
            "Uninstall one of them.",
            patch=name,
        )
    return _load(name, points[0])


def wrap(
    site: str,
    *,
    requires: str | tuple[str, ...] = (),
    name: str | None = None,
    summary: str = "",
    why: str = "",
    upstream: str = "",
    until: str = "nobody has said when it can go",
) -> Callable[[F], F]:
    """Turn a function into a registered patch that wraps ``site``.

    The function's first parameter receives what is below; the others are those of the wrapped function, by the
    same names, which is checked. Its docstring says why it exists (first line: the summary).

    Example:
        >>> @wrap("json:dumps", name="demo.sorted-json")
        ... def sorted_json(original, obj, **kwargs):
        ...     '''Write JSON with sorted keys, so that diffs stay small.'''
        ...     return original(obj, **{"sort_keys": True, **kwargs})

    Args:
        site: ``package.module:Class.attr``.
        requires: Requirement specifiers, such as ``"torch>=2.7,<2.16"``.
        name: Name of the patch; ``module.function`` if not given, in lower case with dashes.
        summary: One line; the docstring's first line if not given.
        why: Why the patch exists; the docstring if not given.
        upstream: The upstream issue that it answers.
        until: When it can go.

    Returns:
        A decorator that returns the function unchanged.

    Raises:
        RegistrationError: Neither ``summary`` nor a docstring is there, or the name is taken.
    """

    def decorate(function: F) -> F:
        _expect_function(function, "wrap")
        make = closing_over(function)

        def install(self: Patch, ctx: Context) -> None:
            ctx.wrap(site, make)

        _add_function(function, site, install, "wraps", requires, name, summary, why, upstream, until)
        return function

    return decorate


def replace(
    site: str,
    *,
    requires: str | tuple[str, ...] = (),
    name: str | None = None,
    summary: str = "",
    why: str = "",
    upstream: str = "",
    until: str = "nobody has said when it can go",
) -> Callable[[F], F]:
    """Turn a function into a registered patch that stands in for ``site``; see ``wrap`` for the arguments.

    The function takes the parameters of what it replaces, by the same names, which is checked.
    """

    def decorate(function: F) -> F:
        _expect_function(function, "replace")

        def make(_: Callable[..., object]) -> Callable[..., object]:
            # The author's own function keeps its name, its metadata, and its place in the author's module.
            return twin_of(function) if isinstance(function, types.FunctionType) else function

        def install(self: Patch, ctx: Context) -> None:
            ctx.wrap(site, make)

        _add_function(function, site, install, "replaces", requires, name, summary, why, upstream, until)
        return function

    return decorate


def _expect_function(function: object, decorator: str) -> None:
    if not (callable(function) and hasattr(function, "__qualname__") and hasattr(function, "__module__")):
        raise RegistrationError(
            f"patchkit.{decorator}: expected a function, found {function!r}, which has no name of its own. Define a "
            "function that calls it."
        )


def _add_function(
    function: Callable[..., object],
    site: str,
    install: Callable[[Patch, Context], None],
    verb: str,
    requires: str | tuple[str, ...],
    name: str | None,
    summary: str,
    why: str,
    upstream: str,
    until: str,
) -> None:
    doc = (function.__doc__ or "").strip()
    if not doc and sys.flags.optimize >= 2:
        doc = f"{verb} {site} (python -OO has left out why)"
    if not (doc or summary):
        raise RegistrationError(
            f"{function.__module__}.{function.__qualname__}: expected a docstring, whose first line is the summary of "
            "the patch and all of which says why it exists, found none. Write one, or give summary = …."
        )
    cls = type(
        function.__name__,
        (Patch,),
        {
            "__module__": function.__module__,
            "__qualname__": function.__qualname__,
            "__doc__": function.__doc__,
            "name": name or _name_for(function),
            "summary": summary or doc.split("\n", 1)[0],
            "why": why or doc or summary,
            "how": f"{verb} {site} with {function.__module__}.{function.__qualname__}",
            "upstream": upstream,
            "until": until,
            "contract": Contract(
                requires=(requires,) if isinstance(requires, str) else tuple(requires),
                symbols=(Symbol(path=site, role="site", why=f"the patch {verb} it"),),
            ),
            "install": install,
        },
    )
    _add(cls(), "registered in this process")


def _add(patch: Patch, origin: str) -> None:
    validate_patch(patch, origin)
    with LOCK:
        other = _REGISTERED.get(patch.name)
        if other is not None and _home(other) != _home(patch):
            raise RegistrationError(
                f"the name {patch.name!r} is taken: expected {_home(other)}, which was registered first, to be the "
                f"only one, found {_home(patch)} ({origin}). Rename one of them.",
                patch=patch.name,
            )
        _REGISTERED[patch.name] = patch


def _name_for(function: Callable[..., object]) -> str:
    words = re.sub(r"[^a-z0-9.]+", "-", f"{function.__module__}.{function.__name__}".lower()).split(".")
    return ".".join(word.strip("-") for word in words if word.strip("-"))


def _home(patch: Patch) -> str:
    return f"{type(patch).__module__}.{type(patch).__qualname__}"


class _Declared(NamedTuple):
    points: dict[str, tuple[EntryPoint, ...]]
    unreadable: tuple[str, ...]


@cache
def _declared() -> _Declared:
    declared: dict[str, tuple[EntryPoint, ...]] = {}
    found, unreadable = entry_points(GROUP)
    for entry_point in found:
        others = declared.get(entry_point.name, ())
        if all(other.value != entry_point.value for other in others):
            declared[entry_point.name] = (*others, entry_point)
    return _Declared(declared, tuple(unreadable))


def _origin(entry_point: EntryPoint) -> str:
    distribution = distribution_of(entry_point)
    return f"entry point of {distribution}" if distribution else "an entry point"


def _load(name: str, entry_point: EntryPoint) -> Patch:
    origin = _origin(entry_point)
    try:
        loaded = entry_point.load()
        patch = loaded() if isinstance(loaded, type) else loaded
    except (Exception, SystemExit) as error:
        # A module that exits when it is imported must not end a verification with success.
        raise RegistrationError(
            f"{name}: expected {entry_point.value!r} ({origin}) to be importable, but loading it failed: "
            f"{type(error).__name__}: {error}. Repair or uninstall that distribution.",
            patch=name,
        ) from error
    if name in _REGISTERED:
        # What a decorator returns is the function; loading it has registered the patch that it made.
        return _REGISTERED[name]
    if not isinstance(patch, Patch) or patch.name != name:
        found = f"a patch named {patch.name!r}" if isinstance(patch, Patch) else f"a {type(patch).__name__}"
        raise RegistrationError(
            f"{name}: expected {entry_point.value!r} ({origin}) to be a patch of that name, found {found}.", patch=name
        )
    _add(patch, origin)
    return patch
