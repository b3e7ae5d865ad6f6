"""The life cycles of calls, actors, objects and executors, and the only function that changes a state.

A move is one event: for each state in which it may happen, the state that follows. A move that is not allowed is a bug
of the runtime, and raises with the thing's story.

A story is the list of unusual moves of a thing, with cause and time: it was stolen, its process died, it ran again.
Moves without a cause are frequent, must cost nothing, and are not noted. There are at most STORIES_MAX stories, each
with the last STORY_MOVES_MAX moves; the oldest story is dropped first. A story outlives its thing, so `explain` can
report about a value that is gone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from mpi_runtime.scheduler.protocol.limits import STORIES_MAX, STORY_CAUSE_CHARS_MAX, STORY_MOVES_MAX

Move: TypeAlias = "dict[int, int]"
"""The states in which an event may happen, each with the state that follows. A plain dict: a class would cost an empty
task two percent of its time in the scheduler."""


class Named(NamedTuple):
    """A move with its name, a participle."""

    thing: str
    states: tuple[str, ...]
    name: str
    move: Move


MOVES: list[Named] = []
"""All moves, for stories and tests."""


def _moves_of(thing: str, *states: str) -> Callable[[str, Move], Move]:
    """A function that names a move of these things, which have states with these names."""

    def add(name: str, move: Move) -> Move:
        MOVES.append(Named(thing, states, name, move))
        return move

    return add


# Calls

TASK_STATE_NAMES = ("waiting", "ready", "staging", "sent", "blocked", "lost", "finished", "failed", "cancelled")
WAITING, READY, STAGING, SENT, BLOCKED, LOST, FINISHED, FAILED, CANCELLED = range(9)
ENDED = frozenset((FINISHED, FAILED, CANCELLED))
ASSIGNED = (STAGING, SENT, BLOCKED)
"""It has an executor."""

_call = _moves_of("call", *TASK_STATE_NAMES)
ARGUMENTS_READY = _call("arguments ready", {WAITING: READY})
STAGE = _call("staged", {READY: STAGING})
"""An executor was chosen; arguments are on their way to its host."""
SEND = _call("sent", {READY: SENT, STAGING: SENT})
"""Sent to an executor, perhaps behind other calls."""
FOLLOW = _call("sent behind its arguments", {WAITING: SENT})
"""Sent to the executor whose calls make its arguments."""
UNFILLED = _call("not begun for want of an argument", {SENT: WAITING})
"""It came back, and waits again, since it was sent behind its arguments."""
TAKE_BACK = _call("taken back", {SENT: READY, STAGING: READY})
"""It was stolen before it started."""
BLOCK = _call("blocked", {SENT: BLOCKED})
"""It runs and waits for objects."""
UNBLOCK = _call("unblocked", {BLOCKED: SENT})
FINISH = _call("finished", {SENT: FINISHED, BLOCKED: FINISHED})
"""Its value or its own error has arrived."""
RECALL = _call("recalled from the journal", {WAITING: FINISHED, READY: FINISHED})
"""The journal has its values, from an earlier run. For calls of actors it is asked when they can run."""
LOSE = _call("lost", {SENT: LOST, BLOCKED: LOST})
"""Its executor died while it ran, or it raised and is retried."""
RETRY = _call("run again", {LOST: READY})
CREATE_AGAIN = _call("created again", {FINISHED: LOST})
"""The creation of an actor whose process died."""
MAKE_AGAIN = _call("to be run again for a lost value", {FINISHED: WAITING})
"""Every copy of one of its values is lost."""
WAIT_AGAIN = _call("to wait for a lost argument", {READY: WAITING, STAGING: WAITING})
FAIL = _call("given an error", dict.fromkeys((WAITING, READY, *ASSIGNED, LOST), FAILED))
"""By the runtime."""
CANCEL = _call("cancelled", dict.fromkeys((WAITING, READY, *ASSIGNED, LOST), CANCELLED))

# Actors

CREATING, ALIVE, RESTARTING, ENDING, DEAD = range(5)
LIVING = (CREATING, ALIVE, RESTARTING)

_actor = _moves_of("actor", "creating", "alive", "restarting", "ending", "dead")
CREATED = _actor("created", {CREATING: ALIVE})
"""Its constructor has returned."""
RESTART = _actor("to start again", dict.fromkeys(LIVING, RESTARTING))
"""Its process is gone or was killed, and it gets another."""
CREATE = _actor("queued to be created", dict.fromkeys((RESTARTING, CREATING), CREATING))
"""Its process is gone."""
END = _actor("asked to end", dict.fromkeys(LIVING, ENDING))
"""The last handle is gone, or it was killed."""
LEFT = "ended itself with exit_actor() or sys.exit()"
"""Why an actor died that a call of it has ended."""
DIE = _actor("ended", dict.fromkeys((*LIVING, ENDING), DEAD))
"""It will not run again."""

# Objects

OBJECT_STATE_NAMES = ("pending", "rebuilding", "inline", "stored", "error", "failed", "lost")
PENDING, REBUILDING, INLINE, STORED, ERROR, RUNTIME_ERROR, GONE = range(7)
UNSEALED = (PENDING, REBUILDING)
"""It has no value now."""

_object = _moves_of("object", *OBJECT_STATE_NAMES)
VALUE = _object("made", dict.fromkeys(UNSEALED, INLINE))
"""Its value is small, and inline."""
STORE = _object("stored", dict.fromkeys(UNSEALED, STORED))
"""Its value is in an arena."""
RAISE = _object("given an error of user code", dict.fromkeys(UNSEALED, ERROR))
REFUSE = _object("given an error", dict.fromkeys(UNSEALED, RUNTIME_ERROR))
"""By the runtime."""
LOSE_VALUE = _object("lost", {STORED: GONE, GONE: GONE})
"""The holder of its copy could not be reached at the last fetch."""
FIND = _object("found again", {GONE: STORED})
"""A copy of it was fetched after all."""
REBUILD = _object("to be rebuilt", dict.fromkeys((PENDING, REBUILDING, INLINE, STORED, GONE), REBUILDING))
"""Its call runs once more, because every copy is lost or the process of the created actor has died. If no client wanted
the value, it never existed."""
GIVE_UP = _object("lost for good", {STORED: RUNTIME_ERROR, GONE: RUNTIME_ERROR})
"""Every copy is lost, and nothing can make it again."""

# Executors

EXECUTOR_STATE_NAMES = ("starting", "running", "stopping", "died")
STARTING, RUNNING, STOPPING, DIED = range(4)

_executor = _moves_of("executor", *EXECUTOR_STATE_NAMES)
STARTED = _executor("started", {STARTING: RUNNING, RUNNING: RUNNING, STOPPING: STOPPING})
"""Its process exists. This may be reported twice."""
STOP = _executor("asked to stop", dict.fromkeys((STARTING, RUNNING, STOPPING), STOPPING))
LEAVE = _executor("gone", dict.fromkeys((STARTING, RUNNING, STOPPING), DIED))
"""Its process is known to be gone."""


class Thing(Protocol):
    """A thing with a life cycle."""

    state: int

    @property
    def id(self) -> bytes | int:
        """Its id in stories. A call, the first object that it makes and the actor that it creates share one."""


class IllegalTransitionError(AssertionError):
    """A bug of the runtime: an event in a state in which it cannot happen. Please report it with the text."""


class Stories:
    """The unusual moves of things, by id."""

    def __init__(self) -> None:
        self.now = 0
        self._by_id: OrderedDict[bytes | int, list[tuple[int, Move, str, int]]] = OrderedDict()
        """Time, move, cause, and how often in a row."""

    def add(self, id: bytes | int, move: Move, cause: str) -> None:
        """Add an event to a thing's story."""
        cause = _short(cause)
        story = self._by_id.get(id)
        if story is None:
            if len(self._by_id) >= STORIES_MAX:
                self._by_id.popitem(last=False)
            story = self._by_id[id] = []
        times = 1
        if story and story[-1][1] is move and story[-1][2] == cause:
            times += story.pop()[3]
        elif len(story) >= STORY_MOVES_MAX:
            del story[0]
        story.append((self.now, move, cause, times))

    def of(self, id: bytes | int, thing: str = "", besides: str = "") -> str:
        """The story of all things with an id, or of one kind of them, in words; without events of this cause."""
        known = [entry for entry in self._by_id.get(id, ()) if entry[2] != _short(besides)]
        return "; ".join(self._words(*entry) for entry in known if thing in ("", named(entry[1]).thing))

    def _words(self, at_us: int, move: Move, cause: str, times: int) -> str:
        often = f", {times} times in a row" if times > 1 else ""
        known = named(move)
        return f"{(self.now - at_us) / 1e6:.3g} s ago the {known.thing} was {known.name}{often} ({cause})"


def advance(stories: Stories, thing: Thing, move: Move, cause: str = "") -> None:
    """Move a thing along. With a cause, the move becomes part of the thing's story.

    Raises:
        IllegalTransitionError: the move is not allowed in the present state.
    """
    try:
        thing.state = move[thing.state]
    except KeyError:
        story, known = stories.of(thing.id), named(move)
        before = f"Its story: {story}." if story else "Nothing unusual had happened to it."
        text = f"{thing} is {known.states[thing.state]!r} and cannot be {known.name!r}. {before}"
        raise IllegalTransitionError(text) from None
    if cause:
        stories.add(thing.id, move, cause)


def named(move: Move) -> Named:
    """The name of a move."""
    return next(known for known in MOVES if known.move is move)


def first_line(cause: str) -> str:
    """The first line of a text that may end with a traceback."""
    return cause.partition("\n")[0]


def _short(cause: str) -> str:
    return first_line(cause)[:STORY_CAUSE_CHARS_MAX]


def so_far(story: str) -> str:
    """A story as a sentence after other sentences; empty for no story."""
    return f" What had happened before: {story}." if story else ""
