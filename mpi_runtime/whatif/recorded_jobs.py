"""Estimates a finished job on other nodes: its recording, through the scheduler in virtual time."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from mpi_runtime.extend import fits
from mpi_runtime.scheduler.protocol.events import ActorSpec, MethodSpec, TimeSpec
from mpi_runtime.whatif.prospects import Prospect, prospect
from mpi_runtime.whatif.recorded_calls import JobRecord, keeps, shape_of
from mpi_runtime.whatif.virtual_cluster import UNTIL_ENDED, Ran, Shape, VirtualCluster, Work, asked

FORK_US = 10_000
"""About the duration of the start of a process."""
RESUMES = 1 << 20
"""The priority of calls after a wait: they continue at once, as in a job."""


class Job:
    """The calls of a job, with their order."""

    def __init__(self, record: JobRecord) -> None:
        self.record = record
        self.works: list[tuple[bytes, int, Work]] = []
        """For each part of a call, by the tag of its work: the call, the number of the part, the work."""
        self.tags: dict[tuple[bytes, int], int] = {}
        """By call and number of the part."""
        for call in record.calls.values():
            shape = shape_of(call.spec)
            creation = record.calls.get(call.actor) if isinstance(call.spec.kind, MethodSpec) else None
            account = "", 1.0, 0
            actor = creation.spec.kind if creation is not None else None
            if isinstance(actor, ActorSpec):  # its account limits the methods that run at a time
                account = call.actor.hex(), 1.0, sum(actor.concurrency.values()) or 1
            time = call.spec.time or TimeSpec()
            for number, part in enumerate(call.parts):
                tag = self.tags[call.id, number] = len(self.works)
                priority = call.spec.priority + RESUMES * bool(number)
                took_us = UNTIL_ENDED if keeps(call.spec) else max(1, part.took_us)
                states = asked(shape, time.limit_us, priority, account, time.expect_us)
                self.works.append((call.id, number, Work(call.spec.name, states, took_us, tag=tag)))

    def on(self, nodes: int, shape: Shape) -> Prospect:
        """The estimate for a number of nodes of one shape."""
        replay = _Replay(self, shape)
        cluster = VirtualCluster([shape] * nodes, replay.ended, FORK_US, began=replay.began)
        replay.begin(cluster)
        ran = cluster.run()
        seconds = max((one.end_us for one in ran), default=0) / 1e6
        never = len(self.record.calls) - replay.ends
        return prospect(nodes, shape, seconds, ran, self.chain_s(), never, "calls")

    def chain_s(self) -> float:
        """The makespan if every call started as soon as it was ready."""
        replay = _Replay(self, None)
        cluster = _Unlimited(replay)
        replay.begin(cluster)
        return cluster.run() / 1e6


class _Replay:
    """The calls of a job in virtual time, with their waits."""

    def __init__(self, job: Job, shape: Shape | None) -> None:
        self._job = job
        self._pool = shape.pool() if shape is not None else None
        self._cluster: VirtualCluster | _Unlimited
        self._has_ended: set[bytes] = set()
        self._waiters: dict[bytes, list[Callable[[], None]]] = {}
        self.ends = 0
        """The number of calls that have ended."""
        self._methods = Counter(
            call.actor for call in job.record.calls.values() if isinstance(call.spec.kind, MethodSpec)
        )
        """The number of calls of each actor that have not ended."""

    def begin(self, cluster: VirtualCluster | _Unlimited) -> None:
        """Start the driver."""
        self._cluster = cluster
        self._drive(0)

    def _drive(self, number: int) -> None:
        driver = self._job.record.driver
        if number == len(driver):
            return
        submission = driver[number]

        def submit() -> None:
            for id in submission.calls:
                self._submit(id)
            self._drive(number + 1)

        self._after(submission.waits_for, lambda: self._cluster.later(submission.delay_us, submit))

    def _submit(self, id: bytes) -> None:
        call = self._job.record.calls[id]
        before = [*call.arguments, call.actor] if call.actor in self._job.record.calls else call.arguments
        self._after(before, lambda: self._run(id, 0))

    def _run(self, id: bytes, number: int) -> None:
        work = self._job.works[self._job.tags[id, number]][2]
        if self._pool is None or fits(work.asked.request(), self._pool):
            self._cluster.submit([work])

    def began(self, work: Work) -> None:
        """A part of a call starts: schedule its submissions, and its end if it keeps resources."""
        id, number, _ = self._job.works[work.tag]
        part = self._job.record.calls[id].parts[number]
        for after_us, child in part.submits:
            self._cluster.later(after_us, partial(self._submit, child))
        if work.duration_us == UNTIL_ENDED:
            self._cluster.later(part.took_us, lambda: self._part_ended(work.tag))

    def ended(self, ran: Ran) -> None:
        """A part of a call, or an actor that keeps resources, has ended."""
        if ran.work.duration_us != UNTIL_ENDED:
            self._part_ended(ran.work.tag)

    def _part_ended(self, tag: int) -> None:
        id, number, _ = self._job.works[tag]
        parts = self._job.record.calls[id].parts
        if number + 1 < len(parts):
            self._after(parts[number].waits_for, lambda: self._run(id, number + 1))
            return
        self.ends += 1
        self._has_ended.add(id)
        for action in self._waiters.pop(id, ()):
            action()
        call = self._job.record.calls[id]
        if isinstance(call.spec.kind, MethodSpec):
            self._methods[call.actor] -= 1
        self._let_go(call.actor or id)

    def _let_go(self, actor: bytes) -> None:
        """End an actor that keeps resources after its last call, unless the job kept its handle to the end."""
        record = self._job.record
        call = record.calls.get(actor)
        if call is None or not keeps(call.spec) or actor not in record.released:
            return
        if not self._methods[actor] and actor in self._has_ended:
            self._cluster.end(self._job.tags[actor, len(call.parts) - 1])

    def _after(self, ids: Sequence[bytes], action: Callable[[], None]) -> None:
        """Perform the action when all of these have ended."""
        missing = [id for id in dict.fromkeys(ids) if id not in self._has_ended]
        left = len(missing)
        if not left:
            action()
            return

        def one_less() -> None:
            nonlocal left
            left -= 1
            if not left:
                action()

        for id in missing:
            self._waiters.setdefault(id, []).append(one_less)


class _Unlimited:
    """A cluster on which every call starts at once."""

    def __init__(self, replay: _Replay) -> None:
        self._replay = replay
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._now = 0

    def submit(self, works: Sequence[Work]) -> None:
        for work in works:
            self._replay.began(work)
            if work.duration_us == UNTIL_ENDED:
                continue
            ran = Ran(work, 0, self._now, self._now + work.duration_us, work.asked)
            self.later(work.duration_us, partial(self._replay.ended, ran))

    def later(self, us: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self._now + us, next(self._count), action))

    def end(self, tag: int) -> None:
        pass

    def run(self) -> int:
        last_us = 0
        while self._heap:
            self._now, _, action = heapq.heappop(self._heap)
            action()
            last_us = self._now
        return last_us
