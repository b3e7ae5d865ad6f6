"""The nodes of a simulated job with gangs: agents, and executors that die, raise, wait for others, and call back."""

from __future__ import annotations

from mpi_runtime.scheduler.protocol.effects import Cancel, StartExecutor, StopExecutor, TakeBack
from mpi_runtime.scheduler.protocol.events import (
    STREAMING,
    ActorSpec,
    Blocked,
    Call,
    Done,
    MethodSpec,
    Released,
    Returned,
    TaskSpec,
    Unblocked,
    Value,
    Yielded,
)
from mpi_runtime.scheduler.protocol.ids import digest
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied, ExecutorStarted, RankLost, TakenBack
from tests.simulation.gang_head import ITEMS, Head, Process
from tests.simulation.require import require


class World(Head):
    """One simulated job."""

    # Agents

    def _obey(self, rank: int, order: object) -> None:
        if isinstance(order, StartExecutor):
            process = self.processes[order.executor] = Process(order.executor, rank, order)
            self.counters["forks"] += 1
            self.counters["members"] += bool(process.gang)
            self.say(rank, lambda: self._handle(rank, ExecutorStarted(order.executor, 1000)))
            if self.rng.random() < self.deaths / 10 and self.now < self.faults_until_us:
                self.at(20, lambda: self._die(process, "exited with code 1"))
            return
        found = self.processes.get(getattr(order, "executor", 0))
        if found is None or not found.alive:
            return
        if isinstance(order, StopExecutor) and order.force:
            self.at(self.rng.choice((5, 500)), lambda: self._die(found, "was killed by signal 9"))
        elif isinstance(order, StopExecutor):
            found.exits = True
            self._exit_if_idle(found)
        elif isinstance(order, TakeBack):
            self.at(self.rng.choice((5, 500)), lambda: self._take_back(found, order.count))
        elif isinstance(order, Cancel):
            self.at(self.rng.choice((5, 500)), lambda: self._interrupt(found, order))

    def _handle(self, rank: int, event: ExecutorStarted | ExecutorDied | TakenBack) -> None:
        if rank not in self.lost:
            self.scheduler.handle_rank(event, self.now)

    def _take_back(self, process: Process, count: int) -> None:
        first = 1 if process.is_running else 0
        taken = process.calls[first:][-count:] if process.alive else []
        process.calls = [call for call in process.calls if call not in taken]
        ids = [call.id for call in taken]
        self.say(process.rank, lambda: self._handle(process.rank, TakenBack(process.number, ids)))

    def _interrupt(self, process: Process, order: Cancel) -> None:
        running = process.calls[0] if process.alive and process.calls and process.is_running else None
        if running is None or running.id != order.id:
            return
        process.is_spoilt = True
        self.counters["interrupts"] += 1
        if order.force:
            self._die(process, "was killed by signal 9")
        elif self.rng.random() < 0.6:  # else it is inside MPI
            self._end(process, running, raises=True)

    # Executors

    def _receive(self, process: Process, call: Call) -> None:
        if process.alive:
            process.calls.append(call)
            if len(process.calls) == 1:
                self._run(process)

    def _run(self, process: Process) -> None:
        rng, call = self.rng, process.calls[0]
        spec = self.specs[call.spec]
        process.is_running = True
        process.since += 1
        process.is_actor = process.is_actor or isinstance(spec.kind, ActorSpec)
        process.calls_run += 1
        since, host = process.since, self.host_of[process.rank]
        if call.id in self.submitted:
            self.runs[call.id] += 1
            most = spec.kind.max_restarts if isinstance(spec.kind, ActorSpec) else spec.max_retries
            allowed = self.runs[call.id] <= most + 1 or not spec.ranks
            require(allowed, f"call {call.id.hex()} runs {self.runs[call.id]} times")
        if not isinstance(spec.kind, MethodSpec):
            self.using[process.number] = host, spec.asks.cpu
        used = sum(cpu for at, cpu in self.using.values() if at == host)
        require(used <= self.cpus[host], f"host {host}: {used} of {self.cpus[host]} CPU units in use")
        duration_us = rng.choice((50, 3_000, 400_000, 2_000_000))
        if (
            spec.ranks
            and call.id in self.submitted
            and not isinstance(spec.kind, ActorSpec)
            and rng.random() < self.inside
        ):
            self._wait_inside(process, call)
            return
        may_fail = self.now < self.faults_until_us
        if may_fail and rng.random() < self.deaths:
            self.at(rng.randint(0, duration_us), lambda: self._die_in(process, since))
        self._yield_all(process, call, duration_us)
        fails = may_fail and process.gang > 0 and rng.random() < self.raising
        self.at(duration_us, lambda: self._end_in(process, call, since, fails))

    def _members(self, process: Process) -> list[Process]:
        return [one for one in self.processes.values() if one.gang == process.gang and process.gang]

    def _wait_inside(self, process: Process, call: Call) -> None:
        """Rank 0 of a gang submits a call, and waits for it."""
        spec = self.rng.choice([one for one in self.specs.values() if isinstance(one.kind, TaskSpec)])
        id = digest(f"{self.options.seed} {len(self.inner)} inside".encode(), 15) + b"\0"
        self.inner[id] = process, call
        self.counters["inner calls"] += 1

        def arrive() -> None:
            self.scheduler.handle(process.number, [spec, Call(id, spec.id, b""), Blocked([id])], self.now)

        self.say(process.number, arrive)

    def _inner_ended(self, process: Process, message: object) -> None:
        """A call that a member has waited for has ended: the member goes on, and ends its own call."""
        id: bytes = getattr(message, "id", b"")
        _, call = self.inner[id]
        self.counters["inner calls without room"] += getattr(message, "code", "") == "InfeasibleResourceError"
        if not process.alive or call not in process.calls:
            return
        self.say(process.number, lambda: self.scheduler.handle(process.number, [Unblocked(), Released([id])], self.now))
        since = process.since
        self._yield_all(process, call, 3_000)
        self.at(3_000, lambda: self._end_in(process, call, since, False))

    def _die_in(self, process: Process, since: int) -> None:
        if process.alive and process.is_running and process.since == since:
            self._die(process, self.rng.choice(("was killed by signal 11", "exited with code 0")))

    def _yield_all(self, process: Process, call: Call, duration_us: int) -> None:
        """Yield the items of a call of the driver that streams, until it ends."""
        if self.specs[call.spec].num_returns == STREAMING and call.id in self.submitted:
            since = process.since
            for index in range(ITEMS):
                self.at(duration_us * index // ITEMS, lambda index=index: self._yield(process, call, since, index))  # type: ignore[misc]

    def _yield(self, process: Process, call: Call, since: int, index: int) -> None:
        if process.alive and process.is_running and process.since == since:
            data = call.id + bytes([index])
            item = Yielded(call.id, index, digest(data + bytes([call.attempt, process.number % 256]), 16), Value(data))
            self.say(process.number, lambda: self.scheduler.handle(process.number, [item], self.now))

    def _end_in(self, process: Process, call: Call, since: int, raises: bool) -> None:
        if not process.alive or not process.is_running or process.since != since:
            return
        others = [one for one in self._members(process) if one is not process]
        if any(one.spoilt_call == process.calls_run or not one.alive for one in others):
            if self.rng.random() < 0.7:
                return  # it waits in a collective for one that will never come
            raises = True
        self._end(process, call, raises)

    def _end(self, process: Process, call: Call, raises: bool) -> None:
        process.is_running = False
        process.since += 1
        process.calls.remove(call)
        if not process.is_actor:
            self.using.pop(process.number, None)
        event: Done | Returned = Done(call.id, call.id, 100)
        if raises:
            self.counters["raised"] += 1
            process.is_spoilt = True
            for one in self._members(process):
                one.is_spoilt = True
                one.spoilt_call = process.calls_run
            self._touch(process, call)
            event = Returned(call.id, [Value(b"error", is_error=True)], 100, raised=True)
        self.say(process.number, lambda: self._client_says(process, event))
        if process.calls:
            self._run(process)
        else:
            self._exit_if_idle(process)

    def _touch(self, process: Process, call: Call) -> None:
        """Something happens to a call: it may fail for that. Of a part the leader is found by its gang."""
        if call.id in self.submitted:
            self.touched.add(call.id)
        executor = self.scheduler.state.executors.get(process.number)
        gang = executor.gang if executor is not None else None
        if gang is not None and gang.task is not None:
            self.touched.add(gang.task.id)
        actor = gang.members[0].actor if gang is not None else None
        if actor is not None:
            self.touched.add(actor.id)

    def _client_says(self, process: Process, event: Done | Returned) -> None:
        self.scheduler.handle(process.number, [event], self.now, 1)

    def _exit_if_idle(self, process: Process) -> None:
        if process.exits and process.alive and not process.calls:
            self._die(process, "exited with code 0")

    def _die(self, process: Process, cause: str) -> None:
        if not process.alive:
            return
        self.counters["deaths"] += 1
        self.counters["deaths of members"] += bool(process.gang)
        process.alive = False
        self.using.pop(process.number, None)
        running = process.calls[0].id if process.is_running else b""
        for call in process.calls:
            self._touch(process, call)
        if process.gang:
            self._touch(process, Call(b"", 0, b""))
        event = ExecutorDied(process.number, running, cause)

        def arrive() -> None:
            self._lines.pop(process.number, None)
            self._handle(process.rank, event)

        # All that the process has sent arrives before.
        self._lines[process.rank] = max(self._lines.get(process.rank, 0), self._lines.get(process.number, 0))
        self.say(process.rank, arrive)

    def lose(self, rank: int) -> None:
        """A rank is gone, with all its processes."""
        self.counters["rank losses"] += 1
        self.lost.add(rank)
        for process in self.processes.values():
            if process.rank == rank and process.alive:
                process.alive = False
                self.using.pop(process.number, None)
        self.scheduler.handle_rank(RankLost(rank), self.now)
        self.decide()
