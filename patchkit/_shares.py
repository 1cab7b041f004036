"""Counting who owns an effect.

The same patch applied twice to the same target takes effect once; every handle owns one reference, and
the effect ends with the last. Suspending is counted apart: one handle's suspension is enough to switch an
effect off, whoever else owns it.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ._locks import LOCK

__all__ = ["CLOCK", "NOBODY", "Change", "Share", "Targets"]


class _Clock:
    """Counts the changes of shared state, so that what was worked out without the lock can be checked with it."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0


CLOCK = _Clock()


@dataclass(frozen=True, slots=True)
class Share:
    """Who owns one effect, and who has suspended it.

    Owners are kept by identity instead of being counted: adding or taking away the same one twice is harmless, so
    a step that was interrupted can be repeated. A share doesn't change, each change makes another: a thousand sites
    can have the same one, and what was worked out but not carried out leaves nothing behind.
    """

    owners: frozenset[object] = frozenset()
    suspenders: frozenset[object] = frozenset()

    @property
    def active(self) -> bool:
        """Whether the effect should be on now."""
        return bool(self.owners) and not self.suspenders

    def acquire(self, owner: object) -> Share:
        """Count ``owner``."""
        return Share(self.owners | {owner}, self.suspenders)

    def release(self, owner: object) -> Share:
        """Count ``owner`` no more, nor any suspension of its own."""
        return Share(self.owners - {owner}, self.suspenders - {owner})

    def suspend(self, owner: object) -> Share:
        """Switch the effect off on behalf of ``owner``."""
        return Share(self.owners, self.suspenders | {owner}) if owner in self.owners else self

    def resume(self, owner: object) -> Share:
        """End the suspension of ``owner``."""
        return Share(self.owners, self.suspenders - {owner})


NOBODY = Share()

Change = Callable[[Share, object], Share]


class Targets:
    """The objects that a patch acts for: held weakly, counted, shared by all applications of the patch.

    A process-wide wrapper asks ``handle in targets`` and leaves everything else to the original, so two models
    in one process can differ. The test is one look-up in a set of identities.
    """

    __slots__ = ("__weakref__", "_active", "_members", "_watchers")

    def __init__(self) -> None:
        self._active: set[int] = set()
        self._members: dict[int, tuple[weakref.ref[object], Share]] = {}
        self._watchers: list[Callable[[], None]] = []

    def __contains__(self, obj: object) -> bool:
        return id(obj) in self._active

    def __len__(self) -> int:
        return len(self._active)

    def owns(self, obj: object) -> bool:
        """Whether some application counts ``obj`` as a target, suspended or not."""
        return id(obj) in self._members

    def watch(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` after each change of the set."""
        if callback not in self._watchers:
            self._watchers.append(callback)

    def unwatch(self, callback: Callable[[], None]) -> None:
        """Take a callback out again."""
        if callback in self._watchers:
            self._watchers.remove(callback)

    def change(self, objects: Iterable[object], change: Change, owner: object) -> None:
        """Apply one of ``Share``'s four changes to each of ``objects``; an object without owners is forgotten.

        Raises:
            Exception: What a watcher raised. All of them were called, and the set itself has changed.
        """
        with LOCK:
            try:
                for obj in objects:
                    self._change_one(obj, change, owner)
            finally:
                CLOCK.now += 1
        errors: list[Exception] = []
        for callback in tuple(self._watchers):
            try:
                callback()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _change_one(self, obj: object, change: Change, owner: object) -> None:
        key = id(obj)
        ref, share = self._members.get(key) or (weakref.ref(obj, functools.partial(self._forget, key)), NOBODY)
        share = change(share, owner)
        if share.owners:
            self._members[key] = ref, share
        else:
            self._members.pop(key, None)
        if share.active:
            self._active.add(key)
        else:
            self._active.discard(key)

    def _forget(self, key: int, _: weakref.ref[object]) -> None:
        self._members.pop(key, None)
        self._active.discard(key)
