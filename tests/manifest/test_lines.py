"""Which line says which key: exactly the right one, or none."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.errors import ManifestError
from patchkit.manifest import load_manifest
from patchkit.manifest._lines import Key, key_lines

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

STYLES = '''\
plain = 1                       # 1
"quoted # key" = "a # b = c"    # 2
'literal = key' = 'x'
a.b . "c" = """
no = "key here\\""
"""                             # 6
many = [                        # 7
  # [[patch]]
  "]", { x = 1, y.z = [2] },    # 9
  [                             # 10
    3,
  ],
]
date = 1979-05-27 07:32:00      # 14
raw = \'\'\'
[header]
x = 1\'\'\'\'\'                        # 17

[table]                         # 19
  key = 1
[table.sub."x y"]               # 21
[[list]]                        # 22
[list.inner]
n = 1
[[list.deep]]                   # 25
[[list.deep]]
k = {}
[[list]]                        # 28
  n = 2
[ far . "away" ]                # 30
'''


def test_every_way_to_write_a_key() -> None:
    """Dotted, quoted, inline, nested and repeated keys are found, and what only looks like one is not."""
    lines = key_lines(STYLES, tomllib.loads(STYLES))
    expected: dict[Key, int] = {
        ("plain",): 1,
        ("quoted # key",): 2,
        ("literal = key",): 3,
        ("a",): 4,
        ("a", "b"): 4,
        ("a", "b", "c"): 4,
        ("many",): 7,
        ("many", 0): 9,
        ("many", 1): 9,
        ("many", 1, "x"): 9,
        ("many", 1, "y"): 9,
        ("many", 1, "y", "z"): 9,
        ("many", 1, "y", "z", 0): 9,
        ("many", 2): 10,
        ("many", 2, 0): 11,
        ("date",): 14,
        ("raw",): 15,
        ("table",): 19,
        ("table", "key"): 20,
        ("table", "sub"): 21,
        ("table", "sub", "x y"): 21,
        ("list",): 22,
        ("list", 0): 22,
        ("list", 0, "inner"): 23,
        ("list", 0, "inner", "n"): 24,
        ("list", 0, "deep"): 25,
        ("list", 0, "deep", 0): 25,
        ("list", 0, "deep", 1): 26,
        ("list", 0, "deep", 1, "k"): 27,
        ("list", 1): 28,
        ("list", 1, "n"): 29,
        ("far",): 30,
        ("far", "away"): 30,
    }
    assert lines == expected


@pytest.mark.parametrize(
    "data",
    [{"a": 1, "b": 2}, {}, {"a": {"x": 1}}, {"a": [1]}],
)
def test_no_lines_where_the_parser_saw_other_keys(data: dict[str, object]) -> None:
    """Where scanner and parser differ in any key, no line is told at all."""
    assert key_lines("a = 1\n", {"a": 1}) == {("a",): 1}
    assert key_lines("a = 1\n", data) == {}


@pytest.mark.parametrize("text", ["a", "= 1", "a = ", "[a", "a = [1", 'a = "', "a = {", "[[a]"])
def test_no_lines_where_the_scanner_is_lost(text: str) -> None:
    """A text that isn't what the scanner expects gives no lines, and no exception."""
    assert key_lines(text, {"a": 1}) == {}


class _Writer:
    """Writes a TOML text in a drawn style, and keeps the line of every key that it writes."""

    def __init__(self, data: st.DataObject) -> None:
        self.text = ""
        self.lines: dict[Key, int] = {}
        self._data = data

    def say(self, key: Key | None, text: str) -> None:
        if key is not None:
            self.lines.setdefault(key, self.text.count("\n") + 1)
        self.text += text

    def blank(self) -> None:
        """Write something between two lines that says nothing."""
        nothing = ["", "\n", "# [[patch]]\n", '  # name = "x"\n', "\t\n\n"]
        self.text += self._data.draw(st.sampled_from(nothing))

    def end(self) -> None:
        self.text += self._data.draw(st.sampled_from(["\n", "  # x = [1\n", "\t\n"]))
        self.blank()

    def key(self, name: str) -> str:
        quote = self._data.draw(st.sampled_from(["", '"', "'"]))
        return f"{quote}{name}{quote}"

    def value(self, key: Key, *, depth: int = 2) -> None:
        """Write any value, recording the keys and items inside of it."""
        kinds = ["scalar", "scalar", *(["list", "table"] if depth else [])]
        kind = self._data.draw(st.sampled_from(kinds))
        if kind == "list":
            self.text += "["
            for index in range(self._data.draw(st.integers(0, 2))):
                self.text += self._data.draw(st.sampled_from(["", " ", "\n", "\n# ]\n  "]))
                self.say((*key, index), "")
                self.value((*key, index), depth=depth - 1)
                self.text += self._data.draw(st.sampled_from([",", " ,", "\n,"]))
            self.text += "]"
        elif kind == "table":
            self.text += "{ "
            for index, name in enumerate(self._data.draw(st.lists(NAMES, max_size=2, unique=True))):
                self.text += ", " if index else ""
                self.say((*key, name), f"{self.key(name)} = ")
                self.value((*key, name), depth=depth - 1)
            self.text += " }"
        else:
            self.text += self._data.draw(st.sampled_from(SCALARS))


NAMES = st.sampled_from(["a", "b", "x-y", "1", "name"])
SCALARS = [
    "1",
    "-2.5e3",
    "true",
    "1979-05-27 07:32:00",
    '"[[patch]] # \\" \\\\"',
    "'name = {'",
    '"""\n[[patch]]\nname = "x"\n"""',
    '""""quoted"""""',
    "'''\n[policy]'''",
    "'''''two'''''",
]


@given(st.data())
def test_lines_of_generated_files(data: st.DataObject) -> None:
    """However a file is written, each of its keys is found in the line where it was written."""
    writer = _Writer(data)
    writer.blank()
    for name in data.draw(st.lists(NAMES, max_size=2, unique=True)):
        writer.say((name,), f"{writer.key(name)} = ")
        writer.value((name,))
        writer.end()
    for index in range(data.draw(st.integers(0, 3))):
        entry: Key = ("patch", index)
        writer.lines.setdefault(("patch",), writer.text.count("\n") + 1)
        writer.say(entry, data.draw(st.sampled_from(["[[patch]]", '[[ "patch" ]]', "  [[patch]]"])))
        writer.end()
        for name in data.draw(st.lists(NAMES, max_size=3, unique=True)):
            dotted: Key = (*entry, name, "sub") if data.draw(st.booleans()) else (*entry, name)
            writer.lines.setdefault((*entry, name), writer.text.count("\n") + 1)
            writer.say(dotted, ".".join(writer.key(str(part)) for part in dotted[2:]) + " = ")
            writer.value(dotted)
            writer.end()
        if data.draw(st.booleans()):
            writer.say((*entry, "options"), "[patch.options]")
            writer.end()
            writer.say((*entry, "options", "k"), "k=")
            writer.value((*entry, "options", "k"))
            writer.end()
    assert key_lines(writer.text, tomllib.loads(writer.text)) == writer.lines


@given(st.lists(st.booleans(), min_size=1, max_size=4).filter(any))
def test_fault_of_a_file_is_told_in_its_line(tmp_path_factory: pytest.TempPathFactory, wrong: list[bool]) -> None:
    """In a file of good and bad entries every bad one is told, with the line where it stands."""
    path = tmp_path_factory.mktemp("manifests") / "m.toml"
    text = "schema = 1\n"
    expected = []
    for index, bad in enumerate(wrong):
        text += (
            f'\n[[patch]]\nname = "p{index}"\ntext = """\n[[patch]]\n"""\n'
            if bad
            else f'[[patch]]\nname = "p{index}"\n'
        )
        if bad:
            line = text.count("\n") - 2
            expected.append(f"{path}:{line}: patch[{index}].text: unknown key.")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ManifestError) as caught:
        load_manifest(path)
    assert [problem.partition(" Expected")[0] for problem in caught.value.problems] == expected
