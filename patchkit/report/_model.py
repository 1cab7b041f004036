"""What a report says: facts only, the same for every format."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..contract import Judgement, LibraryVersion

if TYPE_CHECKING:
    from .._probe import ProbeResult

__all__ = ["Finding", "Level", "Outcome", "PatchResult", "Report"]


class Level(enum.Enum):
    """How much a finding weighs."""

    # Policy doesn't accept it: the command ends with exit code 1.
    PROBLEM = "problem"
    # Policy lets it pass, and somebody should look at it.
    WARNING = "warning"
    # Of a patch that is left out anyway.
    NOTE = "note"


class Outcome(enum.Enum):
    """What became of one patch in a report."""

    # Its contract fits.
    FITS = "fits"
    # It would be applied, with a reservation.
    WARNING = "warning"
    # It would stop the transaction.
    PROBLEM = "problem"
    # It is left out: by a condition, by policy, or since nobody knows it.
    SKIPPED = "skipped"
    # The environment variable PATCHKIT_DISABLE names it.
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that doesn't fit.

    Attributes:
        level: How much it weighs.
        code: Stable code, for ``python -m patchkit explain``.
        patch: Name of the patch concerned.
        on: The model that the manifest selects for it, where it names one.
        subject: What it is about: a symbol's path, ``library``, ``probe`` or ``declaration``.
        kind: What is wrong with the subject, in a word: a verdict such as ``changed``, or ``failed``.
        expected: What the contract says.
        found: What is there instead.
        where: ``file:line`` in the library; empty where there is no such place.
        file: The manifest that selects the patch, as the user wrote it.
        line: Line of the manifest that selects the patch.
        against: The release, wheel or folder that was judged; empty for what is installed.
    """

    level: Level
    code: str
    patch: str
    subject: str
    kind: str
    expected: str
    found: str
    where: str = ""
    on: str | None = None
    file: str | None = None
    line: int | None = None
    against: str = ""

    @property
    def message(self) -> str:
        """The finding in one sentence, without the patch and the place in the manifest."""
        place = f" ({self.where})" if self.where else ""
        return f"{self.subject} {self.kind}: expected {self.expected}, found {self.found}{place}"


@dataclass(frozen=True, slots=True)
class PatchResult:
    """One patch of a report; a patch that several entries select is there for each of them.

    Attributes:
        name: Name of the patch.
        outcome: What became of it.
        on: The model that the manifest selects for it, where it names one.
        summary: What it does, in one line; empty where it can't be loaded.
        reason: Why it is left out, or what its contract came to.
        order: Position in the order of installation, from 1, where it would be installed.
        file: The manifest that selects it, as the user wrote it.
        line: Line of the manifest that selects it.
        judgement: What its contract came to; None where it wasn't judged.
        symbols: Paths of the symbols that its contract names.
        findings: What doesn't fit.
        probe: What its own check came to; None where it wasn't run.
        against: The release, wheel or folder that was judged; empty for what is installed.
    """

    name: str
    outcome: Outcome
    on: str | None = None
    summary: str = ""
    reason: str = ""
    order: int | None = None
    file: str | None = None
    line: int | None = None
    judgement: Judgement | None = None
    symbols: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    probe: ProbeResult | None = None
    against: str = ""

    @property
    def label(self) -> str:
        """Name of the patch, and its target where the manifest names one."""
        return f"{self.name} on {self.on}" if self.on else self.name


@dataclass(frozen=True, slots=True)
class Report:
    """What one command found about patches.

    Attributes:
        command: The command: ``list``, ``show``, ``plan`` or ``verify``.
        patches: Every patch that it looked at.
        manifests: The manifests that selected them; empty if none did.
    """

    command: str
    patches: tuple[PatchResult, ...]
    manifests: tuple[str, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all patches."""
        return tuple(finding for patch in self.patches for finding in patch.findings)

    @property
    def judged(self) -> tuple[PatchResult, ...]:
        """The patches that are not left out and whose contract was judged, or could not even be loaded for it."""
        left_out = (Outcome.SKIPPED, Outcome.DISABLED)
        return tuple(
            patch
            for patch in self.patches
            if patch.outcome not in left_out and (patch.judgement is not None or patch.findings)
        )

    @property
    def libraries(self) -> tuple[LibraryVersion, ...]:
        """Each distribution that a judged contract names, once, in the order in which they come."""
        versions = [version for patch in self.patches if patch.judgement for version in patch.judgement.versions]
        return tuple({version.distribution: version for version in versions}.values())

    @property
    def symbols(self) -> frozenset[str]:
        """Paths of the symbols that were looked at."""
        return frozenset(path for patch in self.patches if patch.judgement for path in patch.symbols)

    def count(self, kind: Level | Outcome) -> int:
        """Count the findings of a level, or the patches of an outcome."""
        if isinstance(kind, Level):
            return sum(finding.level is kind for finding in self.findings)
        return sum(patch.outcome is kind for patch in self.patches)
