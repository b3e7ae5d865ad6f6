"""The screen of `top --watch` in a terminal, drawn by rich: it follows the job, and has keys."""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import termios
import tty
from collections.abc import Generator
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from mpi_runtime.cli.watching import Watching
from mpi_runtime.scheduler.protocol.window_questions import FunctionEntry
from mpi_runtime.show.charts import colours
from mpi_runtime.show.facts import Facts, driver_state, failures_first, how_often, on_terminal, time_left, waits
from mpi_runtime.show.job import PILLS
from mpi_runtime.show.live_picture import LivePicture
from mpi_runtime.show.measures import CURVES
from mpi_runtime.show.numbers import clock, count, plural, seconds, short_ids, size, three

SAMPLE_S = 1.0
COLOURS = (
    *("deep_sky_blue3", "dark_orange3", "sea_green3", "orchid"),
    *("dodger_blue1", "gold3", "medium_purple", "dark_sea_green4"),
)
SORTS = ("waiting", "running", "done", "failed", "name")
SPARKS = " ▁▂▃▄▅▆▇█"
CURVE = 40
NODES_MAX = 6
WIDTH, WIDE = 24, 120
"""The width of a bar, on a screen of this width."""
FUNCTIONS_MIN, FUNCTIONS_MAX = 4, 15
"""Rows of functions: before other parts are left out, and on a screen of any size."""
COLUMNS = {
    "function": 0,
    "progress": 0,
    "waiting": 50,
    "running": 60,
    "done": 70,
    "failed": 0,
    "calls/s": 90,
    "mean": 100,
    "ends": 78,
}
"""The columns of functions, with the least width of a screen that has them."""
ONE_LINE: dict[str, Any] = {"no_wrap": True, "overflow": "ellipsis"}
_KEYS = re.compile(r"\x1b\[[A-Z]|[\s\S]")


def is_possible(console: Console) -> bool:
    """Whether the terminal can move its cursor, and shows the letters of bars."""
    return not console.is_dumb_terminal and console.encoding.startswith("utf")


class Screen:
    """The screen of one job."""

    def __init__(self, job: Watching) -> None:
        self._job = job
        self._sort = 0
        self._filter = ""
        self._is_typing = False
        self._details = False
        self._first = 0
        """The first function that is shown."""

    def run(self, live: LivePicture) -> int:
        """Show it until it ends or `q`, and return the exit code."""
        is_running = True
        with _keys(), live:
            while True:
                live.show(lambda: self.picture(live.console), 0)
                if select.select([sys.stdin], [], [], SAMPLE_S)[0]:
                    text = os.read(sys.stdin.fileno(), 256).decode(errors="replace")
                    if not all([self._press(key) for key in _KEYS.findall(text)]):
                        break
                elif is_running:
                    is_running = self._job.sample()
        if not is_running:
            print("the job has ended" if self._job.facts.state == "ended" else "the job was killed")
        return 0

    def _press(self, key: str) -> bool:
        """Take a key. Return whether to continue."""
        if self._is_typing:
            if key in ("\r", "\n", "\x1b"):
                self._is_typing = False
                self._filter = "" if key == "\x1b" else self._filter
            else:
                self._filter = self._filter[:-1] if key in ("\x7f", "\b") else self._filter + key
        elif key in ("q", "Q"):
            return False
        elif key == "s":
            self._sort = (self._sort + 1) % len(SORTS)
        elif key == "d":
            self._details = not self._details
        elif key == "/":
            self._is_typing, self._filter = True, ""
        elif key in ("\x1b[B", "j"):
            self._first += 1
        elif key in ("\x1b[A", "k"):
            self._first = max(0, self._first - 1)
        return True

    def picture(self, console: Console) -> RenderableType:
        """What is on the screen: what has no room below the functions is left out, the least important first."""
        facts = on_terminal(self._job.facts)
        head, foot = _head(facts), self._foot()
        room = console.height - _height(console, head, foot) - 2
        lower: list[list[RenderableType]] = []
        if facts.glance.errors:
            errors = _errors(facts, self._details)
            lower.append(errors if 2 * _height(console, *errors) < room else _errors(facts, False))
        if self._details:
            lower.append([_running(facts)])
        lower.append([_numbers(facts, console.width)])
        if facts.actors.rows:
            lower.append([_actors(facts)])
        if facts.glance.drivers:
            lower.append([_drivers(facts)])
        if len(facts.measured) > 1:
            lower.append([_nodes(facts)])
        least = min(FUNCTIONS_MIN, len(facts.glance.functions)) + 1
        shown: list[list[RenderableType]] = []
        for part in lower:
            if (lines := _height(console, *part) + 1) + least <= room:
                shown.append(part)
                room -= lines
        functions = self._functions(facts, console.width, max(1, min(FUNCTIONS_MAX, room - 1)))
        numbers = [part for part in shown if isinstance(part[0], Table) and not part[0].show_header]
        others = [part for part in shown if part not in numbers]
        rows = [[head, *(numbers[0] if numbers else [])], [functions], *others[::-1]]
        return Group(*(one for part in rows for one in (*part, Text(""))), foot)

    def _foot(self) -> Text:
        if self._is_typing:
            return Text(f"filter: {self._filter}▏  Enter keeps it, Esc clears it", "bold", **ONE_LINE)
        found = f"; filter {self._filter!r}" if self._filter else ""
        keys = f"q ends, s sorts (by {SORTS[self._sort]}), / filters{found}, d details, ↑↓ moves"
        return Text(keys, "dim", **ONE_LINE)

    def _functions(self, facts: Facts, width: int, most: int) -> RenderableType:
        """The first rows, and the columns that fit: how far it is, and what failed, even in the narrowest."""
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", expand=False)
        names = [name for name, least in COLUMNS.items() if width >= least]
        for name in names:
            is_text = name in ("function", "progress")
            most_width = max(12, width // 3) if name == "function" else None
            table.add_column(name, justify="left" if is_text else "right", no_wrap=True, max_width=most_width)
        key = SORTS[self._sort]
        rows = [one for one in facts.glance.functions if self._filter.lower() in one.name.lower()]
        rows.sort(key=lambda one: one.name if key == "name" else -getattr(one, key))
        self._first = min(self._first, max(0, len(rows) - 1))
        size = WIDTH if width >= WIDE else WIDTH // 3
        for one in rows[self._first : self._first + most]:
            end = facts.estimates.get(one.name)
            cells: dict[str, RenderableType] = {
                "function": Text(one.name, "bold"),
                "progress": bar(one, _colour(facts, one.name), size),
                "waiting": count(one.waiting),
                "running": count(one.running),
                "done": count(one.done),
                "failed": Text(count(one.failed), "red" if one.failed else "dim"),
                "calls/s": three(facts.rates.get(one.name, 0.0)),
                "mean": seconds(one.mean_us / 1e6) if one.mean_us >= 0 else "\u2013",
                "ends": clock(end.end_s, False) if end is not None else "\u2013",
            }
            table.add_row(*(cells[name] for name in names))
        nothing = "no function has this name" if self._filter else "no call has been submitted"
        return table if rows else Text(nothing, "dim")


def _height(console: Console, *parts: RenderableType) -> int:
    return sum(len(console.render_lines(part, pad=False)) for part in parts)


def _colour(facts: Facts, name: str) -> str:
    found = colours(one.name for one in facts.glance.functions)
    return COLOURS[found[name]] if name in found else "grey50"


def bar(one: FunctionEntry, colour: str, width: int = WIDTH) -> Text:
    """Return a bar of done, failed, cancelled and running calls, with the share that has ended."""
    whole = one.submitted or 1
    text, used = Text(), 0
    for letter, number, style in (
        ("█", one.done, colour),
        ("█", one.failed, "red"),
        ("█", one.cancelled, "grey50"),
        ("▒", one.running, colour),
    ):
        cells = min(width - used, max(int(bool(number)), round(width * number / whole)))
        text.append(letter * cells, style)
        used += cells
    text.append("░" * (width - used), "grey35")
    return text.append(f" {one.ended / whole:4.0%}")


def spark(values: list[float], most: float = 0.0) -> str:
    """Return a curve of letters."""
    most = most or max(values, default=0.0) or 1.0
    return "".join(SPARKS[min(8, round(8 * value / most))] for value in values[-CURVE:])


def _head(facts: Facts) -> Text:
    look, word = PILLS[facts.state]
    text = Text(f"{facts.name} ", "bold").append(f" {word} ", "white on red" if look == "bad" else "black on cyan")
    text.append(f"  pid {facts.pid} on {facts.host}, {seconds(facts.now_s - facts.begin_s)}", "dim")
    end = facts.estimates.get("")
    if end is not None:
        text.append(f"  done about {clock(end.end_s, False)}", "bold")
        text.append(f" ({clock(end.low_s, False)} to {clock(end.high_s, False)})", "dim")
    for one in facts.searches:
        text.append(f"\nsearch {one.name}: {one.progress}", "dim")
    if left := time_left(facts):
        text.append(f"\n{left}", "red" if facts.open_at_end() else "dim")
    if facts.cause:
        text.append(f"\n{facts.cause}", "red")
    return text


def _numbers(facts: Facts, width: int) -> Table:
    counts, total, free = facts.glance.counts, facts.glance.total, facts.glance.free
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    curves = facts.curves

    def row(name: str, text: str, curve: list[float], most: float = 0.0) -> None:
        drawn = [Text(spark(curve, most), "cyan")] if width >= 70 else []
        table.add_row(Text(name, "dim"), Text(text, **ONE_LINE), *drawn)

    calls = f"{count(counts.running)} running, {count(counts.waiting)} waiting, {count(counts.ended)} ended"
    calls += f", {count(counts.failed)} failed" if counts.failed else ""
    calls += f", {count(counts.cancelled)} cancelled" if counts.cancelled else ""
    row("calls", calls, curves.get("waiting", []))
    if facts.waits:
        row("waiting", waits(facts), [])
    row("rate", f"{three(facts.rates.get('', 0.0))} end each second", curves.get("rate", []))
    for what in ("CPU", "GPU"):
        if whole := total.get(what):
            given = f"{three(whole - free.get(what, 0.0))} of {three(whole)} given"
            row(f"{what}s", given, curves.get(what, []), whole)
    whole = total["object_store_memory"]
    on_disk = facts.store.on_disk if facts.store is not None else 0
    disk = f", {size(on_disk)} on disk" if on_disk else ""
    used = f"{size(whole - free.get('object_store_memory', 0.0))} of {size(whole)}{disk}"
    row("store", used, curves.get("store", []), whole)
    if facts.cpu_use is not None:
        hosts = "the host" if len(facts.measured) == 1 else "all hosts"
        row("use", f"{facts.cpu_use:.0%} of the CPUs of {hosts}", curves.get("CPU use", []), 1.0)
    return table


def _nodes(facts: Facts) -> RenderableType:
    """What is used on each node: the first of them."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    names = [name for name in CURVES if any(found.curves[name] for found in facts.measured.values())]
    for name in ("node", *names):
        table.add_column(name, no_wrap=True)
    for name, found in list(facts.measured.items())[:NODES_MAX]:
        cells: list[Text] = []
        for curve in names:
            points = list(found.curves[curve])
            cells.append(Text(spark(points[-12:], 1.0), "cyan").append(f" {points[-1]:4.0%}", "") if points else Text())
        table.add_row(Text(name, "bold"), *cells)
    hidden = facts.glance.nodes_in_all - NODES_MAX
    return Group(table, Text(f"and {plural(hidden, 'more node')}", "dim")) if hidden > 0 else table


def _actors(facts: Facts) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("actor", "class", "state", "pid"):
        table.add_column(name, no_wrap=True)
    for name in ("waiting", "restarts", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    ids = short_ids(one.actor_id for one in facts.actors.rows)
    for one in sorted(facts.actors.rows, key=lambda one: -one.pending_calls)[:8]:
        name = one.title or ids[one.actor_id]
        style = "red" if one.state == "DEAD" else ""
        used = facts.sizes.get((facts.host_of(one), one.pid or 0))
        memory = size(used) if used is not None else "\u2013"
        pid = str(one.pid or "\u2013")
        cells: list[RenderableType] = [Text(name, "bold"), one.short_class, Text(one.state.lower(), style), pid]
        table.add_row(*cells, count(one.pending_calls), count(one.num_restarts), memory)
    hidden = facts.actors.count - 8
    return Group(table, Text(f"and {plural(hidden, 'more actor')}", "dim")) if hidden > 0 else table


def _drivers(facts: Facts) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("driver", "program", "state", "pid"):
        table.add_column(name, no_wrap=True)
    for name in ("waiting", "running", "actors"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in facts.glance.drivers[:8]:
        state = Text(driver_state(one, facts.now_s), "yellow" if one.away_ms else "")
        counts = (one.open_calls - one.running_calls, one.running_calls, one.actors + one.detached_actors)
        table.add_row(str(one.driver), Text(one.program, "bold"), state, str(one.pid), *map(count, counts))
    hidden = facts.glance.drivers_in_all - len(facts.glance.drivers[:8])
    return Group(table, Text(f"and {plural(hidden, 'more driver')}", "dim")) if hidden > 0 else table


def _errors(facts: Facts, details: bool) -> list[RenderableType]:
    found: list[RenderableType] = []
    for one in failures_first(facts.glance.errors)[: 8 if details else 3]:
        text = Text("✕ ", "red", **({} if details else ONE_LINE))
        text.append(f"{one.function}: ", "bold").append(one.text)
        text.append(f"  {how_often(one)}", "dim")
        kept = facts.errors.get(one.function, [])
        trace = next((each.trace for each in kept if each.text == one.text), "")
        if details and trace:
            text.append("\n" + "\n".join(f"    {line}" for line in trace.splitlines()[-6:]), "dim")
        found.append(text)
    return found


def _running(facts: Facts) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("runs longest", "node", "rank", "pid", "for"):
        table.add_column(name, no_wrap=True)
    for one in facts.glance.running[:10]:
        title = f"{one.title}{' (waits)' if one.is_blocked else ''}"
        table.add_row(title, one.host, str(one.rank), str(one.pid), seconds(one.for_us / 1e6))
    return table


@contextlib.contextmanager
def _keys() -> Generator[None]:
    """Read keys one by one inside the block, without an echo."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
