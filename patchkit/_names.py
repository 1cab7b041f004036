"""All names of the object on a module-level site, which follow it when the site is changed."""

from __future__ import annotations

from collections.abc import Sequence

from ._alias import can_have_aliases, find_aliases
from ._site import AnySite

__all__ = ["Names"]


class Names:
    """The names of one object: the sites by which it is patched, and those that are found by identity.

    Args:
        site: The first site.
        original: What it held before patchkit came.
    """

    __slots__ = ("_at_home", "original", "sites")

    def __init__(self, site: AnySite, original: object) -> None:
        self.original = original
        self.sites: tuple[AnySite, ...] = (site,)
        # Names that hold one of our values on their own account, such as a replacement in its author's module.
        self._at_home: dict[int, frozenset[tuple[str, str]]] = {}

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
        for held, namespace, module, name in names:
            if held is not target and (module, name) not in self._at_home.get(id(held), ()):
                namespace[name] = target

    def stale(self, value: object) -> list[str]:
        """Return names that are bound to the original, and should be bound to ``value``."""
        if value is self.original or not can_have_aliases(self.original):
            return []
        return [f"{module}:{name}" for _, _, module, name in find_aliases(self.original)]

    def _is_site(self, namespace: dict[str, object], name: str) -> bool:
        return any(site.attr == name and getattr(site.owner, "__dict__", None) is namespace for site in self.sites)
