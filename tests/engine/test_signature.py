"""Can a wrapper be called like the function that it stands for?"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from patchkit._signature import misfit

NAMES = ("a", "b", "c")
Kind = inspect.Parameter


@st.composite
def functions(draw: st.DrawFn) -> Callable[..., Any]:
    """Return a function with any parameters at all."""
    counts = [draw(st.integers(0, 2)) for _ in range(3)]
    names = list(draw(st.permutations(NAMES)))
    parts: list[str] = []
    default_seen = False
    taken: list[tuple[str, str]] = []
    for kind, count in zip(("posonly", "normal", "kwonly"), counts, strict=True):
        taken += [(kind, names.pop()) for _ in range(min(count, len(names)))]
    kinds = {kind: [name for k, name in taken if k == kind] for kind in ("posonly", "normal", "kwonly")}
    for kind in ("posonly", "normal"):
        for name in kinds[kind]:
            default_seen = default_seen or draw(st.booleans())
            parts.append(f"{name}=0" if default_seen else name)
        if kind == "posonly" and kinds[kind]:
            parts.append("/")
    if draw(st.booleans()):
        parts.append("*args")
    elif kinds["kwonly"]:
        parts.append("*")
    parts += [f"{name}=0" if draw(st.booleans()) else name for name in kinds["kwonly"]]
    if draw(st.booleans()):
        parts.append("**kwargs")
    namespace: dict[str, Any] = {}
    exec(f"def f({', '.join(parts)}): pass", namespace)
    function: Callable[..., Any] = namespace["f"]
    return function


def calls() -> Iterator[tuple[tuple[int, ...], dict[str, int]]]:
    """Yield every call with up to four positional arguments and any of the names, known and unknown."""
    for count in range(5):
        for size in range(len(NAMES) + 2):
            for names in itertools.combinations((*NAMES, "unknown"), size):
                yield tuple(range(count)), dict.fromkeys(names, 0)


def accepts(function: Callable[..., Any], args: tuple[int, ...], kwargs: dict[str, int]) -> bool:
    try:
        function(*args, **kwargs)
    except TypeError:
        return False
    return True


def tells_nothing(function: Callable[..., Any]) -> bool:
    return [p.kind for p in inspect.signature(function).parameters.values()] == [Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD]


@given(functions(), functions())
def test_what_fits_takes_every_call(wrapper: Callable[..., Any], original: Callable[..., Any]) -> None:
    """If nothing is said against a wrapper, it takes every call that the original takes."""
    if misfit(wrapper, original) is None and not tells_nothing(original):
        refused = [call for call in calls() if accepts(original, *call) and not accepts(wrapper, *call)]
        assert refused == [], f"{inspect.signature(wrapper)} for {inspect.signature(original)}"


@given(functions(), functions())
def test_what_is_refused_misses_a_call(wrapper: Callable[..., Any], original: Callable[..., Any]) -> None:
    """If something is said against a wrapper, there is a call that the original takes and it doesn't."""
    reason = misfit(wrapper, original)
    if reason is not None:
        refused = [call for call in calls() if accepts(original, *call) and not accepts(wrapper, *call)]
        # A parameter under another name could still swallow each single call; that is refused all the same.
        if "stands where" not in reason:
            assert refused != [], f"{inspect.signature(wrapper)} for {inspect.signature(original)}: {reason}"


@given(functions())
def test_a_function_fits_itself(function: Callable[..., Any]) -> None:
    """The same parameters always fit, and so do ``*args, **kwargs``."""
    assert misfit(function, function) is None
    assert misfit(lambda *args, **kwargs: None, function) is None


def test_own_parameters_count() -> None:
    """What a wrapper claims through ``__wrapped__`` is not what it takes."""

    def original(a: int, b: int) -> None: ...
    def wrapper(a: int) -> None: ...

    wrapper.__wrapped__ = original  # type: ignore[attr-defined]
    assert misfit(wrapper, original) is not None


def test_nothing_is_said_of_what_cannot_be_read() -> None:
    """Callables without a readable signature, and those whose signature tells nothing, are let pass."""

    def exact(a: int) -> None: ...
    def forwarding(*args: Any, **kwargs: Any) -> None: ...

    assert misfit(exact, dict.fromkeys) is None or misfit(exact, type) is None
    assert misfit(exact, forwarding) is None
