"""Fingerprints: the same on every Python, blind to how code is written, and not to what it does."""

from __future__ import annotations

import ast
import copy
import random
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.contract import fingerprint
from patchkit.contract._fingerprint import normal_form
from tests.contract import golden


def of(source: str) -> str:
    return fingerprint(ast.parse(textwrap.dedent(source)))


def body(source: str) -> str:
    return of("def f(x):\n" + textwrap.indent(textwrap.dedent(source), "    "))


# The same everywhere


def test_golden_fingerprints() -> None:
    """Every supported Python arrives at the recorded fingerprints, statement for statement."""
    assert golden.current() == golden.recorded()


def test_form_of_a_digest() -> None:
    """A digest has the number of the normal form and 32 hexadecimal digits."""
    assert fingerprint() == "n1:e3b0c44298fc1c149afbf4c8996fb924"


def test_deep_nesting() -> None:
    """Code nested deeper than the interpreter's limit has a fingerprint."""
    node: ast.expr = ast.Name("x", ast.Load())
    for _ in range(3 * sys.getrecursionlimit()):
        node = ast.UnaryOp(ast.USub(), node)
    assert fingerprint(node).startswith("n1:")


def test_pieces_of_an_f_string() -> None:
    """However a Python cuts the text of an f-string into pieces, it is the same f-string."""
    name = ast.FormattedValue(ast.Name("x", ast.Load()), -1)
    parts: list[ast.expr] = [
        ast.Constant(""),
        ast.Constant("a"),
        ast.Constant(""),
        ast.Constant("b"),
        name,
        ast.Constant(""),
    ]
    assert fingerprint(ast.JoinedStr(parts)) == fingerprint(ast.JoinedStr([ast.Constant("ab"), name]))
    assert fingerprint(ast.JoinedStr([name, ast.Constant("a")])) != fingerprint(
        ast.JoinedStr([ast.Constant("a"), name])
    )


# Blind to how it is written


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("return x", '"""Docstring."""\nreturn x'),
        ("return x", "return (x)  # comment"),
        ("return x", "pass\nreturn x\n..."),
        ("return x", '"a comment as a string"\nreturn x'),
        ("y = 1", "y: int = 1"),
        ("y = 1", "y: int\ny = 1"),
        ("pass", '"docstring"'),
        ("pass", "..."),
        ("pass", "y: int"),
        ("if x: pass\nelse: y", "if x: ...\nelse: y"),
        ("'ab'", "'a' 'b'"),
        ("return 'ab'", 'return ("a"\n        u"b")'),
        ("return f'a{x}b'", "return f'a' f'{x}' 'b'"),
        ("return f'{x}'", "return f'{x:}'"),
        ("return 255, 1000", "return 0xff, 1_000"),
        ("return 1.0", "return 1e0"),
        ("x = (1, 2)", "x = 1, 2"),
        ("def g(y: int = 1, *a: int) -> int: return y", "def g(y=1, *a): return y"),
        ("class C:\n    a: int\n    b: int = 1", "class C:\n    b = 1"),
        ("if a: b\nelif c: d", "if a: b\nelse:\n    if c: d"),
    ],
)
def test_the_same_code(one: str, other: str) -> None:
    """Formatting, comments, docstrings, annotations and the way a literal is written don't count."""
    assert body(one) == body(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("return 1", "return 1.0"),
        ("return 1", "return True"),
        ("return 1", "return 1j"),
        ("return 1", "return '1'"),
        ("return '1'", "return b'1'"),
        ("return 0.0", "return -0.0"),
        ("return 1e999", "return -1e999"),
        ("return 1e999", "return 'inf'"),
        ("return None", "return"),
        ("return None", "return ..."),
        ("return ()", "return []"),
        ("return {}", "return set()"),
        ("return '\\ud800'", "return '\\udc00'"),
        ("return 'é'", "return 'e\\u0301'"),
        (f"return {2**70}", f"return {2**70 + 1}"),
        ("return 0x" + "f" * 5000, "return 0x" + "f" * 4999 + "e"),
        ("return {**x}", "return {None: x}"),
        ("def g(*, a): ...", "def g(*, a=None): ..."),
        ("def g(a, /): ...", "def g(a): ..."),
        ("def g(a): ...", "def g(*, a): ..."),
        ("def g(*a): ...", "def g(**a): ..."),
        ("def g(): ...", "async def g(): ..."),
        ("def g(): ...", "def h(): ..."),
        ("def g(): ...", "@x\ndef g(): ..."),
        ("@x\n@y\ndef g(): ...", "@y\n@x\ndef g(): ..."),
        ("lambda a: a", "lambda a=a: a"),
        ("return f'{x}'", "return f'{x!r}'"),
        ("return f'{x}'", "return f'{x:>3}'"),
        ("return f'{x}'", "return '{x}'"),
        ("return f'{x}'", "return f'{x=}'"),
        ("return f'{x}y'", "return f'x{x}'"),
        ("return f'{x}{y}'", "return f'{y}{x}'"),
        ("try: a\nfinally: b", "try: a\nexcept: b"),
        ("try: a\nexcept E: b", "try: a\nexcept E as e: b"),
        ("a\nb", "b\na"),
        ("a = b = c", "a = c"),
        ("a, b", "b, a"),
        ("if a: b\nelse: c", "if a:\n    b\nc"),
        ("f(*a)", "f(a)"),
        ("f(a=1)", "f(b=1)"),
        ("from a import b", "from .a import b"),
        ("from a import b", "from a import b as c"),
        ("import a.b", "import a.b as a"),
        ("global a", "nonlocal a"),
        ("match x:\n    case None: y", "match x:\n    case _: y"),
        ("match x:\n    case True: y", "match x:\n    case 1: y"),
        ("match x:\n    case [a, *b]: y", "match x:\n    case [a, b]: y"),
        ("match x:\n    case {'a': b}: y", "match x:\n    case {'a': b, **c}: y"),
        ("match x:\n    case P(a): y", "match x:\n    case P(a=a): y"),
        ("for x in y: z", "for x in y: pass\nelse: z"),
        ("[x async for x in y]", "[x for x in y]"),
        ("1", "2"),
        ("@d\nclass C:\n    a: int", "@d\nclass C:\n    b: int"),
        ("@d\nclass C:\n    a: int = 1", "@d\nclass C:\n    a = 1"),
        ("class C(t.NamedTuple):\n    a: int", "class C(t.NamedTuple): ..."),
        ("class C(A): ...", "class C(B): ..."),
    ],
)
def test_other_code(one: str, other: str) -> None:
    """Whatever alters what the code does counts, down to the type of a constant."""
    assert body(one) != body(other)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="syntax of Python 3.11")
def test_exception_groups() -> None:
    """``except*`` isn't ``except``."""
    assert body("try: a\nexcept* E: b") != body("try: a\nexcept E: b")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="syntax of Python 3.12")
def test_type_parameters() -> None:
    """Type parameters count where they are used, and functions without them are as on earlier Pythons."""
    assert body("def g[T](x): ...") != body("def g(x): ...")
    assert body("type A = int") != body("type B = int")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="syntax of Python 3.12")
def test_nested_quotes() -> None:
    """An f-string that only Python 3.12 can write is the one that others write with other quotes."""
    assert body('return f"{x["k"]}"') == body("return f\"{x['k']}\"")


# Properties

_NAMES = ["alpha", "beta", "gamma", "self", "state"]
_CONSTANTS = ["0", "1", "2.5", "True", "None", "'text'", "b'data'", "-3", "1j", "..."]


def _expressions() -> st.SearchStrategy[str]:
    leaf = st.sampled_from(_NAMES + _CONSTANTS)

    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.builds("({} {} {})".format, inner, st.sampled_from(["+", "*", "<", "is", "in", "and", "or"]), inner),
            st.builds("{}.{}".format, st.sampled_from(_NAMES), st.sampled_from(_NAMES)),
            st.builds("{}({}, key={})".format, st.sampled_from(_NAMES), inner, inner),
            st.builds("({} if {} else {})".format, inner, inner, inner),
            st.builds("[{} for {} in {}]".format, inner, st.sampled_from(_NAMES), inner),
            st.builds("(lambda {}={}: {})".format, st.sampled_from(_NAMES), leaf, inner),
            st.builds("f'text {{{}!r:>{{{}}}}} tail'".format, st.sampled_from(_NAMES), st.sampled_from(_NAMES)),
            st.builds("({}, *{})".format, inner, st.sampled_from(_NAMES)),
        )

    return st.recursive(leaf, extend, max_leaves=6)


def _blocks() -> st.SearchStrategy[list[str]]:
    name = st.sampled_from(_NAMES)
    simple = st.one_of(
        st.builds("{} = {}".format, name, _expressions()).map(lambda line: [line]),
        st.builds("{} += {}".format, name, _expressions()).map(lambda line: [line]),
        st.builds("{}.attr = {}".format, name, _expressions()).map(lambda line: [line]),
        st.builds("return {}".format, _expressions()).map(lambda line: [line]),
        st.builds("{}({})".format, name, _expressions()).map(lambda line: [line]),
    )

    def indented(block: list[str]) -> list[str]:
        return ["    " + line for line in block]

    def extend(inner: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
        return st.one_of(
            st.builds(lambda a, b: a + b, inner, inner),
            st.builds(lambda e, a, b: [f"if {e}:", *indented(a), "else:", *indented(b)], _expressions(), inner, inner),
            st.builds(lambda n, e, a: [f"for {n} in {e}:", *indented(a)], name, _expressions(), inner),
            st.builds(lambda a, b: ["try:", *indented(a), "except ValueError as error:", *indented(b)], inner, inner),
            st.builds(lambda n, a: [f"def inner({n}, *, k=None):", *indented(a)], name, inner),
            st.builds(lambda n, a: [f"with {n}() as other:", *indented(a)], name, inner),
        )

    return st.recursive(simple, extend, max_leaves=5)


def _functions() -> st.SearchStrategy[ast.Module]:
    heads = st.sampled_from(
        [
            "def f(self, x):",
            "def f(self, x, /, y=1, *rest, k, m=None, **kw):",
            "async def f(*, k=()):",
            "@deco\ndef f():",
        ]
    )
    return st.builds(
        lambda head, block: ast.parse("\n".join([head, *("    " + line for line in block)])), heads, _blocks()
    )


class _Rewriter(ast.NodeTransformer):
    """Adds docstrings, annotations and idle statements everywhere."""

    def _dressed(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, ast.Expr(ast.Constant("Docstring.")))  # type: ignore[attr-defined]
        node.body.append(ast.Pass())  # type: ignore[attr-defined]
        node.returns = ast.Name("Result", ast.Load())  # type: ignore[attr-defined]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._dressed(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._dressed(node)

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = ast.Constant("Annotation")
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if isinstance(node.targets[0], ast.Name):
            return ast.AnnAssign(node.targets[0], ast.Name("Kind", ast.Load()), node.value, 1)
        return node


def _rewritten(tree: ast.Module) -> ast.Module:
    tree = _Rewriter().visit(copy.deepcopy(tree))
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = ast.Constant("Annotation")
    return ast.fix_missing_locations(tree)


@given(_functions(), st.randoms(use_true_random=False))
def test_how_code_is_written_does_not_count(tree: ast.Module, chance: random.Random) -> None:
    """Docstrings, annotations, comments, blank lines, indentation and spaces leave a fingerprint as it is."""
    text = ast.unparse(_rewritten(tree))
    lines = []
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        spaced = " " * (3 * indent) + line.lstrip()
        lines += [spaced + chance.choice(["", "  # comment", "   "]), *chance.choice([[], [""], ["# comment"]])]
    assert fingerprint(ast.parse("\n".join(lines))) == fingerprint(tree)
    assert fingerprint(ast.parse(ast.unparse(tree))) == fingerprint(tree)


# Changes to one node that alter what the code does: by type, the field and its new value.
_CHANGES: list[tuple[type[ast.AST], str, Callable[[Any], object]]] = [
    (ast.Name, "id", lambda node: node.id + "_"),
    (ast.arg, "arg", lambda node: node.arg + "_"),
    (ast.Attribute, "attr", lambda node: node.attr + "_"),
    (ast.keyword, "arg", lambda node: None),
    (ast.BinOp, "op", lambda node: ast.Sub()),
    (ast.AugAssign, "op", lambda node: ast.Sub()),
    (ast.BoolOp, "op", lambda node: ast.And() if isinstance(node.op, ast.Or) else ast.Or()),
    (ast.Compare, "ops", lambda node: [ast.IsNot()]),
    (ast.UnaryOp, "op", lambda node: ast.Invert()),
    (ast.ExceptHandler, "name", lambda node: None),
    (ast.FunctionDef, "name", lambda node: node.name + "_"),
    (ast.FunctionDef, "decorator_list", lambda node: [*node.decorator_list, ast.Name("extra", ast.Load())]),
    (ast.AsyncFunctionDef, "decorator_list", lambda node: [ast.Name("extra", ast.Load())]),
    (ast.arguments, "vararg", lambda node: ast.arg("other")),
    (ast.arguments, "kw_defaults", lambda node: [ast.Constant("other")] * (len(node.kwonlyargs) + 1)),
    (ast.Return, "value", lambda node: None),
    (ast.If, "orelse", lambda node: []),
    (ast.Constant, "value", lambda node: repr([node.value])),
]


def _mutations(tree: ast.Module) -> list[tuple[int, str, object]]:
    """Return changes to the tree: the number of a node, the field, and its new value."""
    return [
        (number, field, new(node))
        for number, node in enumerate(ast.walk(tree))
        for kind, field, new in _CHANGES
        if isinstance(node, kind)
    ]


@given(_functions(), st.data())
def test_what_code_does_counts(tree: ast.Module, data: st.DataObject) -> None:
    """Changing an operator, a name, a default, the type of a constant, a decorator or a branch changes it."""
    mutated = copy.deepcopy(tree)
    number, field, value = data.draw(st.sampled_from(_mutations(tree)))
    setattr(list(ast.walk(mutated))[number], field, value)
    assert fingerprint(mutated) != fingerprint(tree)


@given(_functions(), _functions())
def test_equal_fingerprints_mean_equal_code(one: ast.Module, other: ast.Module) -> None:
    """Two functions with the same normal form read the same."""
    assert (normal_form(one) == normal_form(other)) == (ast.dump(one) == ast.dump(other))
