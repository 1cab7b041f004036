"""The shape of the package: its public names, what importing it costs, and the house rules that a linter can't see."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import patchkit

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "patchkit"
MODULES = sorted(PACKAGE.rglob("*.py"))
MODULE_NAMES = [path.relative_to(ROOT).as_posix() for path in MODULES]
MAX_LINES = 330

PUBLIC_NAMES = [
    "Applied",
    "Context",
    "Contract",
    "Fingerprint",
    "Manifest",
    "Patch",
    "PatchOptions",
    "PatchStatus",
    "PatchkitError",
    "Plan",
    "Probe",
    "Report",
    "Symbol",
    "__version__",
    "apply",
    "errors",
    "load_contracts",
    "load_manifest",
    "plan",
    "register",
    "replace",
    "wrap",
]


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imported_names(tree: ast.Module) -> Iterator[str]:
    """Yield the absolute names that a module imports, wherever in it the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""


def run_fresh(code: str) -> str:
    """Run code in an interpreter of its own, and return what it printed."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_public_names() -> None:
    """The facade offers exactly these names, sorted; a new one is a decision, not an accident."""
    assert patchkit.__all__ == PUBLIC_NAMES == sorted(PUBLIC_NAMES)


def test_public_names_resolve() -> None:
    """Every public name leads to an object, also those that are imported on first use, and ``dir`` shows them all."""
    missing = [name for name in patchkit.__all__ if not hasattr(patchkit, name)]
    assert missing == []
    assert set(patchkit.__all__) <= set(dir(patchkit))


def test_type_checkers_see_the_public_names() -> None:
    """What the facade declares to type checkers is what it offers at run time."""
    declared = [
        node for branch in tree_of(PACKAGE / "__init__.py").body if isinstance(branch, ast.If) for node in branch.body
    ]
    names = [alias.asname for node in declared if isinstance(node, ast.ImportFrom) for alias in node.names]
    names += [
        node.target.id for node in declared if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    assert sorted(map(str, names)) == PUBLIC_NAMES


def test_unknown_name_is_an_attribute_error() -> None:
    """The lazy facade fails for an unknown name as any module does."""
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = patchkit.no_such_name


def test_import_is_light() -> None:
    """Importing patchkit imports none of the heavy libraries that it may use later."""
    heavy = ["torch", "pydantic", "structlog"]
    code = f"import sys, patchkit; print([name for name in {heavy!r} if name in sys.modules])"
    assert run_fresh(code).strip() == "[]"


@pytest.mark.parametrize("path", MODULES, ids=MODULE_NAMES)
def test_module_follows_the_house_rules(path: Path) -> None:
    """A module says what it is for, defers its annotations, fits on a few screens and names its siblings relatively."""
    text = path.read_text(encoding="utf-8")
    tree = tree_of(path)
    futures = [
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
        for alias in node.names
    ]
    from_root = [name for name in imported_names(tree) if name.split(".")[0] == "patchkit"]

    assert ast.get_docstring(tree), "expected a docstring"
    assert "annotations" in futures
    assert from_root == []
    assert len(text.splitlines()) <= MAX_LINES


@pytest.mark.parametrize("path", MODULES, ids=MODULE_NAMES)
def test_module_does_not_reach_for_the_package_root(path: Path) -> None:
    """No module imports the facade by a relative path either (``from . import apply``), which would be a circle."""
    package = path.parent.relative_to(ROOT).parts
    siblings = {found.stem for found in PACKAGE.iterdir() if found.suffix == ".py" or found.is_dir()}
    from_facade = [
        alias.name
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.module is None and node.level == len(package)
        for alias in node.names
        if alias.name not in siblings
    ]
    assert from_facade == []


def test_every_test_states_a_behaviour() -> None:
    """Each test has a docstring that says which behaviour it stands for."""
    silent = [
        f"{path.relative_to(ROOT).as_posix()}:{node.lineno} {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef) and re.match(r"test_|test$", node.name) and not ast.get_docstring(node)
    ]
    assert silent == []
