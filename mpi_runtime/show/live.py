"""Collects what a running job answers, second by second: the facts of its live page."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Sequence

from mpi_runtime.scheduler.protocol.past import RETURNED, Run
from mpi_runtime.scheduler.protocol.questions import A, Question
from mpi_runtime.scheduler.protocol.window_questions import (
    Errors,
    FirstActors,
    Glance,
    JobCounts,
    JobState,
    MeasuredHosts,
    Oldest,
    Output,
    Piece,
    Reply,
    RunsSince,
    Several,
    SingleQuestion,
    WholeStore,
)
from mpi_runtime.show import job, metrics, node_sections, sections, stacks
from mpi_runtime.show.estimates import ENDS_MIN, Estimate, estimate, whole
from mpi_runtime.show.facts import NO_ACTORS, Facts, Waiting
from mpi_runtime.show.measures import measured_of
from mpi_runtime.show.metrics import rows_of
from mpi_runtime.show.numbers import seconds
from mpi_runtime.show.page import Block, Document, table

POINTS_MAX = 300
"""The points of a curve: five minutes."""
RUNS_MAX = 5000
PIECES_MAX = 1000
RATE_S = 60.0
ESTIMATE_S = 600.0
BEFORE_S = 5.0
MEASURES_S = 3.0
UNKNOWN_PART = 0.1
"""With more open calls of functions without an estimate, the job has none."""
SLOW_PART = 0.005
"""The most of the head's time that the answers about actors and objects may take."""
CURVES = ("running", "waiting", "done", "failed", "rate", "CPU", "GPU", "store", "CPU use")
WAITS = {
    "waiting": "for an argument",
    "ready": "for room",
    "staging": "for its arguments to arrive",
    "lost": "to run again",
    "sent": "behind others",
    "blocked": "for a value",
}
Asking = Callable[[Question[object]], Reply | None]
"""Asks the job's window. None: the job has ended."""
NOTHING_YET = JobState(0, 0, JobCounts(*[0] * len(JobCounts.__struct_fields__)), {}, {}, [], 0, [], [], [], 0)


class LiveJob:
    """A job, as it is seen from outside."""

    def __init__(self, name: str, pid: int, asking: Asking) -> None:
        """Look at the job of the program with this process id."""
        self._asking = asking
        self._host = os.uname().nodename
        self._runs: deque[Run] = deque(maxlen=RUNS_MAX)
        self._pieces: deque[Piece] = deque(maxlen=PIECES_MAX)
        self._curves = {name: deque[float](maxlen=POINTS_MAX) for name in CURVES}
        self._ended: deque[tuple[float, dict[str, int]]] = deque()
        """Times, and the ends so far by function; "": of all."""
        self._next_s: dict[str, float] = {}
        """When the slow questions are asked again."""
        self._errors_seen: dict[str, int] = {}
        self._output = 0
        now_s = time.time()
        self.facts = Facts(
            name=name, pid=pid, host=self._host, begin_s=_started_s(pid), now_s=now_s, glance=NOTHING_YET, errors={}
        )

    def sample(self) -> bool:
        """Ask the job once. Return whether it still runs."""
        facts = self.facts
        newer, further = RunsSince(facts.ran), Output(self._output)
        replies = self._together(Glance(), newer, further)
        if replies[0] is None:
            return False
        facts.glance = replies[0].to(Glance())
        facts.now_s = time.time()
        if (runs := _if_any(replies[1], newer)) is not None:
            self._runs.extend(runs.runs)
            facts.ran = runs.ran
        facts.runs = list(self._runs)
        if (output := _if_any(replies[2], further)) is not None:
            self._pieces.extend(output.pieces)
            self._output = output.count
        facts.output = list(self._pieces)
        self._slowly("list", self._look_at_actors)
        self._slowly("store", self._look_at_store)
        self._slowly("oldest", self._look_at_waits)
        self._slowly("errors", self._look_at_errors)
        self._slowly("measures", self._look_at_hosts, MEASURES_S)
        self._count(facts.glance)
        return True

    def _ask(self, question: Question[A]) -> A | None:
        """Ask the job; None: it has ended.

        Raises:
            LookupError: it cannot answer.
        """
        reply = self._asking(question)
        return reply.to(question) if reply is not None else None

    def _together(self, *questions: SingleQuestion) -> list[Reply | None]:
        """Ask in one message, which costs the head less; one by one if the answers are too large together."""
        several = Several([*questions])
        found = self._asking(several)
        if found is None:
            return [None] * len(questions)
        if found.problem:
            return [self._asking(one) for one in questions]
        return [*found.to(several)]

    def _slowly(self, what: str, act: Callable[[], None], every_s: float = 2.0) -> None:
        """Do something that may cost the head some time: from time to time, and less often if it takes long."""
        begin_s = time.monotonic()
        if begin_s >= self._next_s.get(what, 0.0):
            with contextlib.suppress(LookupError):  # the rest of the page does not need it
                act()
            end_s = time.monotonic()
            self._next_s[what] = end_s + max(every_s, (end_s - begin_s) / SLOW_PART)

    def _look_at_actors(self) -> None:
        self.facts.actors = self._ask(FirstActors()) or NO_ACTORS

    def _look_at_store(self) -> None:
        self.facts.store = self._ask(WholeStore())

    def _look_at_waits(self) -> None:
        waiting = sorted((one for one in self.facts.glance.functions if one.waiting), key=lambda one: -one.waiting)
        self.facts.waits = []
        questions = [Oldest(one.name) for one in waiting[:4]]
        replies = self._together(*questions) if questions else []
        for one, question, reply in zip(waiting, questions, replies, strict=False):
            oldest = _if_any(reply, question)
            state = oldest.state if oldest is not None else ""
            why = WAITS.get(state, "")
            if one.kind == "ACTOR_TASK":
                why = "for the turn of its actor" if state in ("ready", "sent", "") else why
            self.facts.waits.append(Waiting(why or "not known", one.waiting, one.name))

    def _look_at_errors(self) -> None:
        """Keep tracebacks: a job that is killed answers no more."""
        count = {one.function: one.failed + one.retried for one in self.facts.glance.errors}
        for name in count:
            if self._errors_seen.get(name) != count[name]:
                self.facts.errors[name] = self._ask(Errors(name)) or []
        self._errors_seen = count

    def _count(self, glance: JobState) -> None:
        """Add a point to the curves, and estimate."""
        facts, counts, total, free = self.facts, glance.counts, glance.total, glance.free
        by_name = {one.name: one.ended for one in glance.functions}
        by_name[""] = counts.ended
        if not self._ended:
            self._ended.extend(_before(by_name, self._runs, facts.ran, facts.now_s))
        self._ended.append((facts.now_s, by_name))
        while not facts.now_s - ESTIMATE_S <= self._ended[0][0] <= facts.now_s:  # later: the clock was put back
            self._ended.popleft()
        recent = next(one for one in self._ended if one[0] >= facts.now_s - RATE_S)
        span_s = max(1e-9, facts.now_s - recent[0])
        facts.rates = (
            {name: (ended - recent[1].get(name, 0)) / span_s for name, ended in by_name.items()} if span_s > 0.5 else {}
        )
        open_calls = {one.name: one.running + one.waiting for one in glance.functions}
        open_calls[""] = counts.running + counts.waiting
        found: dict[str, Estimate] = {}
        done = {one.name: one.done for one in glance.functions} | {"": counts.finished}
        for name, count in open_calls.items():
            if done[name] < ENDS_MIN:
                continue  # only failures: they say nothing about the rest
            samples = [(time_s, float(ended.get(name, 0))) for time_s, ended in self._ended]
            if (one := estimate(samples, count)) is not None:
                found[name] = one
        if "" in found:
            found[""] = whole(found[""], [one for name, one in found.items() if name])
        self._count_waits(glance)
        facts.unknown = {name: count for name, count in open_calls.items() if name and count and name not in found}
        if sum(facts.unknown.values()) > UNKNOWN_PART * open_calls[""]:
            found.pop("", None)  # the rate of other functions says nothing about these
        facts.estimates = found
        last = self._ended[-2] if len(self._ended) > 1 else self._ended[-1]
        step_s = facts.now_s - last[0]
        values = {
            "running": counts.running,
            "waiting": counts.waiting,
            "done": counts.finished,
            "failed": counts.failed,
            "rate": (by_name[""] - last[1][""]) / step_s if step_s else 0.0,
            "CPU": total.get("CPU", 0.0) - free.get("CPU", 0.0),
            "GPU": total.get("GPU", 0.0) - free.get("GPU", 0.0),
            "store": total["object_store_memory"] - free.get("object_store_memory", 0.0),
            "CPU use": facts.cpu_use or 0.0,
        }
        for name, value in values.items():
            self._curves[name].append(max(0.0, value))
        facts.curves = {name: list(points) for name, points in self._curves.items()}

    def _count_waits(self, glance: JobState) -> None:
        """Of calls that wait the reasons are asked for now and then, their numbers are those of now."""
        waiting = {one.name: one.waiting for one in glance.functions}
        for one in self.facts.waits:
            one.calls = waiting.get(one.function, 0)
        self.facts.waits = [one for one in self.facts.waits if one.calls]

    def _look_at_hosts(self) -> None:
        """Ask what is used on each host. The question has them measure, so the answer is some seconds old."""
        facts = self.facts
        if (found := self._ask(MeasuredHosts())) is None:
            return
        facts.measured = measured_of(found, facts.measured, facts.glance.nodes, facts.store)
        facts.sizes = {(one.node, one.pid): one.size for one in found.sizes}

    def end(self, final: JobState | None) -> None:
        """Note that the job has ended; `final`: its last answer, None if it was killed."""
        facts = self.facts
        if final is None:
            facts.state = "killed"
            age = seconds(max(0.0, time.time() - facts.now_s))
            facts.cause = (
                "The job ended without an orderly end: its program or its head was killed, or its host failed. "
                f"This is the last state that it has sent, {age} before. What it wrote last is in the output."
            )
        else:
            facts.state = "ended"
            facts.glance = final
            facts.now_s = time.time()
        facts.curves, facts.estimates, facts.waits, facts.searches = {}, {}, [], []
        facts.ran = facts.glance.counts.ran

    def document(self) -> Document:
        """The page now."""
        return job.document(self.facts)

    def metrics(self) -> str:
        """The numbers now, as OpenMetrics text."""
        if not self.facts.is_over:
            with contextlib.suppress(LookupError):
                self.facts.recorded = rows_of(self._ask)
        return metrics.text(self.facts)

    def stack(self, host: str, pid: int) -> str:
        """The stacks of a process of a running call or an actor."""
        known = {(one.host, one.pid) for one in self.facts.glance.running}
        known |= {(self.facts.host_of(one), one.pid or 0) for one in self.facts.actors.rows}
        if not pid or (host, pid) not in known:
            return f"Process {pid} on {host} has neither a running call nor an actor of the job."
        return stacks.stack(pid) if host == self._host else stacks.elsewhere(self._ask, host, pid)

    def detail(self, block: str, id: str) -> list[Block]:
        """What a row opens."""
        if self.facts.is_over:
            known: Block = next((one for one in self.document()["blocks"] if one["id"] == block), {})
            return known.get("details", {}).get(id) or [{"kind": "note", "text": "The job has ended."}]
        if block == "functions":
            return self._function(id)
        if block == "actors":
            return self._actor(id)
        if block == "nodes":
            return node_sections.detail(self.facts, id)
        return []

    def _function(self, name: str) -> list[Block]:
        blocks = sections.error_blocks(self._ask(Errors(name)) or [])
        running = [one for one in self.facts.glance.running if one.name == name]
        if running:
            rows = [
                [one.id, one.id[-12:], one.host, one.rank, one.pid, one.doing, one.for_us / 1e6] for one in running[:20]
            ]
            columns = [("running call", "mono", {"w": 1}), ("node", "mono"), ("rank", "text"), ("pid", "text")]
            columns += [("state", "pill"), ("for", "time")]
            blocks.append(table("running", "", columns, rows, noun="running calls", sort=5, down=True, limit=5))
            longest = running[0]
            blocks.append({"kind": "stack", "host": longest.host, "pid": longest.pid})
        oldest = Oldest(name)
        if (found := _if_any(self._asking(oldest), oldest)) is not None:
            text = f"The oldest waiting call, {found.id[-12:]}: {found.why}"
            blocks.append({"kind": "note", "text": text})
            if found.story:
                blocks.append({"kind": "pre", "text": found.story})
        return blocks or [{"kind": "note", "text": "None of its calls runs, waits or has failed."}]

    def _actor(self, id: str) -> list[Block]:
        one = next((row for row in self.facts.actors.rows if row.actor_id == id), None)
        if one is None:
            return [{"kind": "note", "text": "The actor has ended, and has no handle left."}]
        running = [call for call in self.facts.glance.running if call.pid == one.pid]
        doing = ", ".join(f"{call.name} for {seconds(call.for_us / 1e6)}" for call in running) or "nothing now"
        facts = [["runs", doing], ["id", id], ["namespace", one.ray_namespace or "\u2013"]]
        if one.death_cause:
            facts.append(["cause of death", one.death_cause])
        blocks: list[Block] = [{"kind": "kv", "rows": facts}]
        if one.pid:
            blocks.append({"kind": "stack", "host": self.facts.host_of(one), "pid": one.pid})
        return blocks


def _if_any(reply: Reply | None, question: Question[A]) -> A | None:
    """The answer, if the job has given one."""
    with contextlib.suppress(LookupError):
        return reply.to(question) if reply is not None else None
    return None


def _before(by_name: dict[str, int], runs: Sequence[Run], ran: int, now_s: float) -> list[tuple[float, dict[str, int]]]:
    """Samples before the first look, from the last calls that have ended: an estimate need not wait for others.

    Failed attempts are left out, as some were retried. A few seconds of a fast job tell too little.
    """
    counts, time_s = dict(by_name), now_s
    found: list[tuple[float, dict[str, int]]] = []
    for run in reversed(runs):
        time_s = min(time_s, run.end_us / 1e6)
        found.append((time_s, dict(counts)))
        if run.outcome == RETURNED:
            counts[run.name] = counts.get(run.name, 0) - 1
            counts[""] -= 1
    if runs and len(runs) == ran:
        found.append((min(time_s, min(run.start_us for run in runs) / 1e6), counts))
    kept = [one for one in found if one[0] >= now_s - ESTIMATE_S]
    return kept[::-1] if kept and now_s - kept[-1][0] >= BEFORE_S else []


def _started_s(pid: int) -> float:
    """When a process was started, in seconds since 1970."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/uptime") as file:
            up_s = float(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return time.time()
    return time.time() - up_s + ticks / os.sysconf("SC_CLK_TCK")
