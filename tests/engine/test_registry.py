"""Names to patches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

import pytest

import patchkit
from patchkit import Context, Patch, registry
from patchkit.errors import RegistrationError, UnknownPatchError
from tests.engine._kit import Lab

TEXTS = {"summary": "s", "why": "w", "how": "h", "until": "u"}


def declare(name: str, *, qualname: str = "Declared", **attributes: Any) -> type[Patch]:
    def install(self: Patch, ctx: Context) -> None: ...

    namespace = {
        "__module__": __name__,
        "__qualname__": qualname,
        "name": name,
        "install": install,
        **TEXTS,
        **attributes,
    }
    return type(qualname, (Patch,), namespace)


@pytest.fixture(autouse=True)
def _registry_as_it_was() -> Iterator[None]:
    before = dict(registry._REGISTERED)
    yield
    registry._REGISTERED.clear()
    registry._REGISTERED.update(before)
    registry._declared.cache_clear()


def entry_points(monkeypatch: pytest.MonkeyPatch, *points: metadata.EntryPoint) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda **_: metadata.EntryPoints(points))
    registry._declared.cache_clear()


def test_register_and_forget() -> None:
    """A patch is found under its name, as a class or an instance, until it is unregistered."""
    cls = declare("g.one")
    assert registry.register(cls) is cls
    assert isinstance(registry.find("g.one"), cls)
    instance = declare("g.two", qualname="Two")()
    assert registry.register(instance) is instance
    assert registry.find("g.two") is instance
    assert {"g.one", "g.two"} <= set(registry.known_names())
    registry.unregister("g.one")
    registry.unregister("g.one")
    assert "g.one" not in registry.known_names()


def test_newer_version_of_the_same_class() -> None:
    """The same class defined anew, as in a notebook cell that is run twice, takes the place of the older one."""
    older, newer = declare("g.cell"), declare("g.cell")
    registry.register(older)
    registry.register(newer)
    assert isinstance(registry.find("g.cell"), newer)


def test_one_name_for_one_patch() -> None:
    """Another class can't take a name; both are named."""
    registry.register(declare("g.taken", qualname="First"))
    with pytest.raises(RegistrationError, match=r"First.*Second") as caught:
        registry.register(declare("g.taken", qualname="Second"))
    assert caught.value.patch == "g.taken"


@pytest.mark.parametrize(
    ("attributes", "fault"),
    [
        ({"name": ""}, "name: expected"),
        ({"name": "Upper.Case"}, "name: expected"),
        ({"name": "-dash"}, "name: expected"),
        ({"name": 5}, "name: expected"),
        ({"summary": " "}, "summary: expected a text"),
        ({"why": None}, "why: expected a text"),
        ({"until": ""}, "until: expected a text"),
        ({"install": Patch.install}, "install: expected"),
        ({"contract": "torch"}, "contract: expected a Contract, found str"),
        ({"Options": dict}, "Options: expected"),
        ({"after": "other"}, "after: expected a tuple of names, found str"),
        ({"conflicts": ["other"]}, "conflicts: expected a tuple of names, found list"),
    ],
)
def test_incomplete_declarations(attributes: dict[str, Any], fault: str) -> None:
    """What is missing or wrong in a declaration is named, and the patch is not known."""
    with pytest.raises(RegistrationError, match=fault):
        registry.register(declare(**{"name": "g.incomplete", **attributes}))
    assert "g.incomplete" not in registry.known_names()


def test_all_faults_together() -> None:
    """All faults of a declaration are reported at once, with the class that has them."""
    with pytest.raises(RegistrationError) as caught:
        registry.register(declare("Wrong Name", why="", until=""))
    assert len(str(caught.value).splitlines()) == 4
    assert f"{__name__}.Declared" in str(caught.value)


def test_nearest_names() -> None:
    """An unknown name is answered with the nearest ones."""
    registry.register(declare("g.pageable-params"))
    with pytest.raises(UnknownPatchError, match=r"Did you mean 'g\.pageable-params'") as caught:
        registry.find("g.pagable-params")
    assert (caught.value.name, caught.value.nearest[0]) == ("g.pagable-params", "g.pageable-params")
    with pytest.raises(LookupError):
        registry.find("xyzzy")


def test_declared_by_a_distribution(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A patch that a distribution declares is known without being loaded, and loaded when it is asked for."""
    lab.write("regdist", DISTRIBUTION)
    entry_points(monkeypatch, metadata.EntryPoint("g.declared", "regdist:Declared", registry.GROUP))
    import sys

    assert "g.declared" in registry.known_names()
    assert "regdist" not in sys.modules
    patch = registry.find("g.declared")
    assert (patch.name, type(patch).__module__) == ("g.declared", "regdist")
    assert registry.find("g.declared") is patch


def test_declared_function(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point may name a function that a decorator has made a patch of: loading it registers that patch."""
    lab.write(
        "regfunction",
        """
        import patchkit

        @patchkit.wrap("json:dumps", name="g.function", summary="For a test.")
        def function(original, obj, **kwargs):
            return original(obj, **kwargs)
        """,
    )
    entry_points(monkeypatch, metadata.EntryPoint("g.function", "regfunction:function", registry.GROUP))
    assert registry.find("g.function").name == "g.function"


def test_probe_of_the_wrong_kind() -> None:
    """A probe that is only a text is refused where it is declared, not when it is run."""
    with pytest.raises(RegistrationError, match="probe: expected a Probe"):
        registry.register(declare("g.probed", probe="module:function"))


DISTRIBUTION = """
import patchkit

class Declared(patchkit.Patch):
    name = "g.declared"
    summary = why = how = until = "text"
    def install(self, ctx): ...

class Needy(Declared):
    def __init__(self, something): ...

not_a_patch = 5
"""


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("g.declared", "no_such_module:Declared", "loading it failed: ModuleNotFoundError"),
        ("g.declared", "regdist:gone", "loading it failed: AttributeError"),
        ("g.declared", "regdist:Needy", "loading it failed: TypeError"),
        ("g.other-name", "regdist:Declared", "found a patch named 'g.declared'"),
        ("g.declared", "regdist:not_a_patch", "found a int"),
    ],
)
def test_distribution_that_does_not_deliver(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    """A declared patch that can't be loaded, or is another one, is an error that names the entry point."""
    lab.write("regdist", DISTRIBUTION)
    entry_points(monkeypatch, metadata.EntryPoint(name, value, registry.GROUP))
    with pytest.raises(RegistrationError, match=message) as caught:
        registry.find(name)
    assert value in str(caught.value)


def test_two_distributions_claim_one_name(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that two distributions declare differently is nobody's; the same declaration found twice is one."""
    lab.write("regdist", DISTRIBUTION)
    one = metadata.EntryPoint("g.declared", "regdist:Declared", registry.GROUP)
    other = metadata.EntryPoint("g.declared", "elsewhere:Declared", registry.GROUP)
    entry_points(monkeypatch, one, other)
    with pytest.raises(RegistrationError, match="expected one distribution"):
        registry.find("g.declared")
    entry_points(monkeypatch, one, one)
    assert registry.find("g.declared").name == "g.declared"


def test_decorator_declares_a_whole_patch(lab: Lab) -> None:
    """A decorated function becomes a patch with every field that ``show`` needs, and stays the function that it
    is.
    """

    def patched(original: Any, x: Any) -> Any:
        """Say it louder.

        Since the room is large.
        """
        return original(x)

    decorated = patchkit.wrap("reglib:f", requires="pytest>=8", name="g.louder", upstream="issue 1")(patched)
    assert decorated is patched
    patch = registry.find("g.louder")
    assert (patch.summary, patch.upstream) == ("Say it louder.", "issue 1")
    assert "Since the room is large." in patch.why
    assert "reglib:f" in patch.how
    assert patch.until
    assert patch.contract.requires == ("pytest>=8",)
    assert [(symbol.path, symbol.role) for symbol in patch.contract.symbols] == [("reglib:f", "site")]


@pytest.mark.parametrize("decorator", [patchkit.wrap, patchkit.replace])
def test_decorator_without_words(decorator: Callable[..., Any]) -> None:
    """A function without a docstring, and without a summary given, is not registered."""

    def silent(original: Any) -> None: ...

    with pytest.raises(RegistrationError, match=r"silent: expected a docstring, .* or give summary = …"):
        decorator("reglib:f", name="g.silent")(silent)


def test_requirement_that_can_not_be_parsed(lab: Lab) -> None:
    """A requirement that says nothing is refused at once, not when the contract is first judged."""

    def patched(original: Any) -> None:
        """Do something."""

    with pytest.raises(RegistrationError, match="requirement 'pip>>1': expected a distribution and specifiers"):
        patchkit.wrap("reglib:f", name="g.requires", requires="pip>>1")(patched)
    with pytest.raises(RegistrationError, match="requirement 'pip!'"):
        registry.register(declare("g.until", contract=patchkit.Contract(until=("pip!",))))


@pytest.mark.parametrize(
    ("module", "function", "expected"),
    [
        ("__main__", "sorted_json", "main.sorted-json"),
        ("my_package._private.Patches", "_do_it", "my-package.private.patches.do-it"),
        ("lib", "f__x", "lib.f-x"),
    ],
)
def test_name_of_a_decorated_function(module: str, function: str, expected: str) -> None:
    """Without a name given, module and function make one that is valid, in a script as well."""

    def patched(original: Any) -> None:
        """Do something."""

    patched.__module__, patched.__name__ = module, function
    patchkit.wrap("reglib:f")(patched)
    assert registry.find(expected).name == expected


def test_module_that_exits(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that leaves the interpreter when it is imported is an error, not the end of a verification."""
    lab.write("regexits", "import sys\nsys.exit(0)\n")
    entry_points(monkeypatch, metadata.EntryPoint("g.exits", "regexits:Patch", registry.GROUP))
    with pytest.raises(RegistrationError, match="SystemExit"):
        registry.find("g.exits")
