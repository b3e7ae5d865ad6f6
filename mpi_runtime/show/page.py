"""Builds every page: of a job, a batch, a search, and the live page.

A page is a document: a dictionary with `name`, `pill` (look and word of its state), `meta` (facts in one line),
`banner` (look and text), `colours` (by function) and `blocks`. Each block has an `id`, a `kind`, and with a `title` it
is a section. The scripts in `assets/` draw each kind, and know nothing of jobs. So a page in a file and the live page
look alike, and what they show is decided in Python.

The note of a card may have a `link` to a table, where `find` opens the rows with these words. Rows of a card lead to
the table `finds`, to the rows with their function or text.

| kind | content |
| --- | --- |
| `cards` | questions with answers: `q`, `big`, `small`, `bad`, `rows` of (text, value, function), `meter`, `note` |
| `tiles` | numbers with a curve: `label`, `value`, `small`, `curve`, `max` |
| `wall` | the time of the job: `begin`, `now`, `end`, `estimate`, `low`, `high` |
| `warns` | rows of (time, text, effect) |
| `table` | `columns` of {t, form}, `rows` of (id, values...), `details` by id, `open`, `search`, `sort`, `limit` |
| `areas` | curves of amounts: `from`, `to`, `series` of {name, of, values} |
| `lanes` | what ran where: see `charts.lanes` |
| `heat` | nodes as cells: `metrics`, `nodes` |
| `bars` | `halves` of {title, form, rows of (name, amount, function)} |
| `log` | lines of output: (number, time, level, writer, text, function) |
| `progress`, `reports`, `parallel` | of a search: `trials`, `axes`, `metric`, `mode`, `best` |
| `picture` | `src`, a data URL, and `text` |
| `line` | a curve: `points` of (x, y) or (x, y, least, most), `name`, `x`, `height` |
| `errors`, `kv`, `pre`, `note` | inside details: errors with tracebacks, pairs, text |
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from importlib import resources
from typing import Any

import msgspec

from mpi_runtime.files.writing import replace_file

SCRIPTS = ("kit.js", "blocks.js", "search.js", "page.js")
Document = dict[str, Any]
Block = dict[str, Any]
Column = tuple[Any, ...]
"""Of a table: title, form, further fields."""


def write(path: str, document: Document) -> None:
    """Write a document as one file that loads nothing. An existing file is replaced as a whole.

    Raises:
        OSError: it cannot be written.
    """
    replace_file(path, page(document))


def page(document: Document) -> str:
    """Return a document as a page that loads nothing."""
    return html_page(document["name"], f'<script id="data" type="application/json">{in_script(document)}</script>')


def html_page(name: str, more: str = "", scripts: Sequence[str] = SCRIPTS, attributes: str = "") -> str:
    """Return the frame of a page with these scripts. `more` stands before them; `attributes` are those of a script."""
    code = "".join(f"<script{attributes}>{asset(one)}</script>" for one in scripts)
    return (
        FRAME.replace("@NAME@", html.escape(_as_text(name)))
        .replace("@NONCE@", attributes)
        .replace("@CSS@", asset("page.css"))
        .replace("@SCRIPTS@", more + code)
    )


def asset(name: str) -> str:
    """Return the text of a file in `assets/`."""
    return (resources.files("mpi_runtime.show") / "assets" / name).read_text(encoding="utf-8")


def in_script(value: object) -> str:
    """Return a value as JSON that cannot end a script, whatever it contains."""
    return as_json(value).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def as_json(value: object) -> str:
    """Return a value as JSON: null for numbers that are not finite, "?" for bytes in a string that are not text."""
    try:
        return msgspec.json.encode(value, enc_hook=repr).decode()
    except UnicodeEncodeError:  # bytes in a file name or an error that are not UTF-8
        return msgspec.json.encode(_as_text(value), enc_hook=repr).decode()


def _as_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_as_text(key): _as_text(one) for key, one in value.items()}
    return [_as_text(one) for one in value] if isinstance(value, (list, tuple)) else value


def card(q: str, big: str, small: str, rows: Sequence[Sequence[object]] = (), **more: object) -> Block:
    """Return a question with its answer, for a block of cards."""
    return {"q": q, "big": big, "small": small, "rows": rows, **more}


def table(id: str, title: str, columns: Sequence[Column], rows: Sequence[Sequence[object]], **more: object) -> Block:
    """Return a table."""
    named = [{"t": one[0], "form": one[1], **(one[2] if len(one) > 2 else {})} for one in columns]
    return {"id": id, "kind": "table", "title": title, "columns": named, "rows": rows, **more}


FRAME = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>@NAME@</title>
<style@NONCE@>@CSS@</style>
<a class="skip" href="#main">Skip to the content</a>
<div class="bar"><div><b>mpi_runtime</b><span class="pill" id="pill" hidden></span>
<span class="dim nb" id="fresh" role="status"></span><nav aria-label="Sections"></nav>
<span class="end nb" id="buttons"><button class="btn" id="theme"></button></span></div></div>
<main id="main">
<div class="head"><h1 id="name">@NAME@</h1><p class="meta num" id="meta"></p></div>
<div id="banner"></div>
</main>
@SCRIPTS@
</html>
"""
