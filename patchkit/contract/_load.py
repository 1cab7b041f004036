"""Contracts written down as data: the facts about each symbol once, and who relies on them.

::

    [symbols."torch.distributed.fsdp._flat_param:FlatParamHandle.init_flat_param_attributes"]
    parameters = ["self"]
    attributes = ["_local_shard", "_cpu_grad"]
    fingerprints = [
        { digest = "n1:0123456789abcdef0123456789abcdef", releases = ["2.13.0"], proof = "probe" },
    ]

    [patches."fsdp1.pageable-params"]
    requires = ["torch>=2.1,<2.16"]

    [patches."fsdp1.pageable-params".sites]
    "torch.distributed.fsdp._flat_param:FlatParamHandle.init_flat_param_attributes" = "it pins the local shard"

Beside ``sites`` a patch has ``relies``, of the same form, and ``until``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, Protocol, TypeVar

from ..errors import RegistrationError
from ._model import Contract, Fingerprint, Symbol
from ._version import parse_requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["load_contracts"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_ROLES = {"sites": "site", "relies": "relies"}


class _Readable(Protocol):
    """What a path and a resource of a package have in common."""

    def read_bytes(self) -> bytes: ...


_LOADED: dict[str, tuple[tuple[int, int], dict[str, Contract]]] = {}


def load_contracts(path: str | os.PathLike[str] | _Readable) -> dict[str, Contract]:
    """Read the contracts of a TOML file, by the names of the patches that have them.

    The module's docstring shows the form. A file is read again only after it has changed.

    Args:
        path: A path, or anything with ``read_bytes``, such as a resource of a package.

    Raises:
        RegistrationError: The file can't be read, isn't TOML, or has an unknown key, a wrong type, a symbol that no
            patch needs or that isn't described. All faults are reported together, one a line.
    """
    if not isinstance(path, (str, os.PathLike)):
        return _parse(str(path), path.read_bytes())
    name = os.fspath(path)
    try:
        status = os.stat(name)
        stamp = (status.st_mtime_ns, status.st_size)
        known = _LOADED.get(name)
        if known is None or known[0] != stamp:
            with open(name, "rb") as file:
                known = (stamp, _parse(name, file.read()))
            _LOADED[name] = known
    except OSError as error:
        raise RegistrationError(f"{name}: expected a file with contracts, found none: {error.strerror}") from None
    return dict(known[1])


def _parse(name: str, content: bytes) -> dict[str, Contract]:
    try:
        data = tomllib.loads(content.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RegistrationError(f"{name}: expected a TOML file, found none: {error}") from None
    reader = _Reader(name)
    contracts = reader.contracts(data)
    if reader.faults:
        raise RegistrationError("\n".join(reader.faults))
    return contracts


class _Reader:
    """Reads one file and collects every fault of it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.faults: list[str] = []

    def contracts(self, data: Mapping[str, Any]) -> dict[str, Contract]:
        self._only(data, "", ("symbols", "patches"))
        facts = {
            path: self._symbol(f'symbols."{path}"', path, table)
            for path, table in self._tables(data, "", "symbols").items()
        }
        needed: set[str] = set()
        contracts = {
            patch: self._contract(f'patches."{patch}"', table, facts, needed)
            for patch, table in self._tables(data, "", "patches").items()
        }
        for path in facts:
            if path not in needed:
                self._fault(f'symbols."{path}"', "a patch that names this symbol in its sites or relies", None)
        return contracts

    def _symbol(self, key: str, path: str, table: Mapping[str, Any]) -> Symbol | None:
        self._only(table, key, ("parameters", "calls", "attributes", "fingerprints"))
        entries = self._list(table, key, "fingerprints", dict)
        fingerprints = [self._fingerprint(f"{key}.fingerprints[{index}]", entry) for index, entry in enumerate(entries)]
        return self._made(
            key,
            Symbol,
            path,
            parameters=self._list(table, key, "parameters", str) if "parameters" in table else None,
            calls=self._list(table, key, "calls", str),
            attributes=self._list(table, key, "attributes", str),
            fingerprints=tuple(fingerprint for fingerprint in fingerprints if fingerprint is not None),
        )

    def _fingerprint(self, key: str, table: Mapping[str, Any]) -> Fingerprint | None:
        self._only(table, key, ("digest", "releases", "proof"))
        for name in ("digest", "proof"):
            if not isinstance(table.get(name), str):
                self._fault(f"{key}.{name}", "a string", table.get(name))
                return None
        if not table.get("releases"):
            self._fault(f"{key}.releases", "the releases that have this body", table.get("releases"))
        releases = self._list(table, key, "releases", str)
        return self._made(key, Fingerprint, table["digest"], releases=releases, proof=table["proof"])

    def _contract(
        self, key: str, table: Mapping[str, Any], facts: Mapping[str, Symbol | None], needed: set[str]
    ) -> Contract:
        self._only(table, key, ("requires", "until", *_ROLES))
        symbols: list[Symbol] = []
        named: set[str] = set()
        for name, role in _ROLES.items():
            for path, why in self._table(table, key, name).items():
                inner = f'{key}.{name}."{path}"'
                if not isinstance(why, str):
                    self._fault(inner, "the reason, a string", why)
                elif path in named:
                    self._fault(inner, "the symbol in either sites or relies", "both")
                elif path not in facts:
                    self._fault(inner, f'a table [symbols."{path}"]', None)
                else:
                    symbol = facts[path]
                    if symbol is not None:
                        symbols.append(replace(symbol, role=role, why=why))
                needed.add(path)
                named.add(path)
        return Contract(
            requires=self._requirements(table, key, "requires"),
            symbols=tuple(symbols),
            until=self._requirements(table, key, "until"),
        )

    def _requirements(self, table: Mapping[str, Any], key: str, name: str) -> tuple[str, ...]:
        texts = self._list(table, key, name, str)
        for text in texts:
            self._made(f"{key}.{name}", parse_requirement, text)
        return texts

    def _made(self, key: str, make: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T | None:
        """Make a fact; what its class has against it is a fault here."""
        try:
            return make(*args, **kwargs)
        except RegistrationError as error:
            self.faults.append(f"{self._name}: {key}: {error.message}")
            return None

    def _only(self, table: Mapping[str, Any], key: str, known: Sequence[str]) -> None:
        for name in table:
            if name not in known:
                self._fault(f"{key}.{name}".lstrip("."), f"one of {', '.join(known)}", name)

    def _tables(self, table: Mapping[str, Any], key: str, name: str) -> dict[str, Mapping[str, Any]]:
        tables = self._table(table, key, name)
        for inner, value in tables.items():
            if not isinstance(value, dict):
                self._fault(f'{name}."{inner}"', "a table", value)
        return {inner: value for inner, value in tables.items() if isinstance(value, dict)}

    def _table(self, table: Mapping[str, Any], key: str, name: str) -> Mapping[str, Any]:
        value = table.get(name, {})
        if isinstance(value, dict):
            return value
        self._fault(f"{key}.{name}".lstrip("."), "a table", value)
        return {}

    def _list(self, table: Mapping[str, Any], key: str, name: str, kind: type[_T]) -> tuple[_T, ...]:
        value = table.get(name, [])
        if isinstance(value, list) and all(isinstance(item, kind) for item in value):
            return tuple(value)
        self._fault(f"{key}.{name}", f"a list of {'strings' if kind is str else 'tables'}", value)
        return ()

    def _fault(self, key: str, expected: str, found: object) -> None:
        shown = "none" if found is None else repr(found)
        self.faults.append(f"{self._name}: {key}: expected {expected}, found {shown}")
