"""What conditions of a manifest are judged against, without importing anything that is judged."""

from __future__ import annotations

import functools
import os
import sys
from importlib import metadata
from typing import Protocol

from ._entry_points import distribution_of, entry_points
from .errors import PlanError

__all__ = ["FACTS_GROUP", "Environment", "ProcessEnvironment"]

FACTS_GROUP = "patchkit.facts"
"""Entry-point group of facts that the engine can't know by itself: callables that take nothing."""


class Environment(Protocol):
    """What a condition may ask; a test or another machine's description can stand in for the process."""

    @property
    def python(self) -> str:
        """Version of the interpreter, such as ``3.12.1``."""

    @property
    def platform(self) -> str:
        """The platform as ``sys.platform`` has it, such as ``linux``."""

    def version(self, distribution: str) -> str | None:
        """Return the version of an installed distribution as its metadata has it, or None."""

    def getenv(self, name: str) -> str | None:
        """Return an environment variable, or None where it is not set."""

    def accelerator(self) -> bool:
        """Say whether an accelerator is present; asked only where a condition needs it."""


class ProcessEnvironment:
    """The environment of this process."""

    @property
    def python(self) -> str:
        """Version of the running interpreter, pre-release included, build tags left out."""
        major, minor, micro, level, serial = sys.version_info
        suffix = {"alpha": f"a{serial}", "beta": f"b{serial}", "candidate": f"rc{serial}"}.get(level, "")
        return f"{major}.{minor}.{micro}{suffix}"

    @property
    def platform(self) -> str:
        """``sys.platform``."""
        return sys.platform

    def version(self, distribution: str) -> str | None:
        """Return what the installed metadata says; the distribution itself is not imported.

        Raises:
            PlanError: The metadata can't be read.
        """
        try:
            found = metadata.metadata(distribution)
        except metadata.PackageNotFoundError:
            return None
        except ValueError as error:
            raise PlanError(
                f"the metadata of the distribution {distribution!r} can't be read: {error}. Install it anew, or take "
                "it out of the conditions."
            ) from error
        if "Version" not in found:
            # What is left of a half-removed distribution.
            return None
        return found["Version"]

    def getenv(self, name: str) -> str | None:
        """Return the variable as it is now."""
        return os.environ.get(name)

    def accelerator(self) -> bool:
        """Ask the entry points named ``accelerator`` of the group ``patchkit.facts``, once in a process.

        Without such an entry point the answer is False. Several are asked in the order in which they are
        installed until one says True.

        Raises:
            PlanError: An entry point can't be read or loaded, fails, or answers something else than True or False.
        """
        return _accelerator()


@functools.cache
def _accelerator() -> bool:
    points, unreadable = entry_points(FACTS_GROUP, "accelerator")
    if any(_ask(point) for point in points):
        return True
    if unreadable:
        raise PlanError("; ".join(unreadable))
    return False


def _ask(point: metadata.EntryPoint) -> bool:
    provider = f"entry point {point.name!r} = {point.value!r} of the group {FACTS_GROUP!r}"
    distribution = distribution_of(point)
    if distribution is not None:
        provider += f" (distribution {distribution!r})"
    try:
        answer: object = point.load()()
    except (Exception, SystemExit) as error:
        raise PlanError(
            f"the {provider} can't say whether an accelerator is present: {type(error).__name__}: {error}. "
            "Mend or uninstall that distribution, or take `accelerator` out of the conditions."
        ) from error
    if not isinstance(answer, bool):
        raise PlanError(
            f"the {provider} must answer True or False, got {answer!r}. Mend or uninstall that distribution."
        )
    return answer
