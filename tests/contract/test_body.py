"""What is read off a definition: parameters, calls, attributes."""

from __future__ import annotations

import ast
import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.contract._body import attributes_in, calls_in, parameters_of


def function(source: str) -> ast.FunctionDef:
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        ("", []),
        ("self, x", ["self", "x"]),
        ("x, k=1", ["x", "k="]),
        ("x, /, y", ["x", "/", "y"]),
        ("x=1, /, y=2", ["x=", "/", "y="]),
        ("x, /", ["x", "/"]),
        ("*, k", ["*", "k"]),
        ("*, k=None, m", ["*", "k=", "m"]),
        ("*args, k", ["*args", "k"]),
        ("x: int, *args: int, k: int = 1, **kw: int", ["x", "*args", "k=", "**kw"]),
    ],
)
def test_parameters(signature: str, expected: list[str]) -> None:
    """Names, order, kinds and whether there is a default; neither annotations nor the defaults themselves."""
    assert list(parameters_of(function(f"def f({signature}): ...").args)) == expected


@st.composite
def signatures(draw: st.DrawFn) -> str:
    """Any legal list of parameters."""
    names = iter("abcdefghijklmnop")
    counts = [draw(st.integers(0, 2)) for _ in range(5)]
    plain = [next(names) for _ in range(counts[0])] + ["/"] * (counts[0] > 0) + [next(names) for _ in range(counts[1])]
    plain += [f"{next(names)}=0" for _ in range(counts[2])]
    only = [next(names) + draw(st.sampled_from(["", "=0"])) for _ in range(counts[3])]
    star = ["*args"] if draw(st.booleans()) else ["*"] * bool(only)
    keywords = ["**kw"] * draw(st.integers(0, 1))
    return ", ".join(plain + star + only + keywords)


@given(signatures())
def test_parameters_agree_with_inspect(signature: str) -> None:
    """What is read from the syntax is what Python makes of it."""
    source = f"def f({signature}): ..."
    scope: dict[str, object] = {}
    exec(source, scope)
    expected = str(inspect.signature(scope["f"])).replace("=0", "=")  # type: ignore[arg-type]
    assert f"({', '.join(parameters_of(function(source).args))})" == expected


@pytest.mark.parametrize(
    "body",
    [
        "g()",
        "return [g(x) for x in y]",
        "lambda: g()",
        "def inner():\n    g()",
        "class Inner:\n    def m(self): g()",
        "def inner(x=g()): ...",
        "@g()\ndef inner(): ...",
        "global g\ng = wrap(g)\ng()",
        "x = lambda g: g\ng()",
        "def inner():\n    g = 1\ng()",
        "[g for g in x]\ng()",
        "a.g = 1\ng()",
        "f(g=1)\ng()",
    ],
)
def test_call_through_the_global(body: str) -> None:
    """A call counts wherever in the body it stands, unless the name there is bound by the function."""
    indented = body.replace("\n", "\n    ")
    assert "g" in calls_in([function(f"def f():\n    {indented}")]).through_globals


@pytest.mark.parametrize(
    "source",
    [
        "def f(g): g()",
        "def f(*g): g()",
        "def f(*, g=1): g()",
        "def f(**g): g()",
        "def f():\n    g = 1\n    g()",
        "def f():\n    g: int = 1\n    g()",
        "def f():\n    (a, *g) = x\n    g()",
        "def f():\n    from m import g\n    g()",
        "def f():\n    import g\n    g()",
        "def f():\n    def g(): ...\n    g()",
        "def f():\n    class g: ...\n    g()",
        "def f():\n    for g in x: g()",
        "def f():\n    with x as g: g()",
        "def f():\n    try: ...\n    except E as g: g()",
        "def f():\n    if (g := x): g()",
        "def f():\n    [y for x in z if (g := x)]\n    g()",
        "def f():\n    match x:\n        case {'a': 1, **g}: g()",
        "def f():\n    match x:\n        case [*g]: g()",
        "def f():\n    match x:\n        case A(b=g): g()",
        "def f():\n    return [g() for g in x]",
        "def f():\n    return lambda g: g()",
        "def f():\n    g = 1\n    def inner(): g()",
        "def f():\n    g()\n    del g",
        "def f(): other()",
        "def f(): m.g()",
        "def f(): return g",
        "@g()\ndef f(): ...",
        "def f(x=g()): ...",
    ],
)
def test_call_that_is_not_through_the_global(source: str) -> None:
    """A name that the function binds itself isn't the module's, and decorators and defaults aren't the body."""
    assert "g" not in calls_in([function(source)]).through_globals


def test_dotted_calls() -> None:
    """Attribute calls are known by their last name, and written out where they start from a name."""
    calls = calls_in([function("def f(h): h.flat.copy_(1); make().run(); torch.add(1, 2)")])
    assert calls.attributes == {"copy_", "run", "add"}
    assert {"h.flat.copy_", "torch.add"} <= calls.dotted
    assert not any("run" in dotted for dotted in calls.dotted)


def test_attributes() -> None:
    """Reading, assigning, deleting, and the functions that take the name as text."""
    source = """
def f(x):
    x.read; x.a.written = 1; del x.deleted; x.added += 1
    getattr(x, "got"); setattr(x, "set_", 1); hasattr(x, "has"); delattr(x, "del_"); getattr(x, name)
    other(x, "no"); "text"
"""
    expected = {"read", "a", "written", "deleted", "added", "got", "set_", "has", "del_"}
    assert attributes_in([function(source)]) == expected
