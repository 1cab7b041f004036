"""A digest of compiled code that is the same in every process of one Python version."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from types import CodeType

__all__ = ["code_digest", "joint_digest"]

# Their repr holds their value and nothing else.
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type(Ellipsis))


def code_digest(code: CodeType) -> str:
    """Return the digest of a code object and of all code inside it.

    File and line numbers don't count: code that only moved keeps its digest.
    """
    return _sha256(_canonical(code))


def joint_digest(digests: Sequence[str]) -> str:
    """Return one digest for several, in their order."""
    return _sha256("\n".join(digests))


def _sha256(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def _canonical(value: object) -> str:
    if isinstance(value, CodeType):
        counts = (value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags)
        names = (value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars)
        # Since Python 3.11 the handlers of exceptions stand in a table beside the instructions.
        handlers = getattr(value, "co_exceptiontable", b"")
        parts = (value.co_name, counts, names, value.co_code, handlers, value.co_consts)
        return f"code{_canonical(parts)}"
    if isinstance(value, tuple):
        return f"({','.join(map(_canonical, value))})"
    if isinstance(value, frozenset):
        # The order of a set differs from process to process.
        return f"{{{','.join(sorted(map(_canonical, value)))}}}"
    if type(value) in _PLAIN:
        return repr(value)
    # Tools that rewrite code put objects of their own among the constants; a repr could hold an address.
    return f"<{type(value).__module__}.{type(value).__qualname__}>"
