"""Events as ordinary log records, so that an application routes them where its logs go.

Where the application has configured structlog, they are structlog events of its configuration; otherwise they
are records of the standard library's logger ``patchkit``, which prints nothing by itself. structlog is not
imported for this: as long as nobody has imported it, nobody has configured it.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from typing import Any

from ._event import level

__all__ = ["emit"]

_LOGGER = logging.getLogger("patchkit")
# Without a handler of ours, warnings would reach stderr through logging's last resort.
_LOGGER.addHandler(logging.NullHandler())


def emit(fields: Mapping[str, Any]) -> None:
    """Log one event with its fields; what the application's own logging raises comes through."""
    name = level(fields)
    if "structlog" in sys.modules:
        import structlog

        if structlog.is_configured():
            data = {key: value for key, value in fields.items() if key != "event"}
            getattr(structlog.get_logger("patchkit"), name)(fields["event"], **data)
            return
    number = logging.getLevelName(name.upper())
    if _LOGGER.isEnabledFor(number):
        _LOGGER.log(number, "%s", _sentence(fields), extra={"patchkit": dict(fields)})


def _sentence(fields: Mapping[str, Any]) -> str:
    data = (f"{key}={json.dumps(value)}" for key, value in fields.items() if key != "event" and value is not None)
    return " ".join([fields["event"], *data])
