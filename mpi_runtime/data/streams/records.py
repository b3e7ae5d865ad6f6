"""The records of a stream: blocks, tasks, stages, and the orders to the runner."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

SOURCE = -1
"""The stage of blocks that were there before the stream. They do not count."""
UNLIMITED = 1 << 62
"""The limit of a stage that only joins others."""
SIZES = 8
"""A stage remembers the sizes of this number of blocks."""


class Block(Struct, eq=False):
    """A block of rows."""

    value: object
    """The reference, at which the stream does not look."""
    rows: int
    bytes: int
    origin: str = ""
    """Where its rows are from, for messages."""
    stage: int = SOURCE
    key: tuple[int, ...] = ()
    """Its place in the order: its source, then the places of those who made it."""
    rebuild: Callable[[Any, object], object | None] | None = None
    """Returns a new value if this one is lost: see `lost_blocks.py`. Its arguments: a `Rebuilding`, and `value`."""

    def __reduce__(self) -> tuple[object, ...]:
        """Leave out how it is rebuilt: other processes do not need it."""
        return Block, (self.value, self.rows, self.bytes, self.origin, self.stage, self.key)


class Task(Struct, eq=False):
    """A task of a stage."""

    stage: int
    inputs: list[Block]
    key: tuple[int, ...]
    actor: int = -1
    cut: int = -1
    """For the last block of a limit: the number of rows that it keeps."""
    outputs: deque[Block] = field(default_factory=deque)
    made: int = 0
    is_paused: bool = False
    is_done: bool = False


class Stage(Struct, eq=False):
    """A stage: what the plan wants, and its state."""

    name: str
    inputs: tuple[int, ...] = ()
    """The stages whose blocks it reads; none: it reads `queues[0]`, which is full from the beginning."""
    bundle_rows: int = 1
    """A task takes blocks with at least this number of rows, unless no more arrive."""
    cpus: float = 1.0
    tasks_max: int = 1_000_000
    pool: tuple[int, int] | None = None
    """The least and the greatest number of actors."""
    keeps_cpus: bool = False
    """Whether its actors have their CPUs also while they wait for blocks."""
    is_apart: bool = False
    """Its tasks do not mix what tasks before them have made of different parts of the sources."""
    limit: int | None = None
    """It has no tasks, and passes blocks on: the number of rows that may still pass. None: it has tasks."""
    queues: list[deque[Block]] = field(default_factory=list)
    tasks: deque[Task] = field(default_factory=deque)
    """Those that have not ended, and those whose blocks have not moved on, in the order of their start."""
    actors: dict[int, list[Task]] = field(default_factory=dict)
    idle: dict[int, int] = field(default_factory=dict)
    """The tasks that the stage had ended when an actor became idle."""
    waiting: set[int] = field(default_factory=set)
    """Actors that wait for resources, and get no tasks meanwhile."""
    sizes: deque[int] = field(default_factory=lambda: deque(maxlen=SIZES))
    used: int = 0
    peak: int = 0
    is_stopped: bool = False
    actors_made: int = 0
    started: int = 0
    ended: int = 0
    blocks: int = 0
    rows: int = 0
    bytes: int = 0


class Start(Struct, eq=False, frozen=True):
    """Start a task."""

    task: Task


class Resume(Struct, eq=False, frozen=True):
    """Let a task make its next block."""

    task: Task


class Cancel(Struct, eq=False, frozen=True):
    """End a task whose blocks nobody needs."""

    task: Task


class Open(Struct, eq=False, frozen=True):
    """Create an actor."""

    stage: int
    actor: int


class Close(Struct, eq=False, frozen=True):
    """End an actor."""

    stage: int
    actor: int


Order = Start | Resume | Cancel | Open | Close
