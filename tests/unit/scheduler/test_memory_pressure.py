"""Hosts whose memory is nearly used up: what is started there, what is ended, and what its callers are told."""

from typing import Any

from mpi_runtime.scheduler.protocol.effects import MEMORY, Cancel, StartExecutor, StopExecutor, TakeBack
from mpi_runtime.scheduler.protocol.rank_events import MemoryReported, RankLost
from tests.builders import LARGE, Cluster

GIB = 1 << 30


def tight(cluster: Cluster, *executors: int, rank: int = 0, size: int = GIB, largest: Any = ()) -> None:
    """The memory of a rank's host is nearly used up; each of these executors has so much of it."""
    sizes = [(number, size) for number in executors]
    cluster.rank_says(MemoryReported(rank, True, 31 * GIB, 32 * GIB, "the host", 0.95, sizes, list(largest)))


def relieved(cluster: Cluster, rank: int = 0) -> None:
    cluster.rank_says(MemoryReported(rank, False, 8 * GIB, 32 * GIB, "the host"))


def started(cluster: Cluster, number: int, **fields: Any) -> tuple[list[bytes], list[int]]:
    """Calls that run, one after the other started, and their executors."""
    calls, executors = [], []
    for _ in range(number):
        call = cluster.submit(**fields)
        calls.append(call)
        executors.append(cluster.placed(call))
        cluster.later(1000)
    return calls, executors


def test_nothing_is_started_on_a_tight_host_until_there_is_room() -> None:
    with Cluster().node(cpus=4) as cluster:
        _, (executor,) = started(cluster, 1)
        tight(cluster, executor)
        waiting = cluster.submit()
        cluster.nothing()
        (line,) = [note.text for note in cluster.said if note.event == MEMORY]
        assert line.startswith("host host0: 31.0 GiB of 32.0 GiB of memory are used (the host, 97 %; ")
        relieved(cluster)
        cluster.placed(waiting)
        cluster.forget()


def test_others_are_used_meanwhile() -> None:
    with Cluster().node(cpus=2).node(cpus=2) as cluster:
        calls, executors = started(cluster, 1)
        rank = cluster.state.executors[executors[0]].rank.number
        tight(cluster, executors[0], rank=rank)
        for _ in range(2):
            executor = cluster.placed(cluster.submit())
            assert cluster.state.executors[executor].rank.number != rank
        cluster.done(executors[0], *calls)
        cluster.forget()


def test_a_host_is_not_kept_closed_by_what_a_lost_rank_has_said() -> None:
    with Cluster().head().node(cpus=2, ranks=2) as cluster:
        _, (executor,) = started(cluster, 1)
        tight(cluster, executor, rank=2)
        waiting = cluster.submit()
        cluster.nothing()
        cluster.rank_says(RankLost(2, "was killed"))
        cluster.placed(waiting)


def test_one_task_at_a_time_is_let_through() -> None:
    with Cluster().node(cpus=4) as cluster:
        tight(cluster)
        first, second = cluster.submit(), cluster.submit()
        executor = cluster.placed(first)
        cluster.nothing()
        cluster.done(executor, first)
        cluster.told(first)
        assert cluster.placed(second)
        cluster.forget()


def test_what_was_sent_ahead_is_taken_back() -> None:
    with Cluster().node() as cluster:
        known = cluster.submit()
        executor = cluster.placed(known)
        cluster.done(executor, known)
        cluster.told(known)
        running, ahead = cluster.submit_many(2)
        assert cluster.running(running, ahead) == [executor] * 2
        tight(cluster, executor)
        assert cluster.one(TakeBack) == TakeBack(executor, 1)
        cluster.taken_back(executor, ahead)
        cluster.nothing()
        cluster.done(executor, running)
        cluster.told(running)
        assert cluster.placed(ahead) == executor
        cluster.forget()


def test_the_task_that_was_started_last_and_may_run_again_is_ended() -> None:
    with Cluster().node(cpus=4) as cluster:
        calls, executors = started(cluster, 2, max_retries=2)
        last, (last_executor,) = started(cluster, 1, max_retries=0)
        everybody = [*executors, last_executor]
        tight(cluster, *everybody)
        cluster.nothing()
        tight(cluster, *everybody)
        assert cluster.one(Cancel) == Cancel(executors[1], calls[1], True)
        tight(cluster, *everybody)  # the next only when that is gone
        cluster.nothing()
        cluster.died(executors[1], calls[1])
        again = cluster.state.objects[calls[1]].task
        assert again is not None
        assert again.retries == 2, "it was not alone"
        tight(cluster, executors[0], last_executor)
        assert cluster.one(Cancel) == Cancel(executors[0], calls[0], True)
        cluster.died(executors[0], calls[0])
        tight(cluster, last_executor)
        assert cluster.one(Cancel) == Cancel(last_executor, last[0], True)
        cluster.died(last_executor, last[0])
        assert cluster.told(last[0]).code == "OutOfMemoryError"
        cluster.forget()


def test_a_task_that_is_too_large_alone_uses_up_its_retries() -> None:
    with Cluster().node(cpus=4) as cluster:
        large = cluster.put(size=LARGE, made_by="app.py:12 in main")
        call = cluster.submit(max_retries=1)
        for attempt in range(2):
            executor = cluster.placed(call)
            largest = [(4711, "python", 3 * GIB)]
            for _ in range(2):
                tight(cluster, executor, largest=largest)
            if attempt == 0:
                assert cluster.one(Cancel) == Cancel(executor, call, True)
            else:
                assert cluster.one(Cancel) == Cancel(executor, call, True, attempt=1)
            cluster.died(executor, call)
            relieved(cluster)
        told = cluster.told(call)
        assert told.code == "OutOfMemoryError"
        assert "was ended because the memory of host0 is nearly used up: 31.0 GiB of 32.0 GiB" in told.message
        assert "Largest processes: 3.0 GiB python (pid 4711)." in told.message
        assert f"object {large.hex()} (made by app.py:12 in main)" in told.message
        assert "It was run 2 times; max_retries is 1" in told.message
        cluster.forget()


def test_a_call_that_has_ended_meanwhile_is_spared() -> None:
    with Cluster().node(cpus=4) as cluster:
        (call, *_), executors = started(cluster, 1)
        for _ in range(2):
            tight(cluster, *executors)
        cluster.one(Cancel)
        cluster.done(executors[0], call)
        assert cluster.told(call).data == b"value"
        other, (executor,) = started(cluster, 1)
        tight(cluster, executor)
        assert cluster.one(Cancel) == Cancel(executor, other[0], True)
        cluster.forget()


def test_what_has_little_is_not_ended() -> None:
    with Cluster().node(cpus=4) as cluster:
        _, executors = started(cluster, 2)
        for _ in range(3):
            tight(cluster, *executors, size=GIB // 4)
        assert not cluster.take(Cancel, 0)


def test_an_actor_is_ended_only_where_no_task_runs() -> None:
    with Cluster().node(cpus=4) as cluster:
        actor = cluster.actor(max_restarts=1)
        home = cluster.placed(actor)
        cluster.done(home, actor)
        cluster.forget()
        (call,), (executor,) = started(cluster, 1, max_retries=1)
        for _ in range(2):
            tight(cluster, home, executor)
        assert cluster.one(Cancel) == Cancel(executor, call, True)
        cluster.died(executor, call)
        cluster.forget()
        tight(cluster, home)
        assert not cluster.take(StopExecutor, 0)  # a task has been let through
        assert cluster.state.actors[actor].executor is not None


def test_an_actor_is_ended_in_the_end_and_starts_again() -> None:
    with Cluster().node(cpus=4) as cluster:
        actor = cluster.actor(max_restarts=1)
        home = cluster.placed(actor)
        cluster.done(home, actor)
        cluster.forget()
        for _ in range(2):
            tight(cluster, home)
        assert cluster.one(StopExecutor) == StopExecutor(home, True)
        cluster.died(home)
        assert any("is nearly used up" in note.text and "started again" in note.text for note in cluster.said)
        cluster.take(StartExecutor, 1)
        cluster.forget()


def test_a_kill_by_the_kernel_is_told_as_such() -> None:
    with Cluster().node() as cluster:
        call = cluster.submit(max_retries=0)
        cause = "was killed by signal 9 (SIGKILL: Killed), by the kernel, since the memory was used up"
        cluster.died(cluster.placed(call), call, cause, out_of_memory=True)
        told = cluster.told(call)
        assert told.code == "OutOfMemoryError"
        assert cause in told.message
