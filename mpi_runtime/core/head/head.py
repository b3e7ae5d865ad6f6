"""The head: rank 0 of the job. It runs the scheduler, performs its effects, and is the node agent of its rank.

It is a child of the driver (or a thread of it, if the user's program uses MPI itself). It runs no user code and
unpickles nothing. The scheduler is pure: events go in, effects come out. The head is the loop around it, and all that
the scheduler must not have: sockets, MPI, a clock, files.

    frames of the driver, executors, ranks      clients: values, calls      ranks: start, stop, copy, free
                 |                                        ^                          ^
                 v            one turn of `run`           |                          |
              handle   ---->   decide (once)   ---->   perform effects, one frame for each client and rank

One decision for all events of a turn: so a burst of calls costs one look at the queues. After a turn the loop sleeps
until a frame arrives, or until the first deadline of what it serves: scheduler, agent, heartbeat, printer.

What always holds: only the head changes the state of the scheduler. A message of a rank or an executor that cannot be
read is dropped: that of a rank is logged, and an executor is killed. One of the driver ends the job, since its requests
are lost. Effects for ranks are performed before messages to clients.

Not obvious: the agent of this rank reports by a call of `report`, in the middle of `_perform`. So `_has_heard` asks for
another decision at once. Answers to questions go into a frame of their own: an agent may hold a frame with calls back
until the running call has ended, and that call may wait for the answer.

A job ends in steps:
1. The driver sends `Shutdown`, or its end of the socket closes, however the driver ended.
2. The head sends `EndJob` to all workers and stops its own agent. All executors are killed and reaped.
3. Transfers under way are completed, although no call needs the values: MPI cannot cancel them, and would write them
   into the memory of the next job. A rank that waits for no transfer sends `Idle`, and still sends objects that others
   wait for. When all ranks are idle, the head sends `EndJob(all_idle=True)`, and they free the memory.
4. After `Shutdown` the head waits for the next message of the driver. Under MPI that may be a further job, since MPI
   cannot be started twice. Otherwise the head sends `Stop`, the transports of all ranks close together, and it ends.
5. If the driver's end closes without `Shutdown`, the driver was killed, and the launcher may be killing all other
   ranks. Then the head waits for no other rank and limits its own time (`die_soon`). The launcher ends the rest.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from mpi_runtime import config as configuration
from mpi_runtime.core.executor.fork_messages import PLAIN
from mpi_runtime.core.head.direct_lines import DirectLines
from mpi_runtime.core.head.gangs import Gathers
from mpi_runtime.core.head.inspection import Window, reply_to
from mpi_runtime.core.head.journal import JournalKeeper, open_journal
from mpi_runtime.core.head.measures import Measures
from mpi_runtime.core.head.printer import Printer
from mpi_runtime.core.head.stacks import Stacks
from mpi_runtime.core.host import launchers
from mpi_runtime.core.host.launch import INSIDE
from mpi_runtime.core.host.machine import shortage
from mpi_runtime.core.rank.bad_frames import BadFrames
from mpi_runtime.core.rank.heartbeat import Heartbeat
from mpi_runtime.core.rank.joining import Rank, library, now_us, once_for_each_host
from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.base import Buffer, Transport, TransportError
from mpi_runtime.core.transport.channel import LOCAL, Channel, ChannelClosedError
from mpi_runtime.core.transport.messages import (
    BetweenRanks,
    Ended,
    EndJob,
    ForAgent,
    FromExecutor,
    GangBytes,
    Idle,
    Log,
    Measured,
    PauseLogs,
    Pull,
    Recorded,
    StackRead,
    ToExecutor,
    ToWorker,
    Unpull,
    Welcome,
)
from mpi_runtime.core.transport.poller import Poller, shorter
from mpi_runtime.core.transport.start import Start, send_welcome
from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.protocol.effects import RANK_LOST, UNHANDLED, Answer, Effects, Note, RankEffect
from mpi_runtime.scheduler.protocol.events import DRIVER, Call, RefusedError
from mpi_runtime.scheduler.protocol.questions import Question
from mpi_runtime.scheduler.protocol.rank_events import (
    ExecutorDied,
    ExecutorStarted,
    FrameRefused,
    JobBegan,
    MemoryEvent,
    RankEvent,
    RankJoined,
    RankLost,
    TakenBack,
)
from mpi_runtime.scheduler.protocol.window_questions import MeasuredHosts, Output, RecordedFrom, Several, Stack
from mpi_runtime.show import log

if TYPE_CHECKING:
    from mpi_runtime.core.head.drivers import Drivers
    from mpi_runtime.core.head.metrics import Metrics
    from mpi_runtime.core.head.progress import Progress
    from mpi_runtime.core.head.recorder import Recorder

END_LIMIT_S = 10.0
"""How long workers may take to end their part of a job, in seconds."""
TOTALS_AFTER_US = 10_000_000
"""At the end of a job that ran longer, a line of totals is logged."""
GONE_LIMIT_S = 1.0
"""How long the head may live after its driver was killed, in seconds. The launcher kills the workers then, and MPI may
hang."""
JOURNAL_LIMIT_S = 30.0
"""How long the end of a job may wait for the last records of its journal, in seconds."""
WAITS_S = 1.0
"""Seconds between two reports to the driver about ranks that have not joined."""
MISSING_MAX = 10
"""The number of missing ranks that are named."""
DIED = "died"
"""The word for a lost rank in messages."""


class DriverFrameError(Exception):
    """The driver has sent a frame that cannot be read."""


class Head:
    """One job of rank 0."""

    def __init__(
        self, driver: Channel, transport: Transport, poller: Poller, start: Start, rank: Rank, is_thread: bool = False
    ) -> None:
        """Serve this driver with rank 0. `is_thread`: the head is a thread of the driver, which uses MPI itself."""
        self._rank = rank
        self._agent = rank.agent
        self._config = rank.config
        self._is_thread = is_thread
        self._driver = driver
        self._transport = transport
        self._lines = DirectLines(transport, self._agent.custodian, rank.job.token, configuration.direct_lines())
        self._poller = poller
        self._recorder: Recorder | None = None
        if path := configuration.record_file():
            from mpi_runtime.core.head.recorder import new_recorder  # not at the top: few jobs are recorded

            self._recorder = new_recorder(path)
        self._scheduler = Scheduler() if self._recorder is None else self._recorder.scheduler
        self._joined: dict[int, RankJoined] = {}
        """The report of each rank."""
        self._working: set[int] = set()
        """Workers that have not sent `Idle`."""
        self._has_begun = False
        """Whether all ranks have joined."""
        self._lost = set(rank.job.lost)
        """Ranks that have died, as far as the scheduler knows. Never iterated over: a set has no order."""
        self._bad_frames = BadFrames(transport.rank)
        self._ending = False
        self.driver_is_gone = False
        self._printer = Printer(self._pause_logs, start.log)
        self._log_level = start.log_level
        self._launch = start.launch
        self._began_s = self._reported_s = time.monotonic()
        self._names: dict[int, str] = {}
        """By executor: the function of its last call, a prefix of its output."""
        self._journal: JournalKeeper | None = None
        self._has_heard = False
        """Whether a message has arrived since the effects of the last decision began to be performed."""
        self._window: Window | None = None
        self._secret = start.secret
        self._drivers: Drivers | None = None
        """Those that have connected to a session; None: this is a plain job."""
        self._gathers = Gathers(self._send)
        self._progress: Progress | None = None
        self._stacks = Stacks(transport.hostnames, self._send)
        self._measures = Measures(transport.hosts, transport.hostnames, self._send)
        self._recorded: Metrics | None = None
        self._pid_of_driver = os.getpid() if is_thread else os.getppid()

    def _send(self, rank: int, message: ForAgent) -> None:
        """Send a message to the agent of a rank, which may be this one."""
        if rank == self._transport.rank:
            self._agent.obey(message)
        else:
            self._transport.send(rank, codec.encode([message]))

    def _send_workers(self, message: EndJob) -> None:
        for rank in range(1, self._transport.size):
            self._transport.send(rank, codec.encode([message]))

    def report(self, message: BetweenRanks, source: int = 0) -> None:
        """Take a message of a rank. The agent of this rank calls this directly."""
        self._has_heard = True
        try:
            _REPORTS.get(type(message), Head._refuse_message)(self, message, source)
        except (codec.BadFrameError, RefusedError) as error:
            self._bad_frames.dropped(source, error)

    def _refuse_message(self, message: BetweenRanks, _: int) -> None:
        raise codec.BadFrameError(f"a {type(message).__name__} is not for the head")

    def _take_event(self, event: RankEvent, _: int) -> None:
        self._scheduler.handle_rank(event, now_us())

    def _take_death(self, event: ExecutorDied, _: int) -> None:
        self._scheduler.handle_rank(event, now_us())
        self._forget(event.executor)  # its output has arrived before

    def _record(self, message: Recorded, _: int) -> None:
        if self._recorded is None:
            from mpi_runtime.core.head.metrics import Metrics  # not at the top: few programs record any

            self._recorded = Metrics(lambda text: self._say(log.WARNING, log.REPORT, text))
        node, pid = self._transport.hostnames[0], self._pid_of_driver
        if self._drivers is not None and message.client in self._drivers:
            pid = self._drivers.pid(message.client)
        elif message.client != DRIVER:
            executor = self._scheduler.describe_executor(message.client)
            node, pid = executor.hostname, executor.pid
        self._recorded.take(message.client, node, pid, message.series)

    def _forget(self, executor: int) -> None:
        self._names.pop(executor, None)
        if self._recorded is not None:
            self._recorded.ended(executor)
        self._printer.ended(executor)
        if self._drivers is not None:
            self._drivers.ended(executor)

    def _join(self, message: RankJoined, source: int) -> None:
        if source != message.rank or source in self._joined:
            raise codec.BadFrameError(f"rank {source} reports that rank {message.rank} joins")
        self._joined[source] = message
        self._working.add(source)
        self._begin_job_if_all_are_there(now_us())

    def _hear(self, message: FromExecutor, _: int) -> None:
        now = now_us()
        try:
            events = codec.from_client.decode(message.frame)
        except codec.BadFrameError as error:
            self._scheduler.handle_rank(FrameRefused(message.executor, str(error), message.ended), now)
        else:
            self._scheduler.handle(message.executor, events, now, message.ended)

    def _begin_job_if_all_are_there(self, now: int) -> None:
        if not self._has_begun and len(self._joined) + len(self._lost) == self._transport.size:
            self._has_begun = True
            self._begin_job(now)

    def _report_missing(self) -> float:
        """Send the driver the ranks that have not joined, if it is time. Return the seconds until the next report."""
        now, transport = time.monotonic(), self._transport
        if now >= self._reported_s + WAITS_S:
            self._reported_s = now
            missing = [rank for rank in range(transport.size) if rank not in self._joined and rank not in self._lost]
            names = [f"{rank} on {transport.hostnames[rank]}" for rank in missing[:MISSING_MAX]]
            names += [f"{len(missing) - MISSING_MAX} others"] * (len(missing) > MISSING_MAX)
            joined = f"all ranks have met in MPI, and {len(self._joined)} of {transport.size} have joined the job"
            with contextlib.suppress(OSError):  # the driver is gone, which the next read will notice
                send_welcome(self._driver, Welcome(waits=f"{joined}; missing: {', '.join(names)}"), None)
        return self._reported_s + WAITS_S - now

    def _lose(self, rank: int) -> None:
        """Note that a rank has died. A job that has not begun begins without it."""
        now = now_us()
        self._lost.add(rank)
        self._working.discard(rank)
        if self._has_begun and rank in self._joined:
            self._agent.custodian.lose(rank)
            for executor in self._scheduler.executors_on(rank):  # nobody reports their deaths
                self._forget(executor)
            self._scheduler.handle_rank(RankLost(rank, DIED), now)
        else:
            self._joined.pop(rank, None)
            name = f"rank {rank} on {self._transport.hostnames[rank]}"
            self._say(log.WARNING, RANK_LOST, f"{name} {DIED} before the job began, which continues without it", rank)
            self._begin_job_if_all_are_there(now)

    def _begin_job(self, now: int) -> None:
        """Begin the job: all ranks have joined. They are added in order, so nodes have the same numbers in each run."""
        for joined in once_for_each_host([self._joined[rank] for rank in sorted(self._joined)]):
            self._scheduler.handle_rank(joined, now)
        self._poller.add(self._driver, self._on_driver)
        journal, problem = open_journal(self._config, self._rank.job, self._transport.hostnames[0])
        if problem:
            self._refuse(problem, "JournalError")
            return
        if journal is not None:
            required = self._config.journal_required
            self._journal = JournalKeeper(journal, required, self._scheduler, self._say_of_journal)
        recalls = journal is not None and journal.earlier.has_any()
        began = JobBegan(self._config.num_gpus, journal is not None, recalls, launchers.is_fault_tolerant())
        self._scheduler.handle_rank(began, now)
        effects = self._scheduler.decide(now)
        self._log_notes(effects.notes)
        if effects.refusal:
            self._refuse(effects.refusal, "GpuDiscoveryError")
            return
        self._say(log.INFO, log.START, f"{self._scheduler.start_line()}; {library(self._launch)}")
        for line in journal.start_lines() if journal is not None else ():
            self._say_of_journal(log.INFO, line)
        if configuration.is_batch_job():
            from mpi_runtime.core.head.unused_resources import (
                unused,  # not at the top, as modules below: few jobs need it
            )

            if text := unused(self._launch.kind, self._transport.size, self._joined.values(), self._config):
                self._say(log.WARNING, log.UNUSED, text)
        if self._config.progress and os.isatty(2):
            from mpi_runtime.core.head.progress import Progress

            self._progress = Progress(self._scheduler.counts, self._printer.progress)
        if self._secret and (problem := self._open_door()):
            self._refuse(problem, "LaunchError")
            return
        self._window = Window(self._poller, self._pid_of_driver, self._look, self._launch.kind == INSIDE)
        send_welcome(self._driver, Welcome("", self._rank.host.regions), self._rank.host.arena)

    def _open_door(self) -> str:
        """Let programs connect. Return why that is impossible; else empty."""
        from mpi_runtime.core.head.drivers import Drivers  # not at the top: plain jobs have none

        host, welcome = self._rank.host, Welcome(inline_bytes_max=self._config.inline_bytes_max)
        welcome.regions = host.regions
        parts = self._poller, self._scheduler, self._agent.custodian, self._printer.recent
        say = partial(self._say, log.INFO, log.SESSION)
        try:
            self._drivers = Drivers(*parts, self._secret, welcome, host.arena, say)
        except OSError as error:
            return f"The session's door cannot be opened, so no program could connect: {shortage(error)}."
        return ""

    def _look(self, question: Question[object]) -> object:
        """Answer a question of a visitor of the window."""
        if isinstance(question, Several):
            return [reply_to(one, self._look) for one in question.questions]
        if isinstance(question, Output):
            return self._printer.recent.since(question.since)
        if isinstance(question, RecordedFrom):
            return self._recorded.answer(question.first) if self._recorded is not None else []
        ranks = [rank for rank in sorted(self._joined) if rank not in self._lost]
        if isinstance(question, MeasuredHosts):
            return self._measures.answer(ranks)
        if isinstance(question, Stack):
            return self._stacks.answer(question.host, question.pid, ranks)
        answer = self._scheduler.answer(question, now_us())
        if self._drivers is not None:
            self._drivers.mark_away(answer)
        return answer

    def _refuse(self, problem: str, error: str) -> None:
        """End the job before it has begun. `error`: the class of the exception that the driver raises."""
        self._ending = True
        send_welcome(self._driver, Welcome(problem, error=error), None)

    def _on_driver(self) -> None:
        try:
            frames = self._driver.receive()
        except ChannelClosedError:
            self._ending = self.driver_is_gone = True
            die_soon()
            return
        now = now_us()
        try:
            for count, frame in frames:
                if count == LOCAL:
                    for message in codec.to_agent.decode(frame):
                        self._ending |= self._agent.custodian.on_driver(self._driver, message)
                else:
                    self._scheduler.handle(DRIVER, codec.from_client.decode(frame), now)
            if self._driver.splitter.problem:
                raise codec.BadFrameError(self._driver.splitter.problem)
        except (codec.BadFrameError, RefusedError) as error:
            raise DriverFrameError(
                f"the program sent a frame that cannot be read: {error}. Its requests are lost, so the job cannot "
                "continue. Does it write to descriptors that it has not opened itself?"
            ) from error

    def run(self) -> None:
        """Begin the job when all ranks have joined, and serve until the driver ends it."""
        self.report(self._rank.joined)
        transport, poller, agent, scheduler = self._transport, self._poller, self._agent, self._scheduler
        silence_s = 0.0 if self._is_thread else self._config.heartbeat_timeout_s
        heartbeat = Heartbeat(transport, silence_s, time.monotonic)
        heartbeat.expect(range(transport.size))
        busy_s = time.monotonic()
        limit: float | None = 0.0
        while not self._ending:
            poller.patience.is_granted = scheduler.has_free_cpu(transport.rank)
            active = poller.gather(limit)
            transport.wake()
            for source, frame in transport.receive():
                active = True
                heartbeat.seen.add(source)
                self._take(source, frame)
            for rank in transport.take_lost():
                active = True
                heartbeat.forget(rank)
                self._lose(rank)
            soon = shorter(shorter(agent.turn(), self._printer.turn()), heartbeat.turn())
            if self._progress is not None:
                soon = shorter(soon, self._progress.turn(time.monotonic()))
            if self._drivers is not None:
                soon = shorter(soon, self._drivers.turn())
            effects = scheduler.decide(now_us())
            self._log_notes(effects.notes)
            if self._journal is not None and self._journal.turn(effects.journal, now_us()):
                soon = 0.0
            self._gathers.end(effects.ended_gangs)
            if effects.clients or effects.ranks:
                active, self._has_heard = True, False
                self._perform(effects)
                if self._has_heard:  # the agent of this rank has reported at once: decide again
                    soon = 0.0
            if active:
                busy_s = time.monotonic()
            elif self._recorder is not None:
                self._recorder.flush()
            if not self._has_begun:
                soon = shorter(soon, self._report_missing())
            deadline = scheduler.deadline()
            if deadline is not None:
                soon = shorter(soon, max(0.0, (deadline - now_us()) / 1e6))
            limit = shorter(soon, transport.prepare_sleep(time.monotonic() - busy_s))

    def _take(self, source: int, frame: Buffer) -> None:
        if source in self._lost:
            return  # sent before its death
        try:
            messages = codec.between_ranks.decode(frame)
        except codec.BadFrameError as error:
            self._bad_frames.dropped(source, error)
            return
        for message in messages:
            self.report(message, source)

    def _perform(self, effects: Effects) -> None:
        """Perform effects: first those for ranks, then messages to clients. Each rank gets one frame."""
        outgoing: dict[int, list[ToWorker]] = {}
        me, custodian = self._transport.rank, self._agent.custodian
        for rank, rank_effects in effects.ranks.items():
            if rank == me:
                for effect in rank_effects:
                    self._obey(effect)
            elif left := self._lines.left_to(rank, rank_effects):
                outgoing[rank] = left
        for client, messages in effects.clients.items():
            if client == DRIVER:
                self._driver.send(codec.encode(messages))
                self._poller.watch_unsent(self._driver)
                continue
            number = self._scheduler.rank_of(client)
            if number < 0:
                if self._drivers is not None and self._drivers.send(client, messages):
                    self._has_heard = True
                continue
            for ids, frame in self._frames(client, messages):
                if number == me or client in custodian:
                    custodian.to_executor(client, ids, frame)
                else:
                    outgoing.setdefault(number, []).append(ToExecutor(client, ids, frame))
        for rank, for_rank in outgoing.items():
            self._transport.send(rank, codec.encode(for_rank))

    def _obey(self, effect: RankEffect) -> None:
        try:
            self._agent.obey(effect)
        except codec.BadFrameError as error:
            self._bad_frames.dropped(self._transport.rank, error)

    def _frames(self, client: int, messages: list[object]) -> list[tuple[list[bytes], bytes]]:
        """Encode messages to an executor as frames, each with the ids of the calls in it.

        The agent may hold a frame with calls back until the running call has ended. That call may wait for the answer
        to a question, so answers go into a frame of their own. (If it waits for values, the scheduler knows, and
        steals the calls behind it.)
        """
        ids = [message.id for message in messages if type(message) is Call]
        if ids and type(last := messages[-1]) is Call:
            self._names[client] = self._scheduler.name_of(last.spec)
        answers = [message for message in messages if type(message) is Answer]
        if not ids or not answers:
            return [(ids, codec.encode(messages))]
        rest = [message for message in messages if type(message) is not Answer]
        return [([], codec.encode(answers)), (ids, codec.encode(rest))]

    # Output of executors

    def _print(self, log: Log) -> None:
        if not self._config.log_to_driver:
            return
        executor = self._scheduler.describe_executor(log.executor)
        where = f", rank {executor.rank}, {executor.hostname}" if executor.hostname and self._transport.size > 1 else ""
        name = executor.title or self._names.get(log.executor, "executor").partition(".")[0]
        is_plain, tag = log.writer.startswith(PLAIN), log.writer.removeprefix(PLAIN)
        writer = tag.decode(errors="replace") or name  # without a mark: no output of Python came before it
        prefix = f"({writer} pid={executor.pid}{where}) ".encode()
        if self._drivers is not None and (driver := self._scheduler.driver_of(log.executor)) in self._drivers:
            self._drivers.print(driver, log.stream, prefix, log.data, log.executor, is_plain)
        else:
            self._printer.print(log.stream, prefix, log.data, log.executor, is_plain)

    def _log_notes(self, notes: list[Note]) -> None:
        for note in notes:
            if note.event != UNHANDLED or not self._config.ignore_unhandled_errors:
                self._say(note.level, note.event, note.text, note.rank, note.host)

    def _say(self, level: int, event: str, text: str, rank: int = 0, host: str = "") -> None:
        if level >= self._log_level:
            self._printer.say(log.line(level, event, text, rank, host or self._transport.hostnames[0]))

    def _say_of_journal(self, level: int, text: str) -> None:
        self._say(level, log.JOURNAL, text)

    def _pause_logs(self, paused: bool) -> None:
        for rank in range(self._transport.size):
            self._send(rank, PauseLogs(paused))

    def end(self) -> None:
        """End the job: steps 2 and 3."""
        self._poller.remove(self._driver)
        if self._drivers is not None:
            self._drivers.close()
        if self._window is not None:
            self._window.close(has_ended=not self.driver_is_gone)
        self._send_workers(EndJob())
        self._agent.stop()
        self._working.discard(0)
        deadline = time.monotonic() + END_LIMIT_S
        while (self._working or self._agent.is_transferring) and not self.driver_is_gone:
            self._poller.poll(self._transport.prepare_sleep(1.0))
            self._transport.wake()
            for source, frame in self._transport.receive():
                self._take_at_end(source, frame)
            self._agent.turn()
            self._working.difference_update(self._transport.take_lost())
            if time.monotonic() > deadline:
                raise TransportError(f"ranks {sorted(self._working)} have not ended their part of the job")
        self._send_workers(EndJob(all_idle=True))
        if not self.driver_is_gone:
            self._agent.close()
            took_us = round((time.monotonic() - self._began_s) * 1e6)
            if took_us > TOTALS_AFTER_US:
                self._say(log.INFO, log.TOTALS, self._scheduler.totals_line(took_us))
            if self._journal is not None:
                self._say_of_journal(log.INFO, self._journal.journal.totals_line())
        self._printer.close(self._keep_driver_waiting)
        if not self.driver_is_gone:
            self._driver.send_rest_and(b"", LOCAL)  # the last frame of this job
        self._scheduler.close()

    def _take_at_end(self, source: int, frame: Buffer) -> None:
        try:
            for message in codec.between_ranks.decode(frame):
                if isinstance(message, Idle):
                    self._working.discard(message.rank)
                elif isinstance(message, Pull | Unpull):
                    self._agent.pull(source, message)
                elif isinstance(message, Log):
                    self._print(message)
        except codec.BadFrameError as error:
            self._bad_frames.dropped(source, error)

    def close_files(self) -> None:
        """Complete recording and journal, however the job has ended."""
        if self._journal is not None:
            self._journal.journal.close(GONE_LIMIT_S / 2 if self.driver_is_gone else JOURNAL_LIMIT_S)
        if self._recorder is not None:
            self._recorder.close()

    def _keep_driver_waiting(self) -> bool:
        """Send the driver a sign that the end takes longer. Return whether the driver is still there."""
        if not self.driver_is_gone:
            self._driver.send_rest_and(codec.encode([Answer(0, b"")]), 0)
        return not self.driver_is_gone and not self._driver.closed


_REPORTS: dict[type, Callable[[Head, Any, int], None]] = {
    FromExecutor: Head._hear,
    Log: lambda head, message, _: head._print(message),
    Ended: lambda head, message, _: head._agent.custodian.end(message),
    Pull: lambda head, message, source: head._agent.pull(source, message),
    Unpull: lambda head, message, source: head._agent.pull(source, message),
    GangBytes: lambda head, message, source: head._gathers.take(message, source),
    Measured: lambda head, message, _: head._measures.take(message),
    StackRead: lambda head, message, _: head._stacks.take(message),
    Recorded: Head._record,
    RankJoined: Head._join,
    ExecutorDied: Head._take_death,
    **dict.fromkeys((ExecutorStarted, TakenBack, FrameRefused, *get_args(MemoryEvent)), Head._take_event),
}
"""What the head does with a message of a rank, by its type. Its rank comes last."""


def die_soon() -> None:
    """Have the kernel end this process after `GONE_LIMIT_S`, even if it hangs."""
    signal.setitimer(signal.ITIMER_REAL, GONE_LIMIT_S)
