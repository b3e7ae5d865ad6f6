"""The calls of the tasks of a stream: a remote function, an actor class, and what the stream knows of a call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

import mpi_runtime
from mpi_runtime.data.steps import Chain, Header, run
from mpi_runtime.data.streams.lost_blocks import Recipe
from mpi_runtime.data.streams.records import Block, Task

if TYPE_CHECKING:
    import pyarrow

    from mpi_runtime import ObjectRef, ObjectRefGenerator

PAIR = 2
"""Items of a task that wait for the stream: a block, and its `Meta`."""
STREAMS: dict[str, object] = {"num_returns": "streaming", "_generator_backpressure_num_objects": PAIR}


@mpi_runtime.remote
def run_task(chain: Chain, header: Header, *inputs: object) -> Iterator[object]:
    """Make blocks of blocks."""
    yield from run(chain.with_instances(), header, inputs)


class Worker:
    """An actor of a stage: it has the instances of its classes."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain.with_instances()

    def run(self, header: Header, *inputs: object) -> Iterator[object]:
        """Make blocks of blocks."""
        yield from run(self._chain, header, inputs)


actor_of_stage = mpi_runtime.remote(Worker)


class Call(Struct, eq=False):
    """The call of a task. Blocks that an earlier call of the task has made are dropped."""

    task: Task
    generator: ObjectRefGenerator[object]
    recipe: Recipe | None
    """How its blocks are rebuilt."""
    inputs: tuple[Block, ...]
    has_cpus: bool
    """Whether it has CPUs although its stage does not state it."""
    made: int = 0
    """The blocks so far, also those without rows."""
    known: int = 0
    """Those that an earlier call has made."""
    block: ObjectRef[pyarrow.Table] | None = None
    """A block that was taken, and whose `Meta` has not arrived."""
    rebuilds: int = 0
