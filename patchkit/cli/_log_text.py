"""The audit log as text: a block for each transaction, a line for each entry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..audit import Entry, printable
from ..report import Cell, Colour, Style, aligned, colour_of
from ._history import Block

__all__ = ["history_text"]

# What the columns and the head of a block show.
_SHOWN_ELSEWHERE = frozenset({"v", "seq", "ts", "event", "tx", "patch", "on"})
# What a list of an entry shows in lines of its own.
_LISTS = ("findings", "changes", "sites", "aliases", "stranded")
# Facts of little use to a reader of the table; --format json has them all.
_LEFT_OUT = frozenset({"requires", "source", "modules", "policy", "before", "after", "sha256"})
# Fields whose values speak for themselves.
_NAMELESS = frozenset({"verdict", "outcome", "reason", "site"})


def history_text(blocks: Iterable[Block], style: Style) -> str:
    """Return the blocks as text; whatever the log holds, it can't play tricks on a terminal."""
    return "\n".join("".join(f"{line}\n" for line in _block(block, style)) for block in blocks)


def _block(block: Block, style: Style) -> Iterator[str]:
    yield from _head(block, style)
    rows = [_row(entry) for entry in block.entries]
    for entry, line in zip(block.entries, aligned(rows, style, indent="  "), strict=True):
        yield line
        yield from (f"      {printable(text)}" for text in _listed(entry.fields))


def _head(block: Block, style: Style) -> Iterator[str]:
    if block.tx is None:
        yield style.paint("outside of a transaction", Colour.STRONG)
        return
    outcome = style.paint(printable(block.outcome), colour_of(block.outcome))
    because = (
        ": it has no end on the log, so its process died in it or is still in it" if block.outcome == "open" else ""
    )
    yield f"{style.paint(f'{block.kind} {printable(block.tx)}', Colour.STRONG)} {outcome}{because}"
    if block.opening is None:
        yield "  its beginning is not on the log"
    else:
        yield from (f"  {printable(line)}" for line in _origin(block.opening.fields))


def _origin(fields: Mapping[str, Any]) -> Iterator[str]:
    who = f"by {fields.get('user')} on {fields.get('host')}, process {fields.get('pid')}"
    if "rank" in fields:
        who += f", rank {fields['rank']} of {fields.get('world_size')}"
    yield who
    libraries = fields.get("libraries")
    versions = {"patchkit": fields.get("patchkit"), "Python": fields.get("python")}
    versions.update(libraries if isinstance(libraries, dict) else {})
    yield "under " + ", ".join(f"{name} {version}" for name, version in versions.items())
    manifest = fields.get("manifest")
    if isinstance(manifest, dict):
        yield f"manifest {manifest.get('path') or '(given as an object)'}"
    if "applied" in fields:
        yield f"of what apply {fields['applied']} had installed"
    if "action" in fields:
        yield f"action {fields['action']}"
        return
    patches = fields.get("patches")
    yield f"patches {', '.join(map(str, patches)) if isinstance(patches, list) and patches else '(none)'}"
    switches = fields.get("switches")
    if isinstance(switches, dict):
        yield "switches " + ", ".join(f"{name}={value}" for name, value in switches.items())


def _row(entry: Entry) -> tuple[Cell, ...]:
    name, on = entry.fields.get("patch"), entry.fields.get("on")
    label = f"{name} on {on}" if on else f"{name or ''}"
    opens = entry.event.endswith(".started")
    detail = "" if opens else "; ".join(_details(entry.fields))
    event = entry.event.partition(".")[2]
    return (
        Cell(printable(entry.ts), Colour.FAINT),
        Cell(printable(entry.event), colour_of(event)),
        Cell(printable(label)),
        Cell(printable(detail)),
    )


def _details(fields: Mapping[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        if name in _SHOWN_ELSEWHERE or name in _LEFT_OUT or name in _LISTS:
            continue
        if name in _NAMELESS:
            yield str(value)
        elif name == "error" and isinstance(value, dict):
            yield f"{value.get('type')}: {value.get('message')}"
        elif name == "duration_us":
            yield f"{value} us"
        elif name == "applied":
            yield f"of apply {value}"
        else:
            yield f"{name} {value}"


def _listed(fields: Mapping[str, Any]) -> Iterator[str]:
    for name in _LISTS:
        value = fields.get(name)
        for item in value if isinstance(value, list) else ():
            yield _item(name, item) if isinstance(item, dict) else f"{name} {item}"


def _item(name: str, item: Mapping[str, Any]) -> str:
    if name == "findings":
        where = f" ({item['where']})" if item.get("where") else ""
        return f"{item.get('symbol') or 'library'}: expected {item.get('expected')}, found {item.get('found')}{where}"
    count = item.get("count")
    several = f" and {count - 1} more" if isinstance(count, int) and count > 1 else ""
    return f"{item.get('site')}{several}: {_thing(item.get('before'))} -> {_thing(item.get('after'))}"


def _thing(described: object) -> str:
    if not isinstance(described, dict):
        return "nothing" if described is None else str(described)
    name = ".".join(str(part) for part in (described.get("module"), described.get("qualname")) if part)
    return f"{described.get('kind')} {name}"
