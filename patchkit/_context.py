"""What a patch is handed: its options, its targets, and the primitives through which it changes the world."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import types
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ._alias import find_copies
from ._effects import ActionRecord, EffectRecord
from ._hooks import HookRecord
from ._journal import Journal, Record
from ._layers import Layer, Make
from ._locks import LOCK
from ._moves import standing_stack
from ._records import LayerRecord, TargetsRecord
from ._shares import Targets
from ._site import ABSENT, AnySite, ItemSite, Site, locate
from .errors import OrderError, ResourceError, SiteError

if TYPE_CHECKING:
    from .patch import Patch, PatchOptions

__all__ = ["Context", "Findings"]

T = TypeVar("T")

_TARGETS: dict[tuple[str, str], Targets] = {}


class Findings:
    """What patches have found out about their targets, kept for the length of one transaction.

    Walking a model of a thousand units takes as long as patching it; patches that need the same walk share it.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] | None = {}

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return what ``compute`` returned the first time, as long as the transaction runs."""
        if self._known is None:
            return compute()
        if key not in self._known:
            self._known[key] = compute()
        found: T = self._known[key]
        return found

    def close(self) -> None:
        """Forget everything, and remember nothing more."""
        self._known = None


class Context:
    """The hands of a patch during one application.

    Every primitive writes its inverse to the journal before it acts. Suspending a patch runs the inverses and
    resuming runs the forward steps again, so callables given to a primitive may run more than once.

    Attributes:
        patch: The patch that is being applied.
        options: Its options, validated by the patch's own model.
        modules: Globs over module paths from the manifest entry; empty means all.
        offered: The paths that ``selects`` was asked about, if there are globs.
    """

    def __init__(
        self,
        patch: Patch,
        options: PatchOptions,
        *,
        resources: Mapping[str, object] | None = None,
        modules: tuple[str, ...] = (),
        findings: Findings | None = None,
    ) -> None:
        self.patch = patch
        self.options: Any = options
        self.modules = modules
        self.journal = Journal()
        self._resources = {name: _reference(value) for name, value in (resources or {}).items()}
        self._variant = _digest(options)
        self._findings = findings
        self._matched: set[str] = set()
        self.offered: dict[str, None] = {}
        # How often each place or name was used: what tells one step of the patch from its next one there.
        self._uses: dict[object, int] = {}

    # What the patch was given

    @property
    def model(self) -> Any:
        """The model that the manifest entry selected.

        Raises:
            ResourceError: ``apply`` was given none, or it has been collected since.
        """
        return self.resource("model")

    def resource(self, name: str) -> Any:
        """Return a resource that was given to ``apply``.

        Raises:
            ResourceError: There is none of that name, or it has been collected since.
        """
        value = self._resources[name]() if name in self._resources else None
        if value is None:
            state = "has been collected since" if name in self._resources else "was not given to apply"
            raise ResourceError(
                f"{self.patch.name}: expected the resource {name!r}, which {state}. "
                + ("Pass the model: patchkit.apply(manifest, model)." if name == "model" else f"Pass {name}=…."),
                patch=self.patch.name,
            )
        return value

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Find something out once for all patches of the transaction that ask with the same key.

        Args:
            key: What is asked, about what: ``("units", id(model))``.
            compute: Finds it out. Called anew each time once the transaction has ended.
        """
        return compute() if self._findings is None else self._findings.once(key, compute)

    def selects(self, path: str) -> bool:
        """Tell whether the entry's ``modules`` globs select the module at ``path`` (all, if there are none)."""
        if not self.modules:
            return True
        self.offered[path] = None
        hits = [glob for glob in self.modules if fnmatch.fnmatchcase(path, glob)]
        self._matched.update(hits)
        return bool(hits)

    def unmatched(self) -> tuple[str, ...]:
        """Globs that have selected nothing so far."""
        return tuple(glob for glob in self.modules if glob not in self._matched)

    # Primitives

    def wrap(self, site: str | Site, make: Make, *, targets: Targets | None = None) -> None:
        """Wrap the function, method, staticmethod, classmethod or property getter at ``site``.

        Other module-level names of a wrapped module function are bound to the wrapper too.

        Args:
            site: ``package.module:Class.attr``, or a site.
            make: Takes what is below and returns the wrapper; called again with another argument whenever the
                patches on the site change, so state belongs outside it. Give the wrapper the exact parameters of
                what it wraps: that is checked, and it is what makes a call cheap.
            targets: The wrapper is on the site only while this set is not empty.

        Raises:
            SiteError: There is nothing to wrap there.
            InstallError: The wrapper can't be called like what it wraps.
        """
        self._layer([self._site(site)], make=make, targets=targets)

    def wrap_each(self, owners: Iterable[object], attr: str, make: Make) -> None:
        """Override a method on each of ``owners``; wrapper and ``make``'s argument take ``self`` first.

        A deep copy of an owner carries an override that acts on the copy.
        """
        sites = Site.each(owners, attr)
        if sites:
            self._layer(sites, make=make)

    def replace(self, site: str | Site, value: object) -> None:
        """Put ``value`` where ``site`` holds something else."""
        self._layer([self._existing(self._site(site))], value=value)

    def set(self, owner: object, attr: str, value: object, *, targets: Targets | None = None) -> None:
        """Set an attribute of a module, class or instance; it may be absent before, and then is again after.

        Args:
            owner: The module, class or instance.
            attr: Name of the attribute.
            value: What it is set to.
            targets: The value is there only while this set is not empty. Applications with other options, for other
                objects, then stand beside each other: the value has to tell whom it is asked for.
        """
        self._layer([Site(owner, attr)], value=value, targets=targets)

    def delete(self, owner: object, attr: str) -> None:
        """Take an attribute out of the owner's own namespace."""
        self._layer([self._existing(Site(owner, attr))], value=ABSENT)

    def set_item(self, mapping: MutableMapping[Any, Any], key: object, value: object) -> None:
        """Set an item of a dictionary; it may be absent before, and then is again after."""
        self._layer([ItemSite(mapping, key)], value=value)

    def hook(self, module: Any, kind: str, hook: Callable[..., Any], **options: Any) -> None:
        """Register a hook on a module.

        Args:
            module: Anything with ``register_<kind>`` methods that return a removable handle, such as ``nn.Module``.
            kind: ``forward_pre_hook``, ``forward_hook``, ``full_backward_hook``, …
            hook: The hook.
            options: Passed on to the registration, such as ``prepend=True``.
        """
        nth = self._nth((kind, id(module)))
        self.journal.perform(HookRecord(self.patch.name, self._variant, nth, module, kind, hook, options))

    def action(self, name: str, do: Callable[[], None], undo: Callable[[], None], *, on: object = None) -> None:
        """Run a step that no other primitive covers, with its inverse.

        Args:
            name: What the step is called in messages and on the audit log.
            do: The step. Must be harmless when repeated.
            undo: Its inverse. Must be harmless when repeated, and when the step never ran.
            on: The object that the step acts on: applications of the patch to the same one share the step, and the
                first one's ``do`` and ``undo`` are run for all of them. If it isn't given, that is the model, or the
                process for a patch that has no model.
        """
        if on is None and "model" in self._resources:
            on = self.model
        nth = self._nth((name, id(on)))
        self.journal.perform(ActionRecord(self.patch.name, self._variant, name, nth, on, (do, undo)))

    def targets(self, objects: Iterable[object]) -> Targets:
        """Return the set of objects that the patch acts for in this process, with ``objects`` added.

        The set is shared by all applications of the patch with the same options; each application takes its own
        objects out again.

        Raises:
            OrderError: The patch already acts for one of the objects with other options.
        """
        added = list(objects)
        with LOCK:
            for (name, variant), others in _TARGETS.items():
                if name == self.patch.name and variant != self._variant and any(map(others.owns, added)):
                    raise OrderError(
                        f"{name}: expected the options that it is already applied with to this model, found other "
                        "ones. Revert the first application before applying it differently.",
                        patch=name,
                    )
            shared = _TARGETS.setdefault((self.patch.name, self._variant), Targets())
        self.journal.perform(TargetsRecord(shared, added))
        return shared

    def holds(self, owner: object, attr: str) -> bool:
        """Tell whether this patch already has a layer on ``owner``'s own ``attr``."""
        stack = standing_stack(Site(owner, attr))
        return stack is not None and any(entry.layer.patch == self.patch.name for entry in stack.entries)

    # Behind the primitives

    def sites(self) -> list[str]:
        """The sites that this application holds, for reports."""
        return [record.describe() for record in self.journal.records if isinstance(record, LayerRecord)]

    def steps(self) -> list[str]:
        """The hooks and steps of its own that this application has taken, for reports."""
        return [record.describe() for record in self.journal.records if isinstance(record, EffectRecord)]

    def changes(self) -> list[tuple[str, object, object, int]]:
        """Site, what was on it, what is on it, and how many sites alike, for the audit log."""
        return [record.change() for record in self.journal.records if isinstance(record, LayerRecord)]

    def unreached(self) -> list[str]:
        """Places that hold a function as it was before, and that patching its site doesn't reach."""
        records = [record for record in self.journal.records if isinstance(record, LayerRecord)]
        functions = [function for record in records if (function := record.stock_function()) is not None]
        return list(find_copies(*functions)) if functions else []

    def problems(self) -> list[str]:
        """What is not in place now."""
        return [problem for record in self.journal.records if (problem := record.problem()) is not None]

    def has_effect(self) -> bool:
        """Whether something is other than it was."""
        return any(record.has_effect() for record in self.journal.records)

    def _nth(self, place: object) -> int:
        self._uses[place] = nth = self._uses.get(place, 0) + 1
        return nth

    def _layer(
        self,
        sites: Sequence[AnySite],
        *,
        make: Make | None = None,
        value: object = ABSENT,
        targets: Targets | None = None,
    ) -> None:
        # Equal for equal applications, whatever else the patch does in one and not in another.
        label = sites[0].path if isinstance(sites[0].owner, types.ModuleType) else sites[0].attr
        ident = label, max([self._nth(site.key) for site in sites])
        layer = Layer(
            self.patch.name,
            ident,
            self._variant,
            make=make,
            value=value,
            priority=self.patch.priority,
            targets=targets,
        )
        record: Record = LayerRecord(layer, sites)
        self.journal.perform(record)

    def _site(self, site: str | Site) -> Site:
        return locate(site) if isinstance(site, str) else site

    def _existing(self, site: Site) -> Site:
        if site.read() is ABSENT and site.inherited() is ABSENT:
            raise SiteError(
                f"{site.path}: expected an attribute, found none.{site.nearest()} Use set to create one.",
                patch=self.patch.name,
            )
        return site


def _reference(value: object) -> Callable[[], object | None]:
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


def _digest(options: PatchOptions) -> str:
    text = json.dumps(options.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
