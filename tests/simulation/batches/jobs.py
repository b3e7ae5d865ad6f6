"""Jobs that run one batch in a simulation: the real decisions, files and turns, with drivers as the real ones.

What they do is judged from outside, when a command begins and at the end.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import msgspec

from mpi_runtime.batch.elastic.coordinator import Coordinator
from mpi_runtime.batch.elastic.coordinator_turns import Leading, is_open, may_live
from mpi_runtime.batch.elastic.member import Member
from mpi_runtime.batch.elastic.member_turns import LEASE_S, Belonging, take
from mpi_runtime.batch.elastic.records import EPOCH_BITS, Closed, Status, Work, pool_of
from mpi_runtime.batch.file.model import Asked, Demand
from mpi_runtime.batch.history.batch_history import Ended, History
from mpi_runtime.batch.history.results import CommandResult
from mpi_runtime.files import claim
from tests.simulation.batches.world import FileSystem, Process, SimulatedFiles, World

READ_LIMIT_S = 60.0
"""By then everybody could have read an end: names and sizes are late by less, and stalls are shorter."""


LATE_S = 5.0
"""After this time others have seen that a job which was stopped is there again."""
NOTICED_S = 20.0
"""After this time the coordinator has read it, too."""


Nodes = tuple[dict[str, float], ...]
Request = tuple[tuple[str, float], ...]
"""Amounts by name. The product counts otherwise, and is compared with this."""


class WrongError(AssertionError):
    """A rule was broken."""


@dataclass(frozen=True)
class Task:
    """A command of the simulated batch."""

    name: str
    seconds: float
    requests: tuple[Request, ...]
    """Its alternatives: what each of its ranks needs."""
    after: tuple[str, ...] = ()
    ranks: int = 1
    ranks_per_node: int = 0
    """How many of them are on each node; 0: any number."""
    group: str = ""
    group_limit: int = 0
    shares: tuple[tuple[str, float, float], ...] = ()

    def work(self, number: int) -> Work:
        """What jobs are offered."""
        demands = [_demand(one) for one in self.requests]
        asked = Asked(
            demands[0].num_cpus, demands[0].num_gpus, ranks=self.ranks, ranks_per_node=self.ranks_per_node,
            alternatives=tuple(demands) if demands[1:] else (), group=self.group, group_limit=self.group_limit,
            shares={name: amount for name, amount, _ in self.shares},
            batch_resources={name: total for name, _, total in self.shares},
        )  # fmt: skip
        return Work(number, self.name, b"", msgspec.msgpack.encode(asked), (), self.seconds, self.seconds)

    def places(self, free: Sequence[Mapping[str, float]]) -> list[tuple[int, Request]]:
        """The node and the amounts of each rank, with the first alternative that fits; empty: none does."""
        for request in self.requests:
            found: list[tuple[int, Request]] = []
            for number, node in enumerate(free):
                room = [int(node.get(name, 0.0) / amount + 1e-9) for name, amount in request]
                here = min(*room, self.ranks_per_node or self.ranks, self.ranks - len(found))
                found += [(number, request)] * here
            if len(found) == self.ranks:
                return found
        return []


def _demand(request: Request) -> Demand:
    amounts = dict(request)
    return Demand(amounts.get("CPU", 0.0), amounts.get("GPU", 0.0))


@dataclass
class Execution:
    """One start of a command."""

    job: Job
    began_s: float
    places: list[tuple[int, Request]]
    ended_s: float | None = None
    is_aborted: bool = False


@dataclass
class Batch:
    """The batch, and what has really happened."""

    world: World
    system: FileSystem
    tasks: Mapping[str, Task]
    executions: dict[str, list[Execution]] = field(default_factory=dict)
    recorded: dict[str, float] = field(default_factory=dict)
    """When the first success of each command was recorded."""
    doubtful_until: float = -1.0
    """A coordinator was stopped: until then what it has offered may be begun."""
    segments: int = 0
    begun_by: int = 0
    """The epoch of the coordinator with which the batch began, as it has recorded."""

    def began(self, job: Job, work: Work, places: list[tuple[int, Request]]) -> None:
        now = self.world.now
        task = self.tasks[work.name]
        missing = [name for name in task.after if name not in self.recorded]
        if missing:
            raise WrongError(f"{work.name} begins before {missing}")
        if now > job.drain_s - task.seconds + 1e-6:
            raise WrongError(f"{work.name} cannot end before its job does")
        if ("began", work.number) not in self.system.files[job.segment].versions:
            raise WrongError(f"{work.name} begins and this is not recorded")
        if now - self.recorded.get(work.name, now) > READ_LIMIT_S:
            raise WrongError(f"{work.name} is run again though its end was recorded at {self.recorded[work.name]:.1f}")
        before = self.executions.setdefault(work.name, [])
        for one in before:
            if self.is_calm(one) and not one.is_aborted and now > self.doubtful_until:
                raise WrongError(f"{work.name} begins on {job.name}, and {one.job.name} has begun it, which is calm")
        if now > self.doubtful_until:
            self._judge_shares(task)
        self.world.counters["begun twice"] += bool(before)
        self.world.counters["ranks on several nodes"] += len({number for number, _ in places}) > 1
        self.world.counters["further alternatives"] += places[0][1] != task.requests[0]
        before.append(Execution(job, now, places))
        self.world.note(f"{job.name} begins {work.name} {work.number & 0xFFFFFFFF}")

    def is_calm(self, one: Execution) -> bool:
        """Whether nothing has happened to the job of this start: no other job may take it over."""
        return not one.job.is_killed and one.job.troubled_s + LATE_S < one.began_s and not one.job.has_left

    def _judge_shares(self, task: Task) -> None:
        """All calm jobs together have no more of what they share than there is. A command is about to begin."""
        if not task.shares and not task.group_limit:
            return
        running = [task]
        for name, executions in self.executions.items():
            for one in executions:
                is_calm = not one.job.is_killed and one.job.troubled_s + LATE_S < one.began_s
                if is_calm and one.ended_s is None and not one.is_aborted:
                    running.append(self.tasks[name])
        for name, _, total in task.shares:
            used = sum(amount for one in running for other, amount, _ in one.shares if other == name)
            self.world.counters["shares that are used up"] += used == total
            if used > total:
                raise WrongError(f"{task.name} begins, and all jobs together have {used:g} of {total:g} {name}")
        count = sum(one.group == task.group for one in running)
        if task.group_limit and count > task.group_limit:
            raise WrongError(f"{task.name} begins, and {count} of {task.group} run at a time")


class Job(Process):
    """One job: its driver is the thread, its scheduler is a queue."""

    def __init__(self, batch: Batch, name: str, host: str, nodes: Nodes, lasts_s: float) -> None:
        super().__init__(batch.world, name, host)
        self.batch = batch
        self.nodes = nodes
        self.drain_s = batch.world.now + lasts_s
        """When it starts nothing more: a command must have ended by then."""
        self.role = "new"
        self.has_left = False
        self.lives = 0
        self.segment = ""
        self.is_tree_stopped = False
        self.looked_s = -1e9
        self.numbers = 0
        self._begin_life()

    def _begin_life(self) -> None:
        self.lives += 1
        self.batch.segments += 1
        self.segment = f"segment-{self.batch.segments}"
        self.token = f"{self.name}.{self.lives}"
        self.files = SimulatedFiles(self.batch.system, self, self.token)
        self.member = Member(self.token, tuple(map(pool_of, self.nodes)))
        self.pending: list[tuple[str, Any]] = []
        self.written = 0
        self.beats = 0
        self.queue: list[tuple[Work, float]] = []
        self.running: dict[int, tuple[Work, Execution]] = {}
        self.results: list[tuple[str, Work]] = []
        self.election: Generator[claim.Step, Any, int] | None = None
        self.answer: Any = None

    # The scheduler of the job.

    def submit(self, work: Work, until_s: float) -> None:
        if not self.batch.tasks[work.name].places(self.nodes):
            raise WrongError(f"{work.name} is given to {self.name}, which has no room for it")
        self.queue.append((work, until_s))
        self.schedule()

    def schedule(self) -> None:
        if self.is_killed:
            return
        if self.is_tree_stopped and self.stopped_until > self.world.now:
            self.world.at(self.stopped_until, self.schedule)
            return
        while self.queue:
            work, until_s = self.queue[0]
            task = self.batch.tasks[work.name]
            if self.world.now > until_s:
                self.world.counters["leases that ended"] += 1
                self.results.append(("not begun", self.queue.pop(0)[0]))
                continue
            if self.world.now + task.seconds > self.drain_s:
                self.results.append(("late", self.queue.pop(0)[0]))
                continue
            places = task.places(self.free())
            if not places:
                self.world.at(until_s + 0.01, self.schedule)
                return
            self.queue.pop(0)
            if any(one.name == work.name for one, _ in self.running.values()):
                raise WrongError(f"{work.name} begins on {self.name}, where it runs already")
            self.batch.began(self, work, places)
            self.running[work.number] = work, self.batch.executions[work.name][-1]
            self.world.at(self.world.now + task.seconds, partial(self.end, work, self.token))

    def free(self) -> Nodes:
        """What its nodes have beside what runs."""
        free = tuple(dict(node) for node in self.nodes)
        for _, execution in self.running.values():
            for number, request in execution.places:
                for name, amount in request:
                    free[number][name] -= amount
        return free

    def end(self, work: Work, token: str) -> None:
        if self.is_killed or token != self.token or work.number not in self.running:
            return
        if self.is_tree_stopped and self.stopped_until > self.world.now:
            self.world.at(self.stopped_until, lambda: self.end(work, token))
            return
        self.running.pop(work.number)[1].ended_s = self.world.now
        self.results.append(("ended", work))
        self.schedule()

    def cancel(self, number: int) -> bool:
        """End a command; return whether it had begun."""
        self.queue = [one for one in self.queue if one[0].number != number]
        found = self.running.pop(number, None)
        if found is not None:
            work, execution = found
            is_doubtful = work.name in self.batch.recorded or self.world.now <= self.batch.doubtful_until
            if self.batch.is_calm(execution) and not is_doubtful:
                raise WrongError(f"{work.name} is ended on {self.name}, which is calm")
            execution.is_aborted = True
        self.member.ended(number)
        self.schedule()
        return found is not None

    # The driver.

    def body(self) -> None:
        while not self.has_left:
            number = self.claim()
            if self.has_left:
                return
            if not (self.lead(number, self.continues(number)) if number else self.belong()):
                return
            self._begin_life()

    def claim(self) -> int:
        """Try to become the coordinator at the start; 0: another job is."""
        self.election = claim.taking(self.judge)
        while self.election is not None:
            number = self.elect()
            if number:
                return number
            self.pause(0.2)
        return 0

    def elect(self) -> int:
        """Perform the steps of a claim up to the next look; return the number of the claim when it is made."""
        assert self.election is not None
        try:
            while True:
                what, number = self.election.send(self.answer)
                self.answer = self._perform(what, number)
                if what == "read":
                    return 0
        except claim.InUseError:
            self.election, self.answer = None, None
        except StopIteration as end:
            self.election, self.answer = None, None
            return int(end.value)
        except OSError:  # from the start
            self.election, self.answer = claim.taking(self.judge), None
        return 0

    def judge(self, content: bytes) -> Literal["free", "unknown"]:
        """What the file of an owner shows: on the same host also that its process has ended."""
        token = content.decode().split("'")[1].split()[0]
        jobs = {job.token: job for job in self.world.processes if isinstance(job, Job)}
        is_dead = token in jobs and jobs[token].host == self.host and jobs[token].is_killed
        return "free" if token == "released" or is_dead else "unknown"

    def _perform(self, what: str, number: int) -> Any:
        system = self.batch.system
        if what == "numbers":
            return [int(path.removeprefix("owner-")) for path in system.names(self, "owner-")]
        path = f"owner-{number}"
        if what == "link":
            with contextlib.suppress(OSError):
                system.link(self, path, (self.token, 0))
            return path in system.files and system.files[path].versions[0][0] == self.token
        if what == "remove":
            system.files[path].is_removed = True
            return None
        content, is_read = None, True
        try:
            versions = system.versions(self, path)
            content = repr(versions[-1]).encode() if versions else None
        except FileNotFoundError:
            return None
        except OSError:
            is_read = False
        before_s, self.looked_s = self.looked_s, self.world.now
        return content, is_read and self.looked_s - before_s < claim.QUICK_S + 0.3

    def continues(self, epoch: int) -> bool:
        """Whether this new run takes the place of a coordinator that is gone; else the batch begins from the start."""
        self.files.epoch = epoch
        while True:
            with contextlib.suppress(OSError):
                if is_open(self.files, self.batch.begun_by):
                    self.world.counters["new runs that continue"] += 1
                    return True
                tokens = self.files.tokens()
                if not any([may_live(self.files, token) for token in tokens]):
                    self.batch.system.clear(tokens)
                self.batch.begun_by = epoch
                return False
            self.pause(1.0)

    def lead(self, epoch: int, is_recovering: bool = True) -> bool:
        """Coordinate until all is done or another job is in this place. Return whether to begin from the start."""
        self.role = "coordinator"
        self.world.counters["coordinators"] += 1
        self.world.note(f"{self.name} leads {epoch}, {'and recovers' if is_recovering else 'from the start'}")
        self.files.epoch = epoch
        coordinator = Coordinator(epoch)
        leading = Leading(self.files, coordinator, self.token, self.clock)
        self.member.new_coordinator()
        history, active = History(), {}
        for content in self.read_ends():
            history.note(content)
            coordinator.ended(content.number)
        coordinator.joined(self.token, self.member.nodes, self.drain_s)
        own = self.member.given_back
        coordinator.returned(own, map(self.member.slices.__getitem__, own))
        is_recovered, is_closing = not is_recovering, False
        while True:
            self.pause(self.world.rng.uniform(0.3, 1.0))
            checked_s = self.world.now
            if checked_s > self.drain_s and not self.member.started:
                self.leave()
                with contextlib.suppress(OSError):
                    self.batch.system.set(self, f"owner-{epoch}", ("released", leading.length))
                return False
            for ended in self.read_results():
                history.note(ended)
                coordinator.ended(ended.number)
            is_writable = self.flush()
            try:
                self.beat(epoch, leading.length)
                self.files.write_status(self.status(False))
            except OSError as error:
                if error.args[1] == "replaced" or (error.errno == errno.ESTALE and error.filename == f"owner-{epoch}"):
                    self.stop_all()
                    return True
                is_writable = False
            if not is_recovered:
                is_recovered = leading.recover(self.batch.begun_by)
                if is_recovered:
                    self._note_all(leading, history)
                    for work in [*coordinator.outstanding().values(), *coordinator.waiting()]:
                        if is_done(history, work.name, work.number):
                            coordinator.ended(work.number)
                    active = {work.name: number for number, work in coordinator.outstanding().items()}
                    active |= {work.name: work.number for work in coordinator.waiting()}
                continue
            lost = self.lost(leading)
            for offer in leading.turn():
                self.member.offered(offer)
            for one in self.lost(leading) - lost:
                if self.world.now > max(one.troubled_s + NOTICED_S, self.batch.doubtful_until):
                    raise WrongError(f"{self.name} takes {one.name} for lost, which is calm")
            self._note_all(leading, history)
            active = {name: number for name, number in active.items() if not is_done(history, name, number)}
            done = {name for name, ended in history.ends.items() if ended.result.is_success}
            written = done - {content.result.name for what, content in self.pending if what == "ended"}
            for name, task in self.batch.tasks.items():
                if name not in done and name not in active and written.issuperset(task.after):
                    active[name] = self.next_number(epoch)
                    coordinator.add(task.work(active[name]))
            if is_writable:
                self.take_and_start(checked_s, coordinator)
            if len(written) == len(self.batch.tasks) and not is_closing:
                is_closing = True
                leading.write(Closed(0))
            elif is_closing and leading.length and is_writable and not leading._entries:
                self.beat_at_last(epoch, leading.length)
                self.has_left = True
                return False

    def lost(self, leading: Leading) -> set[Job]:
        """The living jobs that a coordinator takes for lost."""
        tokens = {token for token, one in leading._seen.items() if one.is_lost and not one.has_left}
        jobs = [job for job in self.world.processes if isinstance(job, Job) and job.token in tokens]
        return {job for job in jobs if not (job.is_killed or job.has_left)}

    def next_number(self, epoch: int) -> int:
        self.numbers += 1
        return (epoch << EPOCH_BITS) + self.numbers

    def read_ends(self) -> list[Ended]:
        """The ends that all jobs have recorded, as far as they can be seen."""
        system = self.batch.system
        while True:
            with contextlib.suppress(OSError):
                segments = [system.versions(self, path) for path in [*system.files] if path.startswith("segment-")]
                return [content for segment in segments for what, content in segment if what == "ended"]
            self.pause(1.0)

    def _note_all(self, leading: Leading, history: History) -> None:
        for ended in leading.ended:
            for number in [*self.member.stop([ended.number]), *self.member.settled()]:
                self.cancel(number)
                leading.coordinator.ended(number)
            history.note(ended)
        leading.ended.clear()

    def take_and_start(self, checked_s: float, coordinator: Coordinator) -> None:
        take(self.files, self.member)
        for number in self.member.settled():
            coordinator.ended(number)
        overdue = self.member.overdue(self.world.now)
        coordinator.returned(overdue, map(self.member.slices.__getitem__, overdue))
        self.start([(work.number, checked_s + LEASE_S) for work in self.member.start()])

    def start(self, numbers: list[tuple[int, float]]) -> None:
        for number, until_s in numbers:
            work = self.member.started[number]
            self.pending.append(("began", number))
            if self.flush():
                self.submit(work, until_s)
            else:
                self.pending.remove(("began", number))
                self.member.not_begun(number)

    def belong(self) -> bool:
        self.role = "member"
        belonging = Belonging(self.files, self.member, self.clock)
        while True:
            self.pause(self.world.rng.uniform(0.3, 1.0))
            if self.world.now > self.drain_s and not self.member.started:
                self.leave()
                return False
            for _ in self.read_results():
                pass
            is_writable = self.flush()
            turn = belonging.turn(self.status(False), is_writable)
            for number in turn.end:
                is_begun = self.cancel(number)
                if self.member.is_stopped(number):
                    self.give_back([number], is_begun)
            if left := [*self.member.overdue(self.world.now), *self.member.settled()]:
                self.give_back(left, False)
            self.start(turn.start)
            if turn.exit_code is not None:
                self.leave()
                return False
            if turn.is_orphaned and self.election is None:
                self.world.counters["elections"] += 1
                self.election, self.answer = claim.taking(self.judge), None
            if self.election is not None:
                number = self.elect()
                if number:
                    return self.lead(number)
                if self.election is None:
                    belonging.stood_up()

    def leave(self) -> None:
        """Give back what has not ended, and say that nothing more is written."""
        self.world.note(f"{self.name} leaves")
        waiting = [*self.member.leave(), *(work.number for work, _ in self.queue)]
        if waiting:
            self.give_back(waiting, False)
        while not self.flush():
            self.pause(1.0)
        self.has_left = True
        self.say_goodbye()

    def give_back(self, numbers: list[int], is_begun: bool) -> None:
        slices = tuple(map(self.member.slices.__getitem__, numbers))
        self.member.given_back += numbers
        self.pending.append(("returned", (tuple(numbers), slices, is_begun)))

    def say_goodbye(self) -> None:
        is_written = False
        while not is_written:
            with contextlib.suppress(OSError):
                self.files.write_status(self.status(True))
                is_written = True
            self.pause(1.0)

    def stop_all(self) -> None:
        """Another job leads: end everything, and join it from the start."""
        self.world.counters["replaced coordinators"] += 1
        self.world.note(f"{self.name} was replaced")
        for number in [*self.running, *(work.number for work, _ in self.queue)]:
            self.cancel(number)
        numbers = [*self.member.started, *self.member.leave()]
        self.give_back(numbers, True)
        while not self.flush():
            self.pause(1.0)
        self.say_goodbye()

    def read_results(self) -> list[Ended]:
        found = []
        results, self.results = self.results, []
        for what, work in results:
            if what == "not begun":
                self.member.not_begun(work.number)
                continue
            self.member.ended(work.number)
            if what == "late":
                self.give_back([work.number], False)
            else:
                found.append(ended(work, self.world.now))
                self.pending.append(("ended", found[-1]))
        return found

    def flush(self) -> bool:
        while self.pending:
            try:
                self.batch.system.add_to(self, self.segment, self.pending[0])
            except OSError:
                return False
            what, content = self.pending.pop(0)
            self.written += 1
            if what == "ended":
                self.batch.recorded.setdefault(content.result.name, self.world.now)
        return True

    def status(self, is_leaving: bool) -> Status:
        self.beats += 1
        number = int(self.segment.removeprefix("segment-"))
        left_s = self.drain_s - self.world.now if not self.pending else 0.0
        return Status(
            self.token, self.beats, self.name, self.host, 1, "", "", number, self.written, self.nodes, left_s,
            is_leaving,
        )  # fmt: skip

    def beat(self, epoch: int, length: int) -> None:
        system = self.batch.system
        system.operation(self)
        system.set(self, f"owner-{epoch}", (f"{self.token} {self.beats}", length))
        if max(int(path.removeprefix("owner-")) for path in system.names(self, "owner-")) > epoch:
            raise OSError(116, "replaced")

    def beat_at_last(self, epoch: int, length: int) -> None:
        with contextlib.suppress(OSError):
            for beat in (f"{self.token} {self.beats + 1}", "released"):
                self.batch.system.set(self, f"owner-{epoch}", (beat, length))
                self.batch.system.set(self, f"member-{self.token}", self.status(True))
                self.pause(10.0)


def ended(work: Work, now: float) -> Ended:
    result = CommandResult(
        name=work.name, command="", exit_code=0, is_success=True, start=0.0, end=now, host="", attempts=work.attempt + 1
    )
    return Ended(work.number, work.key, result)


def is_done(history: History, name: str, number: int) -> bool:
    known = history.ends.get(name)
    return known is not None and known.number >= number
