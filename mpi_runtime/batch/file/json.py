"""The form of a batch with one JSON object a line.

Such as:
    {"command": "train --seed {seed}", "name": "train", "product": {"seed": [1, 2]}}
    {"command": "plot", "after": "train"}
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from mpi_runtime.batch.file.entries import (
    KEYS_MAX,
    LINE_MAX,
    NO_DEFAULTS,
    TOO_DEEP,
    TOO_LONG,
    Entry,
    Parsed,
    Problem,
    wrong_with,
)


def read_json_line(line: str, number: int) -> tuple[Entry | None, list[Problem]]:
    """Read one line. An empty line has neither an entry nor a problem."""
    if not line.strip():
        return None, []
    if len(line) > LINE_MAX:
        return None, [Problem(number, 1, f"a line has at most {LINE_MAX} letters")]
    twice: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice.extend(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        return found

    try:
        content = json.loads(line, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        return None, [Problem(number, error.colno, f"this is not JSON: {error.msg}")]
    except RecursionError:
        return None, [Problem(number, 1, TOO_DEEP)]
    except ValueError:
        return None, [Problem(number, 1, TOO_LONG)]
    if wrong := wrong_with(content):
        return None, [Problem(number, 1, wrong)]
    if not isinstance(content, dict):
        return None, [Problem(number, 1, f'each line must be an object, {{"command": ...}}, not {content!r}')]
    if len(content) > KEYS_MAX:
        return None, [Problem(number, 1, f"a command has at most {KEYS_MAX} keys, not {len(content)}")]
    places = {name: (number, _column(line, name)) for name in content}
    problems = [Problem(number, _column(line, name), f"{name} is given twice") for name in twice]
    return Entry(content, (number, len(line) - len(line.lstrip()) + 1), f"line-{number}", places), problems


def read_json_lines(text: str) -> Parsed:
    """Read the text of a whole file."""
    found = [read_json_line(line, number) for number, line in enumerate(text.split("\n"), 1)]
    entries = [entry for entry, _ in found if entry is not None]
    return entries, NO_DEFAULTS, [problem for _, problems in found for problem in problems]


def _column(line: str, name: str) -> int:
    """The column of a key; that of the line if the key is written with escapes."""
    found = re.search(rf"{re.escape(json.dumps(name, ensure_ascii=False))}\s*:", line)
    return found.start() + 1 if found else 1
