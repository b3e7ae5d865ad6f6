"""Lists of records that a notebook shows as tables. Everywhere else they are lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from mpi_runtime.show.numbers import size

T = TypeVar("T", bound=Mapping[str, object])

ROWS_MAX = 100
CELL_CHARACTERS_MAX = 200


class Table(list[T]):
    """A list of dictionaries with the same keys."""

    def _repr_html_(self) -> str:
        names = list(dict.fromkeys(name for row in self for name in row))
        rows = [[row.get(name, "") for name in names] for row in self[:ROWS_MAX]]
        more = f"<p>and {len(self) - ROWS_MAX} more</p>" if len(self) > ROWS_MAX else ""
        return html_table(names, rows) + more if self else "<p>none</p>"


def aligned(rows: Sequence[Sequence[str]], numbers: int = 0) -> list[str]:
    """Return rows as lines for a terminal, with aligned columns. The first `numbers` are aligned to the right."""
    return ["  ".join(cells).rstrip() for cells in _padded(rows, numbers)]


def boxed(rows: Sequence[Sequence[object]]) -> list[str]:
    """Return rows as lines for a terminal, with lines of dashes around them and below the first."""
    padded = _padded([[str(cell) for cell in row] for row in rows])
    names, *others = (f"| {' | '.join(cells)} |" for cells in padded)
    rule = f"+{'+'.join('-' * (len(cell) + 2) for cell in padded[0])}+"
    return [rule, names, rule.replace("-", "="), *others, rule]


def _padded(rows: Sequence[Sequence[str]], numbers: int = 0) -> list[list[str]]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pads = [*[str.rjust] * numbers, *[str.ljust] * (len(widths) - numbers)]
    return [[pad(cell, width) for pad, cell, width in zip(pads, row, widths, strict=True)] for row in rows]


def html_table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table as HTML."""
    head = "".join(f"<th>{in_html(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def in_html(text: str) -> str:
    """Return the text, escaped for HTML."""
    from html import escape  # not at the top: few programs run in a notebook

    return escape(text)


def _cell(value: object) -> str:
    if isinstance(value, Mapping):
        value = ", ".join(f"{name}: {_amount(name, one)}" for name, one in value.items())
    elif isinstance(value, (list, tuple)):
        value = ", ".join(map(str, value))
    text = str(value)
    return in_html(text if len(text) <= CELL_CHARACTERS_MAX else f"{text[: CELL_CHARACTERS_MAX - 3]}...")


def _amount(name: str, value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return size(value) if "memory" in name else f"{value:g}"
