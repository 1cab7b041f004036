"""What `describe` says of objects, and what it never says."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import pytest

from patchkit.audit import describe
from tests.audit.processes import run

FACTS = ["kind", "module", "qualname", "file", "line", "digest"]


def plain(x: int) -> int:
    return x + 1


def make(original: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(original)
    def wrapper(x: int) -> int:
        return original(x)

    return wrapper


class Owner:
    __slots__ = ("slot",)

    def method(self) -> None: ...

    @staticmethod
    def static() -> None: ...

    @classmethod
    def klass(cls) -> None: ...

    @property
    def prop(self) -> int:
        return 1

    @prop.setter
    def prop(self, value: int) -> None: ...


class Lazy:
    @functools.cached_property
    def cached(self) -> int:
        return 1


@functools.lru_cache(maxsize=4)
def remembered() -> int:
    return 1


class Hostile:
    """A proxy that lies about its class and can't be shown."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return FunctionType

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError("repr")


def compiled(source: str) -> FunctionType:
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    function: FunctionType = namespace["f"]
    return function


def test_function() -> None:
    """A function is named by module, qualified name, file and line, with a digest of its code."""
    facts = describe(plain)
    assert list(facts) == FACTS
    assert facts["digest"].startswith("sha256:")
    assert len(facts.pop("digest")) == 71
    code = plain.__code__
    assert facts == {
        "kind": "function",
        "module": __name__,
        "qualname": "plain",
        "file": code.co_filename,
        "line": code.co_firstlineno,
    }


def test_wrapper_is_named_by_its_own_code() -> None:
    """What functools.wraps copied doesn't hide who is there now."""
    facts = describe(make(len))
    assert facts["module"] == __name__
    assert facts["qualname"] == ("make.<locals>.wrapper" if sys.version_info >= (3, 11) else "wrapper")
    assert facts["digest"] == describe(make(plain))["digest"]
    assert facts["digest"] != describe(plain)["digest"]


@pytest.mark.parametrize(
    ("obj", "kind", "qualname"),
    [
        (Owner().method, "method", "Owner.method"),
        (vars(Owner)["static"], "staticmethod", "Owner.static"),
        (vars(Owner)["klass"], "classmethod", "Owner.klass"),
        (Owner.prop, "property", "Owner.prop"),
        (vars(Lazy)["cached"], "cached_property", "Lazy.cached"),
        (functools.partial(plain, 1), "partial", "plain"),
        (functools.partialmethod(plain, 1), "partial", "plain"),
        (remembered, "lru_cache", "remembered"),
    ],
)
def test_what_holds_a_function_is_described_by_it(obj: object, kind: str, qualname: str) -> None:
    """Methods and descriptors have the place and the digest of the function inside."""
    facts = describe(obj)
    assert (facts["kind"], facts["module"], facts["qualname"]) == (kind, __name__, qualname)
    assert facts["file"] == plain.__code__.co_filename
    assert facts["digest"].startswith("sha256:")


def test_property_covers_its_setter() -> None:
    """Two properties with the same getter differ in their digest when one can be set."""
    prop: property = vars(Owner)["prop"]
    assert describe(prop)["digest"] != describe(property(prop.fget))["digest"]
    assert describe(property())["digest"] is None


@pytest.mark.parametrize(
    ("obj", "kind", "module", "qualname"),
    [
        (len, "builtin", "builtins", "len"),
        (str.join, "builtin", "builtins", "str.join"),
        ("".join, "builtin", None, "str.join"),
        (vars(Owner)["slot"], "builtin", __name__, "Owner.slot"),
        (Owner, "class", __name__, "Owner"),
        (json, "module", "json", None),
        (ModuleType("made.up"), "module", "made.up", None),
        (Owner(), "instance", __name__, "Owner"),
        ("a secret", "instance", "builtins", "str"),
        (None, "instance", "builtins", "NoneType"),
    ],
)
def test_objects_without_code(obj: object, kind: str, module: str | None, qualname: str | None) -> None:
    """Anything else is named by itself or by its type, without digest and never by its value."""
    facts = describe(obj)
    assert (facts["kind"], facts["module"], facts["qualname"], facts["digest"]) == (kind, module, qualname, None)


def test_proxy_is_described_as_what_it_is() -> None:
    """An object that lies about its class, and whose attributes and repr raise, is still described."""
    facts = describe(Hostile())
    assert (facts["kind"], facts["qualname"]) == ("instance", "Hostile")


def test_nothing_depends_on_an_address_or_a_value() -> None:
    """Neither defaults nor closures nor attributes of the object appear."""

    class Secret:
        password = "hunter2"

    def function(x: object = Secret()) -> object:
        return x, Secret

    text = json.dumps([describe(obj) for obj in (function, Secret, Secret(), functools.partial(function, "hunter2"))])
    assert "hunter2" not in text
    assert "0x" not in text


def test_digest_survives_running_and_moving() -> None:
    """The interpreter's adaption of hot code, and lines above it, don't change the digest; its code does."""
    source = "def f(x):\n    y = 0\n    for i in range(x):\n        y += i in {1, 2, 'a'}\n    return y\n"
    cold = describe(compiled(source))["digest"]
    hot = compiled(source)
    hot(10_000)
    assert describe(hot)["digest"] == cold
    assert describe(compiled("\n\n" + source))["digest"] == cold
    assert describe(compiled(source.replace("'a'", "'b'")))["digest"] != cold
    assert describe(compiled(source.replace("+=", "-=")))["digest"] != cold
    assert describe(compiled(source.replace("y = 0", "y = 0.0")))["digest"] != cold


def test_digest_covers_inner_code() -> None:
    """A change in a function inside a function is a change of it."""
    one, two = "def f():\n    return lambda: 1\n", "def f():\n    return lambda: 2\n"
    assert describe(compiled(one))["digest"] != describe(compiled(two))["digest"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the handlers are among the instructions")
def test_digest_covers_the_handlers_of_exceptions() -> None:
    """Where the handlers stand in a table beside the instructions, the table counts."""
    code: Any = compiled("def f():\n    try:\n        g()\n    except KeyError:\n        h()\n").__code__
    without = code.replace(co_exceptiontable=b"")
    assert describe(FunctionType(code, {}))["digest"] != describe(FunctionType(without, {}))["digest"]


def test_digest_is_the_same_in_every_process() -> None:
    """Neither hash seeds nor addresses get into the digest."""
    code = (
        "from patchkit.audit import describe\n"
        "exec(\"def f(x):\\n    return x in {'a', 'b', 'c', 'd', (1, 2.0, None, ...)}, lambda: x\")\n"
        "print(describe(f)['digest'])"
    )
    digests = {run(code, env={"PYTHONHASHSEED": seed}) for seed in ("1", "2", "3")}
    assert len(digests) == 1


def test_strange_constants_are_named_by_their_type() -> None:
    """Tools that rewrite code put objects into it; their repr, with its address, stays out."""

    def with_constant(constant: object) -> Callable[..., object]:
        return FunctionType(plain.__code__.replace(co_consts=(None, constant)), {})

    # All of them at once, since a new object may get the address of one that is gone.
    functions = [with_constant(constant) for constant in (object(), object(), Owner())]
    one, two, other = (describe(function)["digest"] for function in functions)
    assert one == two
    assert one != other
