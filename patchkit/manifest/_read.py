"""One manifest file, from its path to a parsed document."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import sys

from ..errors import ManifestError
from ._lines import key_lines
from ._origin import Document

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_DECODER_POSITION = re.compile(
    r"^(?P<reason>.*) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$"
)


# A manifest has a few kilobytes; a device or a log given by mistake would be read for ever.
_LARGEST = 16 << 20


class UnreadableError(Exception):
    """There is no file to read, or none that may be read here; the text is the reason."""


def is_path(text: str) -> bool:
    """Say whether the system could take ``text`` for a path at all."""
    try:
        return bool(text) and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def read_bytes(path: str) -> bytes:
    """Read the file at ``path``.

    Raises:
        UnreadableError: It isn't there, is a directory, or can't be read.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST + 1)
    except FileNotFoundError:
        raise UnreadableError(f"no such file{_nearest(path)}") from None
    except IsADirectoryError:
        raise UnreadableError("is a directory, expected a TOML file") from None
    except OSError as error:
        raise UnreadableError(f"can't be read: {error.strerror or error}") from None
    if len(content) > _LARGEST:
        raise UnreadableError(f"is larger than {_LARGEST >> 20} MiB, expected a manifest")
    return content


def parse(path: str, content: bytes) -> Document:
    """Parse the content of the file at ``path``.

    Raises:
        ManifestError: It isn't TOML in UTF-8, or there is nothing in it.
    """
    text = _decode(path, content).replace("\r\n", "\n")
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise ManifestError(f"{path}: not valid TOML: nested too deeply") from None
    except ValueError as error:  # not only TOMLDecodeError: Python's limit on digits is a plain ValueError
        raise ManifestError(_syntax_problem(path, str(error))) from None
    if not data:
        raise ManifestError(f"{path}: empty; expected `schema = 1` and at least one [[patch]]")
    return Document(data, path, hashlib.sha256(content).hexdigest(), key_lines(text, data))


def _decode(path: str, content: bytes) -> str:
    try:
        # Some editors put a byte-order mark first, which the TOML parsers don't take.
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # With a byte-order mark the positions count from behind it.
        before = error.object[: error.start]
        line = before.count(b"\n") + 1
        byte = error.object[error.start]
        raise ManifestError(
            f"{path}:{line}: not UTF-8 (byte 0x{byte:02x}); save the file as UTF-8, which is what TOML is written in"
        ) from None


def _syntax_problem(path: str, message: str) -> str:
    found = _DECODER_POSITION.match(message)
    if found is None:
        return f"{path}: not valid TOML: {message}"
    if found["line"] is None:
        return f"{path}: not valid TOML: {found['reason']} (at the end of the file)"
    return f"{path}:{found['line']}:{found['column']}: not valid TOML: {found['reason']}"


def _nearest(path: str) -> str:
    folder, name = os.path.split(path)
    try:
        siblings = [sibling for sibling in os.listdir(folder or ".") if sibling.endswith(".toml")]
    except OSError:
        siblings = []
    # Names that end alike look alike, so they must be nearer than the default asks.
    nearest = difflib.get_close_matches(name, siblings, n=1, cutoff=0.8)
    if nearest:
        return f"; did you mean {os.path.join(folder, nearest[0])!r}?"
    try:
        return "" if os.path.isabs(path) else f"; the current directory is {os.getcwd()!r}"
    except FileNotFoundError:
        return "; the current directory was removed"
