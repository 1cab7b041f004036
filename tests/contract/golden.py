"""The golden fingerprints: those of ``nasty.py.txt``, which every supported Python must arrive at.

``python -m tests.contract.golden`` writes them anew, after a new normal form. What was recorded in contracts by the old
one is worthless then, so think twice.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

from patchkit.contract import fingerprint
from patchkit.contract._source import parse_source

__all__ = ["current", "recorded", "source"]

_FOLDER = Path(__file__).parent
_RECORDED = _FOLDER / "golden_fingerprints.json"


def source() -> ast.Module:
    """Parse the source."""
    return parse_source((_FOLDER / "nasty.py.txt").read_bytes())


def recorded() -> dict[str, str]:
    """Return the golden fingerprints."""
    fingerprints: dict[str, str] = json.loads(_RECORDED.read_text(encoding="utf-8"))
    return fingerprints


def current() -> dict[str, str]:
    """Return the fingerprints that this Python arrives at, of the module and of every statement, nested ones too."""
    tree = source()
    return {"(module)": fingerprint(tree), **dict(_statements(tree, ""))}


def _statements(node: ast.AST, prefix: str) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.stmt, ast.match_case, ast.ExceptHandler)):
            line = getattr(child, "lineno", 0)
            name = f"{prefix}{getattr(child, 'name', None) or type(child).__name__}"
            yield f"{line:03}.{getattr(child, 'col_offset', 0)} {name}", fingerprint(child)
            yield from _statements(child, f"{name}.")


if __name__ == "__main__":
    _RECORDED.write_text(json.dumps(current(), indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
