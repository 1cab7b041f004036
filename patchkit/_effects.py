"""Steps and hooks: what takes effect once for all applications of a patch to the same object.

All applications share an effect: doing counts an owner, undoing takes it away, and the effect follows the count.
"""

from __future__ import annotations

import abc
import functools
import weakref
from collections.abc import Callable

from ._locks import LOCK, fresh_after_fork
from ._shares import NOBODY, Change, Share
from .errors import OrderError

__all__ = ["ActionRecord", "Effect", "EffectRecord"]

Key = tuple[object, ...]

_EFFECTS: dict[Key, Effect] = {}


class Effect(abc.ABC):
    """Something that is on or off, with those who own it."""

    def __init__(self) -> None:
        self.share = NOBODY
        self.variant = ""
        self.on: object = None
        self._retired = False
        # Foreign code runs under this lock, and not under the common one: two threads can't be at a step and at its
        # inverse at once, and nobody else has to wait.
        self._lock = fresh_after_fork()

    def change(self, change: Change, owner: object) -> bool:
        """Apply one of ``Share``'s four changes; nothing happens, and False is returned, after the last owner left."""
        with self._lock:
            if self._retired:
                return False
            self.share = change(self.share, owner)
            self.settle()
            self._retired = not self.share.owners
        return True

    @abc.abstractmethod
    def settle(self) -> None:
        """Bring the effect in line with its share; harmless when repeated."""


class EffectRecord(abc.ABC):
    """One application's part in an effect.

    Args:
        patch: Name of the patch.
        variant: Digest of the options; applications that differ in it can't share an effect.
        name: Tells the effect from the patch's others on the same object.
        on: The object that it is on; held weakly. ``None``: the process.
    """

    def __init__(self, patch: str, variant: str, name: tuple[object, ...], on: object) -> None:
        self._patch = patch
        self._variant = variant
        self._key: Key = (patch, *name, id(on))
        self._on = _weakly(on)
        self._effect: Effect | None = None

    @abc.abstractmethod
    def describe(self) -> str:
        """Name the effect."""

    @abc.abstractmethod
    def create(self) -> Effect:
        """Return the effect, not on yet, if this application is the first."""

    def has_effect(self) -> bool:
        """Steps and hooks count as a change whatever they do."""
        return True

    def do(self) -> None:
        on = self._on()
        while True:
            with LOCK:
                effect = _EFFECTS.get(self._key)
                if effect is None:
                    effect = _EFFECTS[self._key] = self.create()
                    effect.variant = self._variant
                    # The entry goes with the object, whose id may then become another one's.
                    effect.on = _weakly(on, functools.partial(_EFFECTS.pop, self._key))
            if effect.variant != self._variant:
                raise OrderError(
                    f"{self.describe()}: expected {self._patch!r} with the options that it is already applied with, "
                    "found other ones. Revert the first application before applying it differently.",
                    patch=self._patch,
                )
            self._effect = effect
            if effect.change(Share.acquire, self):
                return
            self._drop(effect)

    def undo(self) -> None:
        self._change(Share.release)

    def suspend(self) -> None:
        self._change(Share.suspend)

    def resume(self) -> None:
        self._change(Share.resume)

    def problem(self) -> str | None:
        if self._effect is None or self not in self._effect.share.owners:
            return f"{self.describe()}: expected it to be in effect, found that it isn't"
        if not self._effect.share.active:
            return f"{self.describe()}: expected it to be in effect, found that another handle has suspended it"
        return None

    def _change(self, change: Change) -> None:
        # The second one, if an interrupt came before the first was noted.
        effect = self._effect or _EFFECTS.get(self._key)
        if effect is not None:
            effect.change(change, self)
            if not effect.share.owners:
                self._drop(effect)

    def _drop(self, effect: Effect) -> None:
        with LOCK:
            if _EFFECTS.get(self._key) is effect:
                del _EFFECTS[self._key]


class _Action(Effect):
    # Whoever comes first brings the step and its inverse: what the one has remembered, only the other knows.
    def __init__(self, do: Callable[[], None], undo: Callable[[], None]) -> None:
        super().__init__()
        self._do = do
        self._undo = undo
        # Whether the step has been taken; None while it, or its inverse, is under way, and after it was interrupted.
        self._taken: bool | None = False

    def settle(self) -> None:
        active = self.share.active
        if self._taken is not active:
            self._taken = None
            if active:
                self._do()
            else:
                self._undo()
            self._taken = active


class ActionRecord(EffectRecord):
    """A step with an inverse, for what no other primitive covers; both must be harmless when repeated."""

    def __init__(
        self,
        patch: str,
        variant: str,
        name: str,
        nth: int,
        on: object,
        steps: tuple[Callable[[], None], Callable[[], None]],
    ) -> None:
        super().__init__(patch, variant, ("action", name, nth), on)
        self._name = name
        self._steps = steps

    def describe(self) -> str:
        return self._name

    def create(self) -> Effect:
        return _Action(*self._steps)


def _weakly(obj: object, callback: Callable[[object], object] | None = None) -> Callable[[], object]:
    if obj is None:
        return lambda: None
    try:
        return weakref.ref(obj, callback)
    except TypeError:
        return lambda: obj
