"""Can a wrapper be called like the function that it stands for?"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["misfit"]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def misfit(wrapper: Callable[..., Any], original: Callable[..., Any], *, by_position: bool = False) -> str | None:
    """Say which call that ``original`` accepts ``wrapper`` would not, or return ``None`` if there is none.

    With ``by_position``, calls that give arguments by name don't count where they could give them by position: a
    stranger who stands on the site may call them otherwise than the library does.

    Nothing is said about callables whose signature can't be read, such as many written in C, or tells nothing, such
    as ``(*args, **kwargs)`` of a mock or of a careless decorator.
    """
    try:
        # The wrapper's own parameters count, not those that it claims through __wrapped__.
        mine = list(inspect.signature(wrapper, follow_wrapped=False).parameters.values())
        theirs = list(inspect.signature(original).parameters.values())
        if by_position:
            theirs = [p.replace(kind=p.POSITIONAL_ONLY) if p.kind in _POSITIONAL else p for p in theirs]
    except (TypeError, ValueError):
        return None
    if [p.kind for p in theirs] == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]:
        return None
    takes_args = any(p.kind is p.VAR_POSITIONAL for p in mine)
    takes_kwargs = any(p.kind is p.VAR_KEYWORD for p in mine)
    return _positional_misfit(mine, theirs, takes_args=takes_args) or _named_misfit(
        mine, theirs, takes_args, takes_kwargs
    )


def _positional_misfit(
    mine: list[inspect.Parameter], theirs: list[inspect.Parameter], *, takes_args: bool
) -> str | None:
    slots = [p for p in mine if p.kind in _POSITIONAL]
    wanted = [p for p in theirs if p.kind in _POSITIONAL]
    if not takes_args:
        if len(wanted) > len(slots):
            return f"it takes {len(slots)} positional arguments, expected {len(wanted)}"
        if any(p.kind is p.VAR_POSITIONAL for p in theirs):
            return "it lacks *args"
    by_name = _names_for_keywords(theirs)
    for slot, parameter in zip(slots, wanted, strict=False):
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and slot.name != parameter.name:
            return f"its parameter {slot.name!r} stands where {parameter.name!r} is expected"
        if parameter.default is not parameter.empty and slot.default is slot.empty:
            return f"its parameter {slot.name!r} lacks a default"
        if _takes_name(parameter) and not _takes_name(slot) and slot.default is slot.empty:
            return f"its parameter {slot.name!r} can't be given by name"
        if parameter.kind is parameter.POSITIONAL_ONLY and _takes_name(slot) and by_name(slot.name):
            return f"its parameter {slot.name!r} is not positional-only"
    required = {p.name for p in theirs if p.kind is p.KEYWORD_ONLY and p.default is p.empty}
    takes_more = any(p.kind is p.VAR_POSITIONAL for p in theirs)
    for slot in slots[len(wanted) :]:
        if slot.default is slot.empty and not (_takes_name(slot) and slot.name in required):
            return f"its parameter {slot.name!r} is one too many and has no default"
        if takes_more and _takes_name(slot) and by_name(slot.name):
            return f"its parameter {slot.name!r} stands where *args is expected"
    return None


def _takes_name(parameter: inspect.Parameter) -> bool:
    return parameter.kind is not parameter.POSITIONAL_ONLY


def _names_for_keywords(parameters: list[inspect.Parameter]) -> Callable[[str], bool]:
    """Return whether a call may have an argument of a name beside all that are given by position."""
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return lambda name: True
    names = {p.name for p in parameters if p.kind in _BY_NAME}
    return names.__contains__


def _named_misfit(
    mine: list[inspect.Parameter], theirs: list[inspect.Parameter], takes_args: bool, takes_kwargs: bool
) -> str | None:
    known = {p.name: p for p in mine if p.kind in _BY_NAME}
    expected = {p.name: p for p in theirs if p.kind in _BY_NAME}
    if not takes_kwargs:
        missing = [name for name in expected if name not in known]
        if missing:
            return f"it lacks the parameter {missing[0]!r}"
        if any(p.kind is p.VAR_KEYWORD for p in theirs):
            return "it lacks **kwargs"
    for p in mine:
        if p.kind is p.KEYWORD_ONLY and p.default is p.empty:
            counterpart = expected.get(p.name)
            if counterpart is None or counterpart.default is not p.empty or counterpart.kind in _POSITIONAL:
                return f"its keyword-only parameter {p.name!r} has no default"
    return None
