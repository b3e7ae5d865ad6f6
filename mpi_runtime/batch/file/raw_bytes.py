"""Bytes that are not UTF-8 in a list of commands, mostly in names of files.

Commands are text: in journals, on pages, in JSON. There such a byte has a place of its own at the end of Unicode, among
letters for private use that no font has: 0xe9 is U+10FFE9. The shell of the command gets the byte.
"""

from __future__ import annotations

import re

FIRST = 0x10FF00
"""The letter for a byte is this one plus the byte."""
_LETTERS = re.compile("[\U0010ff80-\U0010ffff]")
_ESCAPED = re.compile("[\udc80-\udcff]")


def text_with(data: bytes | bytearray) -> str:
    """Bytes as a text in UTF-8, with letters for those that are not, and for each byte of such a letter."""
    text = data.decode("utf-8", "surrogateescape")
    if text.isascii():
        return text
    text = _LETTERS.sub(lambda found: "".join(chr(FIRST + byte) for byte in found[0].encode()), text)
    return _ESCAPED.sub(lambda found: chr(ord(found[0]) - 0xDC00 + FIRST), text)


def has_raw(text: str) -> bool:
    """Whether a text has letters for bytes."""
    return not text.isascii() and _LETTERS.search(text) is not None


def shown(text: str) -> str:
    """A text for people, with such bytes as Python writes them."""
    return _LETTERS.sub(lambda found: f"\\x{ord(found[0]) - FIRST:02x}", text)


def bytes_of(text: str) -> bytes:
    """A text in UTF-8, with the bytes for such letters."""
    if text.isascii():
        return text.encode()
    return _LETTERS.sub(lambda found: chr(ord(found[0]) - FIRST + 0xDC00), text).encode("utf-8", "surrogateescape")


def plain_text(value: object, may_be_raw: bool = False) -> str:
    """A text that can be written as UTF-8, without letters for bytes unless it `may_be_raw`.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"must be a text, not {value!r}")
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError(f"must be text that can be written as UTF-8, which {value!r} cannot")
    return value if may_be_raw else without_raw(value)


def without_raw(text: str) -> str:
    """A text without letters for bytes.

    Raises:
        ValueError: it has some.
    """
    if has_raw(text):
        raise ValueError(f"must be UTF-8: only commands may have other bytes, not {shown(text)}")
    return text
