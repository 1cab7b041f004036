"""Law 7: a patch that is selected takes effect, and that is looked at in the live process; or it is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from patchkit import Context
from patchkit.errors import (
    ForeignChangeError,
    InstallError,
    NothingToDoError,
    RefusedError,
    ResourceError,
    RevertError,
    SiteError,
    VerifyError,
)
from tests.engine._kit import Lab, Memory, prefixing, prefixing_method

SOURCE = """
def f(x):
    return f"f({x})"

def keyed(a, b=1, *args, c, d=2, **kwargs):
    return a

LIMIT = 10

class Thing:
    def m(self, x):
        return f"m({x})"
    class Inner:
        def m(self, x):
            return x
"""


@pytest.fixture
def lib(lab: Lab) -> Any:
    return lab.library("provenlib", SOURCE)


def same(original: Any) -> Any:
    return original


INERT: dict[str, Callable[[Context, Any], None]] = {
    "a maker that returns its argument": lambda ctx, lib: ctx.wrap("provenlib:f", same),
    "no primitive at all": lambda ctx, lib: None,
    "the value that is there": lambda ctx, lib: ctx.replace("provenlib:LIMIT", lib.LIMIT),
    "an item that is there": lambda ctx, lib: ctx.set_item(vars(lib), "LIMIT", lib.LIMIT),
    "no owner": lambda ctx, lib: ctx.wrap_each([], "m", same),
    "no target": lambda ctx, lib: ctx.wrap("provenlib:f", prefixing("F"), targets=ctx.targets([])),
    "targets that nobody acts for": lambda ctx, lib: (ctx.targets([lib]), None)[1],
}


@pytest.mark.parametrize("what", INERT)
def test_patch_that_changes_nothing(lab: Lab, lib: Any, what: str) -> None:
    """A selected patch after whose installation everything is what it was is an error; optional ones are left out."""
    memory = Memory(lib)
    lab.patch("v.inert", lambda ctx: INERT[what](ctx, lib))
    lab.patch("v.good", lambda ctx: ctx.wrap("provenlib:f", prefixing("good")))
    with pytest.raises(NothingToDoError, match=r"v\.inert"):
        lab.apply("v.good", "v.inert")
    assert memory.differences() == []
    with lab.apply("v.good", {"name": "v.inert", "required": False}) as applied:
        assert applied.patches == ("v.good",)
    assert memory.differences() == []


def test_globs_that_select_nothing(lab: Lab, lib: Any) -> None:
    """A glob of ``modules`` that matches no module is an error, though another one does."""
    memory = Memory(lib)

    def install(ctx: Context) -> None:
        for name in ("f", "keyed"):
            if ctx.selects(name):
                ctx.set(lib, name, lambda x: x)

    lab.patch("v.globs", install)
    with pytest.raises(ResourceError, match=r"'nothing\.\*'"):
        lab.apply({"name": "v.globs", "modules": ["f*", "nothing.*"]})
    assert memory.differences() == []


def test_site_that_is_overwritten_at_once(lab: Lab, lib: Any) -> None:
    """An installation whose site is overwritten right away is not in effect: the transaction fails, and says what is
    there.
    """

    def install(ctx: Context) -> None:
        ctx.wrap("provenlib:f", prefixing("F"))
        lib.f = "overwritten"

    lab.patch("v.overwritten", install)
    with pytest.raises(RevertError, match="provenlib:f") as caught:
        lab.apply("v.overwritten")
    assert isinstance(caught.value.__cause__, VerifyError)
    assert [type(error) for error in caught.value.exceptions] == [ForeignChangeError]
    assert lib.f == "overwritten"


def test_own_check_of_the_effect(lab: Lab, lib: Any) -> None:
    """A patch's own check that fails, or fails to run, rolls everything back; ``VerifyError`` either way."""
    memory = Memory(lib)
    errors: dict[str, Exception] = {
        "v.raises": ValueError("a bug"),
        "v.says-so": VerifyError("no effect"),
        "v.refuses": RefusedError("not here"),
    }
    for name, error in errors.items():

        def verify(ctx: Context, error: Exception = error) -> None:
            raise error

        lab.patch(name, lambda ctx: ctx.wrap("provenlib:f", prefixing("F")), verify=verify)
        with pytest.raises(VerifyError, match=str(error)) as caught:
            lab.apply(name)
        assert caught.value.patch == name
        assert memory.differences() == []


def test_effect_that_ends_later(lab: Lab, lib: Any) -> None:
    """``Applied.verify`` proves again, names all patches that are not in effect any more, and changes nothing."""
    works = [True]

    def verify(ctx: Context) -> None:
        if not works[0]:
            raise RefusedError("it doesn't any more")

    lab.patch("v.one", lambda ctx: ctx.wrap("provenlib:f", prefixing("one")), verify=verify)
    lab.patch("v.two", lambda ctx: ctx.set(lib, "two", 2), verify=verify)
    applied = lab.apply("v.one", "v.two")
    assert [status.problem for status in applied.verify().patches] == ["", ""]
    works[0] = False
    with pytest.raises(VerifyError, match=r"it doesn't any more\n.*it doesn't any more"):
        applied.verify()
    assert lib.f("1") == "one f(1)"
    works[0] = True
    applied.verify()


def test_suspended_patches_are_not_verified(lab: Lab, lib: Any) -> None:
    """Inside a block there is no effect to prove."""
    lab.patch("v.f", lambda ctx: ctx.wrap("provenlib:f", prefixing("F")))
    applied = lab.apply("v.f")
    with applied.reverted():
        assert [status.state for status in applied.verify().patches] == ["suspended"]


MISFITS: dict[str, Callable[..., Any]] = {
    "it lacks": lambda a, b=1, *args, c, d=2: a,
    "stands where 'a' is expected": lambda x, b=1, *args, c, d=2, **kwargs: x,
    "lacks a default": lambda a, b, *args, c, d=2, **kwargs: a,
    "it lacks \\*args": lambda a, b=1, *, c, d=2, **kwargs: a,
    "has no default": lambda a, b=1, *args, c, d=2, e, **kwargs: a,
    "takes 0 positional": lambda **kwargs: 1,
}


@pytest.mark.parametrize("reason", MISFITS)
def test_wrapper_that_cannot_be_called_like_the_original(lab: Lab, lib: Any, reason: str) -> None:
    """A wrapper that would refuse a call which the original accepts is refused, with the reason."""
    memory = Memory(lib)
    lab.patch("v.misfit", lambda ctx: ctx.wrap("provenlib:keyed", lambda original: MISFITS[reason]))
    with pytest.raises(InstallError, match=reason):
        lab.apply("v.misfit")
    assert memory.differences() == []


NO_SITES = {
    "provenlib:gone": "expected something that can be called, found nothing",
    "provenlib:LIMIT": "expected something that can be called",
    "provenlib:Think.m": "Nearest names: Thing",
    "provenlib:Thing.Inner.gone": "found nothing",
    "provenlib": "expected a site of the form",
    "provenlib:": "expected a site of the form",
    "nolib:f": "expected an importable module 'nolib'",
    "builtins:dict.get": "found the C type 'dict'",
}


@pytest.mark.parametrize("site", NO_SITES)
def test_site_that_is_none(lab: Lab, lib: Any, site: str) -> None:
    """A site that doesn't exist, or can't be wrapped, is an error that says what was expected and found."""
    lab.patch("v.site", lambda ctx: ctx.wrap(site, prefixing("F")))
    with pytest.raises(SiteError, match=NO_SITES[site]):
        lab.apply("v.site")


def test_replacing_what_is_not_there(lab: Lab, lib: Any) -> None:
    """``replace`` and ``delete`` ask for something to be there; a misspelt name must not create an attribute."""
    memory = Memory(lib)
    lab.patch("v.replace", lambda ctx: ctx.replace("provenlib:LIMITS", 1))
    lab.patch("v.delete", lambda ctx: ctx.delete(lib, "LIMITS"))
    for name in ("v.replace", "v.delete"):
        with pytest.raises(SiteError, match="LIMITS"):
            lab.apply(name)
    assert memory.differences() == []


def test_instance_that_cannot_be_overridden(lab: Lab, lib: Any) -> None:
    """An instance without a namespace, or an attribute that the class always wins, is refused before anything is
    set.
    """

    class Fixed:
        __slots__ = ("full",)

        def m(self, x: Any) -> Any:
            return x

        @property
        def p(self) -> int:
            return 1

    class Open(Fixed):
        pass

    lab.patch("v.fixed", lambda ctx: ctx.wrap_each([Fixed()], "m", prefixing("F")))
    lab.patch("v.property", lambda ctx: ctx.set(Open(), "p", 2))
    with pytest.raises(SiteError, match="neither __dict__ nor such a slot"):
        lab.apply("v.fixed")
    with pytest.raises(SiteError, match="found a property on the class"):
        lab.apply("v.property")


def test_wrapper_that_would_not_get_self(lab: Lab, lib: Any) -> None:
    """An object with ``__call__`` in place of a method would not be bound: that is refused."""

    class Caller:
        def __call__(self, this: Any, x: Any) -> Any:
            return x

    lab.patch("v.caller", lambda ctx: ctx.wrap("provenlib:Thing.m", lambda original: Caller()))
    with pytest.raises(InstallError):
        lab.apply("v.caller")
    assert lib.Thing().m("1") == "m(1)"


def test_maker_that_forgets_to_return(lab: Lab, lib: Any) -> None:
    """A maker that returns nothing is told so."""
    lab.patch("v.forgetful", lambda ctx: ctx.wrap("provenlib:f", lambda original: None))  # type: ignore[arg-type, return-value]
    with pytest.raises(InstallError, match="can't be called"):
        lab.apply("v.forgetful")


def test_copies_in_classes_are_reported(lab: Lab) -> None:
    """A class that holds the function itself is out of reach of its site: the report, which ``verify`` returns, names
    it.
    """
    lib = lab.library(
        "provenclass", SOURCE + "\nclass Holder:\n    helper = staticmethod(f)\n    plain = f\n    borrowed = Thing.m\n"
    )

    def install(ctx: Context) -> None:
        ctx.wrap("provenclass:f", prefixing("F"))
        ctx.wrap("provenclass:Thing.m", prefixing_method("M"))

    lab.patch("v.copies", install)
    applied = lab.apply("v.copies")
    assert lib.Holder.helper("1") == "f(1)"
    expected = tuple(f"provenclass:Holder.{name}" for name in ("helper", "plain", "borrowed"))
    assert [status.unreached for status in applied.verify().patches] == [expected]
    assert "not reached: provenclass:Holder.helper" in str(applied.report())
    applied.revert()
    assert [status.unreached for status in applied.report().patches] == [()]


def test_applied_while_suspended(lab: Lab, lib: Any) -> None:
    """A patch that another handle has suspended can't be proven to be in effect: applying it then is an error."""
    lab.patch("v.f", lambda ctx: ctx.wrap("provenlib:f", prefixing("F")))
    applied = lab.apply("v.f")
    with applied.reverted(), pytest.raises(VerifyError, match="another handle has suspended it"):
        lab.apply("v.f")
    assert lib.f("1") == "F f(1)"


def test_lazily_imported_copies(lab: Lab, lib: Any) -> None:
    """A module that imports the function inside its own functions gets the patched one, without any rebinding."""
    user = lab.library("provenuser", "def use(x):\n    from provenlib import f\n    return f(x)\n")
    lab.patch("v.f", lambda ctx: ctx.wrap("provenlib:f", prefixing("F")))
    with lab.apply("v.f"):
        assert user.use("1") == "F f(1)"
    assert user.use("1") == "f(1)"
