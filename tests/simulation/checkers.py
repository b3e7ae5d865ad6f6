"""Looks from outside: knows the program, sees what processes do and are told, trusts no table of the scheduler."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from mpi_runtime.gpu.device import NODE
from mpi_runtime.scheduler.dispatch.backoff import wait_us
from mpi_runtime.scheduler.protocol.effects import Record, StartExecutor
from mpi_runtime.scheduler.protocol.events import (
    Call,
    CancelRequested,
    Done,
    Faulted,
    GroupRemovalRequested,
    GroupRequested,
    Released,
    Returned,
    Spec,
    TaskSpec,
    Unfilled,
    Where,
    Yielded,
)
from mpi_runtime.scheduler.protocol.ids import alternative_id, prefix_of
from mpi_runtime.scheduler.protocol.limits import AT_ONCE_US
from mpi_runtime.scheduler.protocol.rank_events import RankJoined
from tests.simulation import oracle
from tests.simulation.cancels import Cancels
from tests.simulation.cards import Cards
from tests.simulation.copies import Copies
from tests.simulation.followers import Followers
from tests.simulation.hosts import Host, Use, node_ids
from tests.simulation.items import Items
from tests.simulation.journals import may_be_recorded, with_code
from tests.simulation.losses import Losses
from tests.simulation.options import UNIT
from tests.simulation.oracle import Oracle
from tests.simulation.places import NOWHERE, Place, Places
from tests.simulation.processes import spec_of
from tests.simulation.quality import Quality
from tests.simulation.require import require
from tests.simulation.scope import Scope
from tests.simulation.steps import ACTOR, METHOD, STREAMING, TASK, Function, MakeGroup, Workload, alternative
from tests.simulation.tight import Tight
from tests.simulation.times import Times
from tests.simulation.unread import Unread
from tests.simulation.values import ENDS_ACTORS, Values
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.executors import Executor


FAILURES_MAX = 4
"""Two are enough; between them calls may have been given to a process and taken back, which looks like work."""
HEARD_US = 200_000
"""By then the head has heard from an executor, even over a line that stalls."""


class Checker:
    """Watches one simulation."""

    def __init__(self, world: World, work: Workload, joined: Sequence[RankJoined]) -> None:
        self.world = world
        self.work = work
        self.oracle = Oracle(work)
        self.specs = [spec_of(function) for function in work.functions]
        if world.journal is not None:
            may_be = [may_be_recorded(spec) for spec in self.specs]
            self.specs = [with_code(spec) if may else spec for spec, may in zip(self.specs, may_be, strict=True)]
        self.grouped_specs: dict[tuple[int, Place], Spec] = {}
        self.places = Places(node_ids(joined))
        self.cancels = Cancels(self)
        self.items = Items(self)
        self.values = Values(self)
        self.times = Times(self)
        self.tight = Tight(self)
        self.homes: dict[int, int] = {}
        """The host of each executor."""
        self.rank_hosts = {event.rank: event.host for event in joined}
        self.unread = Unread(self)
        self.losses = Losses(self)
        self.quality = Quality(self, joined)
        self.copies = Copies(self)
        self.followers = Followers(self)
        self.hosts: dict[int, Host] = {}
        for event in joined:
            host = self.hosts.setdefault(event.host, Host())
            host.cpus.update(event.cpus)
            host.cards.join(event)
            host.memory += event.memory
            host.custom.update(event.custom)
            host.labels.update(event.labels)
        for host in self.hosts.values():
            host.custom.update(host.cards.types())
        self.all_cards = [host.cards for host in self.hosts.values() if host.cards.devices]
        """Of each host with devices."""
        self.names: dict[bytes, tuple[int, int]] = {}
        """The job and the index of each return value that was asked for."""
        self.taken: dict[bytes, Function] = {}
        """The function of each call with alternatives, with the request of its last attempt."""
        self.puts: dict[bytes, int] = {}
        self.calls: dict[bytes, Call] = {}
        self.runs: Counter[bytes] = Counter()
        self.lost_runs: Counter[bytes] = Counter()
        self.unsaid: Counter[bytes] = Counter()
        """How often a call had ended and its executor died later, before it had told: that costs no retry."""
        self.raised: Counter[bytes] = Counter()
        """How often the head was told that a call had raised."""
        self.ends: Counter[bytes] = Counter()
        """How often the head was told the value or the last error of a call."""
        self.running: dict[bytes, int] = {}
        """The executor of each call that runs."""
        self.alive: dict[bytes, int] = {}
        """The executor of each actor that lives."""
        self.sent_calls: set[bytes] = set()
        """Only for membership."""
        self.unwanted: set[bytes] = set()
        """Actors that were let go of before they were sent to an executor. Only for membership."""
        self.created: set[bytes] = set()
        """Actors whose constructor has been run. Only for membership."""
        self.gone_hosts: set[int] = set()
        """Hosts without ranks that run calls. Only for membership."""
        self.gpus: dict[int, list[str]] = {}
        """The UUIDs of the GPUs of each executor."""
        self.first_us: dict[bytes, int] = {}
        """When each call was run for the first time."""
        self.last_order: dict[tuple[bytes, int, str], int] = {}
        self.last_free: dict[tuple[bytes, int, str], int] = {}
        """The same for calls without arguments: these keep their order in any actor."""
        """Of each actor, client and concurrency group."""

    # What clients say and see

    def named(self, id: bytes, job: int, index: int, client: int, scope: Scope) -> None:
        """A client submits a job."""
        require(id not in self.names, f"two calls have the id {id.hex()}")
        self.names[id] = (job, index)
        if index == 0:
            self.cancels.made(id, scope)
            if self.function_of(id).num_returns == STREAMING:
                self.items.made(id, client)

    def call_of(self, id: bytes) -> bytes:
        """The call that makes an object; empty if none does."""
        if id not in self.names:
            return b""
        return (int.from_bytes(id, "big") - self.names[id][1]).to_bytes(16, "big")

    def function_of(self, call: bytes) -> Function:
        """The function of a call, with the alternative that it was started with last."""
        return self.taken.get(call) or self.work.functions[self.work.jobs[self.names[call][0]].function]

    def take_alternative(self, call: Call) -> None:
        """A call begins, with the request of its spec: one of those that its function has."""
        function = self.work.functions[self.work.jobs[self.names[call.id][0]].function]
        if function.alternatives and self.places.told[call.id] == NOWHERE:
            base = self.specs[function.number].id
            index = [alternative_id(base, one) for one in range(len(function.alternatives) + 1)].index(call.spec)
            self.world.counters["alternatives that were taken"] += index > 0
            self.taken[call.id] = alternative(function, index)

    def spec(self, number: int, place: Place) -> Spec:
        """The spec of a function, for calls in a placement group or outside."""
        if place == NOWHERE:
            return self.specs[number]
        key = (number, place)
        if key not in self.grouped_specs:
            id, where = 1_000_000 + len(self.grouped_specs), Where(group=place[0], bundle=place[1])
            spec = self.specs[number]
            kind = TaskSpec() if isinstance(spec.kind, TaskSpec) else spec.kind  # without alternatives
            self.grouped_specs[key] = msgspec.structs.replace(spec, id=id, kind=kind, where=where)
        return self.grouped_specs[key]

    def made_group(self, id: bytes, step: MakeGroup) -> None:
        """A client asks for a placement group."""
        self.places.groups[id] = step

    def put(self, id: bytes, key: int) -> None:
        """A client made an object."""
        self.puts[id] = key

    def heard(self, client: int, events: Sequence[object]) -> None:
        """The head hears these from a client."""
        for event in events:
            self.unread.heard(event)
            self.quality.heard(client, event)
            self.followers.heard(client, event)
            if isinstance(event, Done | Returned):
                self.cancels.ended(event.id)
                for uuid in self.gpus.get(client, ()):
                    self._cards_of(uuid).failures[uuid] = 0
            if isinstance(event, Faulted):
                for uuid in self.gpus[client]:
                    self._cards_of(uuid).heard(uuid, event)
                if event.blame == NODE:
                    self.losses.excused.add(client)
            if isinstance(event, Call):
                self.calls[event.id] = event
                self.cancels.submitted(event.id)
            elif isinstance(event, Done) or (isinstance(event, Returned) and not event.raised):
                self.ends[event.id] += 1
                require(self.ends[event.id] == 1, f"call {event.id.hex()} ended twice")
                if isinstance(event, Returned) and event.values[0].is_error:
                    self.items.broke_off(event.id)
            elif isinstance(event, Returned):
                self.raised[event.id] += 1
            elif isinstance(event, Unfilled):
                self.cancels.ended(event.id)
                self.followers.came_back(client, event.id)
            elif isinstance(event, Yielded):
                self.items.heard(event)
            elif isinstance(event, CancelRequested):
                self.cancels.cancelled(event, self.world.now)
            elif isinstance(event, Released):
                self.released(event.ids)
            elif isinstance(event, GroupRequested):
                self.places.alive[event.id] = None
            elif isinstance(event, GroupRemovalRequested):
                del self.places.alive[event.id]

    def released(self, ids: Sequence[bytes]) -> None:
        """The head hears that a process has let go of these: actors that it has not sent anywhere are not created."""
        dropped = [id for id in ids if id in self.names and self.work.jobs[self.names[id][0]].is_dropped]
        self.world.counters["actors let go of"] += len(dropped)
        unsent = [id for id in dropped if id not in self.sent_calls]
        self.world.counters["actors let go of in time"] += len(unsent)
        self.unwanted.update(unsent)

    def sent(self, calls: Sequence[Call]) -> None:
        """The head sends these calls to an executor."""
        for call in calls:
            require(call.id not in self.unwanted, f"actor {call.id.hex()} is created, and nobody has a handle")
            self.sent_calls.add(call.id)

    def recorded(self, record: Record) -> None:
        """A call is recorded: nothing that it has submitted, or that has, is an actor's."""
        pending, name = [record.id], f"call {record.id.hex()}"
        while pending:
            parent = pending.pop()
            prefixes = [prefix_of(parent, attempt) for attempt in range(self.runs[parent])]
            for id in self.calls:
                if any(map(id.startswith, prefixes)):
                    require(self.function_of(id).kind == TASK, f"{name} is recorded, and {id.hex()} is an actor's")
                    pending.append(id)

    # What becomes of GPUs

    def _cards_of(self, uuid: str) -> Cards:
        cards = (host.cards for host in self.hosts.values())  # also those that only a lost rank could use
        return next(one for one in cards if any(device.uuid == uuid for device in one.devices))

    def executor_starts(self, effect: StartExecutor, rank: int) -> None:
        """The head has an executor started."""
        self.homes[effect.executor] = self.rank_hosts[rank]
        self.gpus[effect.executor] = found = [uuid for uuid in effect.uuids if uuid.startswith("GPU-")]
        for uuid in found:
            require(
                uuid not in self._cards_of(uuid).out, f"executor {effect.executor} gets {uuid}, which is quarantined"
            )

    def cards_said(self, lines: Sequence[str]) -> None:
        """The head says this of GPUs, and has decided."""
        for line in lines:
            found = re.search(r"(GPU-\d+-\d+)\) quarantined", line)
            if found is not None:
                self.world.counters["quarantines"] += 1
                self._cards_of(found[1]).is_quarantined(found[1])
                continue
            found = re.search(r"host host(\d+): CUDA does not start", line)
            if found is not None:
                self.world.counters["quarantines"] += 1
                self._cards_of(f"GPU-{found[1]}-0").is_given_up()
        for cards in self.all_cards:
            require(not cards.draws_calls(), "calls are sent on to a host on which CUDA does not start")
            for uuid, count in cards.failures.items():
                require(count < FAILURES_MAX or uuid in cards.out, f"{uuid} has failed {count} times and is in use")

    def sent_to_gpus(self, executor: int, calls: Sequence[Call]) -> None:
        """The head gives calls to an executor. Those with arguments may have been given to it some time ago."""
        for call in calls:
            if not call.arguments and not call.actor:
                for uuid in self.gpus.get(executor, ()):
                    is_out = uuid in self._cards_of(uuid).out
                    require(not is_out, f"call {call.id.hex()} is given {uuid}, which is quarantined")

    def can_run(self, call: bytes) -> bool:
        """Whether what is left of the GPUs could serve a call. Of those in placement groups nobody knows here."""
        base = self.work.functions[self.work.jobs[self.names[call][0]].function]
        requests = [alternative(base, index) for index in range(len(base.alternatives) + 1)]
        return self.places.told[call] == NOWHERE and any(
            host.cards.could(function)
            and function.cpu <= len(host.cpus) * UNIT
            and function.memory <= host.memory
            and all(units <= host.custom.get(name, 0) for name, units in function.custom)
            and function.zone in ("", host.labels.get("zone"))
            and function.node in ("", self.places.node_ids[number])
            for number, host in self.hosts.items()
            if number not in self.gone_hosts
            for function in requests
        )

    def has_no_place(self, call: bytes) -> bool:
        """Whether nothing that is left could run a call. Of the bundles of a placement group nobody knows here."""
        group = self.places.told[call][0]
        return group not in self.places.alive if group else not self.can_run(call)

    # What executors do

    def started(self, executor: Executor, call: Call, caller: int, order: int) -> None:
        """An executor runs a call."""
        self.take_alternative(call)
        function = self.function_of(call.id)
        name = f"call {call.id.hex()} on executor {executor.number}"
        recalled = self.world.journal.recalled if self.world.journal is not None else ()
        require(call.id not in recalled, f"{name} was recalled, and runs")
        most = function.max_retries
        self.losses.started(executor, call)
        if function.kind == ACTOR:
            most = function.max_restarts
            self.ends[call.id] = 0
            self.created.add(call.id)
        gone = self.lost_runs[call.id] + self.unsaid[call.id] + self.raised[call.id]
        require(gone == self.runs[call.id], f"{name} runs twice")
        require(not self.ends[call.id], f"{name} runs after it has ended")
        self.running[call.id] = executor.number
        self.runs[call.id] += 1
        runs = self.runs[call.id]
        unpaid = self.unsaid[call.id]
        require(most < 0 or runs <= most + 1 + unpaid, f"{name} runs {runs} times")
        require(most or not unpaid, f"{name} had ended, and must not run again")
        # Nobody knows which calls an actor had started that takes several at a time: each attempt may have been a run.
        least = runs - 1
        may_be = call.attempt >= least if executor.lanes else call.attempt == least
        require(may_be, f"{name} is run {runs}, but says attempt {call.attempt}")
        waited_us = self.world.now - self.first_us.setdefault(call.id, self.world.now)
        least_us = sum(map(wait_us, range(1, runs - unpaid)))
        is_soon = waited_us < min(least_us, AT_ONCE_US) and function.kind == TASK and not function.retry_exceptions
        is_soon = is_soon and call.id not in self.losses.touched
        require(not is_soon, f"{name} is run {runs} times within {waited_us} us")
        require(most < 0 or call.attempt <= most + unpaid, f"{name} is attempt {call.attempt} of {most + 1}")
        self.cancels.started(executor.number, call)
        self.times.started(call)
        if function.num_returns == STREAMING:
            self.items.started(call.id)
        self.world.counters["runs"] += 1
        if function.kind == METHOD:
            require(self.alive.get(call.actor) == executor.number, f"{name} is of another actor")
            key = call.actor, caller, function.group if executor.lanes else ""
            last = self.last_order.get(key, 0)
            any_order = call.attempt or self.function_of(call.actor).out_of_order
            require(order > last or any_order, f"{name}: call {order} of client {caller} after call {last}")
            self.last_order[key] = max(order, last)
            if not (call.arguments or call.attempt or self.world.options.end_us):
                last = self.last_free.get(key, 0)
                require(order > last, f"{name}: call {order} of client {caller}, which was ready, after call {last}")
                self.last_free[key] = order
            return
        host = self.hosts[executor.agent.host]
        devices = host.cards.given(executor, function)
        require(executor.effect.environment == dict(function.environment), f"{name} has a wrong environment")
        require(executor.effect.threads == max(1, function.cpu // UNIT), f"{name} has a wrong number of threads")
        woke = executor.number in host.uses and host.uses[executor.number].woke
        place = self.places.told[call.id]
        # An actor that will hold no CPU may be created where none is free.
        cpu = 0 if function.kind == ACTOR and not function.held_cpu else function.cpu
        use = Use(executor.agent.host, cpu, function.memory, function.custom, devices, woke=woke, place=place)
        wrong = self.places.started(call.id, function, executor.agent.host, host.labels)
        require(not wrong, f"{name}: {wrong}")
        if function.kind == ACTOR:
            require(call.id not in self.alive, f"{name}: the actor lives already")
            self.alive[call.id] = executor.number
            use.actor = call.id
        host.uses[executor.number] = use
        self._check_host(host, name)
        if place != NOWHERE:
            wrong = self.places.oversold(use for one in self.hosts.values() for use in one.uses.values())
            require(not wrong, f"{name}: {wrong}")

    def begun(self, executor: Executor, call: Call) -> None:
        """An executor has claimed a call that it does not run, and nobody hears that: it counts as run."""
        self.losses.started(executor, call)
        self.first_us.setdefault(call.id, self.world.now)
        self.runs[call.id] += 1
        self.world.counters["runs"] += 1

    def _check_host(self, host: Host, name: str) -> None:
        """Never more used than owned. CPU may be overdrawn, but only by those that were blocked and woke."""
        uses = host.uses.values()
        number = next((use.host for use in uses), -1)
        taken = self.places.taken(number, uses)
        running = sum(use.cpu for use in uses if not use.is_blocked)
        if not self.places.alive and running <= len(host.cpus) * UNIT:
            for use in uses:
                use.woke = use.woke and (not use.actor or self.world.now < use.woke_us + HEARD_US)
        wrong = taken.exceeds(len(host.cpus) * UNIT, host.memory, host.cards.count() * UNIT, host.custom)
        wrong = wrong or host.cards.oversold(uses)
        require(not wrong, f"{name}: {wrong}")

    def blocked(self, executor: Executor) -> None:
        """The running call waits."""
        use = self.hosts[executor.agent.host].uses.get(executor.number)
        if use is not None and not use.is_held:
            use.is_blocked = True

    def unblocked(self, executor: Executor) -> None:
        """It goes on."""
        host = self.hosts[executor.agent.host]
        use = host.uses.get(executor.number)
        if use is not None and use.is_blocked:
            use.is_blocked = False
            use.woke = True
            use.woke_us = self.world.now
            self._check_host(host, f"executor {executor.number} after it woke")

    def ended(self, executor: Executor, call: Call, message: Done | Returned) -> None:
        """A call ended: a task uses nothing any more, an actor what it keeps."""
        self.times.ended(call)
        del self.running[call.id]
        uses = self.hosts[executor.agent.host].uses
        function = self.function_of(call.id)
        if function.kind == TASK or executor.is_async:
            self.cancels.stopped(call.id)
        use = uses.get(executor.number)
        if use is None:
            return
        if function.kind == ACTOR:
            use.cpu = function.held_cpu
            use.is_held = True
            use.woke = False
        elif function.kind == TASK and executor.feed.calls:
            use.cpu = use.memory = 0
            use.custom = use.devices = ()
        elif function.kind == TASK:
            del uses[executor.number]

    def died(self, executor: Executor) -> None:
        """The process is gone."""
        self.hosts[executor.agent.host].uses.pop(executor.number, None)
        self.items.client_died(executor.number)
        self.cancels.died(executor.number)
        self.world.counters["deaths with several calls"] += len(executor.running) > 1
        ended = [message.id for message in executor.outgoing.messages if isinstance(message, Done | Returned)]
        ended = executor.unheard + ended
        claimed = [] if executor.claimed is None else [executor.claimed.id]
        if executor.claimed is not None:
            self.begun(executor, executor.claimed)
        for id, running in executor.running.items():
            del self.running[id]
            if running.call is not None:
                self.times.ended(running.call)
        lost = dict.fromkeys([*executor.running] or claimed or ended[-1:])
        spared = [id for id in lost if self.tight.died(executor.number, id) and self.function_of(id).max_retries]
        free = [*spared]
        if executor.has_no_cuda:  # which is no call's failure
            free += [id for id in lost if id not in spared and self.function_of(id).max_retries]
        for id in free:
            del lost[id]
        unsaid = [*free]
        for id in [id for id in ended if id not in spared]:
            if executor.lanes or executor.is_garbled:
                lost[id] = None
            elif id not in lost:
                unsaid.append(id)
                self.world.counters["ends that were not told"] += 1
        actor = self._actor_died(executor.number)
        if actor:
            lost[actor] = None
        self.tight.gone[executor.number] = set(lost)
        self.lost_runs.update(lost.keys())
        self.unsaid.update(unsaid)
        self.losses.died(executor, list(lost), unsaid)

    def _actor_died(self, executor: int) -> bytes:
        """The actor that lived in a process lives no more. Returns which, or nothing."""
        actor = next((actor for actor, number in self.alive.items() if number == executor), b"")
        if actor:
            del self.alive[actor]
            for known in [one for one in self.last_order if one[0] == actor]:
                del self.last_order[known]
                self.last_free.pop(known, None)
        return actor

    def died_with_rank(self, executor: Executor) -> None:
        """The process is gone, and so is its rank. What had run in it counts when the head hears of that."""
        self.hosts[executor.agent.host].uses.pop(executor.number, None)
        self.items.client_died(executor.number)
        self.cancels.died(executor.number)
        for id in executor.running:
            del self.running[id]
        self.losses.died_with_rank(executor, self._actor_died(executor.number))

    def takes_several(self, call: bytes) -> bool:
        """Whether a call is of an actor that takes several at a time."""
        actor = self.calls[call].actor
        return bool(actor) and bool(self.function_of(actor).concurrency)

    def host_lost(self, rank: int) -> None:
        """The head hears that a rank is gone; with the last one that runs calls a host is gone."""
        number = self.quality.host_of[rank]
        self.hosts[number].cards.lose(rank)
        if not any(event.host == number and event.cpus for event in self.quality.joined.values()):
            self.gone_hosts.add(number)
            self.places.host_lost(number)

    # The end

    def finish(self) -> None:
        """All has ended: every call that was made was run, as often as it had to be."""
        happened = self.world.counters
        calm = not any(happened[name] for name in (*ENDS_ACTORS, "cancels", "calls over their limit"))
        made = {job for job, _ in self.names.values()}
        recalled = self.world.journal.recalled | self.world.journal.loaded if self.world.journal is not None else set()
        if calm and not recalled:
            require(made == set(self.oracle.returns), "not every call of the program was submitted")
        for id, call in self.calls.items():
            if id in recalled:
                continue
            job = self.work.jobs[self.names[id][0]]
            function = self.work.functions[job.function]
            things = self.oracle.returns[job.key]
            name = f"call {id.hex()} of function {function.number}"
            if things[0].kind == oracle.FAILED:
                require(self.runs[id] == self.losses.presumed[id], f"{name} must not run")
            elif job.is_dropped:
                require(self.runs[id] <= 1 or function.max_restarts, f"{name} ran {self.runs[id]} times")
            elif things[0].kind == oracle.VALUE and calm and not self.cancels.ends_with_its_actor(id):
                require(self.ends[id] == 1, f"{name} did not end")
                require(self.runs[id] == 1 + max(0, job.raises), f"{name} ran {self.runs[id]} times")
            require(self.ends[call.id] <= 1, f"{name} ended {self.ends[id]} times")
        require(not self.running, f"calls run still: {self.running}")
        require(not self.alive, f"actors live still: {self.alive}")
