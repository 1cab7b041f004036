"""Where the source of a library comes from. Nothing here runs or imports any of it.

The judge knows only :class:`Source`: a release in a wheel or in an index is another class with the same four members.
"""

from __future__ import annotations

import abc
import ast
import importlib.util
import os
import sys
import threading
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ._bindings import Names, bind
from ._files import Place, children, find_module, find_top
from ._rebound import Rebinding, bound_again

__all__ = [
    "MAX_SOURCE_BYTES",
    "DirectorySource",
    "FileSource",
    "Source",
    "SourceFile",
    "parse_source",
    "recorded_version",
]

MAX_SOURCE_BYTES = 8_000_000
"""A larger file isn't read: nobody writes such a module, and parsing takes a hundred times its size."""


@dataclass(slots=True)
class SourceFile:
    """One module of a library, read and parsed.

    Attributes:
        name: Dotted name of the module.
        path: Path relative to the root of the distribution, with forward slashes; what findings show.
        tree: Its syntax tree; ``None`` where there is none, and then ``problem`` says why.
        is_package: Whether it can have submodules.
        is_stub: Whether the tree is that of a ``.pyi`` file: names and parameters, no bodies.
        compiled: Path of the compiled module that is what gets imported; empty for Python source.
        problem: Why there is no tree.
    """

    name: str
    path: str
    tree: ast.Module | None
    is_package: bool = False
    is_stub: bool = False
    compiled: str = ""
    problem: str = ""
    _names: Names | None = field(default=None, repr=False, compare=False)
    _again: dict[tuple[str, ...], list[Rebinding]] | None = field(default=None, repr=False, compare=False)

    @property
    def names(self) -> Names:
        """What the module binds; computed once, nothing if it has no tree."""
        if self._names is None:
            package = self.name if self.is_package else self.name.rpartition(".")[0]
            body = self.tree.body if self.tree is not None else ()
            self._names = bind(body, package=package, declarations=self.is_stub)
        return self._names

    def again(self, path: tuple[str, ...], after: int) -> Rebinding | None:
        """Return what binds ``path`` in another way than by a statement in order, later than line ``after``."""
        if self._again is None:
            self._again = bound_again(self.tree) if self.tree is not None else {}
        return next((item for item in self._again.get(path, ()) if item.later or item.line > after), None)

    def where(self, line: int) -> str:
        return f"{self.path}:{line}" if line else self.path


class Source(Protocol):
    """What the judge asks of a library. Implementations read each file once and may be used from several threads."""

    @property
    def label(self) -> str:
        """What was read, for people: ``installed``, a folder, a release."""

    def version(self, distribution: str) -> str | None:
        """Return the version of a distribution as its metadata have it; ``None`` if it isn't there."""

    def module(self, name: str) -> SourceFile | None:
        """Return a module; ``None`` if there is none of that dotted name."""

    def children(self, package: str) -> tuple[str, ...]:
        """Return the names of the modules directly inside ``package``, for naming the nearest ones."""


class FileSource(abc.ABC):
    """Modules found below top-level packages and kept for as long as their files don't change.

    A file is looked at again each time (its size and time of change) and read again only when those differ, so that a
    long-lived process notices a reinstalled library.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self._parsed: dict[tuple[str, str], tuple[tuple[int, int], SourceFile]] = {}

    def module(self, name: str) -> SourceFile | None:
        place = self._place(name)
        if place is None:
            return None
        if not place.path:
            return _unreadable(name, place)
        try:
            status = os.stat(place.path)
        except OSError:
            return None
        stamp = (status.st_mtime_ns, status.st_size)
        known = self._parsed.get((name, place.path))
        if known is not None and known[0] == stamp:
            return known[1]
        file = _read(name, place, status.st_size)
        self._parsed[name, place.path] = (stamp, file)
        return file

    def children(self, package: str) -> tuple[str, ...]:
        place = self._place(package)
        return children(place) if place is not None else ()

    def _place(self, name: str) -> Place | None:
        top, *inner = name.split(".")
        place = self._top(top)
        return find_module(inner, place) if place is not None else None

    @abc.abstractmethod
    def _top(self, name: str) -> Place | None:
        """Find a top-level module or package."""


class DirectorySource(FileSource):
    """A folder that holds packages: a ``site-packages``, an unpacked wheel, a source tree.

    Versions come from the ``*.dist-info`` (or ``*.egg-info``) folders in it.

    Args:
        root: The folder.
        label: What to call it; by default its path.
    """

    def __init__(self, root: str | os.PathLike[str], *, label: str | None = None) -> None:
        super().__init__(label if label is not None else os.fspath(root))
        self._root = os.path.abspath(root)

    def version(self, distribution: str) -> str | None:
        return recorded_version(distribution, [self._root])

    def _top(self, name: str) -> Place | None:
        return find_top(name, [self._root])


def parse_source(source: bytes) -> ast.Module:
    """Parse the source of a module, whatever encoding it declares, without the warnings that it may cause.

    Raises:
        SyntaxError: This Python can't parse or decode it.
    """
    # The parser warns of invalid escapes and the like; those are the library's, not for whoever judges it. The filters
    # belong to the process, hence the lock.
    with _quiet, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except (ValueError, RecursionError, MemoryError, OverflowError) as error:
            raise SyntaxError(f"{type(error).__name__}: {error}") from error


_quiet = threading.Lock()


def _read(name: str, place: Place, size: int) -> SourceFile:
    tree, problem = None, ""
    if size > MAX_SOURCE_BYTES:
        problem = f"a file of {size / 1e6:.1f} MB, more than the {MAX_SOURCE_BYTES / 1e6:.0f} MB that are read"
    else:
        try:
            data = Path(place.path).read_bytes()
            tree = parse_source(data)
        except OSError as error:
            problem = f"a file that can't be read: {error.strerror}"
        except SyntaxError as error:
            problem = _parse_problem(data, error)
    return SourceFile(
        name,
        _relative(place.path, place.root),
        tree,
        is_package=bool(place.locations),
        is_stub=place.is_stub,
        compiled=_relative(place.compiled, place.root) if place.compiled else "",
        problem=problem,
    )


def _parse_problem(data: bytes, error: SyntaxError) -> str:
    try:
        importlib.util.decode_source(data)
    except (SyntaxError, UnicodeDecodeError):
        return "a file that isn't text in the encoding that it declares (UTF-8 if none)"
    line = f", line {error.lineno}" if error.lineno else ""
    return f"a file that Python {sys.version_info[0]}.{sys.version_info[1]} can't parse: {error.msg}{line}"


def _unreadable(name: str, place: Place) -> SourceFile:
    if place.compiled:
        compiled = _relative(place.compiled, place.root)
        return SourceFile(
            name,
            compiled,
            None,
            is_package=bool(place.locations),
            compiled=compiled,
            problem="a compiled module without a stub file" if os.path.isfile(place.compiled) else "no file of its own",
        )
    folder = _relative(place.locations[0], place.root)
    return SourceFile(name, folder, ast.Module(body=[], type_ignores=[]), is_package=True)


def _relative(path: str, root: str) -> str:
    try:
        return Path(path).relative_to(root).as_posix()
    except ValueError:
        return path


def recorded_version(distribution: str, path: Iterable[str] | None) -> str | None:
    """Return the version that the first readable metadata on ``path``, or ``sys.path``, say."""
    from importlib import metadata  # 25 ms, as much as parsing what is judged

    folders = list(path) if path is not None else sys.path
    for found in metadata.Distribution.discover(name=distribution, path=folders):
        try:
            recorded = found.metadata
            if recorded is not None and "Version" in recorded:
                return str(recorded["Version"])
        except (OSError, ValueError):  # metadata that can't be read or aren't text
            continue
    return None
