"""What a job of tasks and actors would take on other nodes, by its recording."""

import pytest

from mpi_runtime.scheduler.protocol.events import (
    DRIVER,
    ActorSpec,
    Blocked,
    Call,
    Done,
    MethodSpec,
    Released,
    TaskSpec,
    Unblocked,
)
from mpi_runtime.scheduler.protocol.ids import ID_BYTES
from mpi_runtime.scheduler.protocol.limits import UNIT
from mpi_runtime.scheduler.protocol.rank_events import RankJoined
from mpi_runtime.scheduler.recording import ClientSaid, Decided, RankSaid, RecordedScheduler, Recording
from mpi_runtime.whatif import virtual_cluster
from mpi_runtime.whatif.recorded_calls import read_job
from mpi_runtime.whatif.recorded_jobs import FORK_US, Job
from mpi_runtime.whatif.virtual_cluster import Shape, VirtualCluster, Work, asked
from tests.builders import spec_of

S = 1_000_000
Entries = list[ClientSaid | RankSaid | Decided]


def id_of(number: int) -> bytes:
    return number.to_bytes(ID_BYTES, "big")


def joined(cpus: int) -> RankSaid:
    return RankSaid(0, RankJoined(0, 0, "host", [], cpus * UNIT, 0, 0, {}, 1 << 30))


def test_cpus_are_the_processors_of_a_host_where_none_are_stated() -> None:
    """As in a job without `init(num_cpus=...)`, here with rank 0, which only schedules, and two workers."""
    ranks = [RankJoined(rank, 0, "host", cpus, -1, 0, 0, {}, 1 << 30) for rank, cpus in enumerate(([], [0, 1], [1, 2]))]
    assert read_job([RankSaid(0, one) for one in ranks]).nodes == [Shape(3)]


def ended(executor: int, number: int, start_s: float, end_s: float) -> ClientSaid:
    done = Done(id_of(number), b"", round((end_s - start_s) * S), round(start_s * S))
    return ClientSaid(round(end_s * S), executor, [done], 1)


def seconds(entries: Entries, nodes: int, cpus: int) -> float:
    """The makespan, without the time that the first process takes to start."""
    return Job(read_job(entries)).on(nodes, Shape(cpus)).seconds - FORK_US / 1e6


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_a_job_on_one_node_tells_how_long_it_takes_on_more(monkeypatch: pytest.MonkeyPatch, nodes: int) -> None:
    """The job itself is run in virtual time too, so both are known exactly."""
    works = [Work(f"kind {n % 3}", asked(Shape(1 + n % 2)), (1 + n % 5) * S) for n in range(30)]
    written: list[bytes] = []
    monkeypatch.setattr(virtual_cluster, "Scheduler", lambda: RecordedScheduler(written.append))
    cluster = VirtualCluster([Shape(2)], fork_us=FORK_US)
    cluster.submit(works)
    cluster.run()
    monkeypatch.undo()
    real = VirtualCluster([Shape(2)] * nodes, fork_us=FORK_US)
    real.submit(works)
    real_s = max(one.end_us for one in real.run()) / 1e6
    record = read_job(Recording(b"".join(written)))
    assert len(record.calls) == 30
    assert record.nodes == [Shape(2, 0, 0)]
    assert Job(record).on(nodes, Shape(2)).seconds == pytest.approx(real_s, rel=0.01)


def test_arguments_and_what_a_driver_waits_for_are_waited_for() -> None:
    first = spec_of(1, TaskSpec, "first", b"", UNIT)
    entries: Entries = [
        joined(1),
        ClientSaid(0, DRIVER, [first, Call(id_of(1), 1, b""), Call(id_of(2), 1, b"")]),
        ClientSaid(0, DRIVER, [Call(id_of(3), 1, b"", (id_of(1),))]),
        ended(7, 1, 0, 2),
        ended(7, 2, 2, 4),
        ended(7, 3, 4, 6),
        ClientSaid(round(6.5 * S), DRIVER, [Call(id_of(4), 1, b"")]),  # half a second after all three
        ended(7, 4, 6.5, 7.5),
    ]
    assert seconds(entries, 1, 1) == pytest.approx(7.5, abs=0.1)
    assert seconds(entries, 2, 1) == pytest.approx(5.5, abs=0.1)
    assert seconds(entries, 8, 1) == pytest.approx(5.5, abs=0.1)
    assert Job(read_job(entries)).chain_s() == pytest.approx(5.5)


def test_a_call_that_waits_for_its_own_calls_lends_its_cpu() -> None:
    """The outer call works a second, submits two calls of three seconds, waits for them, and works another one."""
    specs = [spec_of(1, TaskSpec, "outer", b"", UNIT), spec_of(2, TaskSpec, "inner", b"", UNIT)]
    entries: Entries = [
        joined(1),
        ClientSaid(0, DRIVER, [*specs, Call(id_of(1), 1, b"")]),
        ClientSaid(1 * S, 5, [Call(id_of(2), 2, b""), Call(id_of(3), 2, b""), Blocked([id_of(2), id_of(3)])]),
        ended(6, 2, 1, 4),
        ended(6, 3, 4, 7),
        ClientSaid(7 * S, 5, [Unblocked()]),
        ended(5, 1, 0, 8),
    ]
    assert seconds(entries, 1, 1) == pytest.approx(8, abs=0.1)
    assert seconds(entries, 2, 1) == pytest.approx(5, abs=0.1)


def test_who_has_submitted_a_call_is_told_by_the_order_and_not_by_clocks() -> None:
    """An executor reports an end late, so the next call seems to start after its own submissions."""
    specs = [spec_of(1, TaskSpec, "outer", b"", UNIT), spec_of(2, TaskSpec, "inner", b"", UNIT)]
    entries: Entries = [
        joined(1),
        ClientSaid(0, DRIVER, [*specs, Call(id_of(1), 1, b""), Call(id_of(2), 1, b"")]),
        ended(5, 1, 0, 1),
        ClientSaid(1 * S, 5, [Call(id_of(3), 2, b""), Blocked([id_of(3)])]),
        ended(6, 3, 1, 4),
        ClientSaid(4 * S, 5, [Unblocked()]),
        ended(5, 2, 1.1, 5),
    ]
    record = read_job(entries)
    assert [len(record.calls[id_of(number)].parts) for number in (1, 2, 3)] == [1, 2, 1]
    assert [child for _, child in record.calls[id_of(2)].parts[0].submits] == [id_of(3)]


def test_methods_of_an_actor_run_one_after_the_other_wherever_it_is() -> None:
    specs = [spec_of(1, ActorSpec, "Actor", b"", UNIT), spec_of(2, MethodSpec, "Actor.method", b"")]
    methods = [Call(id_of(10 + n), 2, b"", actor=id_of(1)) for n in range(5)]
    entries: Entries = [
        joined(4),
        ClientSaid(0, DRIVER, [*specs, Call(id_of(1), 1, b""), *methods]),
        ended(5, 1, 0, 1),
        *(ended(5, 10 + n, 1 + n, 2 + n) for n in range(5)),
    ]
    assert seconds(entries, 1, 4) == pytest.approx(6, abs=0.1)
    assert seconds(entries, 4, 4) == pytest.approx(6, abs=0.1)


def test_what_has_not_ended_is_left_out_and_said() -> None:
    specs = [spec_of(1, TaskSpec, "first", b"", UNIT)]
    entries: Entries = [
        joined(1),
        ClientSaid(0, DRIVER, [*specs, Call(id_of(1), 1, b""), Call(id_of(2), 1, b"")]),
        ended(5, 1, 0, 1),
    ]
    record = read_job(entries)
    assert record.unended == 1
    assert [*record.calls] == [id_of(1)]
    large = Job(record).on(1, Shape(0.5))
    assert large.bound == "1 of its calls can never run there"


@pytest.mark.parametrize("is_released", [False, True])
def test_an_actor_keeps_its_cpu_until_it_is_released(is_released: bool) -> None:
    """Three calls of two seconds beside an actor that is made in one and has two calls of one second."""
    specs = [
        spec_of(1, ActorSpec, "Actor", b"", UNIT, held_cpu=UNIT),
        spec_of(2, MethodSpec, "m", b""),
        spec_of(3, TaskSpec, "f", b"", UNIT),
    ]
    methods = [Call(id_of(10 + n), 2, b"", actor=id_of(1)) for n in range(2)]
    tasks = [Call(id_of(20 + n), 3, b"") for n in range(3)]
    entries: Entries = [
        joined(2),
        ClientSaid(0, DRIVER, [*specs, Call(id_of(1), 1, b""), *methods, *tasks]),
        ended(5, 1, 0, 1),
        *(ended(5, 10 + n, 1 + n, 2 + n) for n in range(2)),
        *(ended(6, 20 + n, 2 * n, 2 * n + 2) for n in range(3)),
        *([ClientSaid(3 * S, DRIVER, [Released([id_of(1)])])] if is_released else []),
    ]
    assert seconds(entries, 1, 2) == pytest.approx(5 if is_released else 6, abs=0.1)
    assert seconds(entries, 2, 2) == pytest.approx(3, abs=0.1)


def test_custom_resources_bound_it_too() -> None:
    """Four calls of a second with a licence each, and an actor that keeps one of three until the end."""
    specs = [
        spec_of(1, ActorSpec, "Actor", b"", UNIT, custom={"licence": UNIT}),
        spec_of(3, TaskSpec, "f", b"", UNIT, custom={"licence": UNIT, "node:host": 1}),
    ]
    calls = [Call(id_of(10 + n), 3, b"") for n in range(4)]
    ranks = RankJoined(0, 0, "host", [], 8 * UNIT, 0, 0, {"licence": 3 * UNIT, "node:host": UNIT}, 1 << 30)
    entries: Entries = [
        RankSaid(0, ranks),
        ClientSaid(0, DRIVER, [*specs, Call(id_of(1), 1, b""), *calls]),
        ended(5, 1, 0, 1),
        *(ended(6 + n % 2, 10 + n, n // 2, n // 2 + 1) for n in range(4)),
    ]
    record = read_job(entries)
    (node,) = record.nodes
    assert node.resources == (("licence", 3.0),)
    took_s = [Job(record).on(nodes, Shape(8, resources=node.resources)).seconds - FORK_US / 1e6 for nodes in (1, 2)]
    assert took_s == pytest.approx([2, 1], abs=0.1)


def test_what_an_actor_leaves_no_room_for_never_runs() -> None:
    specs = [spec_of(1, ActorSpec, "Actor", b"", UNIT, held_cpu=UNIT), spec_of(3, TaskSpec, "f", b"", UNIT)]
    entries: Entries = [
        joined(2),
        ClientSaid(0, DRIVER, [*specs, Call(id_of(1), 1, b""), Call(id_of(2), 3, b"")]),
        ended(5, 1, 0, 1),
        ended(6, 2, 0, 1),
    ]
    assert Job(read_job(entries)).on(1, Shape(1)).bound == "1 of its calls can never run there"
