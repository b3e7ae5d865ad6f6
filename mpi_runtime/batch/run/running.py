"""The commands in the scheduler of a job that takes part in a batch, and the events of the job."""

from __future__ import annotations

import contextlib
import math
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

import msgspec

import mpi_runtime
from mpi_runtime import ObjectRef
from mpi_runtime.batch.elastic.files import JobFiles
from mpi_runtime.batch.elastic.member import Member
from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.history.outputs import kept, of_attempt
from mpi_runtime.batch.history.results import CommandError, CommandResult, lost
from mpi_runtime.batch.run.submission import submit
from mpi_runtime.extend import Outcome, ask, when_done
from mpi_runtime.files.claim import Claim
from mpi_runtime.scheduler.protocol.questions import RunningCalls
from mpi_runtime.show.ctrl_c import at_first_ctrl_c

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
results = msgspec.msgpack.Decoder(CommandResult)
"""Reads the result of a command."""


class CommandEnded(msgspec.Struct, frozen=True):
    """A command in the scheduler of this job has ended, or was taken from it."""

    number: int
    outcome: Outcome[bytes]


class Interrupted(msgspec.Struct, frozen=True):
    """Ctrl-C."""


class Late(msgspec.Struct, frozen=True):
    """The job's time is nearly over."""


class Line(msgspec.Struct, frozen=True):
    """A line of standard input."""

    number: int
    text: str


class EndOfLines(msgspec.Struct, frozen=True):
    """The last line was read."""


Event = CommandEnded | Interrupted | Late | Line | EndOfLines


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


class Started(msgspec.Struct):
    """A command in the scheduler of this job."""

    ref: ObjectRef[bytes]
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
    """A signal that batch systems send to all processes of a job has ended it. Its end was held back once."""
    is_cancelled: bool = False
    """It was cancelled: once, since a second time would end its grace."""

    def cancel(self) -> None:
        """End it, after its grace if it has begun."""
        if not self.is_cancelled:
            self.is_cancelled = True
            mpi_runtime.cancel(self.ref)


class Running:
    """The commands in the scheduler of this job until they have ended, and all events.

    It outlives a change of roles: a member that becomes the coordinator continues with it.
    """

    def __init__(self, directory: str) -> None:
        """Begin without commands. Their outputs are in this directory."""
        self.by_number: dict[int, Started] = {}
        """By number: a command that runs may be offered again, by a coordinator that does not know of this."""
        self._directory = directory
        self._names: dict[bytes, str] = {}
        """The names of commands by the ids of their calls."""
        self._events = queue.SimpleQueue[Event]()
        self._expired_s = 0.0

    def start(
        self, command: Command, key: bytes, number: int, path_us: int, until_s: float = 0.0, attempt: int = 0
    ) -> None:
        """Submit a command to the scheduler of this job, which the journal has recorded as begun."""
        made = of_attempt(command, self._directory, attempt, key)
        ref = submit(made, self._directory, False, path_us=path_us, until_s=until_s)
        self.by_number[number] = Started(ref, command.name, key, number, attempt, until_s)
        self._names[ref.binary()] = command.name
        when_done(ref, lambda outcome: self._events.put(CommandEnded(number, outcome)))  # in another thread

    def put(self, event: Event) -> None:
        """Add an event. For all threads."""
        self._events.put(event)

    def take(self, wait_s: float) -> Iterator[Event]:
        """Wait for an event, and take all that have arrived."""
        with contextlib.suppress(queue.Empty):
            yield self._events.get(timeout=wait_s)
            while True:
                yield self._events.get_nowait()

    def ended(self, event: CommandEnded) -> Started | None:
        """Take out a command that has ended; None: its end is doubtful, and will be an event once more."""
        one = self.by_number[event.number]
        if not one.is_doubted and is_doubtful(event.outcome):
            one.is_doubted = True
            timer = threading.Timer(DOUBT_S, self._events.put, (event,))
            timer.daemon = True
            timer.start()
            return None
        del self.by_number[event.number]
        self._names.pop(one.ref.binary(), None)
        return one

    def result(self, command: Command, one: Started, outcome: Outcome[bytes]) -> CommandResult:
        """The result of a command that has ended."""
        error = outcome.exception()
        found = results.decode(outcome.result()) if error is None else lost(command.name, command.shown(), error)
        return kept(found, self._directory, one.attempt)

    def name_of(self, id: bytes) -> str:
        """The name of the command that is this call; empty: none is."""
        return self._names.get(id, "")

    def cancel(self, number: int) -> bool:
        """End a command; return whether it was here."""
        one = self.by_number.get(number)
        if one is not None:
            one.cancel()
        return one is not None

    def cancel_all(self, but: Iterable[bytes] = ()) -> None:
        """End all commands except these calls."""
        kept = {*but}
        for one in self.by_number.values():
            if one.ref.binary() not in kept:
                one.cancel()

    def drain(self, handle: Callable[[Event], None]) -> None:
        """End what runs here, and handle its end."""
        self.cancel_all()
        limit_s = time.monotonic() + DRAIN_S
        while self.by_number and time.monotonic() < limit_s:
            for event in self.take(TURN_S):
                handle(event)

    def withdraw(self, one: Started) -> None:
        """Take a command back that has not begun, so that it is submitted as it is now, or given to all."""
        one.is_withdrawn = True
        one.cancel()

    def return_expired(self) -> None:
        """From time to time withdraw commands whose turn here has not come in time: others may have room for them."""
        if time.monotonic() - self._expired_s <= LOOK_S:
            return
        self._expired_s = time.monotonic()
        now_s = time.time() - EXPIRED_S
        late = [one for one in self.by_number.values() if 0 < one.until_s < now_s]
        begun = begun_here() if late else set()
        self.give_back(one for one in late if one.ref.binary() not in begun)

    def give_back(self, commands: Iterable[Started]) -> None:
        """Withdraw commands that cannot begin here, so that they are offered again to whatever job can run them."""
        for one in commands:
            one.is_returned = True
            one.cancel()


class Place(NamedTuple):
    """The place of a coordinator that is gone, for a member that takes it."""

    claim: Claim
    running: Running
    member: Member
    files: JobFiles


def begun_here() -> set[bytes]:
    """The ids of the calls that run in this job."""
    return {one.id for one in ask(RunningCalls())}


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


def ctrl_c_as_event(put: Callable[[Event], None]) -> AbstractContextManager[None]:
    """Make the first Ctrl-C an event; the second raises as usual."""
    return at_first_ctrl_c(lambda: put(Interrupted()))
