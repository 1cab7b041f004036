"""The decorator form compiled into a closure, and the forwarding function where that can't be done."""

from __future__ import annotations

import asyncio
import inspect
import linecache
import sys
import textwrap
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from patchkit._bind import closing_over, taking_self, taking_self_of_class, twin_of
from tests.engine._kit import Lab


def original(*args: Any, **kwargs: Any) -> str:
    return f"original{args}{kwargs or ''}"


def is_closure(bound: Callable[..., Any]) -> bool:
    """Tell whether this is the compiled form: the original is in a cell, and no other function is called."""
    assert inspect.isfunction(bound)
    return bound.__code__.co_filename != closing_over.__code__.co_filename


SOURCE = '''
import functools
counter = 0

def plain(original, a, b=2):
    return original(a, b)

def keywords(original, a, *, key, other=5, **rest):
    return original(a, key=key, other=other, **rest)

def positional(original, a, /, b):
    return original(a, b)

def rest(original, *args, **kwargs):
    return original(*args, **kwargs)

def with_global(original, a):
    global counter
    counter += 1
    return original(a)

def nested(original, a):
    def inner(b):
        return original(a, b)
    return inner(1)

def comprehension(original, items):
    return [original(item) for item in items]

def shadowed(original, a):
    def inner(original):
        return original
    return inner(a), original(a)

def lambda_inside(original, a):
    return (lambda: original(a))()

def text(original, a):
    """A docstring
    of two lines."""
    return original("""
    two
      lines""")

def annotated(original: "Any", a: "int" = 1) -> "str":
    return original(a)

def unused(original, a):
    return a

def assigned(original, a):
    if a:
        original = str
    return original(a)

def deleted(original, a):
    result = original(a)
    del original
    return result

def caught(original, a):
    try:
        raise ValueError(a)
    except ValueError as original:
        return str(original)

def walrus(original, a):
    return (original := a)

def imported(original, a):
    import json as original
    return original.dumps(a)

def by_name(original, a):
    return eval("original(a)")

def star(*everything):
    return everything[0](*everything[1:])

def first_with_default(original=None, a=1):
    return original(a)

def make_counter():
    count = 0
    def counting(original, a):
        nonlocal count
        count += 1
        return original(a, count)
    def current():
        return count
    return counting, current

class Holder:
    def method(original, self, a):
        return original(self, a)

    def mangled(original, self, a):
        __private = a
        return original(__private)

@functools.wraps(plain)
def pretending(original, *args):
    return original(*args, "pretending")
'''


@pytest.fixture
def src(lab: Lab) -> Any:
    return lab.library("bindsource", SOURCE)


COMPILED: dict[str, tuple[tuple[Any, ...], dict[str, Any], Any]] = {
    "plain": ((1,), {}, "original(1, 2)"),
    "keywords": ((1,), {"key": 2, "x": 3}, "original(1,){'key': 2, 'other': 5, 'x': 3}"),
    "positional": ((1,), {"b": 2}, "original(1, 2)"),
    "rest": ((1, 2), {"x": 3}, "original(1, 2){'x': 3}"),
    "with_global": ((1,), {}, "original(1,)"),
    "nested": ((0,), {}, "original(0, 1)"),
    "comprehension": (([1, 2],), {}, ["original(1,)", "original(2,)"]),
    "shadowed": ((1,), {}, (1, "original(1,)")),
    "lambda_inside": ((1,), {}, "original(1,)"),
    "text": ((1,), {}, "original('\\n    two\\n      lines',)"),
    "annotated": ((), {}, "original(1,)"),
}

FORWARDED: dict[str, tuple[tuple[Any, ...], dict[str, Any], Any]] = {
    "unused": ((1,), {}, 1),
    "assigned": ((1,), {}, "1"),
    "deleted": ((1,), {}, "original(1,)"),
    "caught": ((1,), {}, "1"),
    "walrus": ((1,), {}, 1),
    "imported": ((1,), {}, "1"),
    "by_name": ((1,), {}, "original(1,)"),
    "star": ((1, 2), {}, "original(1, 2)"),
    "first_with_default": ((), {}, "original(1,)"),
    "pretending": ((1,), {}, "original(1, 'pretending')"),
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(src: Any, name: str) -> None:
    """Functions of every shape become closures over the original, with their defaults, globals and line numbers."""
    function = getattr(src, name)
    args, kwargs, expected = COMPILED[name]
    bound = closing_over(function)(original)
    assert is_closure(bound)
    assert bound(*args, **kwargs) == expected
    parameters = list(inspect.signature(function).parameters.values())[1:]
    assert [(p.name, p.kind, p.default) for p in inspect.signature(bound).parameters.values()] == [
        (p.name, p.kind, p.default) for p in parameters
    ]
    assert bound.__code__.co_filename == src.__file__
    assert bound.__code__.co_firstlineno == function.__code__.co_firstlineno
    assert bound.__globals__ is vars(src)


@pytest.mark.parametrize("name", FORWARDED)
def test_forwarded(src: Any, name: str) -> None:
    """Where the first parameter is assigned to, unused, or can't be seen, a forwarding function does the same
    work.
    """
    function = getattr(src, name)
    args, kwargs, expected = FORWARDED[name]
    bound = closing_over(function)(original)
    assert not is_closure(bound)
    assert bound(*args, **kwargs) == expected


def test_cells_are_shared(src: Any) -> None:
    """Free variables of the author's function stay the author's own cells, also those that are written."""
    counting, current = src.make_counter()
    bound = closing_over(counting)(original)
    assert is_closure(bound)
    assert (bound("a"), bound("b"), current()) == ("original('a', 1)", "original('b', 2)", 2)
    assert counting(original, "c") == "original('c', 3)"


def test_method_of_a_class(src: Any) -> None:
    """A function that stands in a class body is compiled at its own indentation; mangled names make it forward."""
    method = closing_over(src.Holder.method)(original)
    assert is_closure(method)
    assert method("self", 1) == "original('self', 1)"
    mangled = closing_over(src.Holder.mangled)(original)
    assert not is_closure(mangled)
    assert mangled("self", 1) == "original(1,)"


def test_originals_are_independent(src: Any) -> None:
    """One function can be bound to several originals."""
    make = closing_over(src.plain)
    one, two = make(lambda *a: ("one", a)), make(lambda *a: ("two", a))
    assert (one(1), two(1)) == (("one", (1, 2)), ("two", (1, 2)))


@pytest.mark.parametrize("is_known", [True, False], ids=["source", "no source"])
def test_kinds(lab: Lab, is_known: bool) -> None:
    """Coroutine functions and generators are what they were for whoever asks, in the compiled form and forwarded."""
    text = textwrap.dedent("""
        async def co(original, a):
            return await original(a)

        def gen(original, a):
            got = yield "first"
            yield got
            return (yield from original(a))
        """)
    if is_known:
        src = lab.library("bindkinds", text)
    else:
        namespace: dict[str, Any] = {"__name__": "typed_in"}
        exec(compile(text, "<typed in>", "exec"), namespace)
        src = type("Source", (), {name: staticmethod(namespace[name]) for name in ("co", "gen")})

    async def answer(a: Any) -> Any:
        return ["answer", a]

    def items(a: Any) -> Any:
        yield a
        return "end"

    co, gen = closing_over(src.co)(answer), closing_over(src.gen)(items)
    assert (is_closure(co), is_closure(gen)) == (is_known, is_known)
    assert (inspect.iscoroutinefunction(co), inspect.isgeneratorfunction(gen)) == (True, True)
    assert asyncio.run(co(1)) == ["answer", 1]
    running = gen(2)
    assert (next(running), running.send("sent"), next(running)) == ("first", "sent", 2)
    with pytest.raises(StopIteration, match="end"):
        next(running)


def test_no_source() -> None:
    """Code that was typed in, with no file behind it, is forwarded to."""
    namespace: dict[str, Any] = {}
    exec("def typed(original, a):\n    return original(a)", namespace)
    bound = closing_over(namespace["typed"])(original)
    assert not is_closure(bound)
    assert bound(1) == "original(1,)"
    assert list(inspect.signature(bound).parameters) == ["a"]


def test_source_that_has_changed(lab: Lab) -> None:
    """A file that says something else than what is running is not compiled, however alike it looks."""
    path = lab.write("bindchanged", "def patched(original, a):\n    return original(a)\n")
    src = lab.library("bindchanged", path.read_text())
    path.write_text("def patched(original, a):\n    return original(a, 'changed')\n")
    linecache.clearcache()
    bound = closing_over(src.patched)(original)
    assert not is_closure(bound)
    assert bound(1) == "original(1,)"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("original(a, (1, 2))", "original(a, (1.0, 2.0))"),
        ("original(a, ((1,), 2))", "original(a, ((True,), 2))"),
        ("a in {1, 2}", "a in {1.0, 2.0}"),
        ("original(a, 1)", "original(a, True)"),
        ("original(a, 0.0)", "original(a, -0.0)"),
        ("original(a, (0.0, 0j))", "original(a, (-0.0, 0j))"),
        ("original(a, 0j)", "original(a, -0j)"),
        ("original(a, 'x.<locals>.y')", "original(a, 'x.<locals>.z')"),
        ("(lambda: 1), original(a, 'x.<locals>.y')", "(lambda: 1), original(a, 'x.<locals>.z')"),
    ],
)
def test_source_that_has_changed_in_a_constant(lab: Lab, before: str, after: str) -> None:
    """Constants that are equal, and yet not the same, are a change of the source like any other."""
    path = lab.write("bindconstant", f"def patched(original, a):\n    return {before}\n")
    src = lab.library("bindconstant", path.read_text())
    assert is_closure(closing_over(src.patched)(original)) == ("original" in before)
    path.write_text(f"def patched(original, a):\n    return {after}\n")
    linecache.clearcache()
    assert not is_closure(closing_over(src.patched)(original))


def test_source_that_has_changed_in_its_parameters(lab: Lab) -> None:
    """A parameter that has become keyword-only leaves the body as it was, and is a change."""
    path = lab.write("bindparameters", "def patched(original, a, b):\n    return original(a, b)\n")
    src = lab.library("bindparameters", path.read_text())
    path.write_text("def patched(original, a, *, b):\n    return original(a, b)\n")
    linecache.clearcache()
    assert closing_over(src.patched)(original)(1, 2) == "original(1, 2)"


def test_source_that_has_moved(lab: Lab) -> None:
    """A file in which other lines now stand where the function was does not mislead."""
    path = lab.write("bindmoved", "def patched(original, a):\n    return original(a)\n")
    src = lab.library("bindmoved", path.read_text())
    path.write_text("import os\n\n\ndef patched(original, a):\n    return original(a)\n")
    linecache.clearcache()
    assert closing_over(src.patched)(original)(1) == "original(1,)"


def test_async_generator_is_forwarded_to() -> None:
    """An async generator without source stays one: what is sent, thrown and closed reaches the author's own."""
    namespace: dict[str, Any] = {}
    exec(
        "async def typed(original, a):\n"
        "    events = original\n"
        "    try:\n"
        "        while True:\n"
        "            try:\n"
        "                events.append((yield a))\n"
        "            except ValueError as error:\n"
        "                events.append(str(error))\n"
        "                return\n"
        "    finally:\n"
        "        events.append('closed')\n",
        namespace,
    )
    events: Any = []
    bound = closing_over(namespace["typed"])(events)
    assert inspect.isasyncgenfunction(bound)

    async def use() -> list[Any]:
        first = bound(1)
        got = [await first.asend(None), await first.asend("sent")]
        with pytest.raises(StopAsyncIteration):
            await first.athrow(ValueError("thrown"))
        second = bound(2)
        got.append(await second.__anext__())
        await second.aclose()
        return got

    assert asyncio.run(use()) == [1, 1, 2]
    assert events == ["sent", "thrown", "closed", "closed"]


@pytest.mark.parametrize("function", [lambda original, a: original(a), len, str.upper], ids=["lambda", "C", "method"])
def test_other_callables(function: Any) -> None:
    """A lambda, a function written in C, an object with ``__call__``: all are forwarded to."""
    make = closing_over(function)
    assert make.__class__.__name__ == "partial"


def test_columns_of_a_traceback(lab: Lab) -> None:
    """In an indented function the columns of a traceback point into the author's line too."""
    src = lab.library(
        "bindcolumns",
        """
        class Holder:
            def failing(original, a):
                return original(a) + missing_name
        """,
    )
    bound = closing_over(src.Holder.failing)(original)
    with pytest.raises(NameError) as caught:
        bound(1)
    frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert frame.line == "return original(a) + missing_name"
    assert (frame.filename, frame.lineno) == (src.__file__, 4)
    if sys.version_info >= (3, 11):
        assert frame.colno is not None
        assert (src.__file__ and linecache.getline(src.__file__, 4)[frame.colno :]).startswith("missing_name")
        assert bound.__code__.co_qualname == "Holder.failing"


def test_future_flags(lab: Lab) -> None:
    """The function's own ``__future__`` statements hold, and nobody else's."""
    with_annotations = lab.library(
        "bindfuture",
        "from __future__ import annotations\n"
        "def f(original, a):\n    def inner(x: a): ...\n    return original(inner.__annotations__)\n",
    )
    without = lab.library(
        "bindpresent", "def f(original, a):\n    def inner(x: a): ...\n    return original(inner.__annotations__)\n"
    )
    assert closing_over(with_annotations.f)(lambda a: a)(int) == {"x": "a"}
    assert closing_over(without.f)(lambda a: a)(int) == {"x": int}
    assert all(is_closure(closing_over(lib.f)(original)) for lib in (with_annotations, without))


def test_tracing_does_not_get_in_the_way(src: Any) -> None:
    """With a trace function or a coverage tool at work the compiled form is still chosen."""
    sys.settrace(lambda *_: None)
    try:
        src.plain(original, 1)
        bound = closing_over(src.plain)(original)
    finally:
        sys.settrace(None)
    assert is_closure(bound)


def test_twin() -> None:
    """A twin does and says the same, and is another function."""

    def function(a: int, b: int = 2, *, c: int = 3) -> tuple[int, int, int]:
        """Say something."""
        return a, b, c

    function.mark = "kept"  # type: ignore[attr-defined]
    twin = twin_of(function)  # type: ignore[arg-type]
    assert twin is not function
    assert twin(1) == (1, 2, 3)
    assert (twin.__name__, twin.__qualname__, twin.__doc__) == (
        function.__name__,
        function.__qualname__,
        "Say something.",
    )
    assert (inspect.signature(twin), twin.__module__) == (inspect.signature(function), __name__)
    assert vars(twin) == {"mark": "kept"}
    twin.other = 1  # type: ignore[attr-defined]
    assert vars(function) == {"mark": "kept"}


def test_taking_self() -> None:
    """What an instance or a class holds becomes a function of ``self``, with the signature to match."""

    class Thing:
        def m(self, x: int) -> Any:
            return self, x

        @staticmethod
        def s(x: int) -> int:
            return x

        @classmethod
        def c(cls, x: int) -> Any:
            return cls, x

        late = property(lambda self: 1)

    thing = Thing()
    assert taking_self(thing.m, thing) is Thing.m
    own = taking_self(lambda x: x + 1, thing)
    assert (own(thing, 1), list(inspect.signature(own).parameters)) == (2, ["self", "x"])
    assert taking_self_of_class(vars(Thing)["m"]) is Thing.m
    static, cls_method = taking_self_of_class(vars(Thing)["s"]), taking_self_of_class(vars(Thing)["c"])
    assert (static(thing, 1), list(inspect.signature(static).parameters)) == (1, ["self", "x"])
    assert (cls_method(thing, 1), list(inspect.signature(cls_method).parameters)) == ((Thing, 1), ["self", "x"])
    built_in = taking_self_of_class(max)
    assert built_in(thing, 1, 2) == 2
    foreign = taking_self(lambda self, x: (self, x), thing)
    assert list(inspect.signature(foreign).parameters) == ["_self", "self", "x"]
