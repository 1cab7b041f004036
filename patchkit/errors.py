"""Every exception that patchkit raises, in one tree.

::

    PatchkitError                         PK100  root of all
    ├── ManifestError (ValueError)        PK110  the manifest can't be read or is wrong
    ├── RegistrationError (ValueError)    PK120  a patch is declared wrongly, or twice
    ├── PlanError                         PK200  the plan can't be carried out as it stands
    │   ├── UnknownPatchError (LookupError)  PK201  no patch of that name
    │   ├── OptionsError (ValueError)     PK202  an option is unknown or has a wrong value
    │   ├── ResourceError (TypeError)     PK203  a resource is missing or of the wrong kind
    │   ├── OrderError                    PK204  patches conflict, or must follow each other in a circle
    │   └── NothingToDoError              PK205  a selected patch would change nothing
    ├── ContractError                     PK300  the library at hand is not what a patch needs
    ├── RefusedError (RuntimeError)       PK400  a patch refuses the situation that it finds
    ├── SiteError (AttributeError)        PK410  a site doesn't exist, or can't be patched
    ├── TransactionError                  PK500  a transaction failed and was rolled back
    │   ├── InstallError                  PK501  a patch failed while it was installed
    │   ├── VerifyError                   PK502  a patch is not in effect
    │   └── RevertError                   PK503  something could not be put back
    ├── ForeignChangeError                PK510  somebody else changed a site after patchkit did
    └── AuditError (OSError)              PK600  the audit log can't be written or read

``python -m patchkit explain PK201`` prints the docstring of the class with that code, so each docstring
here says what it means for the reader and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

__all__ = [
    "AuditError",
    "ContractError",
    "ForeignChangeError",
    "InstallError",
    "ManifestError",
    "NothingToDoError",
    "OptionsError",
    "OrderError",
    "PatchkitError",
    "PatchkitWarning",
    "PlanError",
    "RefusedError",
    "RegistrationError",
    "ResourceError",
    "RevertError",
    "SiteError",
    "TransactionError",
    "UnknownPatchError",
    "VerifyError",
    "error_classes",
]


class PatchkitError(Exception):
    """Something that patchkit was asked to do can't be done.

    Catch this class to catch everything that patchkit raises on its own account. The message says what was
    expected, what was found, where, and what to do next.

    Attributes:
        code: Stable code of the class, for ``python -m patchkit explain``.
        exit_code: What the command line returns for it: 1 where something doesn't fit, 2 where the
            question itself was wrong or unreadable.
        patch: Name of the patch concerned, where there is one.
    """

    code: ClassVar[str] = "PK100"
    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, *, patch: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.patch = patch


class PatchkitWarning(UserWarning):
    """Something that policy lets pass, and that somebody should look at."""


class ManifestError(PatchkitError, ValueError):
    """A manifest is missing, can't be parsed, or says something that patchkit doesn't understand.

    The message names the file, the line where it is known, the key, and what was expected there. All faults
    of a file are reported together. Print the schema with ``python -m patchkit schema``; an editor that
    reads the ``#:schema`` line of a manifest shows the faults while you type.

    Attributes:
        problems: One line for each fault, each starting with the file and, where known, the line.
    """

    code = "PK110"

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class RegistrationError(PatchkitError, ValueError):
    """A patch is declared wrongly, or two patches claim one name.

    A patch needs a name, a summary, the reason for its existence, how it works, and when it can go; its
    ``install`` must be written; a name belongs to one patch only. Correct the class or the decorator that
    the message names. For a patch from another distribution, the message names the distribution.
    """

    code = "PK120"


class PlanError(PatchkitError):
    """The plan made from a manifest can't be carried out as it stands; nothing was touched.

    Attributes:
        faults: Each fault, if there are several; every one has a code of its own.
    """

    code = "PK200"

    def __init__(self, message: str, *, patch: str | None = None, faults: Sequence[PlanError] = ()) -> None:
        super().__init__(message, patch=patch)
        self.faults = tuple(faults)


class UnknownPatchError(PlanError, LookupError):
    """No registered patch has this name.

    The message lists the nearest names. ``python -m patchkit list`` shows all of them. A patch of your own
    must be registered (``patchkit.register``) before ``apply``, or be found through the entry-point group
    ``patchkit.patches`` of an installed distribution.

    Attributes:
        name: The name that was asked for.
        nearest: Registered names that look like it, best first.
    """

    code = "PK201"

    def __init__(self, message: str, *, name: str, nearest: Sequence[str] = ()) -> None:
        super().__init__(message, patch=name)
        self.name = name
        self.nearest = tuple(nearest)


class OptionsError(PlanError, ValueError):
    """An option of a patch is unknown, missing, or has a wrong value.

    ``python -m patchkit show NAME`` lists the options of a patch with their types and defaults.
    """

    code = "PK202"


class ResourceError(PlanError, TypeError):
    """A patch needs an object that ``apply`` was not given, or was given in a wrong kind.

    Pass it: ``patchkit.apply(manifest, model)`` for the model, a mapping of names to modules where entries say
    ``on = "name"``, or a keyword argument for any other resource. Also raised where entries of a manifest
    select modules (``modules = [...]``) that the model doesn't have.
    """

    code = "PK203"


class OrderError(PlanError):
    """Selected patches exclude each other, or each must come after the other.

    Take one of the patches that the message names out of the manifest, or correct ``after``/``conflicts`` of
    the patches if they are yours.
    """

    code = "PK204"


class NothingToDoError(PlanError):
    """A selected patch would change nothing: a patch that silently does nothing is worse than an error.

    Take it out of the manifest, select another target, or say ``required = false`` if it may be absent.
    """

    code = "PK205"
    exit_code = 1


class ContractError(PatchkitError):
    """The installed library is not what a patch was written for; nothing was touched.

    The message names the symbol, what was expected, what was found, and the command that shows the
    difference. Either use a release that the contract accepts, update the patch, or, where the verdict is
    ``changed`` or ``excluded`` and you have looked at the difference, set ``on_changed`` or ``on_excluded``
    in ``[policy]`` of the manifest.

    Attributes:
        reports: The judgements that policy doesn't accept.
    """

    code = "PK300"
    exit_code = 1

    def __init__(self, message: str, *, patch: str | None = None, reports: Sequence[object] = ()) -> None:
        super().__init__(message, patch=patch)
        self.reports = tuple(reports)


class RefusedError(PatchkitError, RuntimeError):
    """A patch refuses the situation that it finds, since it could not be right there.

    For example: a model that is not wrapped in FSDP1, FSDP1 that has already run its lazy initialisation,
    parameters that require gradients where the patch is for frozen models. The message says what was
    expected and what to do. Nothing is left changed.
    """

    code = "PK400"
    exit_code = 1


class SiteError(PatchkitError, AttributeError):
    """A site doesn't exist, or is of a kind that can't be patched."""

    code = "PK410"
    exit_code = 1


class TransactionError(PatchkitError):
    """A transaction failed, and everything that it had changed was put back.

    The exception that caused it is chained (``__cause__``). If putting back failed as well, the message and
    ``stranded`` name what could not be restored.

    Attributes:
        stranded: Descriptions of the changes that could not be undone; empty after a clean roll-back.
    """

    code = "PK500"
    exit_code = 1

    def __init__(self, message: str, *, patch: str | None = None, stranded: Sequence[str] = ()) -> None:
        super().__init__(message, patch=patch)
        self.stranded = tuple(stranded)


class InstallError(TransactionError):
    """A patch failed while it was installed; the whole transaction was rolled back."""

    code = "PK501"


class VerifyError(TransactionError):
    """A patch is installed but not in effect.

    A site doesn't hold what was installed, another name still holds the old object, or the patch's own check
    of its effect failed. During ``apply`` the whole transaction was rolled back; from ``Applied.verify`` the
    patches stay as they are.
    """

    code = "PK502"


class RevertError(TransactionError):
    """Something could not be put back while a patch was taken out; the rest was.

    ``stranded`` names what remains. The causes are chained, and in ``exceptions`` if there are several.

    Attributes:
        exceptions: What each failed step raised, in the order in which the steps ran.
    """

    code = "PK503"

    def __init__(
        self,
        message: str,
        *,
        patch: str | None = None,
        stranded: Sequence[str] = (),
        exceptions: Sequence[BaseException] = (),
    ) -> None:
        super().__init__(message, patch=patch, stranded=stranded)
        self.exceptions = tuple(exceptions)


class ForeignChangeError(PatchkitError):
    """Somebody else changed a site after patchkit did, and patchkit doesn't overwrite that.

    The message says which site, and where the object that it holds now was defined. Take that change out
    first (or revert in the opposite order), then revert or apply again.

    Attributes:
        site: The site, as ``package.module:Class.attr``.
        found: A description of the object that the site holds now.
    """

    code = "PK510"
    exit_code = 1

    def __init__(self, message: str, *, site: str, found: str, patch: str | None = None) -> None:
        super().__init__(message, patch=patch)
        self.site = site
        self.found = found


class AuditError(PatchkitError, OSError):
    """The audit log can't be written or read.

    With ``[audit] policy = "required"`` (the default) nothing is patched that can't be recorded: choose a path
    that can be written (``[audit] path`` or the environment variable ``PATCHKIT_AUDIT``), or set the policy to
    ``"best-effort"``, which warns instead.
    """

    code = "PK600"

    def __init__(self, message: str) -> None:
        PatchkitError.__init__(self, message)

    def __str__(self) -> str:
        return self.message


def error_classes() -> Iterator[type[PatchkitError]]:
    """Yield every class of the tree, parents before children."""
    pending: list[type[PatchkitError]] = [PatchkitError]
    while pending:
        cls = pending.pop(0)
        yield cls
        pending.extend(cls.__subclasses__())
