"""Where source comes from: the file of a module, what can't be read, versions, and what a long-lived process sees."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import pytest

from patchkit.contract import Contract, DirectorySource, InstalledSource, Symbol, Verdict, judge
from patchkit.contract._source import MAX_SOURCE_BYTES, parse_source
from tests.contract.libraries import Library

PYTHON = f"Python {sys.version_info[0]}.{sys.version_info[1]}"


# Which file


def test_module_and_package(library: Library) -> None:
    """A module is a file or a folder with an ``__init__``, and a package is preferred, as on import."""
    library.write(single="").package("pkg", sub="").write(pkg="")
    found = {name: library.source.module(name) for name in ("single", "pkg", "pkg.sub")}
    assert {name: (file.path, file.is_package) for name, file in found.items() if file} == {
        "single": ("single.py", False),
        "pkg": ("pkg/__init__.py", True),
        "pkg.sub": ("pkg/sub.py", False),
    }


@pytest.mark.parametrize("name", ["gone", "pkg.gone", "pkg.sub.gone", "pkg.gone.deeper"])
def test_missing_module(library: Library, name: str) -> None:
    """A module that isn't there is ``None``, at whatever depth."""
    library.package("pkg", sub="")
    assert library.source.module(name) is None


def test_namespace_package(library: Library) -> None:
    """A folder without an ``__init__`` is a package without names of its own."""
    library.file("space/part/mod.py", "def f(): ...")
    assert library.judge(Symbol("space.part.mod:f"), Symbol("space:part.mod.f")).verdict is Verdict.OK
    assert library.judge(Symbol("space:g")).verdict is Verdict.BROKEN
    assert library.source.children("space") == ("part",)


def test_namespace_package_in_several_folders(tmp_path: Path) -> None:
    """The parts of a namespace package lie in any folder of the path; a regular package anywhere ends it."""
    Library(tmp_path / "one").file("space/a.py")
    Library(tmp_path / "two").file("space/b.py")
    source = InstalledSource([str(tmp_path / "one"), str(tmp_path / "two")])
    assert source.module("space.b") is not None
    assert source.children("space") == ("a", "b")
    Library(tmp_path / "two").file("space/__init__.py")
    assert source.module("space.a") is None


def test_children(library: Library) -> None:
    """The modules of a package are listed once each, without what is none."""
    library.package("pkg", b="", a="", a_pyi="", **{"not-a-name": ""})
    library.file("pkg/native.cpython-312-x86_64-linux-gnu.so").file("pkg/data.json").file("pkg/sub/x.py")
    library.file("pkg/__pycache__/a.pyc")
    assert library.source.children("pkg") == ("a", "b", "native", "sub")
    assert library.source.children("gone") == ()


# Compiled modules


@pytest.mark.parametrize("compiled", ["native.cpython-312-x86_64-linux-gnu.so", "native.abi3.so", "native.pyd"])
def test_compiled_without_a_stub(library: Library, compiled: str) -> None:
    """A compiled module has nothing to read: unknown."""
    library.package("lib").file(f"lib/{compiled}", b"\x7fELF")
    judgement = library.judge(Symbol("lib.native:f"))
    assert (judgement.verdict, judgement.one_line()) == (
        Verdict.UNKNOWN,
        f"lib.native:f: expected a definition, found a compiled module without a stub file (lib/{compiled})",
    )
    assert library.judge(Symbol("lib.native")).verdict is Verdict.OK


def test_byte_code_alone(library: Library) -> None:
    """A module shipped as byte code is as compiled as any other."""
    library.package("lib").file("lib/closed.pyc", b"\x00")
    assert library.judge(Symbol("lib.closed:f")).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("stub", ["lib/native.pyi", "lib/native/__init__.pyi"])
def test_compiled_with_a_stub(library: Library, stub: str) -> None:
    """A stub tells names and parameters of a compiled module, and the judgement says that only a stub was read."""
    library.package("lib").file("lib/native.so").file(
        stub,
        """
        import typing
        limit: int
        def f(x: int, k: int = ...) -> int: ...
        class C:
            field: str
            @typing.overload
            def m(self, x: int) -> None: ...
            @typing.overload
            def m(self, y: str) -> None: ...
        """,
    )
    symbols = (
        Symbol("lib.native:f", parameters=("x", "k=")),
        Symbol("lib.native:limit"),
        Symbol("lib.native:C.m", parameters=("self", "y")),
    )
    judgement = library.judge(*symbols)
    assert judgement.verdict is Verdict.OK
    assert str(judgement.remarks[0]) == (
        f"lib.native:f: expected Python source, found the stub of lib/native.so ({stub}:3)"
    )


def test_bodies_in_a_stub(library: Library) -> None:
    """A stub has no bodies, so calls and fingerprints can't be judged by it; a name it lacks may exist all the same."""
    library.package("lib", native_pyi="def f(x): ...").file("lib/native.so")
    body = library.judge(Symbol("lib.native:f", calls=("g",)))
    assert (body.verdict, body.one_line()) == (
        Verdict.UNKNOWN,
        "lib.native:f: expected a body to read, found a stub file, which has no bodies (lib/native.pyi:1)",
    )
    name = library.judge(Symbol("lib.native:g"))
    assert (name.verdict, name.one_line()) == (
        Verdict.UNKNOWN,
        "lib.native:g: expected a definition, found no g in the stub file, which may leave names out (lib/native.pyi)",
    )
    assert library.judge(Symbol("lib.native:f", parameters=())).verdict is Verdict.BROKEN


def test_source_is_preferred_to_what_was_compiled_from_it(library: Library) -> None:
    """Where ``mod.py`` lies beside ``mod.so``, as Cython and mypyc leave it, the source is read."""
    library.package("lib", fast="def f(x): return g(x)", fast_pyi="def f(x): ...").file("lib/fast.so")
    assert library.judge(Symbol("lib.fast:f", calls=("g",))).verdict is Verdict.OK


def test_modules_made_by_a_compiled_module(library: Library) -> None:
    """A compiled module may register modules that no file shows."""
    library.package("lib").file("lib/native.so")
    assert library.judge(Symbol("lib.native.sub:f")).verdict is Verdict.UNKNOWN


# Files that can't be read


@pytest.mark.parametrize(
    ("content", "found"),
    [
        pytest.param(b"def f(:\n", f"a file that {PYTHON} can't parse: invalid syntax, line 1", id="syntax error"),
        pytest.param(
            b"x = '\xff\xfe'\n",
            "a file that isn't text in the encoding that it declares (UTF-8 if none)",
            id="not UTF-8",
        ),
        pytest.param(
            b"# coding: klingon\n",
            "a file that isn't text in the encoding that it declares (UTF-8 if none)",
            id="unknown encoding",
        ),
        pytest.param(
            b"# " + b"x" * MAX_SOURCE_BYTES, "a file of 8.0 MB, more than the 8 MB that are read", id="too large"
        ),
    ],
)
def test_file_that_cannot_be_parsed(library: Library, content: bytes, found: str) -> None:
    """A file that isn't Python makes the contract unknown, and the other symbols are still judged."""
    library.package("lib", bad=content, good="def f(): ...")
    judgement = library.judge(Symbol("lib.bad:f"), Symbol("lib.good:f"))
    assert (judgement.verdict, [str(finding) for finding in judgement.findings]) == (
        Verdict.UNKNOWN,
        [f"lib.bad:f: expected a definition, found {found} (lib/bad.py)"],
    )


@pytest.mark.parametrize(
    "content", [b"x = 1\x00\n", b"(" * 5000, b"x = " + b"-" * 20000 + b"1\n"], ids=["null byte", "parentheses", "minus"]
)
def test_file_that_the_parser_chokes_on(library: Library, content: bytes) -> None:
    """Whatever the parser raises, the verdict is unknown."""
    library.write(lib=content)
    assert library.judge(Symbol("lib:f")).verdict is Verdict.UNKNOWN


def test_source_nested_deeper_than_python_follows(library: Library) -> None:
    """Code that parses but nests too deeply to be followed is unknown, not a crash."""
    chain = "if a: f = 0\n" + "".join(f"elif a == {i}: f = {i}\n" for i in range(600))
    limit = sys.getrecursionlimit()
    library.write(lib=chain)
    library.source.module("lib")
    try:
        sys.setrecursionlimit(400)
        verdict = library.judge(Symbol("lib:f", parameters=())).verdict
    finally:
        sys.setrecursionlimit(limit)
    assert verdict is Verdict.UNKNOWN


def test_file_without_permission(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that may not be read is unknown."""

    def denied(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    library.write(lib="def f(): ...")
    monkeypatch.setattr(Path, "read_bytes", denied)
    assert library.judge(Symbol("lib:f")).one_line() == (
        "lib:f: expected a definition, found a file that can't be read: Permission denied (lib.py)"
    )


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"\xef\xbb\xbfdef f(x): ...\n", "a byte order mark"),
        (b"# -*- coding: latin-1 -*-\ndef f(x): return '\xe9'\n", "a declared encoding"),
        (b"def f(x):\r\n    return 1\r\n", "other line ends"),
    ],
)
def test_encodings(library: Library, content: bytes, text: str) -> None:
    """Source is decoded as Python does it."""
    library.write(lib=content)
    assert library.judge(Symbol("lib:f", parameters=("x",))).verdict is Verdict.OK, text


def test_warnings_of_the_library_stay_its_own(recwarn: pytest.WarningsRecorder) -> None:
    """Reading a file that the parser warns about shows nothing to whoever judges it."""
    parse_source(rb"x = '\d'; y = 1if 1else 2")
    assert list(recwarn) == []


# Each file once


def test_each_file_is_parsed_once(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred contracts over one library read each file once."""
    library.package("lib", a="from .b import f", b="def f(): ...")
    parsed: list[bytes] = []

    def counting(source: bytes) -> object:
        parsed.append(source)
        return parse_source(source)

    monkeypatch.setattr("patchkit.contract._source.parse_source", counting)
    source = library.source
    for _ in range(100):
        assert judge(Contract(symbols=(Symbol("lib.a:f"), Symbol("lib.b:f"))), source).verdict is Verdict.OK
    assert sorted(parsed) == [b"def f(): ...", b"from .b import f"]


def test_a_changed_file_is_read_again(library: Library) -> None:
    """A long-lived process notices that a library was reinstalled, by size or by time of change."""
    source = library.write(lib="def f(a): ...").source
    contract = Contract(symbols=(Symbol("lib:f", parameters=("b",)),))
    assert judge(contract, source).verdict is Verdict.BROKEN
    library.write(lib="def f(b): ...")
    os.utime(library.root / "lib.py", ns=(1, 1))
    assert judge(contract, source).verdict is Verdict.OK
    (library.root / "lib.py").unlink()
    assert judge(contract, source).verdict is Verdict.UNKNOWN


# Versions


def test_version_of_a_directory(library: Library) -> None:
    """Versions come from the metadata in the directory; names are compared as installers do."""
    library.distribution("My_Lib", "1.2+cpu").file("old.egg-info/PKG-INFO", "Name: old\nVersion: 3\n")
    source = library.source
    assert [source.version(name) for name in ("my-lib", "My.Lib", "old", "gone")] == ["1.2+cpu", "1.2+cpu", "3", None]


@pytest.mark.parametrize("content", [b"", b"Name: lib\n", b"Version: \xff\xfe\n"])
def test_unreadable_metadata(library: Library, content: bytes) -> None:
    """Metadata without a version, or that aren't text, count as none."""
    library.file("lib-1.0.dist-info/METADATA", content)
    assert library.source.version("lib") is None


def test_metadata_folder_without_metadata(library: Library) -> None:
    """What an interrupted uninstallation leaves behind is no installation."""
    library.file("lib-1.0.dist-info/RECORD")
    assert library.source.version("lib") is None


# The installed library


def test_installed_version_and_module() -> None:
    """What this interpreter has is found with version and file."""
    source = InstalledSource()
    file = source.module("pytest")
    assert source.version("pytest") == pytest.__version__
    assert file is not None
    assert (file.path, file.is_package) == ("pytest/__init__.py", True)


def test_installed_standard_library() -> None:
    """Modules of the standard library are found too: frozen, built in, plain."""
    source = InstalledSource()
    plain, frozen, built_in = (source.module(name) for name in ("json.decoder", "os", "sys"))
    assert plain is not None
    assert frozen is not None
    assert built_in is not None
    assert (plain.path, frozen.path) == ("json/decoder.py", "os.py")
    assert (built_in.tree, built_in.problem) == (None, "no file of its own")


def test_installed_path_of_its_own(library: Library) -> None:
    """Folders can be given instead of ``sys.path``."""
    library.package("lib", a="def f(): ...").distribution("lib", "1.5")
    source = InstalledSource([str(library.root)])
    assert (source.version("lib"), source.version("pytest")) == ("1.5", None)
    assert judge(Contract(("lib>=1",), (Symbol("lib.a:f"),)), source).verdict is Verdict.OK


def test_imported_library_is_found_where_it_was_imported_from(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module without a spec in ``sys.modules``, as tests leave it, doesn't disturb the search."""
    library.package("lib_without_spec", a="def f(): ...")
    monkeypatch.syspath_prepend(library.root)
    module = types.ModuleType("lib_without_spec")
    monkeypatch.setitem(sys.modules, "lib_without_spec", module)
    assert module.__spec__ is None
    assert InstalledSource().module("lib_without_spec.a") is not None


def test_library_in_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that is imported from a zip file can't be read by joining paths: unknown, not a crash."""
    with zipfile.ZipFile(tmp_path / "lib.zip", "w") as archive:
        archive.writestr("zipped_lib/__init__.py", "def f(): ...")
    monkeypatch.syspath_prepend(tmp_path / "lib.zip")
    for path in ("zipped_lib:f", "zipped_lib.sub:f"):
        assert judge(Contract(symbols=(Symbol(path),)), InstalledSource()).verdict is Verdict.UNKNOWN


def test_module_by_another_name() -> None:
    """A module that the standard library puts into ``sys.modules`` itself is found by that name: it is imported."""
    assert judge(Contract(symbols=(Symbol("os.path:join"),)), InstalledSource()).verdict is Verdict.OK


def test_submodule_made_at_run_time(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """A submodule that is put into ``sys.modules`` is there, but has no source."""
    library.package("made_lib", init="")
    monkeypatch.syspath_prepend(library.root)
    assert judge(Contract(symbols=(Symbol("made_lib.sub:f"),)), InstalledSource()).verdict is Verdict.BROKEN
    monkeypatch.setitem(sys.modules, "made_lib.sub", types.ModuleType("made_lib.sub"))
    found = judge(Contract(symbols=(Symbol("made_lib.sub:f"),)), InstalledSource())
    assert found.verdict is Verdict.UNKNOWN
    assert "found no file of its own" in found.one_line()


@pytest.mark.parametrize(
    "init",
    [
        "from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)",
        "import os\n__path__.append(os.path.join(os.path.dirname(__path__[0]), 'elsewhere'))",
        "__path__ += ['elsewhere']",
        "__import__('pkg_resources').declare_namespace(__name__)",
        "import sys, types\nsys.modules[__name__ + '.sub'] = types.ModuleType('sub')",
        "import sys, types\nsys.modules.setdefault(__name__ + '.sub', types.ModuleType('sub'))",
    ],
)
def test_submodule_that_a_package_may_find_elsewhere(library: Library, init: str) -> None:
    """Where a package changes its own path, or makes modules, a submodule that isn't in its folder may be there."""
    library.package("lib", init=init)
    judgement = library.judge(Symbol("lib.sub:f"))
    assert judgement.verdict is Verdict.UNKNOWN
    assert "no module sub in lib, but code that adds to its modules while it runs (lib/__init__.py" in (
        judgement.one_line()
    )


def test_submodule_on_a_path_extended_at_run_time(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the package is imported, its path as it is now is where submodules are looked for."""
    library.package("extended_lib", init="__path__ = [*__path__, __path__[0] + '_more']")
    library.file("extended_lib_more/sub.py", "def f(a): ...")
    monkeypatch.syspath_prepend(library.root)
    __import__("extended_lib")
    try:
        judgement = judge(Contract(symbols=(Symbol("extended_lib.sub:f", parameters=("a",)),)), InstalledSource())
    finally:
        del sys.modules["extended_lib"]
    assert judgement.verdict is Verdict.OK


LOADED = """
import json
from functools import wraps

def f(a):
    return json.dumps(a)

def passing(function):
    @wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper

class Base:
    def m(self): return self.__x, __class__

class C(Base):
    @passing
    def m(self): return super().m(), self.__x

    @property
    def p(self): return 1

    @staticmethod
    def s(a): return a
"""


@pytest.mark.parametrize("path", ["f", "C.m", "C.p", "C.s", "Base.m"])
def test_library_that_was_replaced_under_the_process(
    library: Library, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Code that is loaded is compared with the source that is judged: after an upgrade, restart the process."""
    library.file("loaded_lib.py", LOADED)
    monkeypatch.syspath_prepend(library.root)
    importlib.invalidate_caches()
    contract = Contract(symbols=(Symbol(f"loaded_lib:{path}"),))
    importlib.import_module("loaded_lib")
    try:
        assert judge(contract, InstalledSource()).verdict is Verdict.OK
        library.file("loaded_lib.py", f"\n\n{LOADED}")
        assert judge(contract, InstalledSource()).verdict is Verdict.OK
        changed = LOADED.replace("json.dumps(a)", "json.dumps(a, indent=1)").replace("self.__x", "self.__y")
        changed = changed.replace("return 1", "return 2").replace("return a", "return a, 1")
        library.file("loaded_lib.py", changed)
        found = judge(contract, InstalledSource())
        assert found.verdict is Verdict.UNKNOWN
        assert "expected the code that is loaded, found another one in its file" in found.one_line()
        assert judge(contract, InstalledSource([str(library.root)])).verdict is Verdict.OK
    finally:
        del sys.modules["loaded_lib"]


EDITABLE_FINDER = """
import importlib.util, sys
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "editable_lib":
            return importlib.util.spec_from_file_location(name, {init!r}, submodule_search_locations=[{folder!r}])
sys.meta_path.append(Finder)
"""


def test_editable_install(library: Library) -> None:
    """A library that a finder of an editable install maps to a checkout is found there, and isn't imported."""
    checkout = library.root / "checkout" / "src_folder"
    library.file("checkout/src_folder/__init__.py", "raise SystemExit('imported')")
    library.file("checkout/src_folder/mod.py", "raise SystemExit('imported')\ndef f(x): ...")
    code = EDITABLE_FINDER.format(init=str(checkout / "__init__.py"), folder=str(checkout)) + (
        "from patchkit.contract import *\n"
        "source = InstalledSource()\n"
        "found = judge(Contract(symbols=(Symbol('editable_lib.mod:f', parameters=('y',)),)), source)\n"
        "print(found.one_line())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ("editable_lib.mod:f: expected the parameters (y), found (x) (src_folder/mod.py:2)")


def test_label(tmp_path: Path) -> None:
    """A source says what it is: the directory, what it was called, or the installed library."""
    assert DirectorySource(tmp_path).label == str(tmp_path)
    assert DirectorySource(tmp_path, label="the wheel").label == "the wheel"
    assert InstalledSource().label == "installed"
