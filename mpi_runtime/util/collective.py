"""Collective operations of several processes on arrays, with the names of Ray's collective library.

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

Each process of a group has a rank, and calls the same operations in the same order. Arrays are numpy's, or tensors of
torch, and are changed in place. Those on a GPU, of torch or cupy, are copied through host memory. The arrays of all
ranks have the same shape and dtype. One thread of a process at a time uses a group.

All operations raise `ValueError` if the ranks do not agree about operation, shape or dtype, `TimeoutError` with the
ranks that are missing, and `RuntimeError` if this process is not in the group, or if a rank that it waits for has left
the group or its process has ended.

Cost: each rank writes its array once to the object store, and each rank that needs it reads it there; on another host
after one transfer to that host. So each rank reads the arrays of all ranks, also in `allreduce`. This suits groups of
some tens of processes on a few hosts. A waiting rank polls the coordinator, an actor, first after a millisecond, then
less and less often, down to 20 times a second. Programs that spend their time in these operations should use MPI or
NCCL.
"""

from __future__ import annotations

import enum
import sys
import warnings
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from mpi_runtime import ActorHandle, ObjectRef, get, get_runtime_context, kill, put
from mpi_runtime.errors.arguments import PROCESSES_MAX, check_text, check_whole
from mpi_runtime.util import collective_group
from mpi_runtime.util.collective_group import Group

Array = np.ndarray[Any, Any]
TIMEOUT_S = 300.0
"""The default number of seconds that a rank waits for others."""

_groups: dict[str, Group] = {}
"""The groups that this process has joined, by name, as far as it knows."""


class ReduceOp(enum.Enum):
    """How values are combined: element by element, in the order of the ranks."""

    SUM = "add"
    PRODUCT = "multiply"
    MIN = "minimum"
    MAX = "maximum"


class _MisuseError(ValueError, RuntimeError):
    """A call that makes no sense in its group. Ray raises RuntimeError."""


class Backend(str):
    """The name of a library for communication: accepted as in Ray, without effect.

    Raises:
        ValueError: Ray has no such library either.
    """

    NCCL = "NCCL"
    GLOO = "GLOO"

    def __new__(cls, name: str) -> Backend:
        """Make the name in capitals."""
        _check_backend(name)
        return super().__new__(cls, name.upper().removeprefix("TORCH_"))


_BACKENDS = ("NCCL", "GLOO", "TORCH_GLOO")

# Groups


def init_collective_group(
    world_size: int,
    rank: int,
    backend: str | None = None,
    group_name: str = "default",
    timeout_s: float | None = TIMEOUT_S,
) -> None:
    """Join a group. Each of its processes calls this.

    Args:
        world_size: the number of processes.
        rank: the rank of this process, from 0.
        backend: None, or "nccl" or "gloo" as in Ray, in any case, without effect.
        group_name: the name of the group. A process can be in several groups.
        timeout_s: the most seconds that an operation waits for others; None waits without a limit.

    A task that runs in a process which an earlier task, or an earlier attempt of it, has brought into the group leaves
    that first.

    Raises:
        ValueError: this process is in the group already, the rank is taken, or a number is out of bounds.
    """
    _check_backend(backend)
    check_whole("world_size", world_size, 1, PROCESSES_MAX)
    check_whole("rank", rank, 0)
    _check_name(group_name)
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must be from 0 to world_size - 1, not {rank} with world_size={world_size}")
    group = _find(group_name)
    if group is not None and not collective_group.is_of_earlier_attempt(group):
        raise _MisuseError(f"This process is in the collective group {group_name!r} already: destroy that one first.")
    if group is not None:
        destroy_collective_group(group_name)
    _groups[group_name] = collective_group.join(group_name, world_size, rank, timeout_s)


def create_collective_group(
    actors: Sequence[ActorHandle],
    world_size: int,
    ranks: Sequence[int],
    backend: str | None = None,
    group_name: str = "default",
    timeout_s: float | None = TIMEOUT_S,
) -> None:
    """Make a group of actors from outside. They belong to it at their first operation, and need not join.

        create_collective_group(workers, world_size=4, ranks=[0, 1, 2, 3])

    The group ends when the process that made it calls `destroy_collective_group`. For the other arguments see
    `init_collective_group`.

    Raises:
        ValueError: the group exists, or actors and ranks do not match `world_size`.
    """
    _check_backend(backend)
    check_whole("world_size", world_size, 1, PROCESSES_MAX)
    _check_name(group_name)
    for actor in actors:
        if not isinstance(actor, ActorHandle):
            raise TypeError(f"actors must be handles of actors, not {actor!r}")
    ids = [actor._mpi_runtime_ref.hex() for actor in actors]
    if len(set(ids)) != len(ids) or len(ids) != world_size or sorted(ranks) != list(range(world_size)):
        raise _MisuseError(
            f"create_collective_group() needs world_size={world_size} different actors and the ranks from 0 to "
            f"world_size - 1 for them, not {len(ids)} actors and the ranks {list(ranks)}"
        )
    if collective_group.find(group_name) is not None:
        raise _MisuseError(f"There is a collective group {group_name!r} already: destroy that one first.")
    made = dict(zip(ids, ranks, strict=True))
    collective_group.create(group_name, world_size, timeout_s, made, may_exist=False)


def destroy_collective_group(group_name: str = "default") -> None:
    """Leave a group. Called by a process outside the group, end it for all, or warn that it does not exist."""
    group = _find(group_name)
    if group is not None:
        del _groups[group_name]
        collective_group.leave(group)
        return
    coordinator = collective_group.find(group_name)
    if coordinator is None:
        warnings.warn(f"There is no collective group {group_name!r} to destroy.", stacklevel=2)
    else:
        kill(coordinator)


def is_group_initialized(group_name: str = "default") -> bool:
    """Whether this process is in the group."""
    return get_rank(group_name) >= 0


def get_rank(group_name: str = "default") -> int:
    """The rank of this process in the group; -1 if it is not in the group."""
    group = _find(group_name)
    return -1 if group is None else group.rank


def get_collective_group_size(group_name: str = "default") -> int:
    """The number of processes in the group; -1 if this process is not in the group."""
    group = _find(group_name)
    return -1 if group is None else group.world_size


# Operations


def allreduce(tensor: object, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """Combine the arrays of all ranks. Each rank gets the result in its array."""
    group, host = _group(group_name), _host(tensor, is_written=True)
    brought = group.meet(f"allreduce ({_name(op)}) of {_said(host)}", [put(host)])
    _write(tensor, _reduced(op, (refs[0] for refs in brought)))


def reduce(tensor: object, dst_rank: int = 0, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """Combine the arrays of all ranks. `dst_rank` gets the result in its array; the other arrays are not changed."""
    group = _group(group_name, dst_rank)
    is_root = group.rank == dst_rank
    host = _host(tensor, is_written=is_root)
    call = f"reduce ({_name(op)}) to rank {dst_rank} of {_said(host)}"
    brought = group.meet(call, [put(host)], wanted=None if is_root else ())
    if is_root:
        _write(tensor, _reduced(op, (refs[0] for refs in brought)))


def broadcast(tensor: object, src_rank: int = 0, group_name: str = "default") -> None:
    """Copy the array of `src_rank` into the arrays of all others."""
    group = _group(group_name, src_rank)
    is_root = group.rank == src_rank
    host = _host(tensor, is_written=not is_root)
    call = f"broadcast from rank {src_rank} of {_said(host)}"
    if is_root:
        group.meet(call, [put(host)], wanted=())
    else:
        _write(tensor, get(group.meet(call, wanted=[src_rank])[0][0]))


def allgather(tensor_list: Sequence[object], tensor: object, group_name: str = "default") -> None:
    """Copy the arrays of all ranks into each rank's `tensor_list`, in the order of the ranks."""
    group, host = _group(group_name), _host(tensor)
    _check_list(tensor_list, host, group, is_written=True)
    brought = group.meet(f"allgather of {_said(host)}", [put(host)])
    for target, refs in zip(tensor_list, brought, strict=True):
        _write(target, get(refs[0]))


def reducescatter(
    tensor: object, tensor_list: Sequence[object], group_name: str = "default", op: ReduceOp = ReduceOp.SUM
) -> None:
    """Combine the arrays at index k of all ranks' `tensor_list`. Rank k gets the result in `tensor`."""
    group, host = _group(group_name), _host(tensor, is_written=True)
    given = _check_list(tensor_list, host, group)
    brought = group.meet(f"reducescatter ({_name(op)}) of {_said(host)}", [put(one) for one in given])
    _write(tensor, _reduced(op, (refs[group.rank] for refs in brought)))


def barrier(group_name: str = "default") -> None:
    """Wait until all ranks have called this."""
    _group(group_name).meet("barrier")


def send(tensor: object, dst_rank: int, group_name: str = "default") -> None:
    """Send an array to another rank. Returns when the array is in the object store, before it is received."""
    group, host = _group(group_name, dst_rank), _host(tensor)
    _check_other(group, dst_rank)
    group.send(dst_rank, _said(host), put(host))


def recv(tensor: object, src_rank: int, group_name: str = "default") -> None:
    """Wait for an array from another rank and write it into `tensor`. Arrays are received in the order of sending."""
    group, host = _group(group_name, src_rank), _host(tensor, is_written=True)
    _check_other(group, src_rank)
    _write(tensor, get(group.receive(src_rank, _said(host))))


# What they share


def _find(name: str) -> Group | None:
    """The group of this process with this name: one that it has joined, or that was made from outside; else None."""
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
    """The group of this process with this name. `other` is a rank in it."""
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


def _host(tensor: Any, is_written: bool = False) -> Array:
    """The array in host memory. It must be one that can be read, or written, this way."""
    if _is_torch(tensor):
        try:
            tensor = tensor.detach().cpu().numpy()
        except TypeError as error:  # such as bfloat16
            raise TypeError(f"collective operations cannot take {tensor.dtype}, which numpy does not have") from error
    elif hasattr(tensor, "__cuda_array_interface__") and hasattr(tensor, "get") and hasattr(tensor, "set"):
        copied: Array = tensor.get()
        return copied
    if not isinstance(tensor, np.ndarray):
        raise TypeError(f"collective operations take arrays of numpy, cupy or torch, not {type(tensor).__name__}")
    if tensor.dtype.hasobject:
        raise TypeError("collective operations take arrays of numbers, not of Python objects")
    if is_written and not tensor.flags.writeable and type(tensor) is not np.ndarray:
        raise ValueError(f"this {type(tensor).__name__} is read-only: give a copy of it")
    return tensor


def _write(tensor: Any, value: Array) -> None:
    if isinstance(tensor, np.ndarray):
        if not tensor.flags.writeable:
            _make_writable(tensor)
        tensor[...] = value
    elif not _is_torch(tensor):
        tensor.set(value)
    elif tensor.is_cuda:
        tensor.detach().copy_(sys.modules["torch"].from_numpy(np.array(value)))
    else:
        tensor.detach().numpy()[...] = value


def _make_writable(array: Array) -> None:
    """Let a read-only array be written. One that uses other memory, such as an argument, gets memory of its own.

    Other processes use the former memory, and so may other arrays of this one: they keep it by way of this array.
    """
    if array.base is None:
        array.flags.writeable = True
        return
    weakref.finalize(array, _nothing, array.base).atexit = False
    array.__setstate__((1, array.shape, array.dtype, False, bytes(array.nbytes)))  # type: ignore[arg-type]


def _nothing(_: object) -> None:
    pass


def _is_torch(tensor: object) -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def _name(op: object) -> str:
    if not isinstance(op, ReduceOp):
        raise TypeError(f"op must be a ReduceOp, such as ReduceOp.SUM, not {op!r}")
    return op.name


def _said(host: Array) -> str:
    return f"{host.dtype} {host.shape}"


def _reduced(op: ReduceOp, refs: Iterable[ObjectRef[object]]) -> Array:
    """Combine values one after another, so that at most two are in memory."""
    combine = getattr(np, op.value)
    values = (get(ref) for ref in refs)
    total: Array = np.array(next(values))
    for value in values:
        combine(total, value, out=total)
    return total


def _check_list(tensors: Sequence[object], host: Array, group: Group, is_written: bool = False) -> list[Array]:
    """The arrays of a list. It must have one array for each rank, all with the shape and dtype of the other array."""
    if len(tensors) != group.world_size:
        raise _MisuseError(f"tensor_list needs one array for each of {group.world_size} ranks, and has {len(tensors)}")
    hosts = [_host(tensor, is_written) for tensor in tensors]
    for rank, one in enumerate(hosts):
        if _said(one) != _said(host):
            raise _MisuseError(f"tensor_list[{rank}] is {_said(one)}, and tensor is {_said(host)}: they must be alike")
    return hosts


def _check_other(group: Group, rank: int) -> None:
    if rank == group.rank:
        raise _MisuseError(f"rank {rank} is this process itself")


def _check_name(group_name: object) -> None:
    check_text("group_name", group_name)
    if not group_name:
        raise ValueError("group_name must not be empty")


def _check_backend(backend: object) -> None:
    if backend is not None and (not isinstance(backend, str) or backend.upper() not in _BACKENDS):
        raise ValueError(
            f"backend must be None, 'nccl' or 'gloo', which mean the same here, not {backend!r}. The name of a group "
            "is given as group_name=..."
        )
