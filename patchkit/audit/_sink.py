"""The structlog logger in front of the log file. Importing this module imports structlog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import structlog

from ._event import ENDINGS, FIELDS, OPENINGS, render
from ._file import Appended

if TYPE_CHECKING:
    from structlog.typing import EventDict, WrappedLogger

__all__ = ["Sink", "file_logger"]


class Sink(Protocol):
    """What the logger offers: one method that takes an event."""

    def append(self, event: str, **fields: object) -> Appended: ...


class _Target(Protocol):
    def append(self, body: str, /, *, is_boundary: bool) -> Appended: ...


def file_logger(target: _Target) -> Sink:
    """Return a structlog logger that ends in ``target.append``.

    Everything is given explicitly, so that nothing that the application configures reaches the file: its
    wrapper class could filter entries away by level, its processors could change or drop them.
    """
    logger: Sink = structlog.wrap_logger(
        target,
        processors=[_in_order, _to_call],
        wrapper_class=structlog.BoundLogger,
        context_class=dict,
        cache_logger_on_first_use=False,
    ).bind()
    return logger


def _in_order(_logger: WrappedLogger, _method: str, event_dict: EventDict) -> EventDict:
    return {name: event_dict[name] for name in FIELDS if name in event_dict}


def _to_call(_logger: WrappedLogger, _method: str, event_dict: EventDict) -> tuple[tuple[str], dict[str, bool]]:
    """Turn an event into the arguments of the target's ``append``."""
    return (render(event_dict),), {"is_boundary": event_dict["event"] in OPENINGS | ENDINGS}
