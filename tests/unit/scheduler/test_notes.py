"""What the user is told of a job, and what not."""

import pytest

from mpi_runtime.scheduler.protocol.amounts import gib
from mpi_runtime.scheduler.protocol.effects import CRASH, MEMORY, RESTARTED, UNHANDLED, Note
from mpi_runtime.scheduler.protocol.events import CancelRequested, ErrorRead, Left, Released, Returned, Stored, Value
from mpi_runtime.scheduler.protocol.limits import AT_ONCE_US, BACKOFF_US_MAX, LOGGED_SINGLY_MAX
from mpi_runtime.scheduler.protocol.rank_events import RankJoined
from tests.builders import DRIVER, LARGE, Cluster


def said(cluster: Cluster, *events: str) -> list[Note]:
    """What was said since it was last asked."""
    found = [note for note in cluster.said if not events or note.event in events]
    cluster.said.clear()
    return found


def fails(cluster: Cluster, id: bytes, text: str = "ValueError: x") -> None:
    """A call raises."""
    value = Value(b"error", is_error=True)
    cluster.client_says(cluster.placed(id), Returned(id, [value], 100, raised=True, said=text))


def test_a_call_that_is_run_again_and_the_limit_of_lines() -> None:
    with Cluster().node() as cluster:
        id = cluster.submit(name="f", max_retries=3)
        executor = cluster.placed(id)
        cluster.started(executor)
        cluster.died(executor, id)
        (note,) = said(cluster)
        assert (note.level, note.event, note.rank, note.host) == (30, CRASH, 0, "host0")
        pid = 4000 + executor
        assert note.text == (
            f"f is run again (3 of 3 retries left): its executor (pid {pid}, rank 0, host0) was killed by signal 9."
        )
        for left in (2, 1):
            executor = cluster.placed(id)
            cluster.later(AT_ONCE_US)
            cluster.died(executor, id)
            assert f"({left} of 3 retries left)" in said(cluster)[0].text
            cluster.later(BACKOFF_US_MAX)
        cluster.died(cluster.placed(id), id)
        assert not said(cluster), "its caller gets the error"
        cluster.forget()


def test_what_happens_often_is_told_seldom() -> None:
    with Cluster().node() as cluster:
        id = cluster.submit(max_retries=-1)
        for _ in range(40):
            cluster.died(cluster.placed(id), id)
            cluster.later(BACKOFF_US_MAX)
        notes = said(cluster)
        assert len(notes) == LOGGED_SINGLY_MAX + 3
        assert [note.text.rpartition(". ")[2] for note in notes[-3:]] == [
            f"So far this has happened {times} times." for times in (8, 16, 32)
        ]
        assert "as often as need be" in notes[0].text
        cluster.forget()


def test_actors_that_are_started_again_and_those_that_are_not() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor(max_restarts=1)
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.died(executor)
        (note,) = said(cluster)
        assert (note.event, note.level, note.host) == (RESTARTED, 30, "host0")
        assert note.text.endswith("was killed by signal 9. It is started again (restart 1 of 1).")
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.died(executor)
        (note,) = said(cluster)
        assert note.event == CRASH
        assert note.text.endswith(
            "was killed by signal 9, after it had been started again once. It is not started again."
        )
        cluster.forget()


def test_that_an_actor_dies_which_nobody_has_any_more_is_no_news() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor(max_restarts=-1)
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.died(executor)
        assert len(said(cluster)) == 1
        executor = cluster.placed(actor)
        cluster.released(actor)  # while it is created again
        cluster.died(executor, actor)
        assert not said(cluster)
        cluster.forget()
        assert cluster.is_clean()


def test_that_an_actor_dies_whose_last_handle_goes_at_that_moment_is_no_news() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor(max_restarts=-1)
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.scheduler.handle(DRIVER, [Released([actor])], cluster.now)
        cluster.died(executor)
        assert not said(cluster)
        cluster.forget()
        assert cluster.is_clean()


def test_that_an_actor_dies_before_it_is_created_is_told_though_nobody_has_it() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor(max_restarts=-1)
        executor = cluster.placed(actor)
        cluster.released(actor)
        cluster.died(executor, actor)
        (note,) = said(cluster)
        assert note.text.endswith("was killed by signal 9. It is not started again.")
        cluster.forget()
        assert cluster.is_clean()


def test_an_actor_that_was_told_to_end_is_no_news() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor()
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.client_says(executor, Left(actor))
        cluster.died(executor, cause="exited with code 0")
        assert not said(cluster)
        cluster.forget()


@pytest.mark.parametrize("released_first", [False, True])
def test_an_error_that_nobody_reads_is_told_when_it_goes(released_first: bool) -> None:
    with Cluster().node() as cluster:
        id = cluster.submit(name="f")
        if released_first:
            cluster.released(id)
        fails(cluster, id)
        if not released_first:
            assert not said(cluster)
            cluster.released(id)
        (note,) = said(cluster)
        assert (note.level, note.event, note.rank, note.host) == (40, UNHANDLED, 0, "host0")
        assert note.text == (
            "unhandled error of f(), for which nobody has called get(): ValueError: x "
            "(MPI_RUNTIME_IGNORE_UNHANDLED_ERRORS=1 silences such lines)."
        )
        cluster.forget()


def test_an_error_that_was_read_is_not() -> None:
    with Cluster().node() as cluster:
        id = cluster.submit()
        fails(cluster, id)
        cluster.client_says(DRIVER, ErrorRead([id]))
        cluster.released(id)
        assert not said(cluster)
        cluster.client_says(DRIVER, ErrorRead([id, cluster.id()]))  # of what is gone, or never was
        cluster.forget()


def test_what_a_cancelled_call_raises_is_not() -> None:
    with Cluster().node() as cluster:
        id = cluster.submit()
        executor = cluster.placed(id)
        cluster.client_says(DRIVER, CancelRequested(id, False, True))
        value = Value(b"error", is_error=True)
        cluster.client_says(executor, Returned(id, [value], 100, raised=True, said="TaskCancelledError: x"))
        cluster.released(id)
        assert not said(cluster)
        cluster.forget()


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("is_large", [False, True])
def test_of_several_return_values_one_is_enough(is_read: bool, is_large: bool) -> None:
    with Cluster().node() as cluster:
        id = cluster.submit(num_returns=3)
        ids = [(int.from_bytes(id, "big") + index).to_bytes(16, "big") for index in range(3)]
        executor = cluster.placed(id)
        value = Value(b"" if is_large else b"error", Stored(0, 64, LARGE) if is_large else None, is_error=True)
        cluster.client_says(executor, Returned(id, [value], 100, raised=True, said="ValueError: x"))
        cluster.released(ids[0])
        if is_read:
            cluster.client_says(DRIVER, ErrorRead([ids[1]]))
        cluster.released(ids[1])
        assert not said(cluster)
        cluster.released(ids[2])
        assert len(said(cluster)) == (not is_read)
        cluster.forget()


def test_an_error_that_is_passed_on_is_that_of_the_last() -> None:
    with Cluster().node() as cluster:
        first = cluster.submit(name="first")
        second = cluster.submit(first, name="second")
        fails(cluster, first)
        cluster.released(first)
        assert not said(cluster)
        cluster.released(second)
        (note,) = said(cluster)
        assert "unhandled error of first(), for which nobody has called get(): ValueError: x" in note.text
        cluster.forget()


def test_the_error_of_a_constructor_is_read_with_a_call() -> None:
    for is_called in (False, True):
        with Cluster().node() as cluster:
            actor = cluster.actor()
            call = cluster.method(actor) if is_called else b""
            fails(cluster, actor, "KeyError: 'c'")
            if is_called:
                cluster.client_says(DRIVER, ErrorRead([call]))
                cluster.released(call)
            cluster.released(actor)
            notes = said(cluster)
            assert len(notes) == (not is_called)
            assert is_called or "unhandled error of Actor(), for which nobody has called get(): KeyError: 'c'" in (
                notes[0].text
            )
            cluster.forget()


def test_crashes_are_told_and_what_was_asked_for_is_not() -> None:
    with Cluster().node() as cluster:
        crashed = cluster.submit(name="crash")
        cluster.died(cluster.placed(crashed), crashed)
        cluster.released(crashed)
        (note,) = said(cluster)
        assert "unhandled error of crash(), for which nobody has called get(): WorkerCrashedError: crash did not" in (
            note.text
        )
        infeasible = cluster.submit(name="large", cpu=99)
        cluster.released(infeasible)
        assert ": InfeasibleResourceError: large asks for 99 CPU" in said(cluster)[0].text
        actor = cluster.actor()
        cluster.done(cluster.placed(actor), actor)
        call = cluster.method(actor)
        executor = cluster.state.actors[actor].executor
        assert executor is not None
        cluster.died(executor.id, call)
        cluster.released(call)
        assert not said(cluster, UNHANDLED), "the actor's end was told, or asked for"
        cluster.forget()


def test_one_cpu_and_one_gpu_are_not_called_several() -> None:
    with Cluster().node(cpus=1, gpus=1, memory=1 << 30) as cluster:
        assert cluster.scheduler.start_line() == "1 rank on 1 host (host0): 1 CPU, 1 GPU, 1.0 GiB of memory"


def test_the_first_and_the_last_line() -> None:
    with Cluster().node(cpus=4, gpus=2, memory=3 << 30).node(cpus=4) as cluster:
        assert cluster.scheduler.start_line() == "2 ranks on 2 hosts (host0, host1): 8 CPUs, 2 GPUs, 3.0 GiB of memory"
        for number in range(3):
            id = cluster.submit()
            cluster.done(cluster.placed(id), id, us=500_000 + number)
            cluster.released(id)
        failed = cluster.submit(max_retries=1)
        cluster.died(cluster.placed(failed), failed)
        fails(cluster, failed)
        unwanted = cluster.submit()
        cluster.client_says(DRIVER, CancelRequested(unwanted, True, False))
        cluster.died(cluster.placed(unwanted), unwanted)
        put = cluster.put(size=LARGE)
        actor = cluster.actor()
        cluster.done(cluster.placed(actor), actor)
        assert cluster.scheduler.totals_line(12_340_000) == (
            "the job took 12.3 s: 6 calls ended (1 failed, 1 cancelled, 1 run again), 1 actor created, "
            "2.0 MiB put, durations of calls add up to 1.5 s, the time of all CPUs to 98.7 s"
        )
        cluster.released(put)
        cluster.forget()


def test_many_hosts_are_not_all_named() -> None:
    cluster = Cluster()
    for _ in range(6):
        cluster.node()
    assert "6 ranks on 6 hosts (host0, host1, host2, host3, 2 more): 6 CPUs, 0 GPUs" in cluster.scheduler.start_line()


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (5 << 20, "5.0 MiB"), (1 << 45, "32.0 TiB")],
)
def test_bytes_in_words(size: int, words: str) -> None:
    assert gib(size) == words


def test_a_host_whose_values_cannot_leave_its_memory() -> None:
    joined = RankJoined(0, 0, "host0", [0], -1, 0, 0, {}, 1 << 30, spill_problem="no disk")
    with Cluster().join(joined) as cluster:
        (note,) = said(cluster, MEMORY)
        assert (note.level, note.rank, note.text) == (30, 0, "host host0: no disk.")
