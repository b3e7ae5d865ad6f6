"""`timeline()`: when and where calls ran, as events for Perfetto and Chrome's tracing view."""

from __future__ import annotations

import heapq
import json
import os
from typing import Any

from mpi_runtime.core import published
from mpi_runtime.core.driver import running
from mpi_runtime.files.writing import replace_file
from mpi_runtime.scheduler.protocol.ids import PREFIX_BYTES, prefix_of
from mpi_runtime.scheduler.protocol.past import Past, PastMove, PastRun
from mpi_runtime.scheduler.protocol.questions import History

_FAILED_COLOUR = "terrible"
"""The name of red in the trace format."""
COUNTS_MAX = 5000
JOINED_US = 1000
_TRACKS = {"copy": "Copies from other nodes", "spill": "Spills to disk", "read": "Reads from disk"}
_DRIVER = 4_000_000_000
"""The track of the driver. Those of moves follow."""
_LANE = 1_000_000
"""Distance between the track numbers of one process. Concurrent calls of a process have tracks of their own."""


@published()
def timeline(filename: str | os.PathLike[str] | None = None) -> list[dict[str, Any]] | None:
    """When and where each call ran, as events in Chrome's trace format.

    https://ui.perfetto.dev and chrome://tracing show the events. There is an event (`"ph": "X"`) for each attempt of
    each call that has ended: `name`, `cat` ("task::" and the name), `pid` (the node's number), `tid` (the process; an
    actor with concurrent calls has several), `ts` and `dur` in microseconds. `args` has the ids of call and actor,
    `submitted` (like `ts`), `attempt_number`, `type`, `worker_pid`, `rank`, `node`, `state` ("FINISHED" or "FAILED")
    and `error` ("raised", "its process died" or ""); in a session `driver`, the number of the program that it belongs
    to. Events are in the order in which they began. Names of nodes and
    processes (`"ph": "M"`) precede them. Then follow arrows (`"s"` and `"f"`) from calls to those that they have
    submitted; slices of the category "submission" on a track of the driver, each for calls submitted within a
    millisecond; slices of the category "object" for large values that a node has copied from another node ("copy"),
    written to disk ("spill") or read back ("read"), with `object_id`, `bytes`, `made_by` and `source`; and counters
    (`"C"`) of waiting and running calls, and of the bytes in the object store of each node.

    Times are microseconds since 1970 by the clock of rank 0's host at the start of the job, and never jump. Times of
    other hosts are converted with the fastest of their messages: they appear later by the duration of that message. A
    call that died with its process begins, in the timeline, with the last message of that process.

    The last 100 000 calls are kept, and 20 000 copies, spills and levels of object stores. An event named
    "process_labels" has the number of other calls. A copy takes from the head's order to the report of its arrival.
    Calls of `f.map` appear as the tasks that make them.

    Args:
        filename: a file for the events, as JSON.

    Returns:
        The events; None with `filename`.

    Raises:
        OSError: the file cannot be written.
        TypeError: `filename` is not the name of a file.

    Example:
        ```python
        ray.get([work.remote(i) for i in range(100)])
        ray.timeline("timeline.json")
        ```
    """
    if not isinstance(filename, (str, os.PathLike, type(None))):  # a number would be a descriptor, perhaps ours
        raise TypeError(f"timeline(filename={filename!r}): it must be the name of a file, or None")
    found = running.client().questions.ask(History())
    found_events = events(found)
    if filename is None:
        return found_events
    replace_file(os.fsdecode(filename), json.dumps(found_events))
    return None


def events(found: Past) -> list[dict[str, Any]]:
    """Return the events of runs and moves."""
    runs = sorted(found.runs, key=lambda run: run.times.start_us)
    wall_us, dropped = found.wall_us, found.dropped
    lanes = _Lanes()
    names: dict[tuple[Any, ...], dict[str, Any]] = {}
    slices = []
    for run in runs:
        process, times, host = run.process, run.times, run.node.number
        executor = process.executor
        track = executor + _LANE * lanes.take(executor, times.start_us, times.start_us + times.duration_us)
        names.setdefault((host,), _name("process_name", host, 0, f"Node {run.node.hostname}"))
        title = f"{process.name or 'Worker'} pid={process.pid}"
        names.setdefault((host, track), _name("thread_name", host, track, title))
        slices.append(_event(run, track, wall_us))
    if dropped:
        text = f"the first {dropped} calls are left out: only {len(runs)} are kept"
        names["dropped",] = {"name": "process_labels", "ph": "M", "pid": 0, "tid": 0, "args": {"labels": text}}
    submissions = _submissions(slices)
    moves, levels = _moves(found.moves, wall_us, names)
    if submissions:
        names["driver",] = _name("thread_name", 0, _DRIVER, "Driver: submissions")
    return [*names.values(), *slices, *_arrows(slices), *submissions, *moves, *_counters(slices), *levels]


def _submissions(slices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the driver has submitted: a slice for all calls with at most JOINED_US between two of them."""
    driver = prefix_of(b"driver", 0).hex()
    first = [one for one in slices if one["args"]["task_id"].startswith(driver) and not one["args"]["attempt_number"]]
    found: list[dict[str, Any]] = []
    for one in sorted(first, key=lambda one: one["args"]["submitted"]):
        submitted_us = one["args"]["submitted"]
        if not found or submitted_us > found[-1]["ts"] + found[-1]["dur"] + JOINED_US:
            shared = {"ph": "X", "pid": 0, "tid": _DRIVER, "cat": "submission"}
            found.append({**shared, "name": "submits", "ts": submitted_us, "dur": 0, "args": {"calls": 0}})
        found[-1]["dur"] = submitted_us - found[-1]["ts"]
        found[-1]["args"]["calls"] += 1
    return found


def _moves(
    moves: list[PastMove], wall_us: int, names: dict[tuple[Any, ...], dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Slices of copies, spills and reads on tracks of their nodes, and counters of what is in the object stores."""
    lanes = _Lanes()
    slices: list[dict[str, Any]] = []
    levels: list[dict[str, Any]] = []
    for move in sorted(moves, key=lambda one: one.times.start_us):
        what, host, times = move.what, move.node.number, move.times
        names.setdefault((host,), _name("process_name", host, 0, f"Node {move.node.hostname}"))
        if what == "level":
            shared = {"name": "object store", "ph": "C", "pid": host, "tid": 0}
            levels.append({**shared, "ts": wall_us + times.start_us, "args": {"bytes": move.size}})
            continue
        kind = list(_TRACKS).index(what)
        lane = lanes.take(host * len(_TRACKS) + kind, times.start_us, times.start_us + times.duration_us)
        track = _DRIVER + 1 + kind + len(_TRACKS) * lane
        names.setdefault((host, track), _name("thread_name", host, track, _TRACKS[what]))
        args = {"object_id": move.object_id, "bytes": move.size, "made_by": move.made_by, "source": move.source}
        shared = {"name": what, "cat": "object", "ph": "X", "pid": host, "tid": track}
        slices.append({**shared, "ts": wall_us + times.start_us, "dur": times.duration_us, "args": args})
    return slices, levels


def _arrows(slices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An arrow from each call to each call that it has submitted, by the ids, which derive from the caller's."""
    parents: dict[bytes, dict[str, Any]] = {}
    for one in slices:
        args = one["args"]
        parents[prefix_of(bytes.fromhex(args["task_id"]), args["attempt_number"])] = one
    arrows = []
    for number, one in enumerate(slices):
        parent = parents.get(bytes.fromhex(one["args"]["task_id"])[:PREFIX_BYTES])
        if parent is None or parent["ts"] > one["ts"]:
            continue
        left = min(max(one["args"]["submitted"], parent["ts"]), parent["ts"] + parent["dur"])
        shared = {"name": "submits", "cat": "submission", "id": number}
        arrows.append({**shared, "ph": "s", "pid": parent["pid"], "tid": parent["tid"], "ts": min(left, one["ts"])})
        arrows.append({**shared, "ph": "f", "bp": "e", "pid": one["pid"], "tid": one["tid"], "ts": one["ts"]})
    return arrows


def _counters(slices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The numbers of running and of waiting calls over time, about COUNTS_MAX of them."""
    changes: list[tuple[int, int, int]] = []
    for one in slices:
        begin, end = one["ts"], one["ts"] + one["dur"]
        changes += [(min(one["args"]["submitted"], begin), 1, 0), (begin, -1, 1), (end, 0, -1)]
    changes.sort(key=lambda one: (one[0], -one[1], one[2]))  # at one time: submissions, ends, starts
    waiting = running = 0
    counts, every = [], max(1, len(changes) // COUNTS_MAX)
    for number, (time_us, queued, started) in enumerate(changes):
        waiting, running = waiting + queued, running + started
        if number % every == 0 or number == len(changes) - 1:
            args = {"waiting": waiting, "running": running}
            counts.append({"name": "calls", "ph": "C", "pid": slices[0]["pid"], "tid": 0, "ts": time_us, "args": args})
    return counts


def _name(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _event(run: PastRun, track: int, wall_us: int) -> dict[str, Any]:
    times = run.times
    event = {
        "cat": f"task::{run.name}",
        "name": run.name,
        "ph": "X",
        "pid": run.node.number,
        "tid": track,
        "ts": wall_us + times.start_us,
        "dur": times.duration_us,
        "args": {
            "task_id": run.id,
            "actor_id": run.actor_id,
            "name": run.name,
            "type": run.type,
            "attempt_number": run.attempt,
            "submitted": wall_us + times.submitted_us,
            "worker_pid": run.process.pid,
            "rank": run.process.rank,
            "node": run.node.hostname,
            **({"driver": run.driver} if run.driver else {}),
            "state": "FAILED" if run.error else "FINISHED",
            "error": run.error,
        },
    }
    if run.error:
        event["cname"] = _FAILED_COLOUR
    return event


class _Lanes:
    """Tracks for calls of one process that overlap: on one track events must not."""

    def __init__(self) -> None:
        self._busy: dict[int, list[tuple[int, int]]] = {}
        """For each process: the ends of the calls on its tracks, with the numbers of the tracks."""
        self._free: dict[int, list[int]] = {}
        self._made: dict[int, int] = {}

    def take(self, process: int, start_us: int, end_us: int) -> int:
        """The lowest free track of a process at the start of a call. Calls arrive in the order of their starts."""
        busy, free = self._busy.setdefault(process, []), self._free.setdefault(process, [])
        while busy and busy[0][0] <= start_us:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane = self._made.get(process, 0)
            self._made[process] = lane + 1
        heapq.heappush(busy, (end_us, lane))
        return lane
