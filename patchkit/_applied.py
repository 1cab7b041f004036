"""The handle that ``apply`` returns: it owns what its transaction installed."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

from ._installation import Installation, State
from ._interrupts import InterruptsDeferred
from ._journal import Failure, persist
from ._locks import fresh_after_fork
from ._plan import Plan
from ._recorder import Recorder
from .errors import ForeignChangeError, RevertError, UnknownPatchError, VerifyError

__all__ = ["Applied", "PatchStatus", "Report"]


@dataclass(frozen=True)
class PatchStatus:
    """How one patch of a handle stands.

    Attributes:
        name: Name of the patch.
        on: The model that the manifest selects for it, where it names one.
        state: ``installed``, ``suspended``, ``reverted``, ``stranded``; ``skip`` or ``disabled`` if it never was.
        verdict: What its contract came to.
        sites: What it has changed, or would change again after a suspension: sites, hooks and steps of its own.
        reason: Why it was left out, or applied with a reservation.
        problem: What is wrong with it now, if something is.
        unreached: Places in classes that hold a patched function as it was: callers that use them see nothing of the
            patch.
    """

    name: str
    on: str | None
    state: str
    verdict: str | None
    sites: tuple[str, ...] = ()
    reason: str = ""
    problem: str = ""
    unreached: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """How every patch of a handle stands; printing it shows a table."""

    manifest: str | None
    patches: tuple[PatchStatus, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the report in a form that JSON can hold."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"manifest: {self.manifest or '(given as an object)'}"]
        for status in self.patches:
            on = f" on {status.on}" if status.on else ""
            lines.append(f"{status.state:<10} {status.name}{on}  contract {status.verdict or 'not judged'}")
            lines += [f"{'':<10}   {site}" for site in status.sites]
            lines += [f"{'':<10}   {text}" for text in (status.reason, status.problem) if text]
            lines += [f"{'':<10}   not reached: {place}" for place in status.unreached]
        return "\n".join(lines)


class Applied:
    """What one ``apply`` has installed.

    Leaving it as a context manager reverts all of it, after an exception too. Methods may be called from any
    thread; they take effect in the whole process.
    """

    def __init__(
        self, plan: Plan, installations: Sequence[Installation], recorder: Recorder, left_out: Mapping[str, str]
    ) -> None:
        self._plan = plan
        self._left_out = dict(left_out)
        self._installations = tuple(installations)
        self._recorder = recorder
        self._lock = fresh_after_fork()

    @property
    def patches(self) -> tuple[str, ...]:
        """Names of the patches that this handle has in effect or suspended, in the order of installation."""
        live = (State.INSTALLED, State.SUSPENDED, State.STRANDED)
        return tuple(dict.fromkeys(i.name for i in self._installations if i.state in live))

    def revert(self, *names: str) -> None:
        """Take patches out: every place that they touched is what it was.

        A patch that another handle has applied to the same target stays until that one reverts it too.
        Reverting what is reverted already does nothing.

        Args:
            names: Which; none means all.

        Raises:
            UnknownPatchError: The handle has no patch of such a name.
            ForeignChangeError: Somebody else changed a site after patchkit; theirs stays, as does what is below it.
                The rest was reverted. Calling ``revert`` again tries once more.
            RevertError: Something could not be put back; the rest was.
        """
        with InterruptsDeferred(), self._lock:
            chosen = [i for i in self._chosen(names) if i.state not in (State.REVERTED, State.PLANNED)]
            if not chosen:
                return
            failures: dict[Installation, tuple[Failure, ...]] = {}
            with self._recorder.reverting(chosen) as stranded:
                interrupt = persist(lambda: self._take_out(chosen, failures, stranded))
        if interrupt is not None:
            raise interrupt
        errors = [failure.error for found in failures.values() for failure in found]
        if errors and all(_is_about_one(error, errors[0]) for error in errors):
            raise errors[0]
        if errors:
            raise RevertError(
                f"{len(errors)} changes could not be undone; everything else was:\n"
                + "\n".join(f"  {line}" for line in stranded),
                stranded=stranded,
                exceptions=errors,
            ) from errors[0]

    @contextmanager
    def reverted(self, *names: str) -> Iterator[None]:
        """Take patches out for the duration of a ``with`` block, for comparisons.

        The change is process-wide: other threads see stock behaviour too while any such block is open. Blocks may
        be nested and may overlap between threads; the last one to end brings the patches back. A patch that was
        reverted inside the block stays reverted.

        Args:
            names: Which; none means all.

        Raises:
            UnknownPatchError: The handle has no patch of such a name.
            ForeignChangeError: Somebody else changed a site; nothing was suspended, or nothing was brought back.
        """
        block = object()
        chosen: list[Installation] = []
        try:
            try:
                with InterruptsDeferred(), self._lock:
                    chosen = [i for i in self._chosen(names) if i.state in (State.INSTALLED, State.SUSPENDED)]
                    for installation in reversed(chosen):
                        if installation.suspend(block):
                            self._recorder.suspended(installation)
                yield
            finally:
                self._bring_back(chosen, block)
        except BaseException:
            # An interrupt on the way there.
            self._bring_back(chosen, block)
            raise

    def verify(self) -> Report:
        """Prove again that every installed patch is in effect.

        Returns:
            The report.

        Raises:
            VerifyError: A patch is not in effect; all that are not are named. Everything stays as it is.
        """
        errors: list[VerifyError] = []
        with self._lock:
            for installation in self._installations:
                if installation.state is not State.INSTALLED:
                    continue
                error = self._problem(installation)
                self._recorder.checked(installation, error)
                if error is not None:
                    errors.append(error)
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise VerifyError("\n".join(map(str, errors))) from errors[0]
        return self.report()

    def report(self) -> Report:
        """Say how every patch of the manifest stands, without changing or recording anything."""
        statuses = [self._status(installation) for installation in self._installations]
        begun = {id(i.step) for i in self._installations}
        statuses += [
            PatchStatus(
                step.patch.name,
                step.entry.on,
                step.outcome if step.outcome != "install" else "skip",
                step.judgement.verdict.value if step.judgement else None,
                reason=self._left_out.get(step.label, step.reason),
            )
            for step in self._plan.steps
            if id(step) not in begun
        ]
        statuses += [
            PatchStatus(entry.name, entry.on, "skip", None, reason="no patch of that name is registered")
            for entry in self._plan.absent
        ]
        return Report(self._plan.manifest.path, tuple(statuses))

    def __enter__(self) -> Applied:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.revert()
        except Exception:
            raise
        except BaseException:
            # An interrupt on the way there; what it had begun, it has finished.
            self.revert()
            raise

    def __repr__(self) -> str:
        return f"<Applied {', '.join(self.patches) or 'nothing'}>"

    def _chosen(self, names: Sequence[str]) -> list[Installation]:
        known = {i.name for i in self._installations}
        for name in names:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=3)
                hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
                raise UnknownPatchError(
                    f"expected the name of a patch that this handle has applied "
                    f"({', '.join(sorted(known)) or 'none'}), found {name!r}.{hint}",
                    name=name,
                    nearest=near,
                )
        return [i for i in self._installations if not names or i.name in names]

    def _take_out(
        self, chosen: list[Installation], failures: dict[Installation, tuple[Failure, ...]], stranded: list[str]
    ) -> None:
        for installation in reversed(chosen):
            if installation not in failures:
                found = installation.undo()
                lines = [str(failure) for failure in found]
                self._recorder.reverted(installation, lines)
                stranded += [f"{installation.name}: {line}" for line in lines]
                failures[installation] = found

    def _bring_back(self, chosen: list[Installation], block: object) -> None:
        errors: list[Exception] = []
        with InterruptsDeferred(), self._lock:
            interrupt = persist(lambda: self._resume(chosen, block, errors))
        if interrupt is not None:
            raise interrupt
        if errors:
            raise errors[0]

    def _resume(self, chosen: list[Installation], block: object, errors: list[Exception]) -> None:
        for installation in chosen:
            try:
                if installation.resume(block):
                    self._recorder.resumed(installation)
            except Exception as error:
                errors.append(error)

    def _problem(self, installation: Installation) -> VerifyError | None:
        try:
            installation.verify()
        except VerifyError as error:
            return error
        return None

    def _status(self, installation: Installation) -> PatchStatus:
        step = installation.step
        is_on = installation.state is State.INSTALLED
        problems = installation.ctx.problems() if is_on else []
        return PatchStatus(
            installation.name,
            step.entry.on,
            installation.state.value,
            step.judgement.verdict.value if step.judgement else None,
            (*installation.ctx.sites(), *installation.ctx.steps()),
            step.reason,
            "; ".join(problems),
            tuple(installation.ctx.unreached()) if is_on else (),
        )


def _is_about_one(error: BaseException, other: BaseException) -> bool:
    """Tell whether both say that a stranger has the same site."""
    return isinstance(error, ForeignChangeError) and isinstance(other, ForeignChangeError) and error.site == other.site
