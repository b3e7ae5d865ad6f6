"""The core: what a job is. Nothing in it is public but through the faces, and libraries use `extend`.

Pickles, and hashes of functions, name a class or function by its module. Some of them lie on disk for months. So what a
face offers is named by that face (`published`), and its module may move. The face must be loaded when such a thing is
pickled: cloudpickle takes what it does not find there for a part of the program. `mpi_runtime` itself is always loaded,
and a library's own package with each of its modules. Libraries name what they offer in the same way.

From top to bottom; a module imports its own floor and those below.

- `api/`: the public functions: `init`, `remote`, `get`, `put`, `wait`, `cancel`
- `calls/`: remote functions, actor classes and handles, options, arguments
- `driver/`: starts and ends the processes of this program
- `lines/`: programs on other hosts as drivers of a session, through ssh or srun
- `head/`: rank 0: runs the scheduler and carries out its effects
- `rank/`: the other ranks, and what all ranks share
- `agent/`: the node agent in every rank: executors, memory, GPUs of its host
- `executor/`: the processes of user code, and the forkserver that makes them
- `gangs/`: MPI worlds made of executors: how they start, and what members do
- `client/`: the connection of a driver or executor to its rank: references, values, waits
- `objects/`: values as bytes: serialisation, the arena, transfers, files of spilled values
- `transport/`: messages, their codec, sockets, MPI
- `journal/`: finished calls on disk
- `host/`: the machine, the launcher, starting further processes
"""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def published(face: str = "mpi_runtime") -> Callable[[T], T]:
    """Name the decorated class or function by the module that offers it."""

    def named(thing: T) -> T:
        thing.__module__ = face
        return thing

    return named
