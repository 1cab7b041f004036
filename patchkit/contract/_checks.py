"""One symbol of a contract against what a source has under its path."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from ._bindings import Kind
from ._body import attributes_in, calls_in, parameters_of
from ._expressions import dotted_name, mangled
from ._fingerprint import fingerprint
from ._found import Definition, Found, Gap
from ._model import Finding, Fingerprint, Symbol, Verdict

__all__ = ["check_symbol", "fingerprints_of", "remarks_on"]

_ACCESSORS = ("getter", "setter", "deleter")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def check_symbol(symbol: Symbol, found: Found) -> Iterator[Finding]:
    """Yield what doesn't fit.

    Where a symbol has several definitions (branches of an ``if`` or ``try``), parameters, calls and attributes must fit
    in all of them, since any of them may be the one that lives; a fingerprint need match only one. Where one branch has
    none at all, that can't be judged.
    """
    definitions = _definitions(found)
    yield from _gaps(symbol, found, definitions)
    if not definitions:
        return
    if symbol.parameters is not None:
        yield from _parameters(symbol, symbol.parameters, definitions)
    if symbol.calls or symbol.attributes or symbol.fingerprints:
        bodies = [definition for definition in definitions if not definition.file.is_stub]
        for definition in definitions:
            if definition.file.is_stub:
                found_text = "a stub file, which has no bodies"
                yield Finding(Verdict.UNKNOWN, symbol.path, "a body to read", found_text, definition.where)
        for definition in bodies:
            yield from _calls(symbol, definition)
            yield from _attributes(symbol, definition)
        if symbol.fingerprints and bodies:
            yield from _fingerprints(symbol, bodies)


def remarks_on(symbol: Symbol, found: Found) -> Iterator[Finding]:
    """Yield what is worth knowing of a symbol that fits: where it really stands, and whether only a stub was read."""
    for definition in _definitions(found):
        if definition.path != symbol.path:
            text = f"it in {definition.path}"
            yield Finding(Verdict.OK, symbol.path, "a definition in its own place", text, definition.where)
        if definition.file.is_stub:
            text = f"the stub of {definition.file.compiled or 'a module'}"
            yield Finding(Verdict.OK, symbol.path, "Python source", text, definition.where)


def fingerprints_of(found: Found) -> list[str]:
    """Return the fingerprint of each definition that has a body, without repetitions, in order."""
    bodies = [definition for definition in _definitions(found) if definition.nodes and not definition.file.is_stub]
    return list(dict.fromkeys(fingerprint(*definition.nodes) for definition in bodies))


def _definitions(found: Found) -> list[Definition]:
    """Leave out what stands in for a definition where it is absent: ``f = None`` beside ``from m import f``."""
    definitions = [item for item in found if isinstance(item, Definition)]
    real = [definition for definition in definitions if not _is_placeholder(definition)]
    return real if real or len(definitions) < len(found) else definitions


def _is_placeholder(definition: Definition) -> bool:
    value = definition.binding.value if definition.binding is not None else None
    return isinstance(value, ast.Constant) and value.value is None


def _gaps(symbol: Symbol, found: Found, definitions: Sequence[Definition]) -> Iterator[Finding]:
    gaps = [item for item in found if isinstance(item, Gap)]
    if not _looks_inside(symbol):
        gaps = [gap for gap in gaps if not gap.bound]
    if definitions:
        # An import that fails leaves the definition of the other branch.
        gaps = [gap for gap in gaps if gap.again or not gap.imported]
    elif any(isinstance(item, Gap) and not item.certain for item in found):
        gaps = [gap for gap in gaps if not gap.certain]
    for gap in gaps:
        verdict = Verdict.BROKEN if gap.certain and not definitions else Verdict.UNKNOWN
        expected = "source to read" if gap.bound else "a definition"
        if definitions:
            expected = "a definition that nothing replaces" if gap.again else "a definition in every branch"
        yield Finding(verdict, symbol.path, expected, gap.found + _nearest(gap.missing, gap.candidates), gap.where)


def _looks_inside(symbol: Symbol) -> bool:
    return bool(symbol.parameters is not None or symbol.calls or symbol.attributes or symbol.fingerprints)


def _nearest(missing: str, candidates: Iterable[str]) -> str:
    if not missing:
        return ""
    import difflib  # only where something is gone

    near = difflib.get_close_matches(missing, sorted(candidates), n=3, cutoff=0.6)
    return f"; the nearest names are {', '.join(near)}" if near else ""


def _parameters(symbol: Symbol, expected: tuple[str, ...], definitions: Sequence[Definition]) -> Iterator[Finding]:
    findings: list[Finding | None] = []
    for definition in definitions:
        function = _function_of(definition)
        if function is None:
            verdict, text = _instead_of_function(definition)
        else:
            parameters = parameters_of(function.args)
            verdict, text = Verdict.BROKEN, _listed(parameters)
            if parameters == expected:
                findings.append(None)
                continue
        if len(definitions) > 1:
            text += f" in one of {len(definitions)} definitions"
        findings.append(Finding(verdict, symbol.path, f"the parameters {_listed(expected)}", text, definition.where))
    overloads = all(definition.binding is not None and definition.binding.overload for definition in definitions)
    if not (overloads and None in findings):
        yield from (finding for finding in findings if finding is not None)


def _listed(parameters: Iterable[str]) -> str:
    return f"({', '.join(parameters)})"


def _function_of(definition: Definition) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None:
    if definition.binding is None or _is_property(definition):
        return None
    node = definition.binding.value if definition.kind is Kind.VALUE else definition.binding.nodes[0]
    return node if isinstance(node, _FUNCTIONS) else None


def _is_property(definition: Definition) -> bool:
    """Tell ``@property``, ``@cached_property`` and their kind, and ``x = property(…)``."""
    binding = definition.binding
    if binding is None:
        return False
    first = binding.nodes[0]
    makers: list[ast.expr] = []
    if isinstance(first, (ast.FunctionDef, ast.AsyncFunctionDef)):
        makers = first.decorator_list
    elif binding.value is not None:
        makers = [binding.value]
    called = [maker.func if isinstance(maker, ast.Call) else maker for maker in makers]
    return any(name.endswith("property") or name in _ACCESSORS for maker in called for name in dotted_name(maker)[-1:])


def _instead_of_function(definition: Definition) -> tuple[Verdict, str]:
    value = definition.binding.value if definition.binding is not None else None
    if _is_property(definition):
        return Verdict.BROKEN, "a property"
    if definition.kind is not Kind.VALUE:
        return Verdict.BROKEN, f"a {definition.kind.value}"
    if isinstance(value, ast.Constant):
        return Verdict.BROKEN, f"a constant ({type(value.value).__name__})"
    if isinstance(value, ast.Call):
        return Verdict.UNKNOWN, f"what a call of {'.'.join(dotted_name(value.func)) or 'something'} returns"
    return Verdict.UNKNOWN, "a value that only running the library makes"


def _calls(symbol: Symbol, definition: Definition) -> Iterator[Finding]:
    if not symbol.calls:
        return
    calls = calls_in(definition.nodes)
    for expected in symbol.calls:
        if expected.startswith("."):
            known = _as_attributes(calls.attributes, definition)
            is_there = expected[1:] in known
        elif "." in expected:
            is_there, known = expected in calls.dotted, calls.dotted
        else:
            is_there, known = expected in calls.through_globals, calls.through_globals
        if is_there:
            continue
        text = "no such call" + _nearest(expected.lstrip("."), known)
        if expected in calls.through_locals:
            line = calls.through_locals[expected]
            text = (
                f"a call of a local name {expected} (bound in line {line}), which a patch of the global doesn't reach"
            )
        yield Finding(Verdict.BROKEN, symbol.path, f"a call of {_call_text(expected)}", text, definition.where)


def _call_text(expected: str) -> str:
    if expected.startswith("."):
        return f"<…>{expected}"
    return expected if "." in expected else f"the global {expected}"


def _attributes(symbol: Symbol, definition: Definition) -> Iterator[Finding]:
    if not symbol.attributes:
        return
    mentioned = _as_attributes(attributes_in(definition.nodes), definition)
    for name in symbol.attributes:
        if name not in mentioned:
            text = "no mention of it" + _nearest(name, mentioned)
            yield Finding(Verdict.BROKEN, symbol.path, f"the attribute {name} in its body", text, definition.where)


def _as_attributes(names: set[str], definition: Definition) -> set[str]:
    """Return the names in the body of a method, private ones also as the attributes that Python makes of them."""
    owner = definition.path.partition(":")[2].split(".")[-2:-1]
    return names | {mangled(name, owner[0]) for name in names} if owner else names


def _fingerprints(symbol: Symbol, bodies: Sequence[Definition]) -> Iterator[Finding]:
    known = {known.digest for known in symbol.fingerprints}
    digests = [fingerprint(*definition.nodes) for definition in bodies]
    opaque = [body for body in bodies if _is_opaque(body)] if len(bodies) > 1 else []
    for body in opaque:
        text = "a value that only running the library makes, in one of several definitions"
        yield Finding(Verdict.UNKNOWN, symbol.path, "a body to read", text, body.where)
    if not known.intersection(digests):
        found = ", ".join(dict.fromkeys(digests))
        yield Finding(Verdict.CHANGED, symbol.path, _proven(symbol.fingerprints), f"the body {found}", bodies[0].where)


def _is_opaque(definition: Definition) -> bool:
    """Tell what a loop, a pattern, a walrus and their kind bind: nothing in the source is its body."""
    binding = definition.binding
    if binding is None or binding.kind is not Kind.VALUE or binding.value is not None:
        return False
    return not isinstance(binding.nodes[0], (ast.Assign, ast.AnnAssign))


def _proven(fingerprints: Sequence[Fingerprint]) -> str:
    if len(fingerprints) == 1:
        return f"the body {_with_releases(fingerprints[0])}"
    return "one of the bodies " + ", ".join(_with_releases(known) for known in fingerprints)


def _with_releases(known: Fingerprint) -> str:
    if not known.releases:
        return known.digest
    span = known.releases[0] if len(known.releases) == 1 else f"{known.releases[0]} to {known.releases[-1]}"
    return f"{known.digest} (of {span})"
