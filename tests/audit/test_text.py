"""Text from a log on a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.audit import printable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain text, ünïcode, 日本, 🦆", "plain text, ünïcode, 日本, 🦆"),
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x00\x7f\x9b2J", r"\x00\x7f\x9b2J"),
        ("\u202egnp.exe\u200b\ufeff\u2028", r"\u202egnp.exe\u200b\ufeff\u2028"),
        ("\udc80", r"\udc80"),
        ("\U000e0041", r"\U000e0041"),
        ("", ""),
    ],
)
def test_printable(text: str, expected: str) -> None:
    """Controls, escapes, line breaks, bidirectional and invisible characters become visible; the rest stays."""
    assert printable(text) == expected


@given(st.text(st.characters()))
def test_printable_is_always_one_visible_line(text: str) -> None:
    """Whatever comes in, what goes out is printable, can be encoded, and is left alone by a second pass."""
    shown = printable(text)
    assert shown.isprintable()
    assert shown.encode("utf-8").decode("utf-8") == shown
    assert printable(shown) == shown
