"""Hooks on a module, through the module's own ``register_…`` methods."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ._effects import Effect, EffectRecord

__all__ = ["HookRecord"]

# Our hooks that are registered now, by the dictionary that they are in and their id in it.
_REGISTERED: weakref.WeakValueDictionary[tuple[int, int], _Hook] = weakref.WeakValueDictionary()


class _Hook(Effect):
    """A hook on a module."""

    def __init__(self, module: Any, kind: str, hook: Callable[..., Any], options: dict[str, Any]) -> None:
        super().__init__()
        self._module = weakref.ref(module)
        self._kind = kind
        self._hook = hook
        self._options = options
        self.handle: Any = None
        # The handle of a removal that is under way.
        self._leaving: Any = None
        # Who stood before and behind the hook when it was taken out for a while: ids, or hooks of ours, since their
        # ids change.
        self._ahead: list[object] = []
        self._behind: list[object] = []
        self._unsure: dict[str, set[object]] | None = None

    def settle(self) -> None:
        module = self._module()
        if module is None:
            return
        self._clear_up(module)
        if self.share.active:
            if self.handle is None:
                self._unsure = {name: set(held) for name, held in _dictionaries(module)}
                self.handle = getattr(module, f"register_{self._kind}")(self._hook, **self._options)
            self._unsure = None
            self._back_in_line()
        elif self.handle is not None:
            self._remember_line()
            self._leaving = self.handle
            self._finish_removal()

    def _finish_removal(self) -> None:
        if self._leaving is not None:
            self.handle = None
            self._leaving.remove()
            self._leaving = None

    def _clear_up(self, module: Any) -> None:
        """Take out what a registration that was interrupted may have left: nobody has its handle."""
        self._finish_removal()
        if self._unsure is None or self.handle is not None:
            return
        held = dict(_dictionaries(module))
        keys = {
            key
            for name, known in self._unsure.items()
            for key, value in held.get(name, {}).items()
            if value is self._hook and key not in known
        }
        for name, known in self._unsure.items():
            for key in keys - known:
                held.get(name, {}).pop(key, None)
        self._unsure = None

    def _remember_line(self) -> None:
        hooks = self.handle.hooks_dict_ref()
        if hooks is None or self.handle.id not in hooks:
            return
        line = [_REGISTERED.get((id(hooks), key), key) for key in hooks]
        place = list(hooks).index(self.handle.id)
        self._ahead, self._behind = line[:place], line[place + 1 :]

    def _back_in_line(self) -> None:
        hooks = self.handle.hooks_dict_ref()
        if hooks is None or self.handle.id not in hooks:
            return
        _REGISTERED[id(hooks), self.handle.id] = self
        keys = [key for key in hooks if key != self.handle.id]
        line = [_REGISTERED.get((id(hooks), key), key) for key in keys]
        behind = next((line.index(other) for other in self._behind if other in line), None)
        ahead = next((line.index(other) + 1 for other in reversed(self._ahead) if other in line), None)
        place = behind if behind is not None else ahead
        # Only a step that can't be interrupted half-way is safe here: these are other people's hooks.
        if place is not None and isinstance(hooks, OrderedDict):
            for key in [self.handle.id, *keys[place:]]:
                hooks.move_to_end(key)
        self._ahead, self._behind = [], []


class HookRecord(EffectRecord):
    """A hook registered on a module."""

    def __init__(
        self,
        patch: str,
        variant: str,
        nth: int,
        module: Any,
        kind: str,
        hook: Callable[..., Any],
        options: dict[str, Any],
    ) -> None:
        super().__init__(patch, variant, (kind, nth), module)
        self._label = f"{kind} of {type(module).__qualname__}"
        self._new: tuple[str, Callable[..., Any], dict[str, Any]] = (kind, hook, options)

    def describe(self) -> str:
        return self._label

    def create(self) -> Effect:
        return _Hook(self._on(), *self._new)

    def problem(self) -> str | None:
        if self._on() is None:
            return None
        found = super().problem()
        if found is not None:
            return found
        assert isinstance(self._effect, _Hook)
        handle = self._effect.handle
        hooks = handle.hooks_dict_ref() if handle is not None else None
        if hooks is None or handle.id not in hooks:
            return f"{self._label}: expected the hook of {self._patch!r}, found that somebody has removed it"
        return None


def _dictionaries(module: Any) -> list[tuple[str, dict[Any, Any]]]:
    return [(name, held) for name, held in vars(module).items() if isinstance(held, dict)]
