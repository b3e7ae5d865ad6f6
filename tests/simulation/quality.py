"""Looks from outside at where calls run: not whether that is allowed, but whether it is good.

Knows what the head was told and what it has said, and nothing of what the scheduler thinks. What holds everywhere is
demanded in every world; what faults and placement groups would blur only in calm ones (`options.calm_options`), where
some of it is summed up and compared with `BOUNDS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mpi_runtime.scheduler.protocol.effects import Erase, Fetch, Free, Restore, StartExecutor, StopExecutor
from mpi_runtime.scheduler.protocol.events import (
    Blocked,
    Call,
    CancelRequested,
    Done,
    NamedActorRequested,
    Put,
    Returned,
    Stored,
    Unblocked,
    Unfilled,
    Yielded,
)
from mpi_runtime.scheduler.protocol.limits import FORK_WORTH_US, MOVED_BYTES_PER_US, UNREACHED_US
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied, Fetched, RankJoined, Spilled, TakenBack
from tests.simulation.options import MIB, UNIT
from tests.simulation.require import require
from tests.simulation.steps import ACTOR, METHOD, Function

if TYPE_CHECKING:
    from mpi_runtime.scheduler.records.state import Effects
    from tests.simulation.checkers import Checker

IDLE_US = 10_000_000
"""Executors beyond the number of CPUs of their host are ended when they have idled for so long."""
WAIT_US = 15_000
"""A call waits no longer than this where there is room: some times as long as busy executors are thought to need."""
FORK_WAIT_US = 3 * FORK_WORTH_US
"""Nor than this where an executor may have to be forked. Less than FORK_WORTH_US of work for each executor, with the
new one, is left to those that are busy: twice that if there is one. And calls may take longer than measured."""
DECIDE_US = 1000
"""By then the head has decided about what it has heard."""
NEAR_BYTES = MIB
"""Of arguments of this size it matters where they are."""

BOUNDS = {
    "bytes moved needlessly": ("bytes of arguments", 0.01),
    "bytes moved needlessly on host 0": ("bytes of arguments on host 0", 0.01),
    "forks beside idle executors": ("forks", 0.01),
}
"""For some counters the counter that they are compared with, and the largest part of it that they may be."""


@dataclass
class Worker:
    """An executor as the head knows it."""

    effect: StartExecutor
    host: int
    rank: int
    given: dict[bytes, Function] = field(default_factory=dict)
    """Calls that it was sent and that have not ended."""
    actor: Function | None = None
    is_made: bool = False
    """Of an actor: it holds no more than it is to keep."""
    is_blocked: bool = False
    went_on: bool = False
    """Its call had waited for objects: meanwhile others of its account may have been hired."""
    is_ending: bool = False
    idle_since_us: int = 0

    @property
    def key(self) -> tuple[object, ...]:
        """Executors with equal keys are as good as each other."""
        effect = self.effect
        return self.host, tuple(sorted(effect.environment.items())), effect.threads, tuple(effect.gpu_ids)

    @property
    def is_idle(self) -> bool:
        """Whether it could take any call with its key."""
        return not self.given and self.actor is None and not self.is_ending

    def holds(self) -> Function | None:
        """Whose resources it has."""
        return next(iter(self.given.values()), None) if self.actor is None else self.actor


@dataclass
class Room:
    """What a host has, or has left."""

    cpu: int
    memory: int
    custom: Counter[str]

    def fits(self, function: Function) -> bool:
        """Whether a call would find what it asks for; GPUs apart."""
        return (
            function.cpu <= max(0, self.cpu)
            and function.memory <= self.memory
            and all(units <= self.custom[name] for name, units in function.custom)
        )


class Quality:
    """Watches one simulation."""

    def __init__(self, checker: Checker, joined: Sequence[RankJoined]) -> None:
        self.checker = checker
        self.world = checker.world
        self.joined = {event.rank: event for event in joined}
        self.host_of = {event.rank: event.host for event in joined}
        self.workers: dict[int, Worker] = {}
        self.copies: dict[bytes, dict[int, int]] = {}
        """For each stored object its size on each host."""
        self.extents: dict[tuple[int, int], bytes] = {}
        self.on_disk: dict[tuple[int, int], bytes] = {}
        """Objects in the files of ranks, by rank and place."""
        self.fetching: set[tuple[bytes, int]] = set()
        """Copies that are on their way, each to a rank. Only for membership."""
        self.missed: set[int] = set()
        """Hosts to which a copy could not be brought since the last decision. Only for membership."""
        self.fetched_us: dict[int, int] = {}
        """When the last copy came to each host, or could not."""
        self.unreached_us: dict[int, list[int]] = {}
        """The times until which calls of each host wait for copies on ranks that cannot be reached."""
        self.ordered: dict[tuple[bytes, int], tuple[int, dict[int, Room]]] = {}
        """When a copy was ordered to a host, and what room there was everywhere."""
        self.cancelled_us = 0
        """When a call was cancelled. An executor may have been kept for it, and idles from then on."""
        self.calls: dict[bytes, tuple[Call, int]] = {}
        """Each call, and when the head was told of it."""
        self.known: set[bytes] = set()
        """Objects that are there. Only for membership."""
        self.errors: set[bytes] = set()
        """Those of them that are large errors. Only for membership."""
        self.waiting: dict[bytes, Function] = {}
        """Tasks and creations that nobody was given."""
        self.idle_since_us: dict[bytes, int] = {}
        """Since when there has been room for one of those that wait."""
        self.before: dict[int, Room] = {}

    # What the head is told

    def heard(self, client: int, event: object) -> None:
        """A client said this."""
        worker = self.workers.get(client)
        if isinstance(event, Call | NamedActorRequested):
            call = event if isinstance(event, Call) else event.creation
            self.calls[call.id] = call, self.world.now
            self._waits(call.id)
        elif isinstance(event, Done | Returned):
            if worker is not None:
                self._gone(worker, [event.id])
                worker.went_on = False
            if isinstance(event, Returned) and event.raised:
                self._raised(event)
            else:
                self._ended(event)
                if worker is not None and event.id in self.checker.names and worker.actor is not None:
                    worker.is_made = True
        elif isinstance(event, Unfilled):
            if worker is not None:
                self._gone(worker, [event.id])
            self._waits(event.id)
        elif isinstance(event, CancelRequested):
            self.cancelled_us = self.world.now
        elif isinstance(event, Put | Yielded):
            id = self.checker.items.first(event) if isinstance(event, Yielded) else event.id
            id = event.id if self.copies.get(id) else id  # an item that has lost its copies has got one again
            self.world.counters["items made again"] += id != event.id
            self.known.add(id)
            self._stored(id, event.value.stored)
        elif isinstance(event, Blocked | Unblocked) and worker is not None:
            worker.is_blocked = isinstance(event, Blocked)
            worker.went_on = not worker.is_blocked

    def rank_said(self, rank: int, message: object) -> None:
        """A rank said this."""
        if isinstance(message, ExecutorDied):
            self.workers.pop(message.executor, None)
        elif isinstance(message, TakenBack):
            self._gone(self.workers[message.executor], message.ids)
            for id in message.ids:
                self._waits(id)
        elif isinstance(message, Spilled) and message.offset >= 0:
            self.on_disk[rank, message.offset] = message.id
        elif isinstance(message, Fetched):
            host = self.host_of[rank]
            self.fetching.discard((message.id, rank))
            self.missed.update([host] if message.offset < 0 else [])
            if message.is_lost:
                self.unreached_us.setdefault(host, []).append(self.world.now + UNREACHED_US)
            else:
                self.fetched_us[host] = self.world.now
            if message.offset >= 0 and message.id in self.copies:
                size = max(self.copies[message.id].values(), default=0)
                self.copies[message.id][host] = size
                self.extents[rank, message.offset] = message.id

    def rank_lost(self, rank: int) -> list[bytes]:
        """A rank is gone. Returns the objects of which there is no copy any more."""
        host = self.host_of[rank]
        self.workers = {number: worker for number, worker in self.workers.items() if worker.rank != rank}
        self.fetching = {one for one in self.fetching if one[1] != rank}
        self.joined.pop(rank)
        self.fetched_us.update(dict.fromkeys(self.host_of.values(), self.world.now))  # calls may have gone elsewhere
        lost: dict[bytes, None] = {}
        for place, id in list(self.extents.items()):
            if place[0] == rank:
                del self.extents[place]
                self.copies[id].pop(host, None)
                lost[id] = None
        for place in [place for place in self.on_disk if place[0] == rank]:
            lost[self.on_disk.pop(place)] = None
        kept = set(self.on_disk.values())
        return [id for id in lost if not self.copies.get(id) and id not in kept]

    def _ended(self, event: Done | Returned) -> None:
        """A call has made its values; what has raised may be run again, and is left out."""
        values = event.values if isinstance(event, Returned) else []
        for index in range(max(1, len(values))):
            id = (int.from_bytes(event.id, "big") + index).to_bytes(16, "big")
            if not values or not values[index].is_error:  # else what has it as an argument never runs
                self.known.add(id)
            self._stored(id, values[index].stored if values else None)

    def _raised(self, event: Returned) -> None:
        """A call has raised. A large error is read where a call runs that has it as an argument, so it is there as a
        value is, unless the call is run again. What has a small one as an argument never runs.
        """
        function, (error, *_) = self.checker.function_of(event.id), event.values
        arguments = self.calls[event.id][0].arguments
        may_again = function.retry_exceptions and event.may_retry and not self.errors.intersection(arguments)
        if error.stored is None or (may_again and not 0 <= function.max_retries <= self.checker.raised[event.id]):
            return
        for index in range(max(1, function.num_returns)):
            id = (int.from_bytes(event.id, "big") + index).to_bytes(16, "big")
            self.known.add(id)
            self.errors.add(id)

    def _waits(self, id: bytes) -> None:
        function = self.checker.function_of(id)
        if function.kind != METHOD and function.feasible:
            self.waiting[id] = function

    def _gone(self, worker: Worker, ids: Sequence[bytes]) -> None:
        """Calls are no longer in an executor's hands."""
        was_idle = worker.is_idle
        for id in ids:
            worker.given.pop(id, None)
        if worker.is_idle and not was_idle:
            worker.idle_since_us = self.world.now

    def _stored(self, id: bytes, place: Stored | None) -> None:
        if place is not None:
            self.copies[id] = {self.host_of[place.rank]: place.size}
            self.extents[place.rank, place.offset] = id

    # What is there

    def rooms(self) -> dict[int, Room]:
        """What is left of each host: what executors with calls, and actors, have not."""
        rooms = {
            number: Room(len(host.cpus) * UNIT, host.memory, Counter(host.custom))
            for number, host in self.checker.hosts.items()
        }
        for worker in self.workers.values():
            function = worker.holds()
            if function is None:
                continue
            room = rooms[worker.host]
            held = 0 if worker.actor is None else function.held_cpu  # is not lent
            room.cpu -= held if worker.is_made or worker.is_blocked else function.cpu
            room.memory -= function.memory
            room.custom.subtract(dict(function.custom))
        return rooms

    def _expecting(self, host: int) -> bool:
        """Whether a call may have been given there that waits for copies: nobody outside can know."""
        return any(self.host_of[rank] == host for _, rank in self.fetching)

    # What the head decides

    def decides(self) -> None:
        """It is about to."""
        if self.world.options.is_calm:
            self.before = self.rooms()

    def decided(self, effects: Effects) -> None:
        """It has."""
        started: list[Worker] = []
        ended: list[Worker] = []
        orders = [(rank, effect) for rank, some in effects.ranks.items() for effect in some]
        forks = any(isinstance(effect, StartExecutor) for _, effect in orders)
        idle = [worker for worker in self.workers.values() if worker.is_idle] if forks else []
        for rank, effect in orders:
            if isinstance(effect, StartExecutor):
                started.append(Worker(effect, self.host_of[rank], rank, idle_since_us=self.world.now))
                self.workers[effect.executor] = started[-1]
            elif isinstance(effect, StopExecutor) and effect.executor in self.workers:
                worker = self.workers[effect.executor]
                if worker.is_idle and not effect.force:
                    ended.append(worker)
                worker.is_ending = True
            elif isinstance(effect, Free) and not effect.executor:  # else nothing lies there, unless it is another's
                for offset in effect.offsets:
                    self._freed(rank, offset)
            elif isinstance(effect, Erase):
                for offset in effect.offsets:
                    del self.on_disk[rank, offset]
        sent = [
            (self.workers[client], message)
            for client, messages in effects.clients.items()
            for message in messages
            if type(message) is Call and client in self.workers
        ]
        firsts = [(worker, call) for worker, call in sent if not worker.given]
        for worker, call in sent:
            self._given(worker, call)
        for worker, _ in firsts:
            self._look_at_account(worker)
        after = self.rooms() if self.world.options.is_calm else {}
        least = {host: smaller(self.before[host], room) for host, room in after.items() if not self._expecting(host)}
        for rank, effect in orders:
            if isinstance(effect, Fetch | Restore):
                self.fetching.add((effect.id, rank))
                self.ordered[effect.id, self.host_of[rank]] = self.world.now, least
        for worker in started:
            self._look_at_fork(worker, idle)
        for worker in ended:
            self._look_at_end(worker, ended, sent)
        if self.world.options.is_calm:
            for worker, call in firsts:
                self._look_at_place(worker, call)
            self._look_at_waiting(after)
        self.missed.clear()

    def _freed(self, rank: int, offset: int) -> None:
        id, host = self.extents.pop((rank, offset), b""), self.host_of[rank]
        if not any(one == id and self.host_of[other] == host for (other, _), one in self.extents.items()):
            self.copies.get(id, {}).pop(host, None)  # else only one that came too late is freed

    def _given(self, worker: Worker, call: Call) -> None:
        function = self.checker.function_of(call.id)
        if function.kind == METHOD:
            return
        worker.given[call.id] = function
        if function.kind == ACTOR:
            worker.actor = function
        self.waiting.pop(call.id, None)
        self.idle_since_us.pop(call.id, None)

    # What is demanded

    def _look_at_account(self, worker: Worker) -> None:
        """A call starts: no more of its account run than may."""
        function = worker.holds()
        if function is not None and function.account and worker.given:
            running, went_on = self._running_of(function.account)
            self.world.counters["calls of accounts"] += 1
            full = function.account_limit
            require(not full or running - went_on <= full, f"{running} calls of {function.account} run, and {full} may")
            self.world.counters["full accounts"] += running == full

    def _running_of(self, account: str) -> tuple[int, int]:
        """How many calls of an account run, and how many of these have gone on after they had waited for objects."""
        held = [(worker, worker.holds()) for worker in self.workers.values() if worker.given and not worker.is_blocked]
        own = [worker for worker, function in held if function is not None and function.account == account]
        return len(own), sum(worker.went_on for worker in own)

    def _look_at_fork(self, worker: Worker, idle: Sequence[Worker]) -> None:
        """An executor is started: hardly ever while another one idles with all that it has."""
        if not self._expecting(worker.host):
            is_beside = any(self._could_serve(one, worker) and one.is_idle for one in idle)
            self.world.counters["forks beside idle executors"] += is_beside
        if worker.effect.gpu_ids:
            self._look_at_devices(worker)

    def _could_serve(self, idle: Worker, other: Worker) -> bool:
        """Whether one that idles has all that another one has: the same GPUs, or as many where none is special."""
        effect, wanted = idle.effect, other.effect
        if idle.host != other.host or effect.threads != wanted.threads or effect.environment != wanted.environment:
            return False
        return effect.gpu_ids == wanted.gpu_ids or (
            len(effect.gpu_ids) == len(wanted.gpu_ids)
            and not self.checker.hosts[idle.host].cards.devices
            and not any(
                one.host == idle.host and one is not idle and {*one.effect.gpu_ids}.intersection(effect.gpu_ids)
                for one in self.workers.values()
            )
        )

    def _look_at_devices(self, worker: Worker) -> None:
        """It has GPUs: it runs on a rank that is near to as many of them as can be."""
        homes = self.homes(worker.host)
        near = Counter(homes[id] for id in worker.effect.gpu_ids) if homes else Counter[int]()
        self.world.counters["GPUs with a near rank"] += bool(near)
        most = max(near.values(), default=0)
        name = f"executor {worker.effect.executor} with GPUs {worker.effect.gpu_ids}"
        require(near[worker.rank] == most, f"{name} is on rank {worker.rank}, and these are near to {dict(near)}")

    def homes(self, host: int) -> list[int]:
        """For each GPU of a host the rank that is near to it; empty where that is not clear."""
        ranks = sorted(rank for rank, event in self.joined.items() if event.host == host and event.cpus)
        cards = self.checker.hosts[host].cards
        count = cards.count()
        if not count or count % len(ranks):
            return []
        if any(len(cards.usable[rank]) != len(cards.devices) for rank in ranks):
            return []
        if not any(device.cpus for device in cards.devices):
            return [ranks[id * len(ranks) // count] for id in range(count)]
        near = [
            max(ranks, key=lambda rank: len({*self.joined[rank].cpus}.intersection(device.cpus)))
            for device in cards.devices
        ]
        return near if set(Counter(near).values()) == {count // len(ranks)} else []

    def _look_at_end(self, worker: Worker, ended: Sequence[Worker], sent: Sequence[tuple[Worker, Call]]) -> None:
        """An executor that idles is ended: nobody needs it, or others need its GPUs."""
        name = f"executor {worker.effect.executor}"
        now, host = self.world.now, worker.host
        if worker.effect.gpu_ids:
            self._look_at_way_made(worker, [self.checker.function_of(call.id) for _, call in sent])
            return
        left = [one for one in self.workers.values() if one.is_idle]
        hired = [one for one, _ in sent]  # some of them after the end of this one was decided
        there = {one.effect.executor for one in (*left, *ended, *hired) if one.host == host}
        cpus = len(self.checker.hosts[host].cpus)
        idled_us = now - worker.idle_since_us
        copied_us = self.fetched_us.get(host, 0), *self.unreached_us.get(host, ())
        is_late = any(at_us and 0 <= now - at_us < DECIDE_US for at_us in copied_us)
        if idled_us < IDLE_US and (self._expecting(host) or host in self.missed or is_late):
            return  # it may have been meant for an actor that waited for a copy, and will not be made
        require(idled_us >= IDLE_US, f"{name} is ended after it has idled for {idled_us} us")
        require(len(there) > max(1, cpus), f"{name} is ended, and only {len(there)} idle on {cpus} CPUs")
        # Until then, and for no use.
        booked_us = 0 if self.world.options.is_calm else max(*copied_us, self.cancelled_us)
        if self.world.options.arena_slots:
            booked_us = now  # calls whose arguments were on their way may have been taken from it
        longer = [
            one.effect.executor
            for one in left
            if one.host == host and max(one.idle_since_us + DECIDE_US, booked_us) < worker.idle_since_us
        ]
        require(not longer, f"{name} is ended, and {longer} have idled for longer")

    def _look_at_way_made(self, worker: Worker, sent: Sequence[Function]) -> None:
        """GPUs with which an executor idled are to have somebody else: there are not enough others."""
        cards = self.checker.hosts[worker.host].cards
        asking = [one for one in (*self.waiting.values(), *sent) if one.gpu or one.gpu_memory]
        if self.world.now - worker.idle_since_us >= IDLE_US or cards.devices or not self.world.options.is_calm:
            return  # the devices may differ, or one may be quarantined
        used = {id for one in self.workers.values() if one.host == worker.host for id in one.effect.gpu_ids}
        clean = cards.stated - len(used)
        needed = max((one.gpu // UNIT for one in asking), default=0)
        shares = any(one.gpu < UNIT for one in asking)
        name = f"executor {worker.effect.executor} with GPUs {worker.effect.gpu_ids}"
        require(shares or needed > clean, f"{name} is ended, and {clean} others have no process")

    def _look_at_place(self, worker: Worker, call: Call) -> None:
        """A call is sent to an executor that had none: it is where its arguments are, if there was room."""
        function = self.checker.function_of(call.id)
        sizes = {
            id: max(self.copies[id].values(), default=0) for id in dict.fromkeys(call.arguments) if id in self.copies
        }
        if function.kind == METHOD or sum(sizes.values()) < NEAR_BYTES:
            return
        ordered = {id: self.ordered[id, worker.host] for id in sizes if (id, worker.host) in self.ordered}
        moved = {id: rooms for id, (at_us, rooms) in ordered.items() if at_us >= self.calls[call.id][1]}
        here = sum(sizes[id] for id in sizes if id not in moved)
        count = self.world.counters
        rooms = next(iter(moved.values()), {})
        on = {
            host: sum(sizes[id] for id in sizes if host in self.copies[id])
            for host, one in self.checker.hosts.items()
            if host != worker.host and one.cpus
        }
        best = max(on, key=lambda host: (on[host], -host), default=worker.host)
        most = max(on.get(best, 0), here)
        name = " on host 0" if (best if on.get(best) == most else worker.host) == 0 else ""
        count[f"bytes of arguments{name}"] += most // NEAR_BYTES
        count["calls beside their arguments"] += here >= most
        is_free = not (function.spread or function.node or function.zone or function.gpu or function.gpu_memory)
        if on.get(best, 0) > here and best in rooms and rooms[best].fits(function) and is_free:
            count[f"bytes moved needlessly{name}"] += (on[best] - here) // NEAR_BYTES

    def _look_at_waiting(self, rooms: Mapping[int, Room]) -> None:
        """Calls wait: for room, or not for long. What does not fit anywhere may have a node kept for it."""
        ready = {id: one for id, one in self.waiting.items() if self._is_ready(id)}
        able = {
            host: room for host, room in rooms.items() if self.checker.hosts[host].cpus and not self._expecting(host)
        }
        fitting = {id: {host for host, room in able.items() if self._may(one, host, room)} for id, one in ready.items()}
        if not all(fitting.values()):
            self.idle_since_us.clear()
            return
        for id, hosts in fitting.items():
            waited_us = self.world.now - self.idle_since_us.setdefault(id, self.world.now)
            most_us = WAIT_US if self._idles_for(ready[id], hosts) else FORK_WAIT_US
            most_us += self._size_of_arguments(id) // MOVED_BYTES_PER_US  # where they are there may be room soon
            require(waited_us <= most_us, f"call {id.hex()} waits for {waited_us} us, and there is room")

    def _size_of_arguments(self, id: bytes) -> int:
        arguments = dict.fromkeys(self.calls[id][0].arguments)
        return sum(max(self.copies[one].values(), default=0) for one in arguments if one in self.copies)

    def _idles_for(self, function: Function, hosts: Collection[int]) -> bool:
        """Whether on each of these hosts an executor idles that could run a call without GPUs."""
        wanted: tuple[dict[str, str], int, list[int]] = dict(function.environment), max(1, function.cpu // UNIT), []
        idle = [one for one in self.workers.values() if one.is_idle]
        return {*hosts} <= {
            one.host for one in idle if (one.effect.environment, one.effect.threads, one.effect.gpu_ids) == wanted
        }

    def _is_ready(self, id: bytes) -> bool:
        return all(one in self.known for one in self.calls[id][0].arguments)

    def _may(self, function: Function, host: int, room: Room) -> bool:
        """Whether a call could start there now."""
        if function.gpu or function.gpu_memory or function.node not in ("", self.checker.places.node_ids[host]):
            return False
        if function.account_limit and self._running_of(function.account)[0] >= function.account_limit:
            return False
        labels = self.checker.hosts[host].labels
        return room.fits(function) and function.zone in ("", labels.get("zone"))


def smaller(one: Room, other: Room) -> Room:
    """What was left at both times."""
    return Room(min(one.cpu, other.cpu), min(one.memory, other.memory), one.custom & other.custom)


def judge(counters: Mapping[str, int]) -> list[str]:
    """What is worse than it may be, all simulations together."""
    return [
        f"{name}: {counters[name]}, of {counters[whole]} {whole}; at most {100 * most:.0f} % are well"
        for name, (whole, most) in BOUNDS.items()
        if counters.get(name, 0) > most * counters.get(whole, 0)
    ]
