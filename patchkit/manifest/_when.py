"""The conditions of a manifest entry."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool

from .._environment import Environment

# packaging is imported where a condition needs it: most manifests have none, and `verify` is to be quick.
if TYPE_CHECKING:
    from packaging.requirements import Requirement


def _check_requirement(text: str) -> str:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        # packaging draws a caret under the text on further lines.
        reason = str(error).partition("\n")[0]
        raise ValueError(f"expected a requirement such as 'torch>=2.7', got {text!r} ({reason})") from None
    if requirement.url or requirement.marker or requirement.extras:
        raise ValueError(
            f"expected a distribution with version specifiers only, such as 'torch>=2.7', got {text!r}; "
            "for other conditions use the keys python, platform and env of `when`"
        )
    return text


def _check_specifier(text: str) -> str:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        if SpecifierSet(text):
            return text
    except InvalidSpecifier:
        pass
    raise ValueError(f"expected version specifiers such as '>=3.10,<3.14', got {text!r}")


def _check_variables(variables: dict[str, str]) -> dict[str, str]:
    for name in variables:
        if not name or "=" in name:
            raise ValueError(f"expected names of environment variables as keys, got {name!r}")
    return variables


class When(BaseModel):
    """Conditions of an entry: all that are given must hold, else it is left out, and that is recorded."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requires: tuple[Annotated[str, AfterValidator(_check_requirement)], ...] = Field(
        default=(),
        description="Requirements on installed distributions, read from their metadata without importing them. "
        "Pre-releases count, and a local part doesn't: 2.9.0+cu128 is 2.9.0. "
        "A name without a version asks only that it is installed.",
        examples=[["torch>=2.7,<2.16"]],
    )
    python: Annotated[str, AfterValidator(_check_specifier)] | None = Field(
        default=None,
        description="Version specifiers for the running Python.",
        examples=[">=3.10"],
    )
    platform: str | None = Field(
        default=None,
        min_length=1,
        description="Glob, case-sensitive, for the platform as Python's sys.platform has it.",
        examples=["linux*"],
    )
    env: Annotated[dict[str, str], AfterValidator(_check_variables)] = Field(
        default={},
        description="Environment variables and a glob, case-sensitive, for the value of each. "
        "The empty glob holds where the variable is empty or not set, '*' where it is set.",
        examples=[{"CI": "", "PATCHKIT_PROFILE": "low*"}],
    )
    accelerator: StrictBool | None = Field(
        default=None,
        description="true: an accelerator must be present. false: none may be.",
        examples=[True],
    )

    def unmet(self, environment: Environment) -> str | None:
        """Return why the conditions don't hold in ``environment``, or None where they all do.

        The cheap conditions are looked at first; the environment is asked for an accelerator only where all
        others hold. Values of environment variables are left out of the reason, since it goes on the log.
        """
        return next(self._reasons(environment), None)

    def _reasons(self, environment: Environment) -> Iterator[str]:
        if self.python is not None and not _admits(self.python, environment.python):
            yield f"Python is {environment.python}, expected {self.python}"
        if self.platform is not None and not fnmatchcase(environment.platform, self.platform):
            yield f"platform is {environment.platform!r}, expected {self.platform!r}"
        for name, glob in self.env.items():
            value = environment.getenv(name)
            if value is None and glob:
                yield f"environment variable {name} is not set, expected {glob!r}"
            elif not fnmatchcase(value or "", glob):
                yield f"environment variable {name} doesn't match {glob!r}"
        yield from _unmet_requirements(self.requires, environment)
        if self.accelerator is not None and environment.accelerator() is not self.accelerator:
            yield "an accelerator is present" if self.accelerator is False else "no accelerator is present"


def _admits(specifiers: str, version: str) -> bool:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(specifiers).contains(version, prereleases=True)


def _unmet_requirements(texts: tuple[str, ...], environment: Environment) -> Iterator[str]:
    if texts:
        from packaging.requirements import Requirement

        for text in texts:
            yield from _missing(Requirement(text), environment)


def _missing(requirement: Requirement, environment: Environment) -> Iterator[str]:
    from packaging.version import InvalidVersion, Version

    found = environment.version(requirement.name)
    if found is None:
        yield f"{requirement.name} is not installed, expected {requirement}"
        return
    try:
        # packaging itself ignores a local part of the version unless the specifier has one too.
        fits = requirement.specifier.contains(Version(found), prereleases=True)
    except InvalidVersion:
        # "Installed at all" can be answered without reading the version.
        fits = not requirement.specifier
    if not fits:
        yield f"{requirement.name} is {found}, expected {requirement}"
