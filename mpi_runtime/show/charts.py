"""What ran where and when, as data for charts: lanes, use over time, colours of functions."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from zlib import crc32

import msgspec

from mpi_runtime.show.page import Block

STEPS = 300
"""Number of parts of the time in the curves of use."""
BARS_MAX = 5000
"""The most bars of a timeline: shorter ones that are neighbours are drawn as one."""
LANES_MAX = 120
DONE, FAILED, RUNNING = range(3)
"""Endings of bars."""
COLOURS = 8


class Ran(msgspec.Struct, frozen=True):
    """One thing that has run, as the charts need it."""

    host: str
    start: float
    """In seconds since 1970."""
    end: float
    name: str = ""
    ending: int = DONE
    cpus: float = 0.0
    gpus: float = 0.0
    gpu_ids: Sequence[int] = ()


def colours(names: Iterable[str]) -> dict[str, int]:
    """The colour of each function: by its name, or the next free one. From the ninth on functions have none: grey."""
    found: dict[str, int] = {}
    for name in names:
        if len(found) == COLOURS:
            break
        if name not in found:
            first = crc32(name.encode(errors="replace"))
            free = ((first + step) % COLOURS for step in range(COLOURS))
            found[name] = next(colour for colour in free if colour not in found.values())
    return found


def lanes(ran: Iterable[Ran], begin_s: float, end_s: float) -> Block:
    """A block of lanes: for each host as many as ran at a time, and one for each GPU. Times count from `begin_s`.

    `names` begin with the function that ran longest.
    """
    found: dict[tuple[str, str, int], list[Ran]] = {}
    free: dict[str, list[int]] = {}
    busy: dict[str, list[tuple[float, int]]] = {}
    for one in sorted(ran, key=lambda one: one.start):
        host = one.host or "lost"
        mine, others = free.setdefault(host, []), busy.setdefault(host, [])
        while others and others[0][0] <= one.start:
            heapq.heappush(mine, heapq.heappop(others)[1])
        lane = heapq.heappop(mine) if mine else len(others)
        heapq.heappush(others, (one.end, lane))
        found.setdefault((host, "", lane), []).append(one)
        for gpu in one.gpu_ids:
            found.setdefault((host, "GPU", gpu), []).append(one)
    shown = sorted(found.items())[:LANES_MAX]
    took: dict[str, float] = {}
    for one in (one for _, bars in shown for one in bars):
        took[one.name] = took.get(one.name, 0.0) + one.end - max(begin_s, one.start)
    names = sorted(took, key=lambda name: -took[name])
    number = {name: index for index, name in enumerate(names)}
    grain_s = (end_s - begin_s) * max(1, len(shown)) / BARS_MAX
    drawn = [
        {
            "node": host,
            "label": f"{kind} {lane}" if kind else str(lane + 1),
            "bars": _bars(bars, number, begin_s, grain_s),
        }
        for (host, kind, lane), bars in shown
    ]
    return {"from": begin_s, "to": end_s, "names": names, "lanes": drawn, "hidden": len(found) - len(shown)}


def _bars(ran: Sequence[Ran], number: dict[str, int], begin_s: float, grain_s: float) -> list[list[float]]:
    """Bars: from, to, function, ending, and the number of things. Things shorter than the grain become one bar."""
    bars: list[list[float]] = []
    for one in ran:
        start, end = one.start - begin_s, one.end - begin_s
        last = bars[-1] if bars else None
        if last is not None and end - last[0] < grain_s:
            last[1], last[3], last[4] = max(last[1], end), last[3] if last[3] == FAILED else one.ending, last[4] + 1
        else:
            bars.append([max(0.0, start), end, number[one.name], one.ending, 1])
    return [[round(start, 6), round(end, 6), *rest] for start, end, *rest in bars]


def timeline(ran: Iterable[Ran], begin_s: float, end_s: float, said: str) -> Block:
    """The block of a timeline."""
    found = lanes(ran, begin_s, end_s)
    return {"id": "timeline", "kind": "lanes", "title": "Timeline", "said": said, "clock": True, **found}


def use(ran: Sequence[Ran], begin_s: float, end_s: float, capacity: tuple[float, float], said: str) -> list[Block]:
    """The block of the CPUs and GPUs that were given, if any were."""
    series = []
    amounts = ((one, one.cpus) for one in ran), ((one, one.gpus) for one in ran)
    for name, of, given in zip(("CPUs", "GPUs"), capacity, amounts, strict=True):
        values = _use(given, begin_s, end_s)
        if any(values):
            series.append({"name": name, "said": f"of {of:g}" if of else "", "of": of, "values": values})
    span = {"from": begin_s, "to": end_s, "clock": True, "series": series}
    return [{"id": "use", "kind": "areas", "title": "Use over time", "said": said, **span}] if series else []


def _use(amounts: Iterable[tuple[Ran, float]], begin_s: float, end_s: float) -> list[float]:
    """The average use in each of STEPS parts of the time."""
    step_s = (end_s - begin_s) / STEPS
    if step_s <= 0:
        return []
    # Each run touches only its first and last part; a running sum of changes covers the parts between.
    changes = [0.0] * (STEPS + 1)
    parts = [0.0] * (STEPS + 1)
    for one, amount in amounts:
        if not amount:
            continue
        first, last = (one.start - begin_s) / step_s, (one.end - begin_s) / step_s
        here, there = min(int(first), STEPS - 1), min(int(last), STEPS - 1)
        if here == there:
            parts[here] += amount * (last - first)
            continue
        parts[here] += amount * (here + 1 - first)
        parts[there] += amount * (last - there)
        changes[here + 1] += amount
        changes[there] -= amount
    level = 0.0
    for step in range(STEPS):
        level += changes[step]
        parts[step] = round(parts[step] + level, 3)
    return parts[:STEPS]
