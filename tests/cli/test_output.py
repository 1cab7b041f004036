"""Where the report goes: whole, late, and without a fuss where nobody reads it."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from patchkit.cli import _output
from tests.cli.conftest import Patchkit
from tests.cli.runs import WORLD, environment

OLD = "what was there before\n"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A file with content, alone in its folder."""
    path = tmp_path / "report.txt"
    path.write_text(OLD, encoding="utf-8")
    return path


def test_report_goes_to_the_file(patchkit: Patchkit, tmp_path: Path) -> None:
    """With -o the file gets the report and stdout nothing; the summary stays on stderr."""
    expected = patchkit("verify", "refused.toml")
    run = patchkit("verify", "refused.toml", "-o", tmp_path / "new.txt")
    assert (run.code, run.out, run.err) == (1, "", expected.err)
    assert (tmp_path / "new.txt").read_text(encoding="utf-8") == expected.out


def test_file_may_be_named_before_the_command(patchkit: Patchkit, tmp_path: Path) -> None:
    """-o counts before the command as well as after it."""
    assert patchkit("-o", tmp_path / "new.txt", "verify", "fits.toml").out == ""
    assert (tmp_path / "new.txt").read_text(encoding="utf-8") == patchkit("verify", "fits.toml").out


def test_dash_is_stdout(patchkit: Patchkit) -> None:
    """The file ``-`` is stdout, as elsewhere."""
    assert patchkit("verify", "fits.toml", "-o", "-") == patchkit("verify", "fits.toml")


@pytest.mark.parametrize("arguments", [("list",), ("show", "acme.fits"), ("schema",), ("explain",)])
def test_every_command_writes_the_file(patchkit: Patchkit, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """-o belongs to every command."""
    expected = patchkit(*arguments).out
    assert patchkit(*arguments, "-o", tmp_path / "new.txt").out == ""
    assert (tmp_path / "new.txt").read_text(encoding="utf-8") == expected


def test_file_is_not_touched_by_an_error(patchkit: Patchkit, target: Path) -> None:
    """A command that can't make its report leaves the file as it was."""
    assert patchkit("verify", "malformed.toml", "-o", target).code == 2
    assert target.read_text(encoding="utf-8") == OLD


def test_file_is_replaced_at_once(patchkit: Patchkit, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the new content is complete the old one stands, and a failure on the way leaves nothing behind."""

    def fail(*_: object) -> None:
        assert target.read_text(encoding="utf-8") == OLD
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    run = patchkit("verify", "fits.toml", "-o", target)
    assert (run.code, run.out) == (2, "")
    assert run.err == f"error: can't write the report to {target}: No space left on device\n"
    assert [(path.name, path.read_text(encoding="utf-8")) for path in target.parent.iterdir()] == [(target.name, OLD)]


def test_file_in_a_missing_folder(patchkit: Patchkit, tmp_path: Path) -> None:
    """A file that can't be made is an error of its own, with exit code 2 also where nothing else was wrong."""
    run = patchkit("verify", "fits.toml", "-o", tmp_path / "nowhere" / "new.txt")
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("error: can't write the report to ")


def test_folder_as_file(patchkit: Patchkit, tmp_path: Path) -> None:
    """A folder can't be written."""
    run = patchkit("verify", "fits.toml", "-o", tmp_path)
    assert (run.code, run.err.count("error: can't write the report to")) == (2, 1)


def test_file_keeps_its_mode_and_new_ones_follow_the_umask(tmp_path: Path, target: Path) -> None:
    """Replacing a file doesn't change who may read it; a new one is as readable as any."""
    target.chmod(0o640)
    before = os.umask(0o027)
    try:
        _output.write_file(str(target), "new")
        _output.write_file(str(tmp_path / "new.txt"), "new")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"report.txt": 0o640, "new.txt": 0o640}
    assert target.read_text(encoding="utf-8") == "new"


def test_symbolic_link_stays(tmp_path: Path, target: Path) -> None:
    """What a link points to is replaced, not the link."""
    link = tmp_path / "link.txt"
    link.symlink_to(target)
    _output.write_file(str(link), "new")
    assert (link.is_symlink(), target.read_text(encoding="utf-8")) == (True, "new")


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="needs names for open files")
def test_what_is_no_file_is_written_as_it_is() -> None:
    """A device or a pipe can't be replaced."""
    reading, writing = os.pipe()
    try:
        _output.write_file(f"/dev/fd/{writing}", "new")
        assert os.read(reading, 100) == b"new"
    finally:
        os.close(reading)
        os.close(writing)


def test_file_has_no_colours_unless_asked(patchkit: Patchkit, tmp_path: Path) -> None:
    """FORCE_COLOR is about streams; only the flag puts colours into a file."""
    patchkit("verify", "refused.toml", "-o", tmp_path / "plain.txt", FORCE_COLOR="1")
    patchkit("verify", "refused.toml", "-o", tmp_path / "coloured.txt", "--color", "always")
    assert "\x1b[" not in (tmp_path / "plain.txt").read_text(encoding="utf-8")
    assert "\x1b[31m" in (tmp_path / "coloured.txt").read_text(encoding="utf-8")


def run_with_stdout(stdout: int, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "patchkit", *arguments],
        cwd=WORLD,
        env=environment(WORLD, **variables),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("arguments", "code", "complaints"),
    [
        (("verify", "refused.toml"), 1, "Found 5 problems in 6 patches; 1 warning.\n"),
        (("--help",), 0, ""),
        (("--version",), 0, ""),
    ],
)
def test_broken_pipe(arguments: tuple[str, ...], code: int, complaints: str, unbuffered: str) -> None:
    """A reader that has gone away, such as ``head``, is no error: nothing is said, and the exit code stays."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = run_with_stdout(writing, *arguments, PYTHONUNBUFFERED=unbuffered)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (code, complaints)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_full_disk() -> None:
    """A report that can't be written is an error, not a success with half a report."""
    with open("/dev/full", "wb") as full:
        done = run_with_stdout(full.fileno(), "verify", "fits.toml")
    assert (done.returncode, done.stderr) == (2, "error: can't write the report to stdout: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", ["--help", "--version"])
def test_help_on_a_full_disk(arguments: str) -> None:
    """Help that can't be written is an error like a report that can't."""
    with open("/dev/full", "wb") as full:
        done = run_with_stdout(full.fileno(), arguments)
    assert (done.returncode, done.stderr) == (2, "error: can't write to stdout: No space left on device\n")


def test_encoding_that_lacks_a_character() -> None:
    """What the stream can't express is escaped; it doesn't end the report."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    _output.write_stream(stream, "caf\xe9 \u2713\n")
    assert raw.getvalue() == b"caf\\xe9 \\u2713\n"


def test_no_stdout_at_all() -> None:
    """A process that was started without a stdout has nothing to write to, and that is all."""
    _output.write_stream(None, "text")
    assert _output.is_terminal(None) is False


def test_json_in_the_file(patchkit: Patchkit, tmp_path: Path) -> None:
    """The file holds one JSON object, ended by a line feed."""
    patchkit("--format", "json", "verify", "fits.toml", "-o", tmp_path / "new.json")
    text = (tmp_path / "new.json").read_text(encoding="utf-8")
    assert json.loads(text)["summary"]["problems"] == 0
    assert text.endswith("}\n")
