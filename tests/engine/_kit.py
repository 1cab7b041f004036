"""What tests of the engine and of the laws share: small libraries to patch, patches to do it, and a memory for what
was there.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
import textwrap
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import patchkit
from patchkit import Applied, Context, Patch, registry

Step = Callable[[Context], None]


class Lab:
    """Writes libraries, registers patches, applies them, and takes it all away again at the end."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.log = folder / "audit.jsonl"
        self._patches: list[str] = []
        self._modules: list[str] = []
        self._serial = itertools.count()
        self._applied: list[Applied] = []
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("PATCHKIT_AUDIT", str(self.log))
        monkeypatch.syspath_prepend(str(folder))

    def write(self, name: str, source: str) -> Path:
        """Write a module without importing it."""
        path = self.folder / f"{name}.py"
        path.write_text(textwrap.dedent(source), encoding="utf-8")
        importlib.invalidate_caches()
        self._modules.append(name)
        return path

    def library(self, name: str, source: str) -> Any:
        """Write a module and import it."""
        self.write(name, source)
        return importlib.import_module(name)

    def patch(self, name: str, install: Step, **attributes: Any) -> type[Patch]:
        """Register a patch of the class form that does ``install``; steps take the context alone."""
        texts = {"summary": "for a test", "why": "for a test", "how": "for a test", "until": "the test ends"}
        namespace: dict[str, Any] = {"__module__": __name__, "name": name, **texts, "install": install, **attributes}
        for step in ("install", "check", "verify", "uninstall"):
            if step in namespace:
                namespace[step] = staticmethod(namespace[step])
        cls = type(f"Patch{next(self._serial)}", (Patch,), namespace)
        self.keep(name)
        return registry.register(cls)

    def keep(self, name: str) -> None:
        """Forget the patch of this name at the end."""
        self._patches.append(name)

    def apply(self, *entries: str | Mapping[str, Any], model: Any = None, **more: Any) -> Applied:
        """Apply patches by their names, or by whole entries of a manifest."""
        listed = [{"name": entry} if isinstance(entry, str) else dict(entry) for entry in entries]
        resources = more.pop("resources", {})
        applied = patchkit.apply({"schema": 1, "patch": listed, **more}, model, **resources)
        self._applied.append(applied)
        return applied

    def close(self) -> None:
        for applied in reversed(self._applied):
            applied.revert()
        for name in self._patches:
            registry.unregister(name)
        for name in self._modules:
            sys.modules.pop(name, None)


class Memory:
    """What owners held at one moment, by identity, present or absent, in whatever order.

    Args:
        owners: Modules, classes, instances, dictionaries.
    """

    def __init__(self, *owners: Any) -> None:
        self._held = [(owner, dict(_namespace(owner))) for owner in owners]

    def differences(self) -> list[str]:
        """Say what isn't what it was."""
        found = []
        for owner, before in self._held:
            now = dict(_namespace(owner))
            for name in {**before, **now}:
                if name not in now:
                    found.append(f"{owner}: {name} is gone")
                elif name not in before:
                    found.append(f"{owner}: {name} has come: {now[name]!r}")
                elif now[name] is not before[name]:
                    found.append(f"{owner}: {name} was {before[name]!r}, is {now[name]!r}")
        return found


def _namespace(owner: Any) -> Mapping[str, Any]:
    if isinstance(owner, dict):
        return owner
    slots = [name for cls in type(owner).__mro__ for name in vars(cls).get("__slots__", ())]
    held = {name: getattr(owner, name) for name in slots if name != "__weakref__" and hasattr(owner, name)}
    # Written by `copy` when it has seen an instance.
    return {
        **held,
        **{name: value for name, value in getattr(owner, "__dict__", {}).items() if name != "__slotnames__"},
    }


class Handle:
    """Modelled on ``torch.utils.hooks.RemovableHandle``."""

    next_id = 0

    def __init__(self, hooks: OrderedDict[int, Any], extra: OrderedDict[int, Any] | None = None) -> None:
        self.hooks_dict_ref = weakref.ref(hooks)
        self.extra_dict_ref = weakref.ref(extra) if extra is not None else None
        self.id = Handle.next_id
        Handle.next_id += 1

    def remove(self) -> None:
        for ref in (self.hooks_dict_ref, self.extra_dict_ref):
            hooks = ref() if ref is not None else None
            if hooks is not None and self.id in hooks:
                del hooks[self.id]


class Hooks(OrderedDict[int, Any]):
    """A dictionary that can be referred to weakly, as torch's own ordered dictionaries can."""


class Module:
    """Modelled on ``torch.nn.Module``: hooks, and attributes that are meant for its own registries."""

    def __init__(self) -> None:
        self.__dict__["_forward_hooks"] = Hooks()
        self.__dict__["_forward_hooks_with_kwargs"] = Hooks()
        self.__dict__["_parameters"] = {}

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: set through the namespace only")

    def register_forward_hook(self, hook: Any, *, prepend: bool = False, with_kwargs: bool = False) -> Handle:
        hooks = self.__dict__["_forward_hooks"]
        handle = Handle(hooks, self.__dict__["_forward_hooks_with_kwargs"])
        hooks[handle.id] = hook
        if with_kwargs:
            self.__dict__["_forward_hooks_with_kwargs"][handle.id] = True
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        return handle

    @property
    def hooks(self) -> list[Any]:
        """The forward hooks in their order."""
        return list(self.__dict__["_forward_hooks"].values())

    def forward(self, x: int) -> int:
        return x


def prefixing(word: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a maker of wrappers for functions of one argument, whose results tell who has been called, outermost
    first.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(x: Any) -> str:
            return f"{word} {original(x)}"

        return wrapper

    return make


def prefixing_method(word: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Do as ``prefixing``, for methods."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(self: Any, x: Any) -> str:
            return f"{word} {original(self, x)}"

        return wrapper

    return make


@contextmanager
def no_syncing() -> Iterator[None]:
    """Leave durability to the tests of the audit log: it would take most of the time here."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "fsync", lambda fd: None)
        yield


def module(name: str, **contents: object) -> types.ModuleType:
    """Make a module that has no file."""
    made = types.ModuleType(name)
    vars(made).update(contents)
    return made
