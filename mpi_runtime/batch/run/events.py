"""How a job runs a batch, its events, and the commands in its scheduler: as coordinator or as member."""

from __future__ import annotations

import contextlib
import math
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import msgspec

import mpi_runtime
from mpi_runtime import ObjectRef
from mpi_runtime.batch.elastic.files import JobFiles
from mpi_runtime.batch.elastic.member import Member
from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.selection import Selection
from mpi_runtime.batch.history.journal import BatchJournal
from mpi_runtime.batch.history.outputs import kept, of_attempt
from mpi_runtime.batch.history.results import CommandError, CommandResult, lost
from mpi_runtime.batch.run.submission import submit
from mpi_runtime.extend import Outcome, ask, when_done
from mpi_runtime.files.claim import Claim
from mpi_runtime.show.ctrl_c import at_first_ctrl_c
from mpi_runtime.show.live_picture import LivePicture

TURN_S = 0.5
"""Seconds between turns of a job that runs a batch with others."""
LOOK_S = 2.0
"""Seconds between questions to the scheduler where commands run, which `status` shows."""
TIME_IS_OVER = 75
"""The exit code of a batch that was not finished when the job's time ended: EX_TEMPFAIL."""
DRAIN_S = 8.0
"""Seconds for which commands may run on after the end in time was requested, so that short ones need not run again."""
EXPIRED_S = 0.5
"""How long after its time a command is withdrawn."""
DOUBT_S = 1.0
"""How long the end of a doubtful command is held back: if its job dies meanwhile, it has not failed."""
LASTS_S, AGAIN_S = 3.0, 10.0
"""How long a problem lasts until it is shown, and the seconds until it is shown again."""
ENDED, INTERRUPTED, LATE = "ended", "interrupted", "late"
results = msgspec.msgpack.Decoder(CommandResult)
"""Reads the result of a command."""


class Trouble:
    """Shows why a job cannot take part in its batch: if that lasts, and not too often."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.problem = ""
        """What has lasted; empty: all is well, or has only just ceased to be."""
        self._say = say
        self._since_s = self._said_s = -math.inf

    def note(self, problem: str, now_s: float) -> None:
        """Note the problem of a turn; empty: there was none."""
        if not problem:
            self.problem, self._since_s = "", -math.inf
            return
        if self._since_s == -math.inf:
            self._since_s = now_s
        if now_s - self._since_s >= LASTS_S:
            self.problem = problem
            if now_s - self._said_s >= AGAIN_S:
                self._said_s = now_s
                self._say(problem)


class Running(msgspec.Struct):
    """A command in the scheduler of this job."""

    ref: ObjectRef[Any]
    name: str
    key: bytes
    number: int
    attempt: int
    until_s: float = 0.0
    """In seconds since 1970: after this time it does not begin, and may be withdrawn; 0: it stays."""
    is_withdrawn: bool = False
    """It is taken from the scheduler of this job, to be submitted as it is now, or given to all."""
    is_returned: bool = False
    """It is withdrawn because it cannot begin here, or not in time."""
    is_doubted: bool = False
    """Its end was held back once."""


Events = queue.SimpleQueue[tuple[str, Any, Any]]


def is_doubtful(outcome: Outcome[bytes]) -> bool:
    """Whether a signal ended a command that batch systems, and hosts that shut down, send to all processes of a job."""
    error = outcome.exception()
    if isinstance(error, CommandError):  # of its ranks
        result = error.result
    elif error is None and outcome.result():
        result = results.decode(outcome.result())
    else:
        return False
    return not result.problem and result.signal in (signal.SIGTERM, signal.SIGKILL)


def ctrl_c_as_event(events: Events) -> AbstractContextManager[None]:
    """Make the first Ctrl-C an event; the second raises as usual."""
    return at_first_ctrl_c(lambda: events.put((INTERRUPTED, None, None)))


class Place(NamedTuple):
    """The place of a coordinator that is gone, for a member that takes it."""

    claim: Claim
    events: Events
    running: dict[int, Running]
    member: Member
    files: JobFiles


class Setting(msgspec.Struct, frozen=True):
    """How a job runs a batch."""

    directory: str
    """Of the output."""
    say: Callable[[str], None]
    """Shows a line."""
    journal: BatchJournal
    """Has the ends of earlier runs, and records this run."""
    selection: Selection = Selection()
    """The commands of this run."""
    is_packed: bool = False
    """Whether outputs are kept in one file."""
    live: LivePicture | None = None
    """The view of the state; None: a line from time to time instead."""
    failures_max: float = math.inf
    """One more failed command than this stops the batch."""
    end_s: float | None = None
    """When this job starts nothing more, in seconds since 1970; None: not known."""
    place: Place | None = None
    """Of a coordinator that is gone, which this job takes."""
    idle_s: float | None = None
    """Other jobs are expected: the commands are shared from the start, and this job waits this long for a job that has
    room for what has none here. None: all must run here."""


class Commands:
    """The commands in the scheduler of this job until they have ended, and all events."""

    def __init__(self, setting: Setting) -> None:
        """Begin without commands, or with those that this job had as a member."""
        self._setting, place = setting, setting.place
        self._directory, self._say, self._journal = setting.directory, setting.say, setting.journal
        self._events: Events = queue.SimpleQueue() if place is None else place.events
        self._running: dict[int, Running] = {} if place is None else place.running
        """By number: a command that runs may be offered again, by a coordinator that does not know of this."""
        self._expired_s = 0.0
        self._trouble = Trouble(setting.say)

    def end_in_time(self) -> None:
        """Start nothing more, and end: the job's time is nearly over. Any thread may call this."""
        self._events.put((LATE, None, None))

    def _run(
        self, command: Command, key: bytes, number: int, path_us: int, until_s: float, attempt: int
    ) -> ObjectRef[Any]:
        """Submit a command to the scheduler of this job."""
        name = command.name
        self._journal.began(name, number)
        made = of_attempt(command, self._directory, attempt, key)
        ref = submit(made, self._directory, False, path_us=path_us, until_s=until_s)
        self._running[number] = Running(ref, name, key, number, attempt, until_s)
        when_done(ref, lambda outcome: self._events.put((ENDED, number, outcome)))  # in another thread
        return ref

    def _handle_events(self, wait_s: float) -> None:
        """Wait for an event, and handle all that have arrived."""
        with contextlib.suppress(queue.Empty):
            self._handle(*self._events.get(timeout=wait_s))
            while True:
                self._handle(*self._events.get_nowait())

    def _handle(self, what: str, name: Any, value: Any) -> None:
        raise NotImplementedError

    def _drain(self) -> None:
        """End what runs here, and handle its end."""
        for one in self._running.values():
            mpi_runtime.cancel(one.ref)
        limit_s = time.monotonic() + DRAIN_S
        while self._running and time.monotonic() < limit_s:
            self._handle_events(TURN_S)

    def _is_held_back(self, number: int, outcome: Outcome[bytes]) -> bool:
        """Whether a doubtful end is handled a little later; if so, it is an event once more."""
        one = self._running[number]
        if one.is_doubted:
            return False
        one.is_doubted = True
        timer = threading.Timer(DOUBT_S, self._events.put, ((ENDED, number, outcome),))
        timer.daemon = True
        timer.start()
        return True

    def _result(self, command: Command, one: Running, outcome: Outcome[bytes]) -> CommandResult:
        error = outcome.exception()
        found = results.decode(outcome.result()) if error is None else lost(command.name, command.shown(), error)
        return kept(found, self._directory, one.attempt)

    def _return_expired(self) -> None:
        """From time to time withdraw commands whose turn here has not come in time: others may have room for them."""
        if time.monotonic() - self._expired_s <= LOOK_S:
            return
        self._expired_s = time.monotonic()
        now_s = time.time() - EXPIRED_S
        late = [one for one in self._running.values() if 0 < one.until_s < now_s]
        begun = {id for id, _, _ in ask("running")} if late else set()
        self._return(one for one in late if one.ref.binary() not in begun)

    def _return(self, commands: Iterable[Running]) -> None:
        """Withdraw commands that cannot begin here, so that they are offered again to whatever job can run them."""
        for one in commands:
            one.is_returned = True
            mpi_runtime.cancel(one.ref)
