"""No order of submissions, ends, crashes, faults of GPUs and cancellations oversells a GPU, or gives one that is
quarantined. Judged from outside, by effects alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mpi_runtime.gpu.device import BUSY, DEVICE, PROGRAM, Device, Link
from mpi_runtime.scheduler.protocol.effects import Cancel, StartExecutor, StopExecutor
from mpi_runtime.scheduler.protocol.events import Call, CancelRequested, Faulted
from mpi_runtime.scheduler.protocol.limits import BACKOFF_US_MAX
from mpi_runtime.scheduler.protocol.rank_events import RankJoined
from tests.builders import DRIVER, UNIT, Cluster

GIB = 1 << 30
LONG_US = 10_000_000
"""Calls that take so long are not sent ahead of time."""
REQUESTS: list[dict[str, Any]] = [
    {"gpu": 1}, {"gpu": 2}, {"gpu": 3}, {"gpu": 0.5}, {"gpu": 0.25}, {"gpu": 0.3, "gpu_memory": 50 * GIB},
    {"gpu_memory": 30 * GIB}, {"gpu": 1, "custom": {"accelerator_type:A100": 10}}, {"gpu": 0},
    {"gpu": 1, "environment": {"A": "1"}}, {"gpu": 0.5, "environment": {"A": "1"}},
]  # fmt: skip


def gpu(name: str, kind: str = "H100", **fields: Any) -> Device:
    return Device(name, kind, (kind,), 80 * GIB if kind == "H100" else 40 * GIB, bus=name, **fields)


def hosts() -> list[RankJoined]:
    """One with ranks that can use different devices, one with instances of MIG and a device for one process only."""
    first = [gpu("a0"), gpu("a1"), gpu("a2", "A100"), gpu("a3", "A100")]
    second = [gpu("b0", is_exclusive=True), gpu("b1", instance=(1, 0)), gpu("b2", instance=(2, 0)), gpu("b3")]
    links = [Link("a0", "a3", 2, 50), Link("a1", "a2", 2, 50)]

    def rank(number: int, host: int, devices: list[Device]) -> RankJoined:
        return RankJoined(
            number, host, f"host{host}", list(range(8)), -1, 0, 0, {}, 1 << 30, devices=devices, links=links
        )

    return [rank(0, 0, first[:3]), rank(1, 0, first[1:]), rank(2, 2, second)]


class World:
    """Plays ranks and executors, and judges what they are told."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        joined = hosts()
        for event in joined:
            self.cluster.join(event)
        self.usable = {event.rank: {one.uuid: one for one in event.devices} for event in joined}
        self.devices: dict[int, list[Device]] = {}
        """Of each living executor."""
        self.running: dict[int, bytes] = {}
        """What each has in hand."""
        self.asked: dict[bytes, dict[str, Any]] = {}
        self.doomed: list[int] = []
        """Executors that were told to stop, and live."""
        self.waiting: list[bytes] = []
        self.worked: set[int] = set()
        """Executors in which a call has ended."""
        self.failures: dict[str, int] = {}
        """How many processes in a row have failed on each device at once, as no program can have caused it."""
        self.out: set[str] = set()
        """Devices that were said to be quarantined."""

    def submit(self, number: int) -> None:
        request = REQUESTS[number % len(REQUESTS)]
        id = self.cluster.submit(cpu=0, name=f"f{number % len(REQUESTS)}", max_retries=-1, **request)
        self.asked[id] = request
        self.waiting.append(id)
        self.look()

    def finish(self, number: int) -> None:
        if self.running:
            executor = sorted(self.running)[number % len(self.running)]
            self.cluster.done(executor, self.running.pop(executor), us=LONG_US)
            self.worked.add(executor)
            for device in self.devices[executor]:
                self.failures[device.uuid] = 0
            self.look()

    def fail(self, number: int) -> None:
        """CUDA answers one of them with an error for good: its call is run again."""
        executors = sorted(one for one in self.running if self.devices[one])
        if executors:
            executor = executors[number % len(executors)]
            blame, is_fresh = (DEVICE, DEVICE, BUSY, PROGRAM)[number % 4], executor not in self.worked
            for device in self.devices[executor]:
                in_a_row = self.failures.get(device.uuid, 0) if is_fresh or blame == BUSY else 0
                self.failures[device.uuid] = in_a_row + (is_fresh and blame == DEVICE)
            id = self.running[executor]
            name = self.cluster.state.executors[executor].assigned[id].function.spec.name
            self.cluster.client_says(executor, Faulted(name, "cudaErrorUnknown", blame, is_fresh, "traceback"))
            self.die(executor)
            assert {uuid for uuid, count in self.failures.items() if count >= 2} <= self.out

    def crash(self, number: int) -> None:
        """Of one that runs a call or idles: its call is run again."""
        if self.devices:
            self.die(sorted(self.devices)[number % len(self.devices)])

    def cancel(self, number: int) -> None:
        if self.waiting:
            id = self.waiting[number % len(self.waiting)]
            self.cluster.client_says(DRIVER, CancelRequested(id, True, True))
            self.look()

    def stop(self, number: int) -> None:
        """One that was told to has ended at last."""
        if self.doomed:
            self.die(self.doomed[number % len(self.doomed)])

    def die(self, executor: int) -> None:
        del self.devices[executor]
        self.doomed = [one for one in self.doomed if one != executor]
        self.cluster.died(executor, self.running.pop(executor, b""))
        self.look()

    def look(self) -> None:
        """Take what was decided, by the time when what has died at once is run again."""
        self.cluster.later(BACKOFF_US_MAX)
        recorded, self.cluster.recorded = self.cluster.recorded, []
        said = self.cluster.notes
        self.cluster.said.clear()
        self.out.update(line.partition("(")[2].partition(")")[0] for line in said)
        before = dict(self.devices)
        for who, to, effect in recorded:
            if who == "rank" and isinstance(effect, StartExecutor):
                self.started(to, effect)
            elif isinstance(effect, StopExecutor):
                assert effect.executor not in self.running, "nothing here is stopped that works"
                self.doomed.append(effect.executor)
            elif isinstance(effect, Cancel) and effect.force:
                self.doomed.append(effect.executor)
            elif who == "client" and to != DRIVER and isinstance(effect, Call):
                assert to not in self.running, "one long call at a time"
                assert not self.out & {device.uuid for device in self.devices[to]}, "it is quarantined"
                self.running[to] = effect.id
            elif who == "client" and to == DRIVER and getattr(effect, "id", b"") in self.waiting:
                self.waiting.remove(effect.id)
        for _, _, effect in recorded:
            if isinstance(effect, StartExecutor):
                self.has_room(effect, before)
        self.judge()

    def started(self, rank: int, effect: StartExecutor) -> None:
        assert len(effect.gpu_ids) == len(effect.uuids)
        assert set(effect.uuids) <= self.usable[rank].keys(), "an executor starts where its devices can be used"
        self.devices[effect.executor] = [self.usable[rank][uuid] for uuid in effect.uuids]

    def has_room(self, effect: StartExecutor, before: dict[int, list[Device]]) -> None:
        """Whoever lives with one of its devices has a right to it."""
        for other, devices in before.items():
            if {device.uuid for device in devices} & set(effect.uuids):
                assert other in self.running, "it lives with a device that another one gets, and has no right to it"

    def judge(self) -> None:
        """Nothing is promised twice, and each call has what it asked for."""
        units: dict[str, int] = {}
        memory: dict[str, int] = {}
        users: dict[str, int] = {}
        for executor, id in self.running.items():
            request, devices = self.asked[id], self.devices[executor]
            asked = int(request.get("gpu", 0) * UNIT)
            assert len(devices) == max(-(-asked // UNIT), "gpu_memory" in request)
            assert len(devices) < 2 or not any(device.is_instance for device in devices)
            assert "custom" not in request or devices[0].types == ("A100",)
            for device in devices:
                part = min(asked, UNIT)
                units[device.uuid] = units.get(device.uuid, 0) + part
                needed = request.get("gpu_memory", 0) if part < UNIT else device.memory
                memory[device.uuid] = memory.get(device.uuid, 0) + (needed or device.memory * part // UNIT)
                users[device.uuid] = users.get(device.uuid, 0) + 1
                assert memory[device.uuid] <= device.memory
                assert not device.is_exclusive or users[device.uuid] == 1
        assert max(units.values(), default=0) <= UNIT

    def rest(self) -> None:
        """All that can end ends: then everything has run, and all is free."""
        for _ in range(10_000):
            if self.running:
                self.finish(0)
            elif self.doomed:
                self.stop(0)
            elif self.waiting and self.cluster.scheduler.deadline() is not None:  # calls that have crashed at once wait
                self.cluster.later(BACKOFF_US_MAX)
                self.look()
            else:
                break
        assert not self.waiting, "everything that can run has run, and what cannot has failed"
        assert all(node.free == node.total for node in self.cluster.state.nodes.values())


STEPS: list[Callable[[World, int], None]] = [
    World.submit, World.submit, World.submit, World.finish, World.finish, World.crash, World.fail,
    World.fail, World.cancel, World.stop,
]  # fmt: skip


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 30)), max_size=40))
def test_no_gpu_is_oversold(steps: list[tuple[Callable[[World, int], None], int]]) -> None:
    world = World()
    for step, number in steps:
        step(world, number)
    world.rest()
