"""The core: what a job is. Nothing in it is public but through the faces, and libraries use `extend`.

A program calls `f.remote(x)`, and `f` shall run in another process, perhaps on another host. These processes share the
work; each arrow is a socket or MPI:

    driver  <-->  head (rank 0)  <==MPI==>  worker (rank k)  <-->  executors
    the program   decides                   obeys                  run `f`

- The *head* runs the scheduler, and so decides everything: which call runs where, which value is copied or dropped.
- The *node agent* of each rank obeys: it starts and ends executors, and hands out memory. The head has one too.
- Driver and executors are *clients*: each has one connection, over which it submits calls and gets values.

The idea: user code runs in drivers and executors only. Head, workers and forkservers never unpickle a value of a user,
so no bug of a program can break them. Small values pass through them as bytes. Large ones lie in one memory file for
each host, the *arena*, and messages name their place. Between hosts the agents copy them.

What holds everywhere:

- A call ends exactly once: with a value, an error, or cancelled.
- The death of a process is noticed by its parent, by the other end of its socket, or by a missing heartbeat of its
  host. That process cleans up, so nothing is left after a job.
- A rank never waits until a client reads. What the socket has no room for stays in the memory of the rank.

Not obvious: pickles, and hashes of functions, name a class or function by its module. Some of them lie on disk for
months. So what a face offers is named by that face (`published`), and its module may move. The face must be loaded when
such a thing is pickled: cloudpickle takes what it does not find there for a part of the program. `mpi_runtime` itself
is always loaded, and a library's own package with each of its modules. Libraries name what they offer in the same way.

The rooms, from top to bottom; a module imports its own floor and those below.

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
