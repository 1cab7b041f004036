"""From a path to definitions: branches, imports, star imports, aliases, base classes, and where the trail ends."""

from __future__ import annotations

import pytest

from patchkit.contract import Contract, DirectorySource, Judgement, SourceFile, Symbol, Verdict, judge
from tests.contract.libraries import Library


def verdict_and_line(judgement: Judgement) -> tuple[str, str]:
    return judgement.verdict.value, judgement.one_line()


def places(judgement: Judgement) -> list[str]:
    """Where the symbols of a fulfilled contract really stand."""
    assert judgement.verdict is Verdict.OK, judgement.one_line()
    return [remark.found for remark in judgement.remarks]


# Branches


def test_definitions_in_branches_all_fit(library: Library) -> None:
    """Both branches count, and both fit."""
    library.write(
        lib="""
        import sys
        if sys.platform == "win32":
            def f(a, b): ...
        elif sys.platform == "darwin":
            def f(a, b): return 1
        else:
            try:
                import fast
            except ImportError:
                def f(a, b): return 2
            else:
                def f(a, b): return fast.f(a, b)
        """
    )
    assert library.judge(Symbol("lib:f", parameters=("a", "b"))).verdict is Verdict.OK


def test_definitions_in_branches_one_does_not_fit(library: Library) -> None:
    """Any branch may be the one that lives, so one that doesn't fit is broken, and the finding says which."""
    library.write(
        lib="""
        try:
            import fast
        except ImportError:
            def f(a): ...
        else:
            def f(a, b): ...
        """
    )
    judgement = library.judge(Symbol("lib:f", parameters=("a", "b")))
    assert verdict_and_line(judgement) == (
        "broken",
        "lib:f: expected the parameters (a, b), found (a) in one of 2 definitions (lib.py:4)",
    )


def test_a_later_definition_replaces_an_earlier_one(library: Library) -> None:
    """Only what is left when the module has run counts."""
    library.write(lib="def f(a): ...\ndef f(a, b): ...\ndef g(): ...\ndel g")
    assert library.judge(Symbol("lib:f", parameters=("a", "b"))).verdict is Verdict.OK
    assert library.judge(Symbol("lib:g")).verdict is Verdict.BROKEN


def test_a_branch_that_raises_defines_nothing(library: Library) -> None:
    """A branch that ends by raising leaves no module behind that could be patched."""
    library.write(
        lib="""
        import sys
        if sys.version_info < (3, 8):
            def f(): ...
            raise ImportError("too old")
        else:
            def f(a): ...
        """
    )
    assert library.judge(Symbol("lib:f", parameters=("a",))).verdict is Verdict.OK


def test_a_class_that_is_a_dummy_in_one_branch(library: Library) -> None:
    """A member that only one branch has may be there or not: unknown, for which a policy can make an exception."""
    library.write(
        lib="""
        try:
            import fast
        except ImportError:
            class C: ...
        else:
            class C:
                def f(self): ...
        """
    )
    assert verdict_and_line(library.judge(Symbol("lib:C.f", parameters=("self",)))) == (
        "unknown",
        "lib:C.f: expected a definition in every branch, found no f in the class C (lib.py:4)",
    )


def test_none_as_a_placeholder(library: Library) -> None:
    """``f = None`` beside a definition says that it may be absent, not that it is something else."""
    library.package(
        "lib",
        init="""
        try:
            from .fast import f
        except ImportError:
            f = None
        """,
        fast="def f(a): ...",
    )
    assert places(library.judge(Symbol("lib:f", parameters=("a",)))) == ["it in lib.fast:f"]


def test_the_other_branch_of_a_failed_import(library: Library) -> None:
    """Where an import can't succeed, the other branch is what lives."""
    library.package(
        "lib",
        init="""
        try:
            from .gone import f
        except ImportError:
            def f(a): ...
        """,
    )
    assert library.judge(Symbol("lib:f", parameters=("a",))).verdict is Verdict.OK


@pytest.mark.parametrize(
    "statement",
    [
        "with open('x') as f: pass",
        "for f in (): pass",
        "(a, [f, *b]) = x",
        "f: int = 1",
        "import f",
        "import a as f",
        "match 1:\n    case 1: f = 2",
        "while x:\n    f = 1",
    ],
)
def test_every_statement_that_binds(library: Library, statement: str) -> None:
    """A name is there whatever statement binds it."""
    library.write(lib=statement)
    assert library.judge(Symbol("lib:f")).verdict is Verdict.OK


@pytest.mark.parametrize("statement", ["if (f := 1): pass", "def init():\n    global f\n    f = 1"])
def test_bindings_that_are_not_followed(library: Library, statement: str) -> None:
    """A name that some expression or function binds is there, but what it is can't be told."""
    library.write(lib=statement)
    assert library.judge(Symbol("lib:f")).verdict is Verdict.OK
    assert library.judge(Symbol("lib:f", parameters=())).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    "guard", ["if TYPE_CHECKING:", "if typing.TYPE_CHECKING:", "if not not typing.TYPE_CHECKING:", "if False:"]
)
def test_type_checking_only(library: Library, guard: str) -> None:
    """What only type checkers see isn't there, and the finding says that this is why."""
    library.write(
        lib=f"import typing\nfrom typing import TYPE_CHECKING\n{guard}\n    from x import f\n    def g(): ..."
    )
    assert verdict_and_line(library.judge(Symbol("lib:f"))) == (
        "broken",
        "lib:f: expected a definition, found f bound only for type checkers (lib.py:4)",
    )


def test_type_checking_else(library: Library) -> None:
    """Of ``if TYPE_CHECKING: … else: …`` only the second branch runs."""
    library.write(
        lib="""
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            def f(a: int) -> int: ...
        else:
            def f(*args): ...
        if not TYPE_CHECKING:
            def g(x): ...
        """
    )
    symbols = Symbol("lib:f", parameters=("*args",)), Symbol("lib:g", parameters=("x",))
    assert library.judge(*symbols).verdict is Verdict.OK


def test_type_checking_star_import(library: Library) -> None:
    """A star import that only type checkers see brings nothing."""
    library.package(
        "lib",
        init="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .m import *",
        m="def f(): ...",
    )
    assert library.judge(Symbol("lib:f")).verdict is Verdict.BROKEN


def test_overloads(library: Library) -> None:
    """``typing.overload`` declarations aren't definitions where there is one."""
    library.write(
        lib="""
        from typing import overload
        @overload
        def f(a: int) -> int: ...
        @overload
        def f(a: str, b: int) -> str: ...
        def f(a, b=None): ...
        """
    )
    assert library.judge(Symbol("lib:f", parameters=("a", "b="))).verdict is Verdict.OK
    assert library.judge(Symbol("lib:f", parameters=("a",))).verdict is Verdict.BROKEN


# Imports


def test_re_export_over_several_hops(library: Library) -> None:
    """A chain of imports, absolute and relative, renamed on the way, is followed to its end."""
    library.package("lib", init="from .a import f", a="from lib.b import g as f", b="from . import c\ng = c.Impl.h")
    library.write(lib__c="class Impl:\n    @staticmethod\n    def h(x): ...")
    assert places(library.judge(Symbol("lib:f", parameters=("x",)))) == ["it in lib.c:Impl.h"]


def test_relative_imports(library: Library) -> None:
    """Dots count from the package of the module, which for a package is itself."""
    library.package("lib", top="def f(x): ...").package("lib/sub", init="from ..top import f", same="def g(x): ...")
    library.package("lib/sub/deep", init="from ..same import g", mod="from ...top import f\nfrom . import g")
    symbols = [Symbol(f"lib.sub{path}", parameters=("x",)) for path in (":f", ".deep:g", ".deep.mod:f", ".deep.mod:g")]
    assert places(library.judge(*symbols)) == [f"it in lib.{path}" for path in ("top:f", "sub.same:g") * 2]


def test_imports_of_which_one_cannot_be_read(library: Library) -> None:
    """Where one branch imports what isn't there and the other what can't be read, nothing is known."""
    library.package(
        "lib",
        init="""
        try:
            from .gone import f
        except ImportError:
            from elsewhere import f
        """,
    )
    assert verdict_and_line(library.judge(Symbol("lib:f", parameters=("a",)))) == (
        "unknown",
        "lib:f: expected source to read, found an import from elsewhere, which can't be read (lib/__init__.py:4)",
    )


def test_import_circle(library: Library) -> None:
    """Imports that go round in a circle define nothing, and end."""
    library.package("lib", a="from .b import f", b="from .a import f")
    assert verdict_and_line(library.judge(Symbol("lib.a:f"))) == (
        "broken",
        "lib.a:f: expected a definition, found imports that lead in a circle",
    )


def test_too_long_a_chain(library: Library) -> None:
    """A chain that is longer than anyone writes isn't followed to its end."""
    library.package("lib", **{f"m{i}": f"from .m{i + 1} import f" for i in range(12)}, m12="def f(): ...")
    assert library.judge(Symbol("lib.m5:f", parameters=())).verdict is Verdict.OK
    assert verdict_and_line(library.judge(Symbol("lib.m0:f", parameters=()))) == (
        "unknown",
        "lib.m0:f: expected source to read, found a chain of more than 8 imports (lib/m9.py)",
    )


def test_import_from_elsewhere(library: Library) -> None:
    """A name imported from a library that the source doesn't have is there, but what it is can't be read."""
    library.write(lib="from elsewhere import f\nimport elsewhere.sub as g")
    assert library.judge(Symbol("lib:f"), Symbol("lib:g")).verdict is Verdict.OK
    assert verdict_and_line(library.judge(Symbol("lib:f", parameters=()))) == (
        "unknown",
        "lib:f: expected source to read, found an import from elsewhere, which can't be read (lib.py:1)",
    )


def test_import_from_above_the_package(library: Library) -> None:
    """A relative import that climbs out of its package fails."""
    library.package("lib", a="from ... import f")
    assert verdict_and_line(library.judge(Symbol("lib.a:f"))) == (
        "broken",
        "lib.a:f: expected a definition, found an import from above the top-level package (lib/a.py:1)",
    )


def test_submodule_as_attribute(library: Library) -> None:
    """A submodule is found as an attribute of its package, also where the package imports it from itself."""
    library.package("lib", init="from . import sub\nfrom .sub import Class", sub="class Class:\n    def f(self): ...")
    symbols = (
        Symbol("lib:sub.Class.f", parameters=("self",)),
        Symbol("lib:Class.f", parameters=("self",)),
        Symbol("lib:sub"),
    )
    assert places(library.judge(*symbols)) == ["it in lib.sub:Class.f", "it in lib.sub:Class.f", "it in lib.sub"]


def test_star_import(library: Library) -> None:
    """``from m import *`` brings what ``__all__`` lists, or else every public name."""
    library.package(
        "lib",
        init="from .listed import *\nfrom .plain import *",
        listed="__all__ = ['_a']\ndef _a(x): ...\ndef b(x): ...",
        plain="from .deep import *\ndef c(x): ...\ndef _d(x): ...",
        deep="def e(x): ...",
    )
    assert places(library.judge(Symbol("lib:_a"), Symbol("lib:c"), Symbol("lib:e"))) == [
        "it in lib.listed:_a",
        "it in lib.plain:c",
        "it in lib.deep:e",
    ]
    assert library.judge(Symbol("lib:b")).verdict is Verdict.BROKEN
    assert library.judge(Symbol("lib:_d")).verdict is Verdict.BROKEN


@pytest.mark.parametrize(
    "exports", ["__all__ = dir()", "__all__ = ['x']\n__all__ += y", "__all__ = []\n__all__.extend(y)"]
)
def test_star_import_with_a_computed_all(library: Library, exports: str) -> None:
    """An ``__all__`` that is computed may list any name that the module binds."""
    library.package("lib", init="from .m import *", m=f"{exports}\ndef _f(): ...")
    assert places(library.judge(Symbol("lib:_f"))) == ["it in lib.m:_f"]


def test_star_import_that_cannot_be_read(library: Library) -> None:
    """A name that isn't there otherwise may come through a star import from elsewhere."""
    library.write(lib="from elsewhere import *")
    assert verdict_and_line(library.judge(Symbol("lib:f"))) == (
        "unknown",
        "lib:f: expected a definition, found no f, but a star import from elsewhere, which can't be read (lib.py)",
    )


def test_star_imports_in_a_circle(library: Library) -> None:
    """Star imports between modules that import each other end."""
    library.package("lib", init="from .a import *", a="from .b import *", b="from .a import *\nfrom lib import *")
    assert library.judge(Symbol("lib:f")).verdict is Verdict.BROKEN


def test_module_with_getattr(library: Library) -> None:
    """A module that makes names on demand may have any: that can't be told without running it."""
    library.write(lib="def __getattr__(name): ...\ndef f(): ...")
    assert library.judge(Symbol("lib:f")).verdict is Verdict.OK
    assert verdict_and_line(library.judge(Symbol("lib:g"))) == (
        "unknown",
        "lib:g: expected a definition, found no g, but a __getattr__ that may make it (lib.py:1)",
    )


def test_submodule_beside_star_imports(library: Library) -> None:
    """A submodule that a star import may also bring, by way of the package itself, is the submodule."""
    library.package("lib", init="from .m import *", m="from . import _sub\n__all__ = dir()", _sub="def f(): ...")
    assert places(library.judge(Symbol("lib.m:_sub.f"))) == ["it in lib._sub:f"]


@pytest.mark.parametrize(
    "line",
    [
        "globals()[f'f{1}'] = 1",
        "globals().update(make())",
        "import sys\nsys.modules[__name__] = object()",
        "for name in 'fgh':\n    exec(f'{name} = 1')",
    ],
)
def test_names_made_while_running(library: Library, line: str) -> None:
    """A module that makes its names by text, or replaces itself, may have any: that can't be told."""
    library.write(lib=line)
    library.write(user="from lib import *")
    judgement = library.judge(Symbol("lib:f"), Symbol("user:f"))
    assert judgement.verdict is Verdict.UNKNOWN
    assert [finding.found for finding in judgement.findings] == [
        "no f, but code that makes names while it runs",
        "no f, but a star import from lib, which can't be read",
    ]


# Bound again


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("def init():\n    global f\n    f = 1", "f bound by the function init (lib.py:3)"),
        ("import sys\nsys.modules[__name__].f = g", "f set on the module (lib.py:4)"),
        ("import sys\nsetattr(sys.modules[__name__], 'f', g)", "f set on the module (lib.py:4)"),
        ("globals()['f'] = g", "f bound through the namespace (lib.py:3)"),
        ("globals().update(f=g)", "f bound through the namespace (lib.py:3)"),
        ("globals().update({'f': g})", "f bound through the namespace (lib.py:3)"),
        ("import sys\nsys.modules[__name__].__dict__['f'] = g", "f bound through the namespace (lib.py:4)"),
        ("from gone import *", "a star import from gone after it, which can't be read (lib.py:3)"),
        ("try: pass\nexcept OSError as f: pass", "f deleted where `except … as f` ends (lib.py:3)"),
    ],
)
def test_bound_again_in_ways_that_are_not_followed(library: Library, line: str, found: str) -> None:
    """A definition that something else in the module may replace is unknown, and the finding says what."""
    library.write(lib=f"def f(a): ...\ndef g(): ...\n{line}", user="from lib import f")
    for path in ("lib:f", "user:f"):
        judgement = library.judge(Symbol(path, parameters=("a",)))
        assert verdict_and_line(judgement) == (
            "unknown",
            f"{path}: expected a definition that nothing replaces, found {found}",
        )


@pytest.mark.parametrize(
    "line",
    [
        "(f := g)",
        "print(x, [f := g])",
        "if x and (f := g): pass",
        "[f := each for each in x]",
        "match x:\n    case [f, *_]: pass",
        "match x:\n    case {'k': 1, **f}: pass",
        "match x:\n    case f: pass",
        "@(f := g)\ndef h(): ...",
    ],
)
def test_bound_again_by_an_expression_or_a_pattern(library: Library, line: str) -> None:
    """What a walrus or a pattern binds may be anything, so neither parameters nor fingerprints fit it."""
    library.write(lib=f"def f(a): ...\n{line}")
    digest = library.fingerprint("def f(a): ...")
    assert library.judge(Symbol("lib:f", parameters=("a",))).verdict is Verdict.UNKNOWN
    assert library.judge(Symbol("lib:f", fingerprints=(digest,))).verdict in (Verdict.UNKNOWN, Verdict.CHANGED)


@pytest.mark.parametrize(
    "lines",
    [
        "(f := g)\ndef f(a): ...",
        "globals()['f'] = g\ndef f(a): ...",
        "from gone import *\ndef f(a): ...",
        "try: pass\nexcept OSError as f: pass\ndef f(a): ...",
        "def f(a): ...\ndef init():\n    global f\n    return f",
        "def f(a): ...\ndef init():\n    f = 1",
        "def f(a): ...\nh = lambda: (f := 1)",
        "def f(a): ...\nf.cache = globals()['g'] = g",
    ],
)
def test_not_bound_again(library: Library, lines: str) -> None:
    """What stands before the definition, and what only looks like it, takes nothing away from it."""
    library.write(lib=f"def g(): ...\n{lines}")
    assert verdict_and_line(library.judge(Symbol("lib:f", parameters=("a",))))[0] == "ok"


def test_a_later_star_import_that_brings_the_name(library: Library) -> None:
    """A star import replaces what was bound before it, by what the other module has; private names stay."""
    library.write(m="def f(): ...\ndef _g(): ...", lib="def f(a): ...\ndef _g(a): ...\ndef h(a): ...\nfrom m import *")
    assert library.judge(Symbol("lib:_g", parameters=("a",)), Symbol("lib:h", parameters=("a",))).verdict is Verdict.OK
    assert verdict_and_line(library.judge(Symbol("lib:f", parameters=("a",)))) == (
        "broken",
        "lib:f: expected the parameters (a), found () (m.py:1)",
    )


def test_a_star_import_in_another_branch(library: Library) -> None:
    """Where one branch defines and the other imports everything, both count."""
    library.write(
        m="def f(): ...",
        lib="try:\n    from m import *\nexcept ImportError:\n    def f(a): ...\n    def g(a): ...",
    )
    assert library.judge(Symbol("lib:g", parameters=("a",))).verdict is Verdict.OK
    assert verdict_and_line(library.judge(Symbol("lib:f", parameters=("a",)))) == (
        "broken",
        "lib:f: expected the parameters (a), found () in one of 2 definitions (m.py:1)",
    )


@pytest.mark.parametrize("line", ["C.m = other", "setattr(C, 'm', other)", "def init():\n    C.m = other"])
def test_member_replaced_from_outside(library: Library, line: str) -> None:
    """A method that is assigned over from outside its class may be another one; so may an inherited one."""
    library.write(
        lib=f"class B:\n    def m(self): ...\n    def n(self): ...\nclass C(B):\n    def m(self): ...\n{line}"
    )
    assert library.judge(Symbol("lib:C.n", parameters=("self",))).verdict is Verdict.OK
    assert library.judge(Symbol("lib:B.m", parameters=("self",))).verdict is Verdict.OK
    assert library.judge(Symbol("lib:C.m", parameters=("self",))).verdict is Verdict.UNKNOWN


# Private names


def test_private_names_are_mangled(library: Library) -> None:
    """A private name of a class is the attribute that Python makes of it, and no other; so are those in bodies."""
    library.write(
        lib="""
        class _C:
            def __f(self, a): return self.__x + self.__g()
            def __g(self): ...
            h = __f
        class D(_C): ...
        """
    )
    symbols = (
        Symbol("lib:_C._C__f", parameters=("self", "a"), attributes=("_C__x",), calls=("._C__g",)),
        Symbol("lib:D._C__f", parameters=("self", "a")),
        Symbol("lib:_C.h", parameters=("self", "a")),
    )
    assert [finding.found for finding in library.judge(*symbols).findings] == []
    assert verdict_and_line(library.judge(Symbol("lib:_C.__f"))) == (
        "broken",
        "lib:_C.__f: expected a definition, found no __f in the class _C; the nearest names are _C__f (lib.py:1)",
    )


# Aliases and values


def test_aliases(library: Library) -> None:
    """Another name for a function, a method or a class is followed."""
    library.write(
        lib="""
        def f(x): ...
        g = f
        class A:
            def m(self, y): ...
            n = m
            s = staticmethod(f)
        B = A
        h = A.m
        """
    )
    symbols = (
        Symbol("lib:g", parameters=("x",)),
        Symbol("lib:A.n", parameters=("self", "y")),
        Symbol("lib:A.s", parameters=("x",)),
        Symbol("lib:B.m", parameters=("self", "y")),
        Symbol("lib:h", parameters=("self", "y")),
    )
    a_function, a_method = "it in lib:f", "it in lib:A.m"
    assert places(library.judge(*symbols)) == [a_function, a_method, a_function, a_method, a_method]


def test_aliases_in_a_circle(library: Library) -> None:
    """Aliases of each other end, as values that can't be followed."""
    library.write(lib="a = b\nb = a\nclass C:\n    x = y\n    y = x")
    assert library.judge(Symbol("lib:a"), Symbol("lib:C.x")).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("value", "verdict", "found"),
    [
        ("lambda a, b=1: a", "ok", ""),
        ("lambda a: a", "broken", "(a)"),
        ("3", "broken", "a constant (int)"),
        ("None", "broken", "a constant (NoneType)"),
        ("functools.partial(g, 1)", "unknown", "what a call of functools.partial returns"),
        ("property(g)", "broken", "a property"),
        ("table[0]", "unknown", "a value that only running the library makes"),
    ],
)
def test_parameters_of_a_value(library: Library, value: str, verdict: str, found: str) -> None:
    """A value has parameters where they can be seen, has none where it is no function, and else can't be told."""
    library.write(lib=f"f = {value}")
    judgement = library.judge(Symbol("lib:f", parameters=("a", "b=")))
    assert (judgement.verdict.value, [finding.found for finding in judgement.findings]) == (
        verdict,
        [found] if found else [],
    )


def test_member_of_a_value(library: Library) -> None:
    """What a value has inside, only running the library tells."""
    library.write(lib="handle = make()")
    assert verdict_and_line(library.judge(Symbol("lib:handle.run"))) == (
        "unknown",
        (
            "lib:handle.run: expected a definition, found a member of a value that only running the library makes"
            " (lib.py:1)"
        ),
    )


def test_parameters_of_a_class(library: Library) -> None:
    """A class isn't a function: its parameters are those of ``__init__``, which has a path of its own."""
    library.write(lib="class C:\n    def __init__(self, x): ...")
    assert library.judge(Symbol("lib:C.__init__", parameters=("self", "x"))).verdict is Verdict.OK
    assert verdict_and_line(library.judge(Symbol("lib:C", parameters=("x",)))) == (
        "broken",
        "lib:C: expected the parameters (x), found a class (lib.py:1)",
    )


def test_property_with_a_setter(library: Library) -> None:
    """Getter and setter are one property, so an attribute that only the setter mentions is in its body."""
    library.write(
        lib="""
        class C:
            @property
            def x(self): return self._get
            @x.setter
            def x(self, value): self._set = value
        """
    )
    assert library.judge(Symbol("lib:C.x", attributes=("_get", "_set"))).verdict is Verdict.OK
    assert library.judge(Symbol("lib:C.x", parameters=("self",))).findings[0].found == "a property"


@pytest.mark.parametrize(
    "lines",
    ["class C: ...\ndef m(self): ...\nC.m = m", "def C(): ...\nC.m = 1"],
)
def test_member_assigned_from_outside(library: Library, lines: str) -> None:
    """A member that is assigned after the fact is there, but isn't followed."""
    library.write(lib=lines)
    assert library.judge(Symbol("lib:C.m")).verdict is Verdict.OK
    assert library.judge(Symbol("lib:C.m", parameters=("self",))).verdict is Verdict.UNKNOWN


# Classes and their bases


def test_inherited_method(library: Library) -> None:
    """A method of a base class is found, through imports and over several levels, and the judgement says where."""
    library.package(
        "lib",
        init="from .mid import Mid\nclass Handle(Mid): ...",
        mid="from . import base as b\nclass Mid(b.Base): ...",
        base="class Base:\n    def run(self, x): ...\n    class Inner:\n        def deep(self): ...",
    )
    symbols = Symbol("lib:Handle.run", parameters=("self", "x")), Symbol("lib:Handle.Inner.deep", parameters=("self",))
    assert places(library.judge(*symbols)) == ["it in lib.base:Base.run", "it in lib.base:Base.Inner.deep"]


def test_the_order_of_bases(library: Library) -> None:
    """Members are looked up in the order in which Python does, also in a diamond."""
    library.write(
        lib="""
        class Root:
            def f(self, root): ...
        class Left(Root): ...
        class Right(Root):
            def f(self, right): ...
        class Bottom(Left, Right): ...
        """
    )
    assert library.judge(Symbol("lib:Bottom.f", parameters=("self", "right"))).verdict is Verdict.OK


def test_bases_that_contradict_each_other(library: Library) -> None:
    """Python would refuse such a class; judging it still ends."""
    library.write(lib="class A: ...\nclass B(A):\n    def f(self): ...\nclass C(A, B): ...")
    assert library.judge(Symbol("lib:C.f", parameters=("self",))).verdict is Verdict.OK


def test_bases_in_a_circle(library: Library) -> None:
    """Classes that are each other's bases end."""
    library.package("lib", a="from .b import B\nclass A(B): ...", b="from .a import A\nclass B(A): ...")
    assert library.judge(Symbol("lib.a:A.f")).verdict is Verdict.BROKEN


def test_bases_are_read_only_when_they_are_reached(library: Library) -> None:
    """A member that stands in the class itself, or in a near base, costs no look at the files of the rest."""
    library.package(
        "lib",
        init="from .near import Near\nclass C(Near):\n    def f(self): ...",
        near="from .far import Far\nclass Near(Far):\n    def g(self): ...",
        far="class Far:\n    def h(self): ...",
    )
    asked: list[str] = []

    class Watched(DirectorySource):
        def module(self, name: str) -> SourceFile | None:
            asked.append(name)
            return super().module(name)

    for member, expected in {"f": ["lib"], "g": ["lib", "lib.near"], "h": ["lib", "lib.near", "lib.far"]}.items():
        asked.clear()
        assert judge(Contract(symbols=(Symbol(f"lib:C.{member}"),)), Watched(library.root)).verdict is Verdict.OK
        assert asked == expected


def test_generic_base(library: Library) -> None:
    """A subscripted base is its class, and the markers of ``typing`` and ``abc`` have nothing to inherit."""
    library.write(
        lib="""
        from abc import ABC
        from typing import Generic, TypeVar
        T = TypeVar("T")
        class Base(ABC, Generic[T]):
            def f(self): ...
        class Derived(Base[int], object): ...
        """
    )
    assert library.judge(Symbol("lib:Derived.f")).verdict is Verdict.OK
    assert library.judge(Symbol("lib:Derived.g")).verdict is Verdict.BROKEN


def test_base_that_cannot_be_read(library: Library) -> None:
    """A method may come from a base that the source doesn't have."""
    library.write(lib="from elsewhere import Base\nclass C(Base): ...\nclass D(make_base()): ...")
    assert verdict_and_line(library.judge(Symbol("lib:C.f"))) == (
        "unknown",
        "lib:C.f: expected a definition, found no f in the class, but its base Base can't be read (lib.py:2)",
    )
    assert library.judge(Symbol("lib:D.f")).verdict is Verdict.UNKNOWN


def test_built_in_base(library: Library) -> None:
    """The members of a built-in base are known by name, though there is no source to compare."""
    library.write(lib="class C(dict): ...")
    assert library.judge(Symbol("lib:C.update")).verdict is Verdict.OK
    assert library.judge(Symbol("lib:C.update", parameters=("self",))).verdict is Verdict.UNKNOWN
    assert library.judge(Symbol("lib:C.renew")).verdict is Verdict.BROKEN


def test_class_attributes(library: Library) -> None:
    """Class attributes and annotated fields are members too."""
    library.write(lib="class C:\n    limit = 3\n    field: int\n    if limit:\n        def f(self): ...")
    symbols = (Symbol(f"lib:C.{name}") for name in ("limit", "field", "f"))
    assert library.judge(*symbols).verdict is Verdict.OK
