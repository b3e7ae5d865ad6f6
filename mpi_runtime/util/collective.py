"""Operations of several processes on arrays, with the names of Ray's collective library.

from mpi_runtime.util import collective

@mpi_runtime.remote
class Worker:
    def __init__(self, rank):
        collective.init_collective_group(4, rank)
    def total(self):
        gradient = numpy.ones(1000)
        collective.allreduce(gradient)
        return gradient  # 1000 times 4.0

workers = [Worker.remote(rank) for rank in range(4)]
mpi_runtime.get([worker.total.remote() for worker in workers])

Each process of a group has a rank and calls the same operations in the same order. Arrays are those of numpy, and are
changed in place; those of cupy are taken through the memory of the host. All ranks give arrays of the same shape and
dtype. A group, which operations know by its `group_name`, is used by one thread of a process at a time.

All operations raise ValueError if the ranks do not agree about operation, shape or dtype, TimeoutError, which names the
ranks that have not come, and RuntimeError if this process is not in the group.

What it costs: an array that a rank gives is written once to the object store. Whoever needs it reads it from there, on
another host after one transfer to it. So each rank reads what all have given, also in `allreduce`: for groups of some
tens of processes on a few hosts. Who has to wait asks the coordinator, an actor, after a millisecond, then more and
more seldom, down to 20 times a second. Programs that live on these operations are better served by MPI or NCCL.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from mpi_runtime.api import get, kill, put
from mpi_runtime.calls.actor_handle import ActorHandle
from mpi_runtime.client.refs import ObjectRef
from mpi_runtime.context import get_runtime_context
from mpi_runtime.util import collective_group
from mpi_runtime.util.collective_group import Group

TIMEOUT_S = 300.0
"""How long a rank waits for others unless told otherwise."""

_groups: dict[str, Group] = {}
"""Those that this process is in, as far as it knows."""


class ReduceOp(enum.Enum):
    """How values are put together: element by element, in the order of the ranks."""

    SUM = "add"
    PRODUCT = "multiply"
    MIN = "minimum"
    MAX = "maximum"


# Groups


def init_collective_group(
    world_size: int,
    rank: int,
    backend: str | None = None,
    group_name: str = "default",
    timeout_s: float | None = TIMEOUT_S,
) -> None:
    """Join a group: called by each of its processes.

    Args:
        world_size: how many processes it has.
        rank: which of them this is, from 0.
        backend: None, or one of Ray's, "nccl" or "gloo", for its sake: there is one only.
        group_name: a process can be in several groups.
        timeout_s: how many seconds an operation waits for others; None for as long as it takes.

    Raises:
        ValueError: this process is in the group already, the rank is taken, or a number is out of bounds.
    """
    _check_backend(backend)
    if world_size < 1 or not 0 <= rank < world_size:
        raise ValueError(f"rank must be from 0 to world_size - 1, not {rank} with world_size={world_size}")
    if _find(group_name) is not None:
        raise ValueError(f"This process is in the collective group {group_name!r} already: destroy that one first.")
    _groups[group_name] = collective_group.join(group_name, world_size, rank, timeout_s)


def create_collective_group(
    actors: Sequence[ActorHandle],
    world_size: int,
    ranks: Sequence[int],
    backend: str | None = None,
    group_name: str = "default",
    timeout_s: float | None = TIMEOUT_S,
) -> None:
    """Make a group of actors, from outside: they belong to it at their first operation, and need not join.

        create_collective_group(workers, world_size=4, ranks=[0, 1, 2, 3])

    It ends when who has made it calls `destroy_collective_group`. For the arguments see `init_collective_group`.

    Raises:
        ValueError: there is such a group, or actors and ranks do not fit `world_size`.
    """
    _check_backend(backend)
    ids = [actor._mpi_runtime_ref.hex() for actor in actors]
    if len(set(ids)) != len(ids) or len(ids) != world_size or sorted(ranks) != list(range(world_size)):
        raise ValueError(
            f"create_collective_group() needs world_size={world_size} different actors and the ranks from 0 to "
            f"world_size - 1 for them, not {len(ids)} actors and the ranks {list(ranks)}"
        )
    if collective_group.find(group_name) is not None:
        raise ValueError(f"There is a collective group {group_name!r} already: destroy that one first.")
    made = dict(zip(ids, ranks, strict=True))
    collective_group.create(group_name, world_size, timeout_s, made, may_exist=False)


def destroy_collective_group(group_name: str = "default") -> None:
    """Leave a group: called by each of its processes. By one that is not in it: end the group for all.

    Raises:
        ValueError: there is no such group.
    """
    group = _find(group_name)
    if group is not None:
        del _groups[group_name]
        collective_group.leave(group)
        return
    coordinator = collective_group.find(group_name)
    if coordinator is None:
        raise ValueError(f"There is no collective group {group_name!r}.")
    kill(coordinator)


def is_group_initialized(group_name: str = "default") -> bool:
    """Whether this process is in the group."""
    return get_rank(group_name) >= 0


def get_rank(group_name: str = "default") -> int:
    """The rank of this process in the group; -1 if it is not in it."""
    group = _find(group_name)
    return -1 if group is None else group.rank


def get_collective_group_size(group_name: str = "default") -> int:
    """How many processes the group has; -1 if this one is not in it."""
    group = _find(group_name)
    return -1 if group is None else group.world_size


# Operations


def allreduce(tensor: Any, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """Put together the arrays of all ranks; each gets the result in its own."""
    group, host = _group(group_name), _host(tensor, is_written=True)
    brought = group.meet(f"allreduce ({op.name}) of {_said(host)}", [put(host)])
    _write(tensor, _reduced(op, (refs[0] for refs in brought)))


def reduce(tensor: Any, dst_rank: int = 0, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """Put together the arrays of all ranks; `dst_rank` gets the result in its own, those of others stay as they are."""
    group = _group(group_name, dst_rank)
    is_root = group.rank == dst_rank
    host = _host(tensor, is_written=is_root)
    call = f"reduce ({op.name}) to rank {dst_rank} of {_said(host)}"
    brought = group.meet(call, [put(host)], wanted=None if is_root else ())
    if is_root:
        _write(tensor, _reduced(op, (refs[0] for refs in brought)))


def broadcast(tensor: Any, src_rank: int = 0, group_name: str = "default") -> None:
    """Give the array of `src_rank` to all others, in theirs."""
    group = _group(group_name, src_rank)
    is_root = group.rank == src_rank
    host = _host(tensor, is_written=not is_root)
    call = f"broadcast from rank {src_rank} of {_said(host)}"
    if is_root:
        group.meet(call, [put(host)], wanted=())
    else:
        _write(tensor, get(group.meet(call, wanted=[src_rank])[0][0]))


def allgather(tensor_list: Sequence[Any], tensor: Any, group_name: str = "default") -> None:
    """Give the arrays of all ranks to each: `tensor_list` gets them, in the order of the ranks."""
    group, host = _group(group_name), _host(tensor)
    _check_list(tensor_list, host, group, is_written=True)
    brought = group.meet(f"allgather of {_said(host)}", [put(host)])
    for target, refs in zip(tensor_list, brought, strict=True):
        _write(target, get(refs[0]))


def reducescatter(
    tensor: Any, tensor_list: Sequence[Any], group_name: str = "default", op: ReduceOp = ReduceOp.SUM
) -> None:
    """Put together what all ranks have in place k of `tensor_list`; rank k gets the result in `tensor`."""
    group, host = _group(group_name), _host(tensor, is_written=True)
    given = _check_list(tensor_list, host, group)
    brought = group.meet(f"reducescatter ({op.name}) of {_said(host)}", [put(one) for one in given])
    _write(tensor, _reduced(op, (refs[group.rank] for refs in brought)))


def barrier(group_name: str = "default") -> None:
    """Wait until all ranks have come here."""
    _group(group_name).meet("barrier")


def send(tensor: Any, dst_rank: int, group_name: str = "default") -> None:
    """Send an array to another rank. Returns when it is in the object store, though nobody has received it yet."""
    group, host = _group(group_name, dst_rank), _host(tensor)
    _check_other(group, dst_rank)
    group.send(dst_rank, _said(host), put(host))


def recv(tensor: Any, src_rank: int, group_name: str = "default") -> None:
    """Wait for an array from another rank, and write it into this one. They come in the order of sending."""
    group, host = _group(group_name, src_rank), _host(tensor, is_written=True)
    _check_other(group, src_rank)
    _write(tensor, get(group.receive(src_rank, _said(host))))


# What they share


def _find(name: str) -> Group | None:
    """The group that this process is in, by having joined it or because somebody has made it so."""
    coordinator = collective_group.find(name)
    group = _groups.get(name)
    if group is not None and group.coordinator == coordinator:
        return group
    _groups.pop(name, None)  # it was destroyed from outside, or its job has ended
    actor = get_runtime_context().get_actor_id()
    if coordinator is None or actor is None:
        return None
    group = collective_group.member(name, coordinator, actor)
    if group is not None:
        _groups[name] = group
    return group


def _group(name: str, other: int = 0) -> Group:
    """The same for operations, which need one; `other` is a rank in it.

    Raises:
        RuntimeError: this process is not in the group.
        ValueError: there is no such rank.
    """
    group = _find(name)
    if group is None:
        raise RuntimeError(
            f"This process is not in a collective group {name!r}, or that was destroyed: call init_collective_group() "
            "here, or create_collective_group() for the actors from outside."
        )
    if not 0 <= other < group.world_size:
        raise ValueError(
            f"The collective group {name!r} has the ranks 0 to {group.world_size - 1}, and no rank {other}"
        )
    return group


def _host(tensor: Any, is_written: bool = False) -> np.ndarray[Any, Any]:
    """The array in the memory of the host.

    Raises:
        TypeError: it is none that can be read and written so.
        ValueError: it is to be written, and may not be.
    """
    if hasattr(tensor, "__cuda_array_interface__") and hasattr(tensor, "get") and hasattr(tensor, "set"):
        copied: np.ndarray[Any, Any] = tensor.get()
        return copied
    if not isinstance(tensor, np.ndarray):
        raise TypeError(f"collective operations take arrays of numpy or cupy, not {type(tensor).__name__}")
    if tensor.dtype.hasobject:
        raise TypeError("collective operations take arrays of numbers, not of Python objects")
    if is_written and not tensor.flags.writeable:
        raise ValueError("the array is read-only, as those from get() and from arguments are: give a copy of it")
    return tensor


def _write(tensor: Any, value: np.ndarray[Any, Any]) -> None:
    if isinstance(tensor, np.ndarray):
        tensor[...] = value
    else:
        tensor.set(value)


def _said(host: np.ndarray[Any, Any]) -> str:
    return f"{host.dtype} {host.shape}"


def _reduced(op: ReduceOp, refs: Iterable[ObjectRef[Any]]) -> np.ndarray[Any, Any]:
    """Put together, one after another: no more than two are needed at a time."""
    combine = getattr(np, op.value)
    values = (get(ref) for ref in refs)
    total: np.ndarray[Any, Any] = np.array(next(values))
    for value in values:
        combine(total, value, out=total)
    return total


def _check_list(
    tensors: Sequence[Any], host: np.ndarray[Any, Any], group: Group, is_written: bool = False
) -> list[np.ndarray[Any, Any]]:
    """The arrays of a list, which has to have one for each rank, all like the other array."""
    if len(tensors) != group.world_size:
        raise ValueError(f"tensor_list needs one array for each of {group.world_size} ranks, and has {len(tensors)}")
    hosts = [_host(tensor, is_written) for tensor in tensors]
    for rank, one in enumerate(hosts):
        if _said(one) != _said(host):
            raise ValueError(f"tensor_list[{rank}] is {_said(one)}, and tensor is {_said(host)}: they must be alike")
    return hosts


def _check_other(group: Group, rank: int) -> None:
    if rank == group.rank:
        raise ValueError(f"rank {rank} is this process itself")


def _check_backend(backend: object) -> None:
    if backend not in (None, "nccl", "gloo"):
        raise ValueError(
            f"backend must be None, 'nccl' or 'gloo', which mean the same here, not {backend!r}. The name of a group "
            "is given as group_name=..."
        )
