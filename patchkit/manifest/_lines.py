"""Which line of a TOML text says which key.

The TOML parsers keep no positions. This scanner reads a text that a parser has already accepted, so it only
has to find the keys and step over the values. What it found is then compared with what the parser found: where
the two differ in any key it gives no lines at all, since a wrong line is worse than none.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Key = tuple[str | int, ...]
"""Where a value is: table keys and list indices from the top, such as ``("patch", 0, "name")``."""

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
# A closing delimiter of three quotes may be preceded by up to two quotes that belong to the string.
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]+")


def key_lines(text: str, data: Mapping[str, object]) -> dict[Key, int]:
    """Find the line, from 1, of every key, list item and table of ``text``.

    Args:
        text: A valid TOML document whose lines end in line feeds only.
        data: What the parser made of it.

    Returns:
        The lines; empty where the scanner and the parser don't see the same keys.
    """
    scanner = _Scanner(text)
    try:
        scanner.document()
        if scanner.lines.keys() != set(_keys_of(data)):
            return {}
    except (_LostError, RecursionError):
        return {}
    return scanner.lines


def _keys_of(value: object, key: Key = ()) -> Iterator[Key]:
    if key:
        yield key
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _keys_of(item, (*key, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _keys_of(item, (*key, index))


class _LostError(Exception):
    """The text is not what the scanner expects here."""


class _Scanner:
    def __init__(self, text: str) -> None:
        self.lines: dict[Key, int] = {}
        self._text = text
        self._at = 0
        self._tables: dict[Key, int] = {}  # how many [[headers]] of a name there were so far
        self._counted = 0, 1  # how far line feeds were counted, and the line there

    def document(self) -> None:
        table: Key = ()
        while self._skip_blank() < len(self._text):
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._assignment(table)

    def _header(self) -> Key:
        line = self._line()
        repeated = self._take("[[")
        if not repeated:
            self._expect("[")
        parts = self._dotted_key()
        self._expect("]]" if repeated else "]")
        key: Key = ()
        for depth, part in enumerate(parts, start=1):
            key = (*key, part)
            self.lines.setdefault(key, line)
            if repeated and depth == len(parts):
                self._tables[key] = self._tables.get(key, 0) + 1
            if key in self._tables:
                key = (*key, self._tables[key] - 1)
                self.lines.setdefault(key, line)
        return key

    def _assignment(self, table: Key) -> None:
        line = self._line()
        key = table
        for part in self._dotted_key():
            key = (*key, part)
            self.lines.setdefault(key, line)
        self._expect("=")
        self._value(key)

    def _value(self, key: Key) -> None:
        self._skip_blank()
        if self._take("["):
            self._array(key)
        elif self._take("{"):
            self._inline_table(key)
        else:
            self._match(_STRING if self._text[self._at : self._at + 1] in ('"', "'") else _SCALAR)

    def _array(self, key: Key) -> None:
        index = 0
        while not self._take("]"):
            self._skip_blank()
            item = (*key, index)
            self.lines[item] = self._line()
            self._value(item)
            self._take(",")
            index += 1

    def _inline_table(self, key: Key) -> None:
        while not self._take("}"):
            self._skip_blank()
            self._assignment(key)
            self._take(",")

    def _dotted_key(self) -> list[str]:
        parts = [self._simple_key()]
        while self._take("."):
            parts.append(self._simple_key())
        return parts

    def _simple_key(self) -> str:
        self._skip_blank()
        if self._text[self._at : self._at + 1] not in ('"', "'"):
            return self._match(_BARE_KEY)
        quoted = self._match(_STRING)
        return str(next(iter(tomllib.loads(f"{quoted} = 0"))))

    def _line(self) -> int:
        # From where the last count ended: from the start, a long text would take quadratic time.
        start, line = self._counted
        line += self._text.count("\n", start, self._at)
        self._counted = self._at, line
        return line

    def _skip_blank(self) -> int:
        self._match(_BLANK)
        return self._at

    def _take(self, token: str) -> bool:
        self._skip_blank()
        if not self._text.startswith(token, self._at):
            return False
        self._at += len(token)
        return True

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise _LostError

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise _LostError
        self._at = found.end()
        return found.group()
