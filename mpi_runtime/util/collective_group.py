"""A group of processes with the same operations in the same order: coordinator and members.

The processes meet in a named actor, the coordinator. It keeps references and the arrivals of ranks. Values stay in the
object store. It answers at once, because actors run one call at a time: a process that has to wait polls.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mpi_runtime import ActorHandle, ObjectRef, get, get_actor, get_runtime_context, kill, remote
from mpi_runtime.errors import ActorDiedError
from mpi_runtime.extend import ask, blocked, job, this_call
from mpi_runtime.scheduler.protocol.ids import attempt_of
from mpi_runtime.scheduler.protocol.questions import Workers
from mpi_runtime.util import state
from mpi_runtime.util.queue import pauses

Refs = list[ObjectRef[Any]]
_NONE = -1
"""No room."""
_OVER = -2
"""No room any more: all have left, and the group ends."""
_ENDS_S = 1.0
"""How long a process waits for another that has its rank, and may be about to end."""
_CHECK_S = 0.5
"""How often the coordinator asks whether processes that others wait for have ended."""


class Reply(NamedTuple):
    """The coordinator's answer about an operation."""

    missing: list[int]
    """Awaited ranks that have not arrived."""
    error: str
    """The disagreement of the ranks; else empty."""
    refs: list[Refs]
    """The references of the awaited ranks, in the order of their ranks, once all have arrived."""
    gone: list[int] = []  # noqa: RUF012  (of a tuple, and never changed)
    """Awaited ranks that will not arrive any more."""


@dataclass
class _Meeting:
    calls: dict[int, str] = field(default_factory=dict)
    """The call of each rank, in words. All must be equal."""
    brought: dict[int, Refs] = field(default_factory=dict)
    wanted: dict[int, list[int]] = field(default_factory=dict)
    """The ranks that each rank waits for."""
    done: set[int] = field(default_factory=set)


@dataclass
class _Room:
    """The processes that have joined a group together. Others may take its name again, and have a room of their own."""

    world_size: int
    processes: dict[int, str | None] = field(default_factory=dict)
    """The executors that have joined, by rank: their ids; None for a driver."""
    tasks: dict[int, bytes] = field(default_factory=dict)
    """The tasks that have joined, by rank: their ids, which further attempts have too."""
    left: set[int] = field(default_factory=set)
    meetings: dict[int, _Meeting] = field(default_factory=dict)
    mail: dict[tuple[int, int, int], tuple[str, Refs]] = field(default_factory=dict)
    """References that were sent and not yet received, by sender, receiver and number."""
    checked_s: float = 0.0

    def remove(self, rank: int) -> None:
        """Forget a rank, and what it has done."""
        del self.processes[rank]
        self.tasks.pop(rank, None)
        for meeting in self.meetings.values():
            meeting.calls.pop(rank, None)
        self.mail = {key: sent for key, sent in self.mail.items() if key[0] != rank}

    def is_open(self) -> bool:
        """Whether it waits for more processes."""
        return len(self.processes) < self.world_size

    def is_over(self) -> bool:
        """Whether nobody will use it any more."""
        if len(self.left) == self.world_size:
            return True
        ended = (rank in self.left or _has_ended(process) for rank, process in self.processes.items())
        return not self.is_open() and all(ended)


class Coordinator:
    """The actor in which a group meets."""

    def __init__(self, world_size: int, timeout_s: float | None, ranks: dict[str, int]) -> None:
        self._timeout_s = timeout_s
        self._ranks = ranks
        """The ranks of actors, by id, in a group that was made from outside."""
        self._rooms = {0: _Room(world_size)}
        self._made = 0
        """The number of the newest room."""
        self._is_over = False
        """Whether the last one is about to end the group: whoever joined now would be lost with it."""

    def join(self, rank: int, world_size: int, process: str | None, task: bytes) -> tuple[int, str]:
        """Give a process its rank. Returns the number of its room, and why it may not join; "" without a room: not yet.

        `process` is the id of its executor, None for a driver; `task` that of the task which runs there, empty in an
        actor and in a driver. A full room belongs to those who are in it, so the next ones get another. A process that
        has ended before its room was full is replaced. A task that joins again has failed before, wherever that was:
        its rank of then has left. The number `_OVER` stands for a group that ends: the next ones make another.
        """
        if self._is_over:
            return _OVER, ""
        if self._ranks:
            return _NONE, f"rank {rank} is taken"
        for room in self._rooms.values():
            if not room.is_open():
                room.left |= {other for other, its in room.tasks.items() if its == task}
        if not self._rooms[self._made].is_open():
            self._rooms = {number: room for number, room in self._rooms.items() if not room.is_over()}
            self._made += 1
            self._rooms[self._made] = _Room(world_size)
        room = self._rooms[self._made]
        for other, its in [*room.processes.items()]:
            is_replaced = (its == process and its) or room.tasks.get(other) == task or _has_ended(its)
            if is_replaced and other not in room.left:  # what one has sent that has left is received later
                room.remove(other)
        if not room.processes:
            room.world_size = world_size
        if world_size != room.world_size:
            return _NONE, f"its world_size is {room.world_size} for others, and {world_size} for rank {rank}"
        if rank in room.processes:
            return _NONE, "" if rank in room.left else f"rank {rank} is taken"
        room.processes[rank] = process
        if task:
            room.tasks[rank] = task
        return self._made, ""

    def member(self, actor: str) -> tuple[int | None, int, float | None]:
        """The rank of an actor, if it has one, the size of the group and its timeout."""
        return self._ranks.get(actor), len(self._ranks), self._timeout_s

    def leave(self, number: int, rank: int) -> bool:
        """Remove a rank. Returns whether all have left, or ended."""
        if room := self._rooms.get(number):  # it may be gone: the task of a process that leaves late runs elsewhere
            room.left.add(rank)
            if number != self._made and room.is_over():
                del self._rooms[number]
        self._is_over = all(room.is_over() for room in self._rooms.values())
        return self._is_over

    def meet(self, room: int, number: int, rank: int, call: str, refs: Refs, wanted: list[int]) -> Reply:
        """Note that a rank has arrived at an operation."""
        meeting = self._rooms[room].meetings.setdefault(number, _Meeting())
        meeting.calls[rank], meeting.brought[rank], meeting.wanted[rank] = call, refs, wanted
        return self.look(room, number, rank)

    def look(self, room: int, number: int, rank: int) -> Reply:
        """The state of an operation, for a rank that has arrived."""
        meetings = self._rooms[room].meetings
        meeting = meetings[number]
        error = ""
        if len(set(meeting.calls.values())) > 1:
            error = "; ".join(f"rank {other} calls {call}" for other, call in sorted(meeting.calls.items()))
        wanted = meeting.wanted[rank]
        missing = [other for other in wanted if other not in meeting.calls]
        refs = [] if missing or error else [meeting.brought[other] for other in wanted]
        if error or not missing:
            meeting.done.add(rank)
            if len(meeting.done) == self._rooms[room].world_size:
                del meetings[number]
        return Reply(missing, error, refs, self._gone(room, missing))

    def _gone(self, number: int, missing: list[int]) -> list[int]:
        """Those of the ranks that have left, or whose processes have ended in a full room."""
        room = self._rooms[number]
        gone = [rank for rank in missing if rank in room.left]
        if gone or not missing or time.monotonic() < room.checked_s + _CHECK_S:
            return gone
        room.checked_s = time.monotonic()
        if self._ranks:
            actors = {rank: actor for actor, rank in self._ranks.items()}
            return [rank for rank in missing if _is_dead(actors[rank])]
        return [] if room.is_open() else [rank for rank in missing if _has_ended(room.processes[rank])]

    def send(self, room: int, sender: int, receiver: int, number: int, call: str, refs: Refs) -> None:
        """Keep references that one rank sends to another."""
        self._rooms[room].mail[sender, receiver, number] = call, refs

    def receive(self, room: int, sender: int, receiver: int, number: int, call: str) -> Reply:
        """Return references that were sent, or the missing sender."""
        sent, refs = self._rooms[room].mail.pop((sender, receiver, number), ("", []))
        if not sent:
            return Reply([sender], "", [], self._gone(room, [sender]))
        if sent != call:
            return Reply([], f"rank {sender} has sent {sent}; rank {receiver} receives {call}", [])
        return Reply([], "", [refs])


def _has_ended(process: str | None) -> bool:
    """Whether this executor has ended, or is just being ended. A driver has not: its groups end with it."""
    found = ask(Workers(bytes.fromhex(process))) if process is not None else []
    return process is not None and not any(one.is_alive and one.state != "stopping" for one in found)


def _is_dead(actor: str) -> bool:
    found = state.get_actor(actor)
    return found is None or found["state"] == "DEAD"


def _this_task() -> bytes:
    """The id of the task that runs here, which further attempts have too; empty in an actor, and in the driver."""
    call = this_call()
    return b"" if call is None or get_runtime_context().get_actor_id() else call.id


def _this_attempt() -> bytes:
    """The attempt of a task that runs here; empty in an actor, and in the driver."""
    call = this_call()
    return attempt_of(call.id, call.attempt) if call is not None and _this_task() else b""


@dataclass(eq=False)
class Group:
    """A group as one of its processes sees it."""

    name: str
    coordinator: ActorHandle
    rank: int
    world_size: int
    timeout_s: float | None
    room: int = 0
    attempt: bytes = field(default_factory=_this_attempt)
    """The attempt of the task that has joined; empty: not a task."""
    _operations: int = 0
    _sent: Counter[int] = field(default_factory=Counter[int])
    _received: Counter[int] = field(default_factory=Counter[int])

    def meet(
        self, call: str, refs: Iterable[ObjectRef[object]] = (), wanted: Iterable[int] | None = None
    ) -> list[Refs]:
        """Arrive at the next operation with references, and return those of the awaited ranks; `wanted`, None: all.

        `call` is the operation in words. If ranks give another one, or have not arrived in time, it raises an error.
        """
        number, self._operations = self._operations, self._operations + 1
        wanted = list(range(self.world_size) if wanted is None else wanted)
        first = self.coordinator.meet.remote(self.room, number, self.rank, call, list(refs), wanted)
        return self._wait(call, first, lambda: self.coordinator.look.remote(self.room, number, self.rank))

    def send(self, receiver: int, call: str, ref: ObjectRef[object]) -> None:
        """Send a reference to another rank. Does not wait until it is received."""
        number = self._sent[receiver]
        self._sent[receiver] += 1
        get(self.coordinator.send.remote(self.room, self.rank, receiver, number, call, [ref]))

    def receive(self, sender: int, call: str) -> ObjectRef[Any]:
        """Receive a reference that another rank has sent, or will send, in the call that this rank expects."""
        number = self._received[sender]
        self._received[sender] += 1

        def ask() -> ObjectRef[Reply]:
            ref: ObjectRef[Reply] = self.coordinator.receive.remote(self.room, sender, self.rank, number, call)
            return ref

        return self._wait(call, ask(), ask)[0][0]

    def _wait(self, call: str, first: ObjectRef[Reply], ask_again: Callable[[], ObjectRef[Reply]]) -> list[Refs]:
        reply = get(first)
        with blocked():
            for pause in pauses(True, self.timeout_s):
                if reply.error or reply.gone or not reply.missing:
                    break
                time.sleep(pause)
                reply = get(ask_again())
        if reply.error:
            raise ValueError(f"The ranks of the collective group {self.name!r} do not agree: {reply.error}.")
        if reply.gone:
            raise RuntimeError(
                f"Rank {self.rank} of the collective group {self.name!r} waits in {call} for rank(s) "
                f"{', '.join(map(str, reply.gone))} of {self.world_size}, whose processes have ended, or have left the "
                "group. To continue, all ranks have to leave it and join again."
            )
        if reply.missing:
            raise TimeoutError(
                f"Rank {self.rank} of the collective group {self.name!r} has waited {self.timeout_s:g} s in {call} "
                f"for rank(s) {', '.join(map(str, reply.missing))} of {self.world_size}. Each rank has to call the "
                "same operations in the same order; they may have failed, or need longer (timeout_s of the group)."
            )
        return reply.refs


def create(name: str, world_size: int, timeout_s: float | None, ranks: dict[str, int], may_exist: bool) -> ActorHandle:
    """Make the coordinator of a group, or find it."""
    options = {"name": _actor_name(name), "get_if_exists": may_exist, "lifetime": "detached", "num_cpus": 0}
    return remote(Coordinator).options(**options).remote(world_size, timeout_s, ranks)


def join(name: str, world_size: int, rank: int, timeout_s: float | None) -> Group:
    """Take a rank of a group. The group is made if it does not exist."""
    first = time.monotonic()
    process = get_runtime_context().get_worker_id() if job().executor is not None else None
    for pause in pauses(True, timeout_s):
        time.sleep(pause)
        coordinator = create(name, world_size, timeout_s, {}, may_exist=True)
        try:
            room, refused = get(coordinator.join.remote(rank, world_size, process, _this_task()))
        except ActorDiedError:  # the last has left
            continue
        if room == _OVER:  # the last one may have ended before it has ended the group
            kill(coordinator)
            continue
        if room != _NONE:
            return Group(name, coordinator, rank, world_size, timeout_s, room)
        if refused and time.monotonic() > first + _ENDS_S:
            raise ValueError(f"Rank {rank} cannot join the collective group {name!r}: {refused}.")
    raise TimeoutError(f"The collective group {name!r} is being destroyed, and not all of its ranks have done so.")


def find(name: str) -> ActorHandle | None:
    """The coordinator of a group; None if the group does not exist."""
    try:
        return get_actor(_actor_name(name))
    except ValueError:
        return None


def member(name: str, coordinator: ActorHandle, actor: str) -> Group | None:
    """An actor's part of a group that was made from outside; None if it has none."""
    try:
        rank, world_size, timeout_s = get(coordinator.member.remote(actor))
    except ActorDiedError:  # the last is just leaving it
        return None
    return None if rank is None else Group(name, coordinator, rank, world_size, timeout_s)


def is_of_earlier_attempt(group: Group) -> bool:
    """Whether a task has joined this group here that has ended: this one is another, or runs again."""
    return group.attempt != _this_attempt()


def leave(group: Group) -> None:
    """Give the rank back. The last one ends the group."""
    if get(group.coordinator.leave.remote(group.room, group.rank)):
        kill(group.coordinator)


def _actor_name(name: str) -> str:
    return f"mpi_runtime collective group {name}"
