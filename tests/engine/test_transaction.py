"""The execution of a plan: what it is given, and what it hands on to the patches."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import patchkit
from patchkit import Context, Contract, PatchOptions, Symbol
from patchkit.errors import NothingToDoError, PatchkitWarning, RefusedError, ResourceError
from tests.engine._kit import Lab, Memory


class Model:
    def m(self) -> str:
        return "m"


@pytest.fixture
def seen(lab: Lab) -> list[Any]:
    """What patches were given: ``t.model`` needs a model, ``t.data`` a resource of its own, ``t.plain`` nothing."""
    seen: list[Any] = []

    def note(ctx: Context) -> None:
        seen.append({name: ctx.resource(name) for name in ctx.patch.resources})
        ctx.set(Model, f"mark_{len(seen)}", 1)

    lab.patch("t.model", note, resources=("model",))
    lab.patch("t.data", note, resources=("data", "model"))
    lab.patch("t.plain", note)
    return seen


def test_one_model(lab: Lab, seen: list[Any]) -> None:
    """A patch gets what it asks for, and nothing else."""
    model = Model()
    data = Model()
    lab.apply("t.model", "t.plain", "t.data", model=model, resources={"data": data})
    assert seen == [{"model": model}, {}, {"data": data, "model": model}]


def test_resource_that_nobody_takes(lab: Lab, seen: list[Any]) -> None:
    """A resource that no selected patch takes may be misspelt: it is refused before anything is touched."""
    with pytest.raises(ResourceError, match=r"take \(data\), found 'date'\. Did you mean 'data'\?"):
        lab.apply("t.data", model=Model(), resources={"date": 1})
    with pytest.raises(ResourceError, match=r"take \(none but a model\), found 'other'\."):
        lab.apply("t.plain", resources={"other": 1})
    assert seen == []


def test_named_models(lab: Lab, seen: list[Any]) -> None:
    """Entries select models by name; a mapping of one needs no name."""
    models = {"a": Model(), "b": Model()}
    lab.apply({"name": "t.model", "on": "b"}, "t.plain", model=models)
    lab.apply("t.model", model={"only": models["a"]})
    assert seen == [{"model": models["b"]}, {}, {"model": models["a"]}]


@pytest.mark.parametrize(
    ("entry", "model", "message"),
    [
        ("t.model", None, r"expected the resource 'model'.*patchkit.apply\(manifest, model\)"),
        ("t.data", Model(), r"expected the resource 'data'.*data=…"),
        ("t.model", {"a": Model(), "b": Model()}, r"one of the models given \('a', 'b'\), found no 'on'"),
        ("t.model", {}, r"one of the models given \(none\)"),
        ({"name": "t.model", "on": "c"}, {"a": Model(), "b": Model()}, r"\('a', 'b'\), found on = 'c'"),
        (
            {"name": "t.model", "on": "a"},
            Model(),
            "expected a mapping of names to models with the key 'a', found a single",
        ),
        ({"name": "t.model", "on": "a"}, None, "found no model"),
    ],
)
def test_missing_resources(lab: Lab, seen: list[Any], entry: Any, model: Any, message: str) -> None:
    """A resource that is missing, or can't be told, is an error that says how to pass it; nothing is touched."""
    memory = Memory(Model)
    with pytest.raises(ResourceError, match=message):
        lab.apply("t.plain", entry, model=model)
    assert seen == []
    assert memory.differences() == []
    optional = {"name": entry, "required": False} if isinstance(entry, str) else {**entry, "required": False}
    assert lab.apply("t.plain", optional, model=model).patches == ("t.plain",)


def test_resource_that_was_not_declared(lab: Lab) -> None:
    """A patch that asks for what it didn't declare is told that it wasn't given."""
    lab.patch("t.greedy", lambda ctx: ctx.model)
    with pytest.raises(ResourceError, match="'model', which was not given"):
        lab.apply("t.greedy", model=Model())


def test_options_and_modules_arrive(lab: Lab) -> None:
    """Options and globs of the entry are the context's."""
    seen: list[Any] = []

    class Options(PatchOptions):
        depth: int = 1

    def install(ctx: Context) -> None:
        seen.append(
            (ctx.options, ctx.modules, [name for name in ("a", "b", "c.d") if ctx.selects(name)], ctx.unmatched())
        )
        ctx.set(Model, "mark", 1)

    lab.patch("t.options", install, Options=Options)
    lab.apply({"name": "t.options", "options": {"depth": 2}, "modules": ["a", "c.*"]})
    assert seen == [(Options(depth=2), ("a", "c.*"), ["a", "c.d"], ())]

    def select_anything(ctx: Context) -> None:
        seen.append(ctx.selects("anything"))
        ctx.set(Model, "mark_all", 1)

    lab.patch("t.all", select_anything)
    lab.apply("t.all")
    assert seen[1] is True


def test_nothing_left_to_apply(lab: Lab) -> None:
    """A manifest of which everything is left out gives a handle without patches."""

    def refuse(ctx: Context) -> None:
        raise RefusedError("never")

    lab.patch("t.refusing", lambda ctx: None, check=refuse)
    applied = lab.apply({"name": "t.refusing", "required": False})
    assert (applied.patches, str(applied), repr(applied)) == ((), repr(applied), "<Applied nothing>")
    assert [(s.name, s.state, s.reason) for s in applied.report().patches] == [("t.refusing", "skip", "never")]
    applied.verify()
    applied.revert()


def test_findings_are_shared_for_one_transaction(lab: Lab) -> None:
    """What one patch has found out is found out once for all patches of the transaction, and anew after it."""
    found: list[int] = []

    def look() -> int:
        found.append(1)
        return len(found)

    def install(ctx: Context) -> None:
        assert ctx.once("key", look) == 1
        ctx.set(Model, ctx.patch.name.replace(".", "_"), 1)

    later: list[int] = []
    lab.patch("t.one", install, verify=lambda ctx: later.append(ctx.once("key", look)))
    lab.patch("t.two", install)
    applied = lab.apply("t.one", "t.two")
    assert (found, later) == ([1], [1])
    applied.verify()
    assert later == [1, 2]


def test_optional_patch_that_does_nothing(lab: Lab) -> None:
    """``required = false`` is the word for a patch that may find nothing to do."""
    lab.patch("t.nothing", lambda ctx: None)
    with pytest.raises(NothingToDoError):
        lab.apply("t.nothing")
    assert lab.apply({"name": "t.nothing", "required": False}).patches == ()


def test_reasons_of_what_is_left_out(lab: Lab) -> None:
    """The report says why an optional patch is left out, also one that turns out so late, or that nobody knows."""
    lab.patch("t.idle", lambda ctx: None)
    entries = [{"name": name, "required": False} for name in ("t.idle", "t.nobody")]
    idle, nobody = lab.apply(*entries).report().patches
    assert (idle.state, "everything is what it was" in idle.reason) == ("skip", True)
    assert (nobody.name, nobody.state, nobody.reason) == ("t.nobody", "skip", "no patch of that name is registered")


def test_warnings_point_at_the_caller(lab: Lab) -> None:
    """What policy lets pass is a warning at the line that calls apply, and not somewhere inside patchkit."""
    contract = Contract(symbols=(Symbol("no_such_library:f"),))
    lab.patch("t.unknown", lambda ctx: ctx.set(Model, "mark_warned", 1), contract=contract)
    manifest = {"schema": 1, "patch": [{"name": "t.unknown"}], "policy": {"on_unknown": "warn"}}
    with pytest.warns(PatchkitWarning, match="applied by policy") as caught:
        patchkit.apply(manifest).revert()
    assert caught[0].filename == __file__


@pytest.mark.parametrize("step", ["check", "install"])
def test_library_that_is_not_installed(lab: Lab, step: str) -> None:
    """Where policy lets a missing library pass, what the patch runs into is said to be that, and not its fault."""

    def import_it(ctx: Context) -> None:
        importlib.import_module("no_such_library.sub")

    steps: dict[str, Any] = {"install": lambda ctx: None, step: import_it}
    contract = Contract(symbols=(Symbol("no_such_library.sub:f"),))
    lab.patch("t.missing", steps.pop("install"), contract=contract, **steps)
    with (
        pytest.warns(PatchkitWarning),
        pytest.raises(RefusedError, match="expected the library 'no_such_library', found that it is not installed"),
    ):
        lab.apply("t.missing", policy={"on_unknown": "warn"})


def test_globs_that_select_nothing(lab: Lab) -> None:
    """The error shows which paths there were, the nearest first, or that the patch asks for none."""

    def install(ctx: Context) -> None:
        for path in ("embed", *(f"blocks.{index}.attn" for index in range(9))):
            ctx.selects(path)

    lab.patch("t.globs", install)
    with pytest.raises(ResourceError, match=r"paths, here 'blocks\.\d\.attn', .* and 5 more\."):
        lab.apply({"name": "t.globs", "modules": ["block.1.attn"]})
    lab.patch("t.blind", lambda ctx: None)
    with pytest.raises(ResourceError, match="the patch looks at no modules"):
        lab.apply({"name": "t.blind", "modules": ["*"]})
