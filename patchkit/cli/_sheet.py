"""The data sheet of a patch: what ``show`` shows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, get_args

from pydantic_core import to_jsonable_python

from .. import contract
from ..audit import printable
from ..contract import Symbol
from ..patch import Patch
from ..report import Cell, Colour, Finding, PatchResult, Style, aligned

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

__all__ = ["facts", "sheet"]

_ROLES = {"site": "sites", "relies": "relies on"}


def facts(patch: Patch) -> dict[str, Any]:
    """Return what a patch says about itself, in a form that JSON can hold."""
    needs = patch.contract
    return {
        "defined_in": _home(patch),
        "why": patch.why,
        "how": patch.how,
        "upstream": patch.upstream or None,
        "until": patch.until,
        "resources": list(patch.resources),
        "after": list(patch.after),
        "conflicts": list(patch.conflicts),
        "priority": patch.priority,
        "probe_target": patch.probe.target if patch.probe else None,
        "probe_ranks": patch.probe.ranks if patch.probe else None,
        "requires": list(needs.requires),
        "retired_by": list(needs.until),
        "symbols": [_symbol_facts(symbol) for symbol in needs.symbols],
        "options": [_option_facts(name, field) for name, field in patch.Options.model_fields.items()],
    }


def sheet(patch: Patch, result: PatchResult, style: Style) -> str:
    """Return what a patch says about itself, and what its contract came to, as text."""
    blocks = [
        [style.paint(patch.name, Colour.STRONG), style.prose(patch.summary, "  ")],
        *_prose(patch, style),
        _in_short(patch, result, style),
        _section("options", _options(patch, style), style),
    ]
    for role, title in _ROLES.items():
        symbols = [symbol for symbol in patch.contract.symbols if symbol.role == role]
        blocks.append(_section(title, [line for symbol in symbols for line in _symbol(symbol, style)], style))
    return "\n".join("".join(f"{line}\n" for line in block) for block in blocks)


def _prose(patch: Patch, style: Style) -> Iterator[list[str]]:
    texts = {"why": patch.why, "how": patch.how, "upstream": patch.upstream, "until": patch.until}
    for title, text in texts.items():
        if text.strip():
            yield _section(title, [style.prose(text, "  ")], style)


def _section(title: str, lines: Iterable[str], style: Style) -> list[str]:
    return [style.paint(title, Colour.STRONG), *(list(lines) or ["  (none)"])]


def _in_short(patch: Patch, result: PatchResult, style: Style) -> list[str]:
    judgement = result.judgement
    verdict = judgement.verdict.value if judgement else "error"
    rows = [
        ("verdict", Cell.word(verdict)),
        *(("", Cell(_found(finding))) for finding in result.findings),
        *(("", Cell(_remark(remark))) for remark in (judgement.remarks if judgement else ())),
        ("libraries", Cell(_listed(str(found) for found in (judgement.versions if judgement else ())))),
        ("requires", Cell(_listed(patch.contract.requires))),
        ("retired by", Cell(_listed(patch.contract.until))),
        ("resources", Cell(_listed(patch.resources))),
        ("after", Cell(_listed(patch.after))),
        ("conflicts", Cell(_listed(patch.conflicts))),
        ("probe", Cell(_probe(patch))),
        ("defined in", Cell(_home(patch))),
    ]
    return aligned(((Cell(title, Colour.STRONG if title else None), cell) for title, cell in rows), style)


def _found(finding: Finding) -> str:
    return printable(f"{finding.code} {finding.message}")


def _remark(remark: contract.Finding) -> str:
    where = f" ({remark.where})" if remark.where else ""
    return printable(f"remark: {remark.symbol or 'library'}: found {remark.found}{where}")


def _probe(patch: Patch) -> str:
    if patch.probe is None:
        return "(none)"
    return f"{patch.probe.target} in {patch.probe.ranks} process{'es' if patch.probe.ranks > 1 else ''}"


def _home(patch: Patch) -> str:
    return f"{type(patch).__module__}:{type(patch).__qualname__}"


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(texts) or "(none)"


def _options(patch: Patch, style: Style) -> list[str]:
    rows = [
        (Cell(option["name"]), Cell(option["type"]), Cell(_default(option)), Cell(option["description"] or ""))
        for option in (_option_facts(name, field) for name, field in patch.Options.model_fields.items())
    ]
    return aligned(rows, style, indent="  ") if rows else []


def _default(option: dict[str, Any]) -> str:
    return (
        "required"
        if option["required"]
        else f"default {json.dumps(option['default'], ensure_ascii=False, default=repr)}"
    )


def _option_facts(name: str, field: FieldInfo) -> dict[str, Any]:
    required = field.is_required()
    default = None if required else field.get_default(call_default_factory=True)
    return {
        "name": field.alias or name,
        "type": _type_name(field.annotation),
        "required": required,
        "default": to_jsonable_python(default, fallback=repr),
        "description": field.description,
    }


def _type_name(annotation: Any) -> str:
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def _symbol(symbol: Symbol, style: Style) -> Iterator[str]:
    yield f"  {symbol.path}"
    if symbol.why:
        yield style.prose(symbol.why, "      ")
    needs = {
        "parameters": None if symbol.parameters is None else f"({', '.join(symbol.parameters)})",
        "calls": ", ".join(symbol.calls),
        "attributes": ", ".join(symbol.attributes),
    }
    yield from (f"      {title} {text}" for title, text in needs.items() if text)
    for known in symbol.fingerprints:
        yield f"      fingerprint {known.digest} ({known.proof}) {', '.join(known.releases)}".rstrip()


def _symbol_facts(symbol: Symbol) -> dict[str, Any]:
    return {
        "path": symbol.path,
        "role": symbol.role,
        "why": symbol.why or None,
        "parameters": None if symbol.parameters is None else list(symbol.parameters),
        "calls": list(symbol.calls),
        "attributes": list(symbol.attributes),
        "fingerprints": [
            {"digest": known.digest, "releases": list(known.releases), "proof": known.proof}
            for known in symbol.fingerprints
        ],
    }
