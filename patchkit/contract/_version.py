"""The rule by which a version number counts.

A contract's specifier is compared with the *normalised* version, never with the raw text:

* **Local segments don't count.** ``2.9.0+cu128``, ``2.9.0+nv25.1`` and ``2.9.0`` are all 2.9.0. Only a specifier that
  itself names a local segment (``==2.9.0+cu128``), or compares text (``===``), sees the whole number.
* **Pre-releases and development builds always take part**, and sort where PEP 440 puts them: ``2.10.0a0+git`` counts as
  2.10.0a0, comes before 2.10, and so isn't in ``>=2.10``. By PEP 440 ``<2.10`` doesn't hold for it either: an upper
  bound keeps out the pre-releases of the release that it names.
* **Some numbers say nothing**: text that is no version at all, and the stand-ins that build tools write where a
  checkout has no tags (``0.1.dev1+g1a2b3c4``, ``0.0.0``, ``0+unknown``). Such a number neither fits nor excludes;
  ``normalised`` is ``None``, the source alone is judged, and the finding says so.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ..errors import RegistrationError
from ._model import Contract, LibraryVersion

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

__all__ = ["Requirement", "check_requirements", "library_version", "parse_requirement", "satisfies"]

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*([<>=!~].*)?")


class Requirement(NamedTuple):
    """A distribution and the versions of it that will do."""

    distribution: str
    specifiers: SpecifierSet
    text: str


def check_requirements(contract: Contract) -> list[str]:
    """Return a line for each requirement of a contract that can't be parsed."""
    faults = []
    for text in (*contract.requires, *contract.until):
        try:
            parse_requirement(text)
        except RegistrationError as error:
            faults.append(error.message)
    return faults


@cache
def parse_requirement(text: str) -> Requirement:
    """Parse ``"torch>=2.1,<2.16"``: a distribution and specifiers, and nothing else.

    Markers, extras and addresses say how to install something. A contract installs nothing, so they are refused
    rather than passed over. (Not ``packaging.requirements``, which takes longer to import than a contract to judge.)

    Raises:
        RegistrationError: The text isn't of that form.
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    match = _REQUIREMENT.fullmatch(text)
    if match:
        try:
            return Requirement(match[1], SpecifierSet(match[2] or "", prereleases=True), text.strip())
        except InvalidSpecifier:
            pass
    raise RegistrationError(f"requirement {text!r}: expected a distribution and specifiers, such as 'torch>=2.1,<2.16'")


def library_version(distribution: str, raw: str | None) -> LibraryVersion:
    """Return the version with what it counts as; ``raw`` is ``None`` for a distribution that isn't there."""
    version = _parse(raw)
    counts = version is not None and not _says_nothing(version)
    return LibraryVersion(distribution, raw, version.public if version is not None and counts else None)


def satisfies(version: LibraryVersion, requirement: Requirement) -> bool | None:
    """Whether the version fits; ``None`` where the number says nothing.

    The module's docstring has the rule for pre-releases, local segments and source builds.
    """
    if version.raw is None or version.normalised is None:
        return None
    return all(
        specifier.contains(version.raw if _sees_local(str(specifier)) else version.normalised, prereleases=True)
        for specifier in requirement.specifiers
    )


def _sees_local(specifier: str) -> bool:
    return "+" in specifier or specifier.startswith("===")


@lru_cache(maxsize=256)
def _parse(raw: str | None) -> Version | None:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(raw) if raw is not None else None
    except InvalidVersion:
        return None


def _says_nothing(version: Version) -> bool:
    """Tell the stand-ins of versioneer (0+unknown) and setuptools-scm (0.0, 0.1.dev1+g…) from real numbers."""
    if not any(version.release):
        return True
    return version.release == (0, 1) and version.is_devrelease and bool(version.local)
