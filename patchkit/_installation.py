"""One patch applied once: its context, what state it is in, and the steps between states."""

from __future__ import annotations

import difflib
import enum
from collections.abc import Callable

from ._context import Context
from ._journal import Failure
from ._plan import Step
from .errors import (
    InstallError,
    NothingToDoError,
    PatchkitError,
    RefusedError,
    ResourceError,
    RevertError,
    VerifyError,
)

__all__ = ["Installation", "State"]


class State(enum.Enum):
    """Where an application of a patch stands."""

    # Nothing was changed yet, or everything was put back after a failure.
    PLANNED = "planned"
    # In effect.
    INSTALLED = "installed"
    # Out of effect inside a ``reverted`` context, and coming back.
    SUSPENDED = "suspended"
    # Taken out for good.
    REVERTED = "reverted"
    # Asked to leave, but something could not be put back; reverting again tries the rest.
    STRANDED = "stranded"


class Installation:
    """A step of a plan in execution.

    Args:
        step: The step.
        ctx: The context of the application.
    """

    def __init__(self, step: Step, ctx: Context) -> None:
        self.step = step
        self.ctx = ctx
        self.state = State.PLANNED
        self._begun = False
        self._uninstalled = False
        self._suspenders: set[object] = set()

    @property
    def name(self) -> str:
        """Name of the patch."""
        return self.step.patch.name

    def check(self) -> None:
        """Let the patch refuse, before anything is touched."""
        self._guarded(self.step.patch.check, "its check")

    def install(self) -> None:
        """Install the patch; what it changed before a failure is on the journal."""
        self._begun = True
        self._guarded(self.step.patch.install, "its installation")
        unmatched = self.ctx.unmatched()
        if unmatched:
            offered = _offered(unmatched[0], list(self.ctx.offered))
            raise ResourceError(
                f"{self.name}: expected each glob of 'modules' to select a module, found none for "
                f"{', '.join(map(repr, unmatched))}. Correct the globs; {offered}.",
                patch=self.name,
            )
        if not self.ctx.has_effect():
            raise NothingToDoError(
                f"{self.name}: expected it to change something, but after its installation everything is what it was. "
                "Take it out of the manifest, or say required = false.",
                patch=self.name,
            )
        self.state = State.INSTALLED

    def verify(self) -> None:
        """Prove that the patch is in effect.

        Raises:
            VerifyError: It is not.
        """
        problems = self.ctx.problems()
        if problems:
            raise VerifyError("\n".join(f"{self.name}: {problem}." for problem in problems), patch=self.name)
        try:
            self._guarded(self.step.patch.verify, "its verification", VerifyError)
        except VerifyError:
            raise
        except PatchkitError as error:
            raise VerifyError(str(error), patch=error.patch) from error

    def undo(self) -> tuple[Failure, ...]:
        """Take the patch out, its own steps first, then the journal's; goes on after failures.

        May be called again: after an interrupt it goes on where it was, after failures it tries them again.
        """
        failures: list[Failure] = []
        if self._begun and not self._uninstalled:
            try:
                self.step.patch.uninstall(self.ctx)
            except Exception as error:
                failures.append(Failure("the patch's own uninstall", error))
            else:
                self._uninstalled = True
        failures += self.ctx.journal.undo()
        self.state = State.STRANDED if failures else State.REVERTED
        self._suspenders.clear()
        return tuple(failures)

    def suspend(self, who: object) -> bool:
        """Suspend the patch on behalf of ``who``; returns whether that took it out of effect.

        ``resume`` has to follow, also after an exception.
        """
        self._suspenders.add(who)
        if self.state is not State.INSTALLED:
            return False
        self.state = State.SUSPENDED
        self._moved(self.ctx.journal.suspend, "suspended")
        return True

    def resume(self, who: object) -> bool:
        """End the suspension by ``who``; returns whether that brought the patch back into effect.

        If it fails, the patch stays suspended; the end of a later suspension tries again.
        """
        self._suspenders.discard(who)
        if self._suspenders or self.state is not State.SUSPENDED:
            return False
        self._moved(self.ctx.journal.resume, "brought back")
        self.state = State.INSTALLED
        return True

    def _moved(self, move: Callable[[], None], participle: str) -> None:
        try:
            move()
        except PatchkitError:
            raise
        except Exception as error:
            raise RevertError(
                f"{self.name}: it can't be {participle}: {type(error).__name__}: {error}. A step of its own or "
                "an inverse failed; the cause is chained to this error.",
                patch=self.name,
                exceptions=[error],
            ) from error

    def _guarded(
        self, call: Callable[[Context], None], what: str, wrap: type[InstallError | VerifyError] = InstallError
    ) -> None:
        try:
            call(self.ctx)
        except PatchkitError as error:
            error.patch = error.patch or self.name
            raise
        except Exception as error:
            missing = self._missing_library(error)
            if missing:
                raise RefusedError(
                    f"{self.name}: expected the library {missing}, found that it is not installed: {what} failed with "
                    f"{type(error).__name__}: {error}. Install it, take the patch out of the manifest, or leave it out "
                    'with on_unknown = "skip" in [policy].',
                    patch=self.name,
                ) from error
            raise wrap(
                f"{self.name}: {what} failed: {type(error).__name__}: {error}. That is a fault of the patch; the "
                "cause is chained to this error.",
                patch=self.name,
            ) from error

    def _missing_library(self, error: Exception) -> str | None:
        """Return the library of the contract that isn't there, if that is what the patch has run into."""
        if not isinstance(error, ModuleNotFoundError):
            return None
        package = (error.name or "").partition(".")[0]
        of_contract = {symbol.module.partition(".")[0] for symbol in self.step.patch.contract.symbols}
        return repr(package) if package in of_contract else None


def _offered(glob: str, paths: list[str]) -> str:
    """Say which paths there were to be matched, the nearest to ``glob`` first."""
    if not paths:
        return "the patch looks at no modules, so take 'modules' out of the entry"
    near = difflib.get_close_matches(glob, paths, n=3, cutoff=0.4)
    shown = [*near, *(path for path in paths if path not in near)][:5]
    more = f" and {len(paths) - len(shown)} more" if len(paths) > len(shown) else ""
    return f"they match module paths, here {', '.join(map(repr, shown))}{more}"
