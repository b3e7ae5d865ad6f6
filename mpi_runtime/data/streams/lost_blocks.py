"""Rebuilds blocks that were lost with a host.

A block has a recipe: the arguments of the task that made it, and the blocks that this task has read. These have recipes
too, so the chain ends at pieces of files, or at blocks that still exist. The values are freed as before.

    ObjectLostError ──► Rebuilding ──► block.rebuild ──► values of its inputs, rebuilt if lost ──► a task

Each lost block on the way is the result of a task without CPUs, which nobody has to leave to it. What its function
needs beside CPUs, such as a GPU, the task needs too. If actors of the stream keep that while they wait, they give way:
see `making_way.py`. Blocks at the end of very long chains have no recipe, since it would fill the memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

import mpi_runtime
from mpi_runtime.data.plan import Needs
from mpi_runtime.data.steps import Chain, Header, Meta, Piece, run
from mpi_runtime.data.streams.records import SOURCE, Block
from mpi_runtime.errors import GetTimeoutError, ObjectLostError
from mpi_runtime.util.state import list_objects

if TYPE_CHECKING:
    import pyarrow

    from mpi_runtime import ObjectRef

T = TypeVar("T")
RETRIES = 20
"""A call whose process dies runs again this number of times: where processes die by chance that is enough, and a block
that ends every process in which it is read ends the stream."""
REBUILDS_MAX = 20
"""The most times that something runs again because blocks are lost."""
STUCK_S = 1.0
"""If nothing was made for these seconds, something may wait for a resource that others of the stream keep."""
DEPTH_MAX = 50
"""A block knows of blocks before it in chains of at most this length."""
LOST = ("failed", "error")
AWAITED = ("pending", "rebuilding")
"""States of values."""
OBJECTS_MAX = 10_000
OF_TASKS = (
    "accelerator_type", "label_selector", "max_retries", "memory", "num_gpus", "resources", "runtime_env",
    "scheduling_strategy",
)  # fmt: skip
"""Options that a task which rebuilds has from its stage. Others are those of actors, or amounts of CPUs."""


class Rebuilding:
    """Which values are lost at this moment, and their rebuilding."""

    def __init__(self, waits_for_nothing: bool = False) -> None:
        """Look. If it `waits_for_nothing`, values that do not exist yet count as lost too, unless they are rebuilt."""
        self._lost = _with_states(*LOST)
        self._awaited = _with_states(*AWAITED) if waits_for_nothing else set()

    def is_lost(self, value: object) -> bool:
        """Whether a value, or one to which it refers, is lost."""
        if isinstance(value, Piece):
            return any(map(self.is_lost, value.refs))
        if not isinstance(value, mpi_runtime.ObjectRef):
            return value is None
        id = value.hex()
        return id in self._lost or (id in self._awaited and value not in _rebuilt)

    def value(self, block: Block) -> object | None:
        """The value of a block, rebuilt if it is lost; None: that is impossible."""
        if not self.is_lost(block.value):
            return block.value
        return None if block.rebuild is None else block.rebuild(self, block.value)

    def rebuild(self, blocks: Sequence[Block]) -> bool:
        """Rebuild those of these blocks that are lost. Returns whether there were any, and all can be rebuilt."""
        lost = [block for block in blocks if self.is_lost(block.value)]
        values = [self.value(block) for block in lost]
        if any(value is None for value in values):
            return False
        for block, value in zip(lost, values, strict=True):
            block.value = value
        return bool(lost)


def _with_states(*states: str) -> set[str]:
    return {entry["object_id"] for state in states for entry in list_objects([("state", "=", state)], OBJECTS_MAX)}


def fetched(value: object, again: Callable[[bool], object | None]) -> pyarrow.Table:
    """The rows of a reference. `again` gives one in its place if it is lost (True), or not there for a while (False).

    Raises:
        ObjectLostError: it is lost, and there is no other.
    """
    tries = 0
    while True:
        ref: ObjectRef[pyarrow.Table] = value  # type: ignore[assignment]
        try:
            return mpi_runtime.get(ref, timeout=STUCK_S)
        except GetTimeoutError:
            value = again(False) or value
        except ObjectLostError:
            tries += 1
            value = again(True) if tries <= REBUILDS_MAX else None
            if value is None or value == ref:
                raise


def replaced(block: Block, may_be_stuck: Callable[[], bool], is_lost: bool) -> object | None:
    """The value of a block, rebuilt if it `is_lost`, or if its task may wait for a CPU for ever; None: impossible."""
    if is_lost or may_be_stuck():
        value = Rebuilding(waits_for_nothing=not is_lost).value(block)
        block.value = block.value if value is None else value
        return value
    return block.value


def table_of(block: Block, may_be_stuck: Callable[[], bool] = lambda: False) -> pyarrow.Table:
    """The rows of a block, which is rebuilt if it is lost, or if its task may wait for a CPU for ever.

    `may_be_stuck` is called while it does not come, and returns whether that may be so.

    Raises:
        ObjectLostError: it cannot be rebuilt.
    """
    return fetched(block.value, partial(replaced, block, may_be_stuck))


_rebuilt: weakref.WeakSet[ObjectRef[Any]] = weakref.WeakSet()
"""References to results of calls that rebuild, and wait for no CPU."""
_calls: set[str] = set()
"""All such calls of this process, also those whose results only others of them need. They may run again."""


def recipe_of(chain: object, header: Header, inputs: tuple[Block, ...], needs: Needs) -> Recipe | None:
    """How the blocks of a task are rebuilt; None: they are not."""
    depth = 1 + depth_of(inputs)
    return None if depth > DEPTH_MAX else Recipe(chain, header, inputs, needs, depth)


class Recipe(Struct, frozen=True, eq=False):
    """How a block of a task is rebuilt."""

    chain: object
    header: Header
    inputs: tuple[Block, ...]
    needs: Needs
    depth: int
    """The number of tasks between it and blocks that no task of a stream has made."""
    number: int = 0
    """Which of the blocks of the task it is."""

    def __call__(self, rebuilding: Rebuilding, value: object) -> object | None:
        """Start a task, and return the reference of its result; None: one of the inputs cannot be rebuilt."""
        values = [rebuilding.value(block) for block in self.inputs]
        if any(value is None for value in values):
            return None
        given = self.needs.options_of_calls | self.needs.of_next_call()
        options: dict[str, Any] = {name: value for name, value in given.items() if name in OF_TASKS}
        ref: ObjectRef[object] = _numbered.options(**options).remote(self.chain, self.header, self.number, *values)
        return note_rebuilt(ref)


def note_rebuilt(ref: ObjectRef[T]) -> ObjectRef[T]:
    """Note that a call without CPUs rebuilds a value, and return its reference."""
    _rebuilt.add(ref)
    _calls.add(ref.hex())
    return ref


def is_rebuild(id: str) -> bool:
    """Whether this is the id of a call that rebuilds."""
    return id in _calls


@mpi_runtime.remote(num_cpus=0, max_retries=RETRIES)
def _numbered(chain: Chain, header: Header, number: int, *inputs: object) -> object:
    """The block with this number of those with rows."""
    made = run(chain.with_instances(), header, inputs)
    for block, meta in zip(made, made, strict=True):
        assert isinstance(meta, Meta)
        if meta.rows and not number:
            return block
        number -= bool(meta.rows)
        del block
    raise ObjectLostError("a block is lost: its task, run again, has made fewer blocks")


class Kept(Struct, frozen=True, eq=False):
    """A stored block: the program may still have it, else it is rebuilt."""

    ref: weakref.ref[object]
    otherwise: Callable[[Rebuilding, object], object | None] | None
    depth: int

    def __call__(self, rebuilding: Rebuilding, value: object) -> object | None:
        """Its reference; None: it is gone."""
        found = self.ref()
        if not rebuilding.is_lost(found):
            return found
        return None if self.otherwise is None else self.otherwise(rebuilding, value)


def depth_of(blocks: Iterable[Block]) -> int:
    """The greatest number of tasks between one of these blocks and what was there before."""
    return max((getattr(block.rebuild, "depth", 0) for block in blocks), default=0)


def forget(block: Block) -> None:
    """Let the value of a block go that its task has read, and keep how to rebuild it."""
    value = block.value
    if isinstance(value, mpi_runtime.ObjectRef) and block.stage == SOURCE:
        block.rebuild = Kept(weakref.ref(value), block.rebuild, depth_of([block]))
    if not isinstance(value, Piece) or value.refs:
        block.value = None
