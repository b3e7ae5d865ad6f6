"""Text of unknown programs for a terminal: an escape sequence could clear it, rename it, or hide what was written."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec

_PARTS = re.compile(r"(\x1b\[[0-9;:]*m)")
"""A sequence that sets colours and nothing else."""
_UNFINISHED = re.compile(r"\x1b(\[[0-9;:]{0,99})?\Z")
_RESET = "\x1b[0m"


def visible(value: Any) -> Any:
    """Return a value of any depth with its control characters in the letters of Python."""
    if isinstance(value, str):
        if value.isprintable():
            return value
        return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in value)
    if isinstance(value, msgspec.Struct):
        fields = {name: visible(getattr(value, name)) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **fields)
    if isinstance(value, dict):
        return {visible(key): visible(one) for key, one in value.items()}
    return [visible(one) for one in value] if isinstance(value, (list, tuple)) else value


def harmless(blocks: Iterable[bytes]) -> Iterator[str]:
    """Decode an output for a terminal: colours stay, a carriage return ends the line, the rest is `visible`."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
    rest, has_colours = "", False
    for block, is_last in chain(((one, False) for one in blocks), [(b"", True)]):
        text = rest + decoder.decode(block, is_last)
        unfinished = None if is_last else _UNFINISHED.search(text)
        text, rest = (text[: unfinished.start()], unfinished[0]) if unfinished else (text, "")
        parts = _PARTS.split(text)
        has_colours = has_colours or len(parts) > 1
        parts[::2] = ["\t".join(map(visible, part.split("\t"))) for part in parts[::2]]
        yield "".join(parts)
    if has_colours:
        yield _RESET
