"""Everything that can be said about a manifest without changing anything."""

from __future__ import annotations

import fnmatch
import graphlib
import hashlib
import json
import os
import sys
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import ValidationError

from . import registry
from ._environment import Environment, ProcessEnvironment
from ._warn import warn
from .contract import InstalledSource, Judgement, Verdict, judge
from .errors import ContractError, OptionsError, OrderError, PlanError, UnknownPatchError
from .manifest import Manifest, PatchEntry, Policy, explain_options
from .patch import Patch, PatchOptions

__all__ = ["Plan", "Stance", "Step", "judge_installed", "make_plan", "stance"]

DISABLE = "PATCHKIT_DISABLE"

Outcome = Literal["install", "skip", "disabled"]
Stance = Literal["accept", "warn", "skip", "refuse"]
_STANCES: tuple[Stance, ...] = ("accept", "warn", "skip", "refuse")

_INSTALLED = InstalledSource()
_FITTING: weakref.WeakKeyDictionary[Patch, tuple[Judgement, list[object]]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Step:
    """What the plan makes of one entry of the manifest.

    Attributes:
        patch: The patch.
        entry: The manifest's entry.
        options: Its validated options.
        outcome: ``install``; ``skip`` or ``disabled`` with a reason.
        reason: Why it is not installed, or with which reservation it is.
        judgement: What its contract came to; ``None`` where it wasn't judged.
    """

    patch: Patch
    entry: PatchEntry
    options: PatchOptions
    outcome: Outcome = "install"
    reason: str = ""
    judgement: Judgement | None = None

    @property
    def label(self) -> str:
        """Name of the patch, and its target where the manifest names one."""
        return f"{self.patch.name} on {self.entry.on}" if self.entry.on else self.patch.name


@dataclass(frozen=True, slots=True)
class Plan:
    """Manifest, registry and environment, resolved: what would be done, in what order, or why not.

    Attributes:
        manifest: The manifest.
        steps: One for each entry, in the order of installation.
        absent: Entries with ``required = false`` of which no patch is known.
    """

    manifest: Manifest
    steps: tuple[Step, ...]
    absent: tuple[PatchEntry, ...] = ()

    @property
    def installing(self) -> tuple[Step, ...]:
        """The steps that would change something."""
        return tuple(step for step in self.steps if step.outcome == "install")

    @property
    def refused(self) -> tuple[Step, ...]:
        """The steps whose contract the policy doesn't accept."""
        return tuple(step for step in self.installing if _stance(step, self.manifest.policy) == "refuse")

    @property
    def digest(self) -> str:
        """Digest over manifest, patches, verdicts and library versions: equal plans would do the same."""
        facts = [
            [step.label, step.outcome, _verdict(step), _versions(step), step.options.model_dump(mode="json")]
            for step in self.steps
        ]
        return hashlib.sha256(json.dumps([self.manifest.digest, facts], sort_keys=True).encode()).hexdigest()

    def raise_refused(self) -> None:
        """Raise ``ContractError`` if there is a step whose contract the policy doesn't accept."""
        refused = self.refused
        if refused:
            raise ContractError(
                "\n".join(_refusal(step) for step in refused),
                patch=refused[0].patch.name,
                reports=[step.judgement for step in refused],
            )


def make_plan(manifest: Manifest) -> Plan:
    """Resolve a manifest against registry and environment. Imports no library that is judged.

    Args:
        manifest: The manifest.

    Returns:
        The plan. A step that policy refuses is in ``refused``; nothing is raised for it here, so that a plan can
        be shown.

    Raises:
        UnknownPatchError: A name is not registered.
        OptionsError: An option is unknown or wrong.
        OrderError: Patches conflict or must follow each other in a circle.
        PlanError: Several of these.
    """
    steps, absent, faults = _resolve(manifest)
    disabled = _disabled(manifest)
    environment = ProcessEnvironment()
    steps = [_decide(step, disabled, environment) for step in steps]
    try:
        steps = _in_order(steps)
    except OrderError as error:
        faults.append(error)
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise PlanError("\n".join(fault.message for fault in faults), faults=faults)
    return Plan(manifest, tuple(_judged(step, manifest.policy) for step in steps), tuple(absent))


def stance(judgement: Judgement, policy: Policy) -> Stance:
    """Say what a policy makes of a judgement: it must accept every finding, not only the gravest."""
    of_verdict: dict[Verdict, Stance] = {
        Verdict.OK: "accept",
        Verdict.RETIRED: policy.on_retired,
        Verdict.CHANGED: policy.on_changed,
        Verdict.UNKNOWN: policy.on_unknown,
        Verdict.EXCLUDED: policy.on_excluded,
        Verdict.BROKEN: "refuse",
    }
    stances = [of_verdict[judgement.verdict], *(of_verdict[finding.verdict] for finding in judgement.findings)]
    return max(stances, key=_STANCES.index)


def judge_installed(patch: Patch) -> Judgement:
    """Judge a patch's contract against the installed distributions.

    A contract that fitted isn't judged again while the modules that it names are loaded: whatever happens to their
    files meanwhile, the process goes on running what it loaded.
    """
    loaded = [getattr(sys.modules.get(symbol.module), "__spec__", None) for symbol in patch.contract.symbols]
    if patch in _FITTING:
        judged, specs = _FITTING[patch]
        # A module that is imported or reloaded anew has another spec.
        if len(specs) == len(loaded) and all(spec is now for spec, now in zip(specs, loaded, strict=True)):
            return judged
    judgement = judge(patch.contract, _INSTALLED)
    if judgement.verdict is Verdict.OK and None not in loaded:
        _FITTING[patch] = judgement, loaded
    return judgement


def _disabled(manifest: Manifest) -> list[str]:
    """Return the globs that switch patches off, and warn of those that can't: they may be misspelt."""
    globs = [glob for glob in (part.strip() for part in os.environ.get(DISABLE, "").split(",")) if glob]
    if globs:
        names = {*registry.known_names(), *(entry.name for entry in manifest.patch)}
        for glob in globs:
            if not fnmatch.filter(names, glob):
                warn(f"{DISABLE}: expected names or globs of patches, found {glob!r}, which no known patch matches")
    return globs


def _resolve(manifest: Manifest) -> tuple[list[Step], list[PatchEntry], list[PlanError]]:
    steps: list[Step] = []
    absent: list[PatchEntry] = []
    faults: list[PlanError] = []
    for entry in manifest.patch:
        try:
            patch = registry.find(entry.name)
            steps.append(Step(patch, entry, _options(patch, entry, manifest)))
        except UnknownPatchError as error:
            if entry.required:
                message = f"{manifest.place(entry, 'name')}: {error.message}"
                faults.append(UnknownPatchError(message, name=error.name, nearest=error.nearest))
            else:
                absent.append(entry)
        except OptionsError as error:
            faults.append(error)
    return steps, absent, faults


def _options(patch: Patch, entry: PatchEntry, manifest: Manifest) -> PatchOptions:
    try:
        return patch.Options.model_validate(entry.options)
    except ValidationError as error:
        faults = explain_options(manifest, entry, patch.Options, error)
        raise OptionsError("\n".join(faults), patch=patch.name) from None


def _decide(step: Step, disabled: Sequence[str], environment: Environment) -> Step:
    for glob in disabled:
        if fnmatch.fnmatchcase(step.patch.name, glob):
            return replace(step, outcome="disabled", reason=f"{DISABLE} names {glob!r}")
    if step.entry.when is not None:
        reason = step.entry.when.unmet(environment)
        if reason is not None:
            return replace(step, outcome="skip", reason=f"when: {reason}")
    return step


def _in_order(steps: Iterable[Step]) -> list[Step]:
    listed = list(steps)
    installing = [step for step in listed if step.outcome == "install"]
    names = {step.patch.name for step in installing}
    for step in installing:
        for other in step.patch.conflicts:
            if other in names:
                raise OrderError(
                    f"{step.patch.name} and {other} exclude each other: expected one of them in the manifest, "
                    "found both. Take one out.",
                    patch=step.patch.name,
                )
    graph = {step.patch.name: [name for name in step.patch.after if name in names] for step in installing}
    sorter = graphlib.TopologicalSorter(graph)
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        circle = " after ".join(reversed(error.args[1]))
        raise OrderError(
            f"patches must follow each other in a circle: {circle}. Take one of them out of the manifest, or correct "
            "their 'after'."
        ) from None
    position = {step.patch.name: index for index, step in reversed(list(enumerate(listed)))}
    order: list[str] = []
    ready = list(sorter.get_ready())
    while ready:
        ready.sort(key=position.__getitem__)
        name = ready.pop(0)
        order.append(name)
        sorter.done(name)
        ready.extend(sorter.get_ready())
    rank = {name: index for index, name in enumerate(order)}
    waiting = [step for step in listed if step.outcome != "install"]
    return sorted(installing, key=lambda step: rank[step.patch.name]) + waiting


def _judged(step: Step, policy: Policy) -> Step:
    if step.outcome != "install":
        return step
    step = replace(step, judgement=judge_installed(step.patch))
    found = _stance(step, policy)
    assert step.judgement is not None
    if found == "skip":
        return replace(step, outcome="skip", reason=step.judgement.one_line())
    if found == "warn":
        return replace(step, reason=step.judgement.one_line())
    return step


def _stance(step: Step, policy: Policy) -> Stance:
    assert step.judgement is not None
    found = stance(step.judgement, policy)
    return "skip" if found == "refuse" and not step.entry.required else found


def _refusal(step: Step) -> str:
    assert step.judgement is not None
    verdict = step.judgement.verdict
    lines = [f"{step.label}: the contract is {verdict.value} [{verdict.code}]; nothing was touched."]
    lines += [
        f"  {finding.symbol or 'requires'}: expected {finding.expected}, found {finding.found}"
        + (f" ({finding.where})" if finding.where else "")
        for finding in step.judgement.findings
    ]
    way_out = {
        Verdict.CHANGED: ', or accept it with on_changed = "warn" in [policy]',
        Verdict.EXCLUDED: ', or accept it with on_excluded = "warn" in [policy]',
        Verdict.UNKNOWN: ', or accept it with on_unknown = "warn" in [policy]',
    }.get(verdict, "")
    missing = [version.distribution for version in step.judgement.versions if version.raw is None]
    if missing:
        lines.append(f"  Install {', '.join(missing)} first.")
    else:
        lines.append(f"  See what differs: python -m patchkit show {step.patch.name}{way_out}.")
    return "\n".join(lines)


def _verdict(step: Step) -> str | None:
    return step.judgement.verdict.value if step.judgement else None


def _versions(step: Step) -> Any:
    return [[v.distribution, v.raw] for v in step.judgement.versions] if step.judgement else []
