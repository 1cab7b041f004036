"""Law 1: after a revert every touched place is what it was."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest

from patchkit import Context
from tests.engine._kit import Lab, Memory, Module, prefixing, prefixing_method

SOURCE = """
    def f(x):
        "Say f."
        return f"f({x})"

    def broken(x):
        return x

    LIMIT = 10
    TABLE = {"present": 1}

    class Base:
        __slots__ = ("__dict__", "__weakref__")
        def m(self, x):
            return f"m({x})"
        @staticmethod
        def s(x):
            return f"s({x})"
        @classmethod
        def c(cls, x):
            return f"{cls.__name__}.c({x})"
        @property
        def p(self):
            "The property p."
            return "p"
        @p.setter
        def p(self, value):
            self.__dict__["_p"] = value
        built_in = len

    class Derived(Base):
        pass

    class Slotted:
        __slots__ = ("full", "empty")
        def __init__(self):
            self.full = lambda x: f"full({x})"
"""


@pytest.fixture
def lib(lab: Lab) -> Any:
    return lab.library("restlib", SOURCE)


KINDS: list[tuple[str, Callable[[Any], Any], type, str]] = [
    ("restlib:f", lambda lib: lib.f("1"), type(lambda: None), "new f(1)"),
    ("restlib:Base.m", lambda lib: lib.Base().m("1"), type(lambda: None), "new m(1)"),
    ("restlib:Base.s", lambda lib: lib.Base().s("1"), staticmethod, "new s(1)"),
    ("restlib:Base.c", lambda lib: lib.Derived.c("1"), classmethod, "new Derived.c(1)"),
    ("restlib:Base.p", lambda lib: lib.Base().p, property, "new p"),
    ("restlib:Base.built_in", lambda lib: lib.Base().built_in("123"), staticmethod, "new 3"),
    ("restlib:Derived.m", lambda lib: lib.Derived().m("1"), type(lambda: None), "new m(1)"),
    ("restlib:Derived.s", lambda lib: lib.Derived.s("1"), staticmethod, "new s(1)"),
    ("restlib:Derived.c", lambda lib: lib.Derived.c("1"), classmethod, "new Derived.c(1)"),
    ("restlib:Derived.p", lambda lib: lib.Derived().p, property, "new p"),
]


@pytest.mark.parametrize(("site", "call", "kind", "expected"), KINDS, ids=[kind[0] for kind in KINDS])
def test_every_kind_of_site(
    lab: Lab, lib: Any, site: str, call: Callable[[Any], Any], kind: type, expected: str
) -> None:
    """A function, method, staticmethod, classmethod or property, own or inherited, keeps its kind and comes back
    itself.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def any_form(*args: Any, **kwargs: Any) -> str:
            return f"new {original(*args, **kwargs)}"

        return any_form

    memory = Memory(lib, lib.Base, lib.Derived)
    owner = getattr(lib, site.partition(":")[2].partition(".")[0]) if "." in site else lib
    stock = call(lib)
    lab.patch("t.wrap", lambda ctx: ctx.wrap(site, make))

    applied = lab.apply("t.wrap")
    assert call(lib) == expected
    assert type(vars(owner)[site.rpartition(".")[2] if "." in site else "f"]) is kind
    with applied.reverted():
        assert call(lib) == stock
        assert memory.differences() == []
    assert call(lib) == expected
    applied.revert()
    assert call(lib) == stock
    assert memory.differences() == []


def test_property_keeps_its_other_accessors(lab: Lab, lib: Any) -> None:
    """Wrapping the getter of a property leaves setter and docstring what they were."""
    lab.patch("t.p", lambda ctx: ctx.wrap("restlib:Base.p", lambda original: lambda self: original(self).upper()))
    with lab.apply("t.p"):
        base = lib.Base()
        base.p = 5
        assert (base.p, base.__dict__["_p"], vars(lib.Base)["p"].__doc__) == ("P", 5, "The property p.")


def test_inherited_attribute_leaves_the_base_alone(lab: Lab, lib: Any) -> None:
    """A patch on a subclass is the subclass's; after the revert the attribute is inherited again."""
    lab.patch("t.derived", lambda ctx: ctx.wrap("restlib:Derived.m", prefixing_method("derived")))
    with lab.apply("t.derived"):
        assert lib.Base().m("1") == "m(1)"
        assert lib.Derived().m("1") == "derived m(1)"
    assert "m" not in vars(lib.Derived)


def test_instances_and_slots(lab: Lab, lib: Any) -> None:
    """An instance's attribute is present or absent as before, in its dictionary or its slot."""
    plain, slotted = lib.Base(), lib.Slotted()
    plain.own = own = lambda x: f"own({x})"
    memory = Memory(plain, slotted)

    def install(ctx: Context) -> None:
        ctx.wrap_each([plain], "m", prefixing_method("one"))
        ctx.wrap_each([plain], "own", prefixing_method("two"))
        ctx.wrap_each([slotted], "full", prefixing_method("three"))
        ctx.set(slotted, "empty", "filled")
        ctx.set(plain, "added", 1)

    lab.patch("t.instances", install)
    with lab.apply("t.instances") as applied:
        assert plain.m("1") == "one m(1)"
        assert plain.own("1") == "two own(1)"
        assert slotted.full("1") == "three full(1)"
        assert (slotted.empty, plain.added) == ("filled", 1)
        with applied.reverted():
            assert memory.differences() == []
            assert not hasattr(slotted, "empty")
    assert memory.differences() == []
    assert plain.own is own


def test_method_bound_to_its_own_instance(lab: Lab, lib: Any) -> None:
    """A bound method in an instance's dictionary comes back as the same object if somebody still has it, else as an
    equal one.
    """
    kept, unseen = lib.Base(), lib.Base()
    kept.own = method = kept.m
    unseen.own = unseen.m
    lab.patch("t.own", lambda ctx: ctx.wrap_each([kept, unseen], "own", prefixing_method("new")))
    with lab.apply("t.own"):
        assert (kept.own("1"), unseen.own("2")) == ("new m(1)", "new m(2)")
    assert vars(kept)["own"] is method
    assert vars(unseen)["own"] == unseen.m


def test_attributes_set_and_deleted(lab: Lab, lib: Any) -> None:
    """What was replaced, created or deleted on a module, class or instance is what it was."""
    plain = lib.Base()
    plain.present = 1
    memory = Memory(lib, lib.Base, lib.Derived, plain)

    def install(ctx: Context) -> None:
        ctx.replace("restlib:LIMIT", 20)
        ctx.set(lib, "NEW", 1)
        ctx.delete(lib, "broken")
        ctx.set(lib.Derived, "m", lambda self, x: "set")
        ctx.set(lib.Base, "fresh", 1)
        ctx.delete(lib.Base, "s")
        ctx.delete(plain, "present")
        ctx.set(plain, "fresh", 2)

    lab.patch("t.attributes", install)
    with lab.apply("t.attributes") as applied:
        assert (lib.LIMIT, lib.NEW, hasattr(lib, "broken")) == (20, 1, False)
        assert (lib.Derived().m(1), lib.Base.fresh, hasattr(lib.Base, "s")) == ("set", 1, False)
        assert (hasattr(plain, "present"), plain.fresh) == (False, 2)
        with applied.reverted():
            assert memory.differences() == []
    assert memory.differences() == []


def test_items_of_dictionaries(lab: Lab, lib: Any) -> None:
    """An item of a dictionary is what it was, present or absent."""

    def install(ctx: Context) -> None:
        ctx.set_item(lib.TABLE, "present", 2)
        ctx.set_item(lib.TABLE, "absent", 3)

    lab.patch("t.items", install)
    with lab.apply("t.items") as applied:
        assert lib.TABLE == {"present": 2, "absent": 3}
        with applied.reverted():
            assert lib.TABLE == {"present": 1}
    assert lib.TABLE == {"present": 1}


def test_environment_variable(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mapping that makes a new object for each look, such as the environment, is no stranger."""
    import os

    monkeypatch.setenv("RESTLIB", "before")
    lab.patch("t.environ", lambda ctx: ctx.set_item(os.environ, "RESTLIB", "patched"))
    with lab.apply("t.environ") as applied:
        assert os.environ["RESTLIB"] == "patched"
        applied.verify()
    assert os.environ["RESTLIB"] == "before"


def test_hooks_keep_their_order(lab: Lab) -> None:
    """Hooks of others stay in their order, and ours goes back to where it was, also if others come in between."""
    module = Module()

    def before(*_: Any) -> None: ...
    def ours(*_: Any) -> None: ...
    def ours_too(*_: Any) -> None: ...
    def after(*_: Any) -> None: ...
    def later(*_: Any) -> None: ...

    module.register_forward_hook(before)
    lab.patch("t.hook", lambda ctx: ctx.hook(ctx.model, "forward_hook", ours), resources=("model",))
    lab.patch(
        "t.too", lambda ctx: ctx.hook(ctx.model, "forward_hook", ours_too, with_kwargs=True), resources=("model",)
    )
    applied = lab.apply("t.hook", "t.too", model=module)
    module.register_forward_hook(after)
    assert module.hooks == [before, ours, ours_too, after]
    with applied.reverted("t.hook"):
        assert module.hooks == [before, ours_too, after]
    assert module.hooks == [before, ours, ours_too, after]
    with applied.reverted():
        module.register_forward_hook(later)
        assert module.hooks == [before, after, later]
    assert module.hooks == [before, ours, ours_too, after, later]
    applied.revert("t.hook")
    assert module.hooks == [before, ours_too, after, later]
    applied.revert()
    assert module.hooks == [before, after, later]
    assert module.__dict__["_forward_hooks_with_kwargs"] == {}


def test_last_hooks_stay_before_those_that_come_later(lab: Lab) -> None:
    """Hooks of ours that were last go back before one that arrived while they were out."""
    module = Module()

    def first(*_: Any) -> None: ...
    def ours(*_: Any) -> None: ...
    def ours_too(*_: Any) -> None: ...
    def later(*_: Any) -> None: ...

    module.register_forward_hook(first)

    def install(ctx: Context) -> None:
        ctx.hook(ctx.model, "forward_hook", ours)
        ctx.hook(ctx.model, "forward_hook", ours_too)

    lab.patch("t.hooks", install, resources=("model",))
    applied = lab.apply("t.hooks", model=module)
    with applied.reverted():
        module.register_forward_hook(later)
    assert module.hooks == [first, ours, ours_too, later]


def test_hook_put_first(lab: Lab) -> None:
    """Options of the registration, such as ``prepend``, are passed on, also when the hook comes back."""
    module = Module()

    def other(*_: Any) -> None: ...
    def ours(*_: Any) -> None: ...

    module.register_forward_hook(other)
    lab.patch("t.first", lambda ctx: ctx.hook(ctx.model, "forward_hook", ours, prepend=True), resources=("model",))
    applied = lab.apply("t.first", model=module)
    assert module.hooks == [ours, other]
    with applied.reverted():
        assert module.hooks == [other]
    assert module.hooks == [ours, other]


def test_other_names_follow(lab: Lab, lib: Any) -> None:
    """``from x import f as g`` copies in imported modules are patched and put back, whatever they are called."""
    user = lab.library("restuser", "from restlib import f as renamed\nimport restlib\ndirect = restlib.f\n")
    memory = Memory(lib, user)
    lab.patch("t.f", lambda ctx: ctx.wrap("restlib:f", prefixing("new")))
    with lab.apply("t.f") as applied:
        assert (user.renamed("1"), user.direct("2")) == ("new f(1)", "new f(2)")
        assert user.renamed is user.direct is lib.f
        with applied.reverted():
            assert memory.differences() == []
    assert memory.differences() == []


def test_module_imported_meanwhile(lab: Lab, lib: Any) -> None:
    """A module that was imported while the patch was on, and copied the wrapper, is put right on revert."""
    lab.patch("t.f", lambda ctx: ctx.wrap("restlib:f", prefixing("new")))
    applied = lab.apply("t.f")
    late = lab.library("restlate", "from restlib import f as copied\n")
    assert late.copied("1") == "new f(1)"
    applied.revert()
    assert late.copied is lib.f
    assert late.copied("1") == "f(1)"


def test_names_of_a_class_follow(lab: Lab, lib: Any) -> None:
    """Replacing a class reaches its copies; afterwards the replacement still has its own name in its author's
    module.
    """
    author = lab.library("restauthor", "class Better:\n    pass\nstill = Better\n")
    user = lab.library("restuser", "from restlib import Base\n")
    memory = Memory(lib, user, author)
    lab.patch("t.class", lambda ctx: ctx.replace("restlib:Base", author.Better))
    with lab.apply("t.class") as applied:
        assert user.Base is lib.Base is author.Better
        with applied.reverted():
            assert memory.differences() == []
    assert memory.differences() == []


def test_names_survive_a_replacement_that_has_no_identity(lab: Lab, lib: Any) -> None:
    """Where a function is replaced by ``None``, its copies can't be told afterwards: that is refused, and nothing is
    changed.
    """
    from patchkit.errors import VerifyError

    user = lab.library("restuser", "from restlib import f as copied\n")
    memory = Memory(lib, user)
    lab.patch("t.none", lambda ctx: ctx.replace("restlib:f", None))
    with pytest.raises(VerifyError, match="restuser:copied"):
        lab.apply("t.none")
    assert memory.differences() == []


def test_constant_replaced_by_a_function(lab: Lab, lib: Any) -> None:
    """A constant that becomes a function and back leaves equal constants elsewhere alone."""
    user = lab.library("restuser", "OTHER = 10\n")
    memory = Memory(lib, user)
    lab.patch("t.constant", lambda ctx: ctx.replace("restlib:LIMIT", lambda: 5))
    with lab.apply("t.constant"):
        late = lab.library("restlate", "from restlib import LIMIT\n")
        assert (late.LIMIT(), user.OTHER) == (5, 10)
    assert memory.differences() == []
    assert late.LIMIT == 10


def test_built_ins_are_nobodys_copies(lab: Lab) -> None:
    """A module's own name for a built-in is one place: the built-in itself is not touched."""
    lib = lab.library("restbuiltin", "_len = len\nkind = dict\n\ndef size(x):\n    return _len(x)\n")
    user = lab.library("restuser", "alias = dict\n")

    def install(ctx: Context) -> None:
        ctx.wrap("restbuiltin:_len", lambda original: lambda obj, /: 7)
        ctx.replace("restbuiltin:kind", list)

    lab.patch("t.builtin", install)
    with lab.apply("t.builtin"):
        assert (lib.size("x"), len("x"), lib.kind, user.alias) == (7, 1, list, dict)
        assert dict is type({})
    assert (lib._len, lib.kind) == (len, dict)


def test_lazy_module_stays_lazy(lab: Lab, lib: Any) -> None:
    """Looking for other names does not load modules that wait to be loaded."""
    import importlib.util

    lab.write("restlazy", "raise RuntimeError('loaded')\n")
    spec = importlib.util.find_spec("restlazy")
    assert spec is not None
    assert spec.loader is not None
    loader = importlib.util.LazyLoader(spec.loader)
    spec.loader = loader
    lazy = importlib.util.module_from_spec(spec)
    sys.modules["restlazy"] = lazy
    loader.exec_module(lazy)
    lab.patch("t.f", lambda ctx: ctx.wrap("restlib:f", prefixing("new")))
    with lab.apply("t.f"):
        assert lib.f("1") == "new f(1)"
    assert type(lazy).__name__ == "_LazyModule"


def test_wrapper_passes_for_the_original(lab: Lab, lib: Any) -> None:
    """A wrapped function has the name, module, docstring and signature of the original, and leads to it."""
    original = lib.f
    lab.patch("t.f", lambda ctx: ctx.wrap("restlib:f", prefixing("new")))
    with lab.apply("t.f"):
        assert (lib.f.__name__, lib.f.__qualname__, lib.f.__module__, lib.f.__doc__) == ("f", "f", "restlib", "Say f.")
        assert lib.f.__wrapped__ is original
        assert inspect.signature(lib.f) == inspect.signature(original)


def test_pickle_by_reference(lab: Lab, lib: Any) -> None:
    """A wrapped function pickles by its name, as the original does, and the pickle means whatever is there when it is
    read.
    """

    def install(ctx: Context) -> None:
        ctx.wrap("restlib:f", prefixing("new"))
        ctx.wrap("restlib:Base.m", prefixing_method("new"))

    lab.patch("t.f", install)
    with lab.apply("t.f"):
        data = pickle.dumps([lib.f, lib.Base.m])
        assert pickle.loads(data) == [lib.f, lib.Base.m]
    assert pickle.loads(data) == [lib.f, lib.Base.m]


def test_pickle_of_a_patched_instance(lab: Lab, lib: Any) -> None:
    """A patched instance can be pickled; what is read from the pickle acts for itself."""
    base = lib.Base()
    base.word = "one"
    lab.patch("t.m", lambda ctx: ctx.wrap_each([base], "m", prefixing_method("new")))
    with lab.apply("t.m"):
        read = pickle.loads(pickle.dumps(base))
        read.word = "two"
        assert (base.m("1"), base.word) == ("new m(1)", "one")
        assert getattr(read.m, "__self__", None) is read


def test_coroutines_and_generators_stay_what_they_are(lab: Lab) -> None:
    """An async function, generator or async generator in the decorator form is one for whoever asks, and works as
    one.
    """
    import asyncio

    import patchkit

    lib = lab.library(
        "restasync",
        """
        async def co(x):
            return x
        def gen(x):
            yield x
        async def agen(x):
            yield x
        """,
    )

    @patchkit.wrap("restasync:co", name="t.co", summary="test")
    async def co(original: Any, x: Any) -> Any:
        return ["co", await original(x)]

    @patchkit.wrap("restasync:gen", name="t.gen", summary="test")
    def gen(original: Any, x: Any) -> Any:
        yield "gen"
        yield from original(x)

    @patchkit.wrap("restasync:agen", name="t.agen", summary="test")
    async def agen(original: Any, x: Any) -> Any:
        yield "agen"
        async for item in original(x):
            yield item

    for name in ("t.co", "t.gen", "t.agen"):
        lab.keep(name)
    memory = Memory(lib)

    async def collect() -> list[Any]:
        return [item async for item in lib.agen(3)]

    with lab.apply("t.co", "t.gen", "t.agen"):
        assert inspect.iscoroutinefunction(lib.co)
        assert inspect.isgeneratorfunction(lib.gen)
        assert inspect.isasyncgenfunction(lib.agen)
        assert asyncio.run(lib.co(1)) == ["co", 1]
        assert list(lib.gen(2)) == ["gen", 2]
        assert asyncio.run(collect()) == ["agen", 3]
    assert memory.differences() == []


def test_authors_function_stays_as_it_is(lab: Lab, lib: Any) -> None:
    """What a maker returns may be an author's own function with a name elsewhere: nothing is written on it, it keeps
    its name.
    """
    author = lab.library("restauthor", 'def instead(x):\n    "Say instead."\n    return f"instead({x})"\n')
    memory = Memory(author, vars(author.instead))
    lab.patch("t.instead", lambda ctx: ctx.wrap("restlib:f", lambda _: author.instead))
    with lab.apply("t.instead"):
        assert (lib.f("1"), lib.f.__name__) == ("instead(1)", "f")
        assert (author.instead.__name__, author.instead.__doc__) == ("instead", "Say instead.")
    assert memory.differences() == []
    assert author.instead.__name__ == "instead"


def test_reloaded_patch_module(lab: Lab, lib: Any) -> None:
    """A replacement in the decorator form leaves its author's function where and what it was."""
    source = """
    import patchkit

    @patchkit.replace("restlib:f", name="t.replacement")
    def replacement(x):
        "Replace f."
        return f"replacement({x})"
    """
    author = lab.library("restauthor", source)
    lab.keep("t.replacement")
    own = author.replacement
    with lab.apply("t.replacement"):
        assert lib.f("1") == "replacement(1)"
    assert author.replacement is own
    assert (own.__name__, vars(own)) == ("replacement", {})
    importlib.reload(author)
    with lab.apply("t.replacement"):
        assert lib.f("1") == "replacement(1)"
    assert lib.f("1") == "f(1)"


def test_action_is_undone(lab: Lab) -> None:
    """A patch's own step is undone by its inverse, also for a suspension, and done again after it."""
    state = ["stock"]
    lab.patch("t.action", lambda ctx: ctx.action("switch", lambda: state.append("on"), lambda: state.append("off")))
    applied = lab.apply("t.action")
    with applied.reverted():
        assert state == ["stock", "on", "off"]
    assert state == ["stock", "on", "off", "on"]
    applied.revert()
    assert state == ["stock", "on", "off", "on", "off"]


def test_deep_copy_is_not_patched_twice(lab: Lab, lib: Any) -> None:
    """A deep copy of a patched instance carries the override; applying the patch to it does it once, reverting takes
    it out.
    """
    base = lib.Base()
    lab.patch("t.m", lambda ctx: ctx.wrap_each([ctx.model], "m", prefixing_method("new")), resources=("model",))
    first = lab.apply("t.m", model=base)
    twin = copy.deepcopy(base)
    assert twin.m("1") == "new m(1)"
    second = lab.apply("t.m", model=twin)
    assert twin.m("1") == "new m(1)"
    second.revert()
    assert (twin.m("1"), vars(twin), base.m("1")) == ("m(1)", {}, "new m(1)")
    first.revert()
    assert vars(base) == {}
