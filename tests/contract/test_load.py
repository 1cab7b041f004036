"""Contracts as TOML."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

import pytest

from patchkit.contract import Contract, Fingerprint, Symbol, load_contracts
from patchkit.errors import RegistrationError

DIGEST = "n1:0123456789abcdef0123456789abcdef"

GOOD = f"""
[symbols."lib.engine:Handle.shard"]
parameters = ["self", "*", "wait="]
calls = [".copy_"]
attributes = ["_local"]
fingerprints = [
    {{ digest = "{DIGEST}", releases = ["1.0", "1.1"], proof = "probe" }},
]

[symbols."lib.engine:finish"]

[patches."lib.first"]
requires = ["lib>=1.0,<2", "other"]
until = ["lib>=1.9"]

[patches."lib.first".sites]
"lib.engine:Handle.shard" = "it keeps two copies"

[patches."lib.first".relies]
"lib.engine:finish" = "it runs after each shard"

[patches."lib.second".relies]
"lib.engine:Handle.shard" = "another reason"
"""


def write(folder: Path, content: str) -> Path:
    path = folder / "contracts.toml"
    path.write_text(content, encoding="utf-8")
    return path


def test_contracts(tmp_path: Path) -> None:
    """Patches share the facts of a symbol, and each has its own role and reason for it."""
    shard = Symbol(
        "lib.engine:Handle.shard",
        parameters=("self", "*", "wait="),
        calls=(".copy_",),
        attributes=("_local",),
        role="site",
        why="it keeps two copies",
        fingerprints=(Fingerprint(DIGEST, ("1.0", "1.1"), "probe"),),
    )
    finish = Symbol("lib.engine:finish", why="it runs after each shard")
    contracts = load_contracts(write(tmp_path, GOOD))
    assert list(contracts) == ["lib.first", "lib.second"]
    assert contracts["lib.first"] == Contract(("lib>=1.0,<2", "other"), (shard, finish), ("lib>=1.9",))
    (relied,) = contracts["lib.second"].symbols
    assert (relied.path, relied.role, relied.why) == (shard.path, "relies", "another reason")
    assert relied.fingerprints == shard.fingerprints


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("[patchs]", ["patchs: expected one of symbols, patches, found 'patchs'"]),
        ("symbols = 1", ["symbols: expected a table, found 1"]),
        ("[patches]\nx = 1", ['patches."x": expected a table, found 1']),
        (
            '[patches."x"]\nrequire = []',
            ["patches.\"x\".require: expected one of requires, until, sites, relies, found 'require'"],
        ),
        (
            '[patches."x"]\nrequires = "lib>=1"',
            ["patches.\"x\".requires: expected a list of strings, found 'lib>=1'"],
        ),
        (
            '[patches."x"]\nuntil = ["lib>>1"]',
            [
                (
                    "patches.\"x\".until: requirement 'lib>>1': expected a distribution and specifiers, such as "
                    "'torch>=2.1,<2.16'"
                )
            ],
        ),
        (
            '[patches."x".sites]\n"lib:f" = "why"',
            ['patches."x".sites."lib:f": expected a table [symbols."lib:f"], found none'],
        ),
        (
            '[symbols."lib:f"]\n[patches."x".sites]\n"lib:f" = 1',
            ['patches."x".sites."lib:f": expected the reason, a string, found 1'],
        ),
        (
            '[symbols."lib:f"]\n[patches."x"]\nsites = { "lib:f" = "a" }\nrelies = { "lib:f" = "b" }',
            ['patches."x".relies."lib:f": expected the symbol in either sites or relies, found \'both\''],
        ),
        ('[patches."x"]\nsites = ["lib:f"]', ["patches.\"x\".sites: expected a table, found ['lib:f']"]),
        (
            '[symbols."lib:f"]',
            ['symbols."lib:f": expected a patch that names this symbol in its sites or relies, found none'],
        ),
        (
            '[symbols."lib:f"]\nparams = []\n[patches."x".sites]\n"lib:f" = "a"',
            ["symbols.\"lib:f\".params: expected one of parameters, calls, attributes, fingerprints, found 'params'"],
        ),
        (
            '[symbols."lib f"]\ncalls = [1]\n[patches."x".sites]\n"lib f" = "a"',
            [
                'symbols."lib f".calls: expected a list of strings, found [1]',
                "symbols.\"lib f\": symbol 'lib f': expected 'package.module:Class.attr' or 'package.module'",
            ],
        ),
        (
            '[symbols."lib:f"]\nfingerprints = ["n1"]\n[patches."x".sites]\n"lib:f" = "a"',
            ["symbols.\"lib:f\".fingerprints: expected a list of tables, found ['n1']"],
        ),
        (
            (
                '[symbols."lib:f"]\nfingerprints = [{ digest = "n1", releases = ["1"], proof = "probe" }]\n'
                '[patches."x".sites]\n"lib:f" = "a"'
            ),
            [
                "symbols.\"lib:f\".fingerprints[0]: fingerprint 'n1': expected 'n1:' and 32 hexadecimal digits",
            ],
        ),
        (
            (
                f'[symbols."lib:f"]\nfingerprints = [{{ digest = "{DIGEST}" }}, {{ digest = "{DIGEST}", '
                'proof = "probe", date = 1 }]\n[patches."x".sites]\n"lib:f" = "a"'
            ),
            [
                'symbols."lib:f".fingerprints[0].proof: expected a string, found none',
                "symbols.\"lib:f\".fingerprints[1].date: expected one of digest, releases, proof, found 'date'",
                'symbols."lib:f".fingerprints[1].releases: expected the releases that have this body, found none',
            ],
        ),
    ],
)
def test_faults(tmp_path: Path, content: str, lines: list[str]) -> None:
    """Every fault is one line with the file and the key; all of them are reported at once."""
    path = write(tmp_path, content)
    with pytest.raises(RegistrationError) as caught:
        load_contracts(path)
    assert caught.value.message.splitlines() == [f"{path}: {line}" for line in lines]


def test_not_toml(tmp_path: Path) -> None:
    """A file that isn't TOML is said to be none, with the line."""
    path = write(tmp_path, "[symbols\n")
    with pytest.raises(RegistrationError, match=r"expected a TOML file, found none: .*line 1"):
        load_contracts(path)
    path.write_bytes(b"\xff")
    with pytest.raises(RegistrationError, match="expected a TOML file, found none: 'utf-8' codec"):
        load_contracts(path)


def test_missing_file(tmp_path: Path) -> None:
    """A file that isn't there is named."""
    path = tmp_path / "gone.toml"
    with pytest.raises(RegistrationError) as caught:
        load_contracts(path)
    assert caught.value.message == (f"{path}: expected a file with contracts, found none: No such file or directory")


def test_read_once_until_it_changes(tmp_path: Path) -> None:
    """The same file gives the same contracts without being parsed again, and a changed one new ones."""
    path = write(tmp_path, GOOD)
    first, second = load_contracts(path), load_contracts(str(path))
    assert first is not second
    assert first["lib.first"] is second["lib.first"]
    write(tmp_path, GOOD.replace("two copies", "one copies"))
    os.utime(path, ns=(1, 1))
    assert load_contracts(path)["lib.first"].symbols[0].why == "it keeps one copies"


def test_what_is_returned_is_the_callers(tmp_path: Path) -> None:
    """Changing the mapping that was returned doesn't change what the next caller gets."""
    path = write(tmp_path, GOOD)
    load_contracts(path).clear()
    assert list(load_contracts(path)) == ["lib.first", "lib.second"]


def test_resource_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resource of a package can be read, whether or not it is a file of its own."""

    class Resource:
        def read_bytes(self) -> bytes:
            return GOOD.encode()

        def __str__(self) -> str:
            return "archive.zip/contracts.toml"

    assert list(load_contracts(Resource())) == ["lib.first", "lib.second"]
    (tmp_path / "resource_package").mkdir()
    (tmp_path / "resource_package" / "__init__.py").touch()
    write(tmp_path / "resource_package", GOOD)
    monkeypatch.syspath_prepend(tmp_path)
    assert list(load_contracts(files("resource_package") / "contracts.toml")) == ["lib.first", "lib.second"]
