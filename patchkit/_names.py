"""All names of the object on a module-level site, which follow it when the site is changed."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator, Sequence

from ._alias import can_have_aliases, find_aliases
from ._bind import author_of
from ._site import AnySite

__all__ = ["Names"]

_Name = tuple[int, str]  # identity of a namespace, and a name in it


class Names:
    """The names of one object: the sites by which it is patched, and those that are found by identity.

    Args:
        site: The first site.
        original: What it held before patchkit came.
    """

    __slots__ = ("_at_home", "_spared", "original", "sites")

    def __init__(self, site: AnySite, original: object) -> None:
        self.original = original
        self.sites: tuple[AnySite, ...] = (site,)
        # Names that hold one of our values on their own account, such as a replacement in its author's module.
        self._at_home: dict[int, frozenset[tuple[str, str]]] = {}
        # Names that stay with the original, since a function on the sites reads them.
        self._spared: dict[_Name, dict[str, object]] = {}

    def add(self, site: AnySite) -> None:
        """Let another name of the object be patched as a site too."""
        if all(site.key != known.key for known in self.sites):
            self.sites = (*self.sites, site)

    def followed(self, value: object) -> object:
        """Return what names should be bound to when the sites hold ``value``.

        They can be told by what they are bound to only if its identity means something; otherwise they stay with the
        original.
        """
        return value if can_have_aliases(value) else self.original

    def bind(self, before: Sequence[object], value: object) -> None:
        """Bind the names to ``value`` that are bound to one of ``before``; harmless when repeated."""
        # Of what isn't on a site any more, nothing need be known.
        current = {id(old) for old in before}
        self._at_home = {key: names for key, names in self._at_home.items() if key in current}
        target = self.followed(value)
        olds = {id(old): old for old in map(self.followed, before) if old is not target and can_have_aliases(old)}
        if not olds:
            return
        is_new = target is not self.original and id(target) not in self._at_home
        names = list(find_aliases(*olds.values(), *([target] if is_new else [])))
        if is_new:
            self._at_home[id(target)] = frozenset(
                (module, name)
                for held, namespace, module, name in names
                if held is target and not self._is_site(namespace, name)
            )
        found = {
            (id(namespace), name): namespace
            for held, namespace, module, name in names
            if held is not target and (module, name) not in self._at_home.get(id(held), ())
        }
        own = self._own_reads(target, {**found, **self._spared})
        for (key, name), namespace in found.items():
            if (key, name) in own:
                self._spared[key, name] = namespace
            namespace[name] = self.original if (key, name) in own else target
        for key, name in self._spared.keys() - own:
            namespace = self._spared.pop((key, name))
            if namespace.get(name) is self.original:
                namespace[name] = target

    def stale(self, value: object) -> list[str]:
        """Return names that are bound to the original, and should be bound to ``value``."""
        if value is self.original or not can_have_aliases(self.original):
            return []
        return [
            f"{module}:{name}"
            for _, namespace, module, name in find_aliases(self.original)
            if (id(namespace), name) not in self._spared
        ]

    def _own_reads(self, value: object, names: dict[_Name, dict[str, object]]) -> set[_Name]:
        """Return those of ``names`` that the functions on the site read themselves.

        ``from m import f as stock_f`` beside a function that stands in for ``f`` and calls ``stock_f`` means what was
        there before: bound to the function itself, it would never end.
        """
        own: set[_Name] = set()
        while value is not self.original and isinstance(value, types.FunctionType):
            author = author_of(value)
            there = id(author.__globals__)
            if any(key == there for key, _ in names):
                own.update((there, name) for name in _global_reads(author))
            value = getattr(value, "__wrapped__", None)
        return {key for key in own & names.keys() if not self._is_site(names[key], key[1])}

    def _is_site(self, namespace: dict[str, object], name: str) -> bool:
        return any(site.attr == name and getattr(site.owner, "__dict__", None) is namespace for site in self.sites)


def _global_reads(function: types.FunctionType) -> Iterator[str]:
    """Yield the globals that a function reads, itself or in others of its module that it names."""
    seen: set[types.CodeType] = set()
    pending = [function.__code__]
    while pending:
        code = pending.pop()
        if code in seen:
            continue
        seen.add(code)
        pending += [const for const in code.co_consts if isinstance(const, types.CodeType)]
        for name in {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}:
            yield name
            named = function.__globals__.get(name)
            if isinstance(named, types.FunctionType) and named.__globals__ is function.__globals__:
                pending.append(named.__code__)
