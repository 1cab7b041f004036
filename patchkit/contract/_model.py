"""What a patch needs of a library, and what judging it said: facts only, no behaviour that reads anything."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import RegistrationError

__all__ = ["Contract", "Finding", "Fingerprint", "Judgement", "LibraryVersion", "Symbol", "Verdict"]

_NAME = r"[^\W\d]\w*"
_PATH = re.compile(rf"{_NAME}(\.{_NAME})*(:{_NAME}(\.{_NAME})*)?")
_CALL = re.compile(rf"\.?{_NAME}(\.{_NAME})*")
_ATTRIBUTE = re.compile(_NAME)
_PARAMETER = re.compile(rf"{_NAME}=?|\*{{1,2}}{_NAME}|\*|/")
_DIGEST = re.compile(r"n[1-9][0-9]*:[0-9a-f]{32}")
_ROLES = ("site", "relies")
_PROOFS = ("probe", "review")


class Verdict(enum.Enum):
    """What a contract comes to against one library. Members stand from mildest to gravest.

    The gravest finding decides. The order is how strongly a finding forbids installing the patch, so that a
    policy which lets one verdict pass can never let a graver one through with it:

    * ``broken`` is first, before ``excluded``: the source outranks the number. A policy that accepts a release
      outside the tested range must not thereby accept one in which the symbol is gone.
    * ``excluded`` before ``unknown``: a clear "no" weighs more than a question.
    * ``unknown`` before ``changed``: what could not be read may be anything.
    * ``changed`` before ``retired``: a fix upstream changes bodies, and laying a patch over the fix is the graver
      danger. So ``retired`` means that everything else fits and the patch could be installed, but need not be. A
      contract whose patch can go from 3.0 on leaves 3.0 inside ``requires`` to be told so.

    What milder findings say isn't lost: they stay in the judgement, and :meth:`Judgement.one_line` adds to a graver
    verdict that the version is excluded or the patch retired as well.

    Attributes:
        code: Stable code, for ``python -m patchkit explain``.
        explanation: What the verdict means and what to do next.
    """

    code: str
    explanation: str

    def __new__(cls, value: str, code: str = "", explanation: str = "") -> Verdict:
        member = object.__new__(cls)
        member._value_ = value
        member.code = code
        member.explanation = explanation
        return member

    # Everything that the contract names is there, and every body with fingerprints is a proven one.
    OK = (
        "ok",
        "PK301",
        (
            "The library is what the patch was written for: the versions are inside the declared range, every symbol "
            "is there with its parameters, calls and attributes, and every body that has fingerprints is one that "
            "the patch was proven on. Nothing to do."
        ),
    )
    # Still installable; upstream has what the patch was written to add.
    RETIRED = (
        "retired",
        "PK305",
        (
            "Upstream has fixed what the patch works around. Everything that the patch touches still fits, so it "
            "could be installed, but it need not be: take it out of the manifest."
        ),
    )
    # Names and shapes fit; a body reads differently from all of the proven ones.
    CHANGED = (
        "changed",
        "PK302",
        (
            "Every symbol fits, but a body that the patch relies on reads differently from all that it was proven "
            "on. Comments, docstrings, annotations and formatting don't count as a difference. Look at what changed; "
            "run the patch's own check (`python -m patchkit verify --probe`); then record the new fingerprint, or "
            "accept it with `on_changed` in `[policy]` of the manifest."
        ),
    )
    # Not a no: there was nothing to judge by, or no way to tell.
    UNKNOWN = (
        "unknown",
        "PK306",
        (
            "There was nothing to judge by: the distribution isn't installed, its source isn't there or can't be "
            "read or parsed, or the symbol comes from a place that can't be followed without running the library. "
            "The finding says which. Install the library, or judge by a source that has the files."
        ),
    )
    # The contract itself says no, by number.
    EXCLUDED = (
        "excluded",
        "PK304",
        (
            "The version at hand is outside the range that the contract declares, so nobody claims that the patch "
            "works there. Use a release inside the range. If you know better, accept it with `on_excluded` in "
            "`[policy]` of the manifest. Pre-releases and source builds sort before the release (2.10.0a0+git is not "
            ">=2.10); local segments such as +cu128 don't count."
        ),
    )
    # The library says no, by its source.
    BROKEN = (
        "broken",
        "PK303",
        (
            "Something that the patch touches or relies on is gone: a symbol, a parameter, a call that makes the "
            "patch effective, or an attribute. The finding says what was expected, what was found, and where. No "
            "policy accepts this: use a release that fits, or update the patch."
        ),
    )

    @property
    def rank(self) -> int:
        """How grave it is: 0 for ``ok``, rising."""
        return _RANKS[self]

    @classmethod
    def gravest(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """Return the one that decides; ``ok`` if there are none."""
        return max(verdicts, key=lambda verdict: verdict.rank, default=cls.OK)


_RANKS = {verdict: rank for rank, verdict in enumerate(Verdict)}


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A body that a patch was proven on.

    Attributes:
        digest: What :func:`patchkit.contract.fingerprint` gives for it: ``n1:`` and 32 hexadecimal digits.
        releases: The releases that have this body.
        proof: ``probe``: the patch's own check passed on it. ``review``: somebody read it.
    """

    digest: str
    releases: tuple[str, ...] = ()
    proof: str = "review"

    def __post_init__(self) -> None:
        if not _DIGEST.fullmatch(self.digest):
            raise RegistrationError(f"fingerprint {self.digest!r}: expected 'n1:' and 32 hexadecimal digits")
        if self.proof not in _PROOFS:
            raise RegistrationError(
                f"fingerprint {self.digest}: expected proof 'probe' or 'review', got {self.proof!r}"
            )


@dataclass(frozen=True, slots=True)
class Symbol:
    """One thing in a library that a patch touches or relies on.

    Attributes:
        path: ``package.module:Class.attr``, ``package.module:function``, or ``package.module`` for a module.
        parameters: Exactly these parameters, in order: ``"self"``, ``"x"``, ``"k="`` (has a default), ``"/"``,
            ``"*"``, ``"*args"``, ``"**kw"``. ``None``: not checked.
        calls: Calls that the body must contain. ``"f"``: of the module's global ``f`` (which is what makes a wrap of
            ``f`` effective); ``".f"``: of any attribute ``f``; ``"a.b.f"``: of exactly that.
        attributes: Attributes that the body must mention, on whatever object, also by ``getattr`` and its like.
        role: ``site``: patched. ``relies``: relied on.
        why: Why the patch touches or relies on it.
        fingerprints: The bodies that the patch was proven on; none: bodies aren't compared.
    """

    path: str
    parameters: tuple[str, ...] | None = None
    calls: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    role: str = "relies"
    why: str = ""
    fingerprints: tuple[Fingerprint, ...] = ()

    def __post_init__(self) -> None:
        if not _PATH.fullmatch(self.path):
            raise RegistrationError(f"symbol {self.path!r}: expected 'package.module:Class.attr' or 'package.module'")
        if self.role not in _ROLES:
            raise RegistrationError(f"symbol {self.path}: expected role 'site' or 'relies', got {self.role!r}")
        for kind, pattern, example in (
            ("parameters", _PARAMETER, "'x', 'k=', '*args', '**kw', '*' or '/'"),
            ("calls", _CALL, "'function', '.method' or 'a.b.function'"),
            ("attributes", _ATTRIBUTE, "a name"),
        ):
            for text in getattr(self, kind) or ():
                if not pattern.fullmatch(text):
                    raise RegistrationError(f"symbol {self.path}: expected {example} in {kind}, got {text!r}")

    @property
    def module(self) -> str:
        """The module that the path names."""
        return self.path.partition(":")[0]

    @property
    def names(self) -> tuple[str, ...]:
        """The names inside the module, outermost first; empty for a module."""
        _, _, inner = self.path.partition(":")
        return tuple(inner.split(".")) if inner else ()


@dataclass(frozen=True, slots=True)
class Contract:
    """What a patch needs of the libraries that it patches.

    Attributes:
        requires: A distribution and a specifier each, such as ``"torch>=2.1,<2.16"``; all must hold.
        symbols: What the patch touches or relies on.
        until: The same form as ``requires``: any one that holds says that upstream has made the patch unnecessary.
    """

    requires: tuple[str, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    until: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LibraryVersion:
    """The version of one distribution, as found and as counted.

    Attributes:
        distribution: Name of the distribution, as the contract writes it.
        raw: What the distribution's metadata say; ``None`` if it isn't there.
        normalised: What counts against a specifier: without the local segment, in normal form. ``None`` if the
            number says nothing (unparsable, or the stand-in of a source build without tags).
    """

    distribution: str
    raw: str | None
    normalised: str | None

    def __str__(self) -> str:
        return f"{self.distribution} {self.raw}" if self.raw is not None else f"{self.distribution} (not installed)"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that judging a contract came upon.

    Attributes:
        verdict: What it alone would make of the contract; ``ok`` for a remark.
        symbol: Path of the symbol concerned, or ``None`` for a version.
        expected: What the contract says.
        found: What the library says.
        where: ``file:line``, the file relative to the root of the distribution; empty where there is no place.
    """

    verdict: Verdict
    symbol: str | None
    expected: str
    found: str
    where: str = ""

    def __str__(self) -> str:
        subject = f"{self.symbol}: " if self.symbol else ""
        place = f" ({self.where})" if self.where else ""
        return f"{subject}expected {self.expected}, found {self.found}{place}"


# What the number says is worth knowing beside a graver verdict: whether the author expected this, and what to do.
_ALSO = {
    Verdict.EXCLUDED: "; the version is also outside the declared range (excluded)",
    Verdict.RETIRED: "; upstream has also made the patch unnecessary (retired)",
}


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a contract came to against one source.

    Attributes:
        verdict: The gravest of the findings; see :class:`Verdict` for the order.
        findings: What doesn't fit, gravest first, and among equals in the order of the contract.
        versions: Each distribution that the contract names, as found.
        source: Label of the source that was read.
        remarks: What doesn't count against the contract but is worth knowing, such as where a re-export leads.
    """

    verdict: Verdict
    findings: tuple[Finding, ...]
    versions: tuple[LibraryVersion, ...]
    source: str
    remarks: tuple[Finding, ...] = ()

    @property
    def is_retired(self) -> bool:
        """Whether upstream has made the patch unnecessary, whatever else the verdict says."""
        return any(finding.verdict is Verdict.RETIRED for finding in self.findings)

    def one_line(self) -> str:
        """Return the reason for the verdict in one line, without the verdict itself."""
        if not self.findings:
            libraries = ", ".join(str(version) for version in self.versions)
            return f"everything fits {libraries}" if libraries else "everything fits"
        line = str(self.findings[0])
        same = sum(finding.verdict is self.verdict for finding in self.findings) - 1
        if same:
            line += f"; and {same} more"
        verdicts = {finding.verdict for finding in self.findings}
        for verdict, text in _ALSO.items():
            if verdict in verdicts and verdict is not self.verdict:
                line += text
        return line
