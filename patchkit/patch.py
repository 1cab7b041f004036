"""The class that an intervention is written as, and what belongs to it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from ._context import Context
from .contract import Contract, check_requirements
from .errors import RegistrationError

__all__ = ["Context", "Patch", "PatchOptions", "Probe", "validate_patch"]

_NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
_TEXTS = ("summary", "why", "how", "until")


class PatchOptions(BaseModel):
    """Base of a patch's options: unknown keys are refused, values don't change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Probe:
    """A patch's own check of its effect, run for real in processes of its own.

    Attributes:
        target: ``package.module:function``. The function takes nothing and returns a JSON-able dictionary of what it
            measured; it raises if the effect is not there.
        ranks: How many processes run it at once. Each finds ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and
            ``MASTER_PORT`` in its environment.
    """

    target: str
    ranks: int = 1


class Patch:
    """A named intervention into a library: what it needs, how it is installed, proven and taken out.

    Subclass it, fill in the class attributes, and write ``install``. No method runs before every contract of the
    plan has been judged and accepted. Instances hold no state: what an application needs lives in its context.

    Attributes:
        name: Unique, lower case, ``collection.name``.
        summary: One line.
        why: Why the patch exists.
        how: How it works.
        upstream: The upstream issue that it answers; may be empty.
        until: When it can go.
        contract: What it needs of the library that it patches.
        Options: Model of its options.
        resources: Names of the resources that it needs (``"model"``, …).
        after: Names of patches that come before it, where they are selected.
        conflicts: Names of patches that it can't be combined with.
        priority: On a site with several layers, higher is further outside; equal ones go by arrival.
        probe: The check of its effect for ``verify --probe``.
    """

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    why: ClassVar[str] = ""
    how: ClassVar[str] = ""
    upstream: ClassVar[str] = ""
    until: ClassVar[str] = ""
    contract: ClassVar[Contract] = Contract()
    Options: ClassVar[type[PatchOptions]] = PatchOptions
    resources: ClassVar[tuple[str, ...]] = ()
    after: ClassVar[tuple[str, ...]] = ()
    conflicts: ClassVar[tuple[str, ...]] = ()
    priority: ClassVar[int] = 0
    probe: ClassVar[Probe | None] = None

    def check(self, ctx: Context) -> None:
        """Refuse a situation in which the patch could not be right; changes nothing.

        All checks of a plan run before the first install.

        Raises:
            RefusedError: The situation doesn't fit.
        """

    def install(self, ctx: Context) -> None:
        """Make the changes, through the primitives of ``ctx`` alone."""

    def verify(self, ctx: Context) -> None:
        """Check the patch's effect in the live process, beyond its sites, which patchkit checks itself.

        Raises:
            VerifyError: The effect is not there.
        """

    def uninstall(self, ctx: Context) -> None:
        """Take steps of the patch's own before the journal undoes the rest; also part of a roll-back."""

    def __repr__(self) -> str:
        return f"<patch {self.name}>"


def validate_patch(patch: Patch, origin: str) -> None:
    """Raise ``RegistrationError`` with everything that is missing from a patch's declaration."""
    faults = []
    if not isinstance(patch.name, str) or not _NAME.fullmatch(patch.name):
        faults.append(f"name: expected lower-case words joined by '.', '-' or '_', found {patch.name!r}")
    faults += [f"{field}: expected a text, found none" for field in _TEXTS if not _text(getattr(patch, field))]
    if type(patch).install is Patch.install:
        faults.append("install: expected a method of the patch's own, found none")
    if not isinstance(patch.contract, Contract):
        faults.append(f"contract: expected a Contract, found {type(patch.contract).__name__}")
    else:
        faults += check_requirements(patch.contract)
    if not (isinstance(patch.Options, type) and issubclass(patch.Options, PatchOptions)):
        faults.append("Options: expected a subclass of patchkit.PatchOptions")
    if patch.probe is not None and not isinstance(patch.probe, Probe):
        faults.append(f"probe: expected a Probe(target, ranks), found {type(patch.probe).__name__}")
    for field in ("resources", "after", "conflicts"):
        if not isinstance(getattr(patch, field), tuple):
            faults.append(f"{field}: expected a tuple of names, found {type(getattr(patch, field)).__name__}")
    if faults:
        where = f"{type(patch).__module__}.{type(patch).__qualname__}"
        raise RegistrationError(
            "\n".join([f"the patch {where} ({origin}) is declared incompletely:", *(f"  {fault}" for fault in faults)])
        )


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
