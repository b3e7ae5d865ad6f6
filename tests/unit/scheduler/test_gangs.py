"""Gangs: all members at once or none, one end of each call, and nothing that is held by the dead."""

from __future__ import annotations

from typing import Any

from mpi_runtime.scheduler.gangs.starting import part_id
from mpi_runtime.scheduler.places.gang_places import room
from mpi_runtime.scheduler.protocol import effects
from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.effects import Cancel, Free, StartExecutor, StopExecutor
from mpi_runtime.scheduler.protocol.events import IN, Call, CancelRequested, Label, Stored, Value, Where
from mpi_runtime.scheduler.protocol.limits import GANG_IDLE_US, GANG_WAIT_US
from mpi_runtime.scheduler.protocol.questions import Tasks
from mpi_runtime.scheduler.protocol.rank_events import RankLost
from mpi_runtime.scheduler.protocol.resources import pool_for
from mpi_runtime.scheduler.protocol.window_questions import Glance
from tests.builders import DRIVER, UNIT, Cluster

GRACE_US = 1_000_000


def gang(cluster: Cluster, ranks: int, *arguments: bytes, **fields: Any) -> bytes:
    """Submit a call on a gang; its id."""
    return cluster.submit(*arguments, ranks=ranks, max_retries=fields.pop("max_retries", 0), **fields)


def started(cluster: Cluster, id: bytes, ranks: int) -> list[int]:
    """The executors of the members, by rank. All were forked or were idle, and have got their part of the call."""
    ids = [id] + [part_id(id, rank) for rank in range(1, ranks)]
    return [cluster.placed(one) for one in ids]


def ends(cluster: Cluster, id: bytes, members: list[int]) -> None:
    """All members end their parts."""
    for rank, executor in enumerate(members):
        cluster.done(executor, part_id(id, rank) if rank else id, data=b"of rank %d" % rank)


def stopped(cluster: Cluster, *members: int) -> None:
    """These members are being killed, and die."""
    orders = cluster.take(StopExecutor, len(members))
    assert sorted(order.executor for order in orders) == sorted(members)
    assert all(order.force for order in orders)
    for executor in members:
        cluster.died(executor, cause="was killed by signal 9")


def test_all_members_start_at_once_and_the_value_is_that_of_rank_0() -> None:
    with Cluster().node(cpus=2).node(cpus=2) as cluster:
        id = gang(cluster, 3)
        forks = [effect for _, _, effect in cluster.recorded if isinstance(effect, StartExecutor)]
        members = started(cluster, id, 3)
        shapes = [fork.member for fork in forks if fork.member is not None]
        assert [shape.rank for shape in shapes] == [0, 1, 2]
        assert all(shape.hosts == [0, 0, 1] and shape.agents == [0, 1] for shape in shapes)
        ends(cluster, id, members[:2])
        cluster.nothing()  # rank 2 has not ended
        cluster.done(members[2], part_id(id, 2))
        assert cluster.told(id).data == b"of rank 0"
        cluster.released(id)
        assert cluster.is_clean()


def test_members_wait_until_there_is_room_for_all() -> None:
    with Cluster().node(cpus=2).node(cpus=2) as cluster:
        one = cluster.submit()
        executor = cluster.placed(one)
        id = gang(cluster, 4)
        cluster.nothing()
        cluster.done(executor, one)
        cluster.told(one)
        started(cluster, id, 4)


def test_small_calls_do_not_keep_a_gang_from_starting() -> None:
    with Cluster().node(cpus=2) as cluster:
        first, second = cluster.submit_many(2)
        running = cluster.running(first, second)
        id = gang(cluster, 2)
        cluster.submit_many(20)
        cluster.done(running[0], first)
        cluster.told(first)
        cluster.nothing()  # the CPU is kept for the gang
        cluster.done(running[1], second)
        cluster.told(second)
        started(cluster, id, 2)


def test_a_gang_that_never_fits_fails_at_once() -> None:
    with Cluster().node(cpus=2).node(cpus=2) as cluster:
        id = gang(cluster, 5)
        error = cluster.told(id)
        assert error.code == "InfeasibleResourceError"
        assert "5 members" in error.message
        assert "host0: 2, host1: 2" in error.message
        other = gang(cluster, 2, ranks_per_node=3, cpu=1)
        started(cluster, other, 2)  # a single node with the rest
        third = gang(cluster, 3, ranks_per_node=3)
        assert "3 on each node" in cluster.told(third).message


def test_an_error_names_the_labels_that_no_node_has() -> None:
    with Cluster().node(cpus=4, labels={"zone": "a"}).node(cpus=1, labels={"zone": "b"}) as cluster:
        nowhere = cluster.told(gang(cluster, 2, where=Where(labels=(Label("zone", IN, ("c",)),))))
        assert "is to run on a node with 'zone' = 'c', but no node matches" in nowhere.message
        small = cluster.told(gang(cluster, 2, where=Where(labels=(Label("zone", IN, ("b",)),))))
        assert "There is: 1 node(s) with 'zone' = 'b', with room for this number of members" in small.message
        assert {nowhere.code, small.code} == {"InfeasibleResourceError"}


def test_ranks_per_node_spreads_and_ranks_of_a_node_are_consecutive() -> None:
    with Cluster().node(cpus=4).node(cpus=4) as cluster:
        id = gang(cluster, 4, ranks_per_node=2)
        forks = cluster.take(StartExecutor, 4)
        assert forks[0].member is not None
        assert forks[0].member.hosts == [0, 0, 1, 1]
        started(cluster, id, 4)
        spread = gang(cluster, 3, where=Where(spread=True))
        forks = cluster.take(StartExecutor, 3)
        assert forks[0].member is not None
        assert forks[0].member.hosts == [0, 0, 1]
        started(cluster, spread, 3)


def test_the_death_of_a_member_ends_the_call_once_and_frees_all() -> None:
    with Cluster().node(cpus=3) as cluster:
        id = gang(cluster, 3)
        members = started(cluster, id, 3)
        cluster.done(members[1], part_id(id, 1))
        cluster.died(members[2], part_id(id, 2), "called MPI_Abort with code 6\nwhat its MPI said\nto it")
        stopped(cluster, members[0], members[1])
        error = cluster.told(id)
        assert error.code == "WorkerCrashedError"
        assert "rank 2 of its gang of 3" in error.message
        assert "called MPI_Abort with code 6." in error.message
        assert error.message.endswith("\nwhat its MPI said\nto it")
        cluster.released(id)
        assert cluster.is_clean()


def test_a_member_that_ends_the_part_of_another_is_refused() -> None:
    with Cluster().node(cpus=2) as cluster:
        id = gang(cluster, 2)
        members = started(cluster, id, 2)
        cluster.done(members[1], id)
        refusal = cluster.state.executors[members[1]].refusal
        assert refusal is not None
        assert "a call ends that it does not have" in refusal.why
        cluster.take(StopExecutor, 1)
        cluster.died(members[1], part_id(id, 1), "was killed")
        stopped(cluster, members[0])
        assert "rank 1 of its gang of 2" in cluster.told(id).message


def test_a_call_is_retried_as_a_whole() -> None:
    with Cluster().node(cpus=2) as cluster:
        id = gang(cluster, 2, max_retries=1)
        members = started(cluster, id, 2)
        cluster.died(members[0], id)
        stopped(cluster, members[1])
        again = started(cluster, id, 2)
        assert not set(again) & set(members)
        ends(cluster, id, again)
        assert cluster.told(id).data == b"of rank 0"


def test_one_raises_and_the_others_have_a_grace() -> None:
    with Cluster().node(cpus=2) as cluster:
        id = gang(cluster, 2)
        members = started(cluster, id, 2)
        cluster.raised(members[1], part_id(id, 1), b"the error")
        cluster.nothing()
        cluster.later(GRACE_US + 1)
        assert cluster.told(id).data == b"the error"
        stopped(cluster, *members)
        cluster.released(id)
        assert cluster.is_clean()


def test_all_raise_and_the_first_error_counts() -> None:
    with Cluster().node(cpus=2) as cluster:
        id = gang(cluster, 2)
        members = started(cluster, id, 2)
        cluster.raised(members[1], part_id(id, 1), b"first")
        cluster.raised(members[0], id, b"second")
        assert cluster.told(id).data == b"first"
        stopped(cluster, *members)


def test_a_member_that_waits_keeps_its_cpu_and_the_error_of_another_ends_its_call() -> None:
    with Cluster().node(cpus=3) as cluster:
        id = gang(cluster, 2)
        members = started(cluster, id, 2)
        wanted, other = cluster.submit(client=members[0]), cluster.submit(client=members[0])
        cluster.placed(wanted)
        cluster.blocked(members[0], wanted, other)
        cluster.nothing()  # the CPU of the member is not lent
        cluster.raised(members[1], part_id(id, 1))
        cluster.later(GRACE_US + 1)
        cluster.told(id)
        cluster.forget()
        for member in members:
            cluster.died(member)
        cluster.forget()


def test_a_call_of_a_member_that_never_fits_beside_its_gang_fails_at_once() -> None:
    with Cluster().node(cpus=2) as cluster:
        id = gang(cluster, 2)
        members = started(cluster, id, 2)
        for inner in (cluster.submit(client=members[0]), gang(cluster, 2, client=members[1])):
            found = [one for one in cluster.recorded if getattr(one[2], "id", b"") == inner]
            assert [one[2].code for one in found] == ["InfeasibleResourceError"]
            assert "beside the gang" in found[0][2].message
        cluster.forget()
        assert gang(cluster, 1, cpu=0, client=members[0])
        cluster.forget()


def refused(cluster: Cluster, *calls: bytes) -> list[bytes]:
    """Those of these calls that have failed because they find no room."""
    failed = {one.id for _, _, one in cluster.recorded if getattr(one, "code", "") == "InfeasibleResourceError"}
    return [id for id in calls if id in failed]


def test_gangs_that_wait_for_each_other_do_not_wait_for_ever() -> None:
    """Each inner gang fits beside its caller, but not beside both. The call of the younger one fails after a second."""
    with Cluster().node(cpus=4) as cluster:
        outer = [gang(cluster, 2), gang(cluster, 2)]
        first, second = started(cluster, outer[0], 2), started(cluster, outer[1], 2)
        small = cluster.submit(client=first[0])
        inner = gang(cluster, 2, client=second[1])
        cluster.blocked(first[0], small)
        cluster.later(GANG_WAIT_US * 5)
        assert not refused(cluster, small, inner)  # the second gang may still end
        cluster.blocked(second[1], inner)
        cluster.later(GANG_WAIT_US + 1)
        assert refused(cluster, small, inner) == [inner]
        message = cluster.told(inner, to=second[1]).message
        assert "does not fit beside 2 gang(s) that wait" in message
        cluster.unblocked(second[1])
        cluster.later(GANG_WAIT_US * 5)
        ends(cluster, outer[1], second)
        cluster.told(outer[1])
        cluster.placed(small)
        cluster.forget()


def test_a_gang_waits_for_a_call_that_will_find_room() -> None:
    """Also if others wait: a small call that runs, or one that a gang without a wait keeps from its room."""
    with Cluster().node(cpus=4) as cluster:
        outer, other = gang(cluster, 2), cluster.submit(cpu=2)
        members = started(cluster, outer, 2)
        executor = cluster.placed(other)
        inner = gang(cluster, 2, client=members[0])
        after = cluster.submit(inner, client=members[1])
        cluster.blocked(members[1], after)
        cluster.later(GANG_WAIT_US * 5)
        assert not refused(cluster, inner, after)
        cluster.done(executor, other)
        cluster.told(other)
        started(cluster, inner, 2)
        cluster.forget()


def test_an_idle_gang_is_used_again_and_holds_nothing() -> None:
    with Cluster().node(cpus=2) as cluster:
        id = gang(cluster, 2)
        members = started(cluster, id, 2)
        ends(cluster, id, members)
        cluster.told(id)
        small = cluster.submit_many(2)
        running = cluster.running(*small)
        assert not set(running) & set(members)
        again = gang(cluster, 2)
        cluster.nothing()
        for executor, one in zip(running, small, strict=True):
            cluster.done(executor, one)
            cluster.told(one)
        assert started(cluster, again, 2) == members
        ends(cluster, again, members)
        cluster.told(again)
        cluster.later(GANG_IDLE_US + 1)
        stopped(cluster, *members)
        cluster.forget()


def test_reuse_can_be_refused() -> None:
    with Cluster().node(cpus=2) as cluster:
        first = gang(cluster, 2)
        idle = started(cluster, first, 2)
        ends(cluster, first, idle)
        cluster.told(first)
        id = gang(cluster, 2, reuse=False)
        members = started(cluster, id, 2)
        assert not set(members) & set(idle)
        ends(cluster, id, members)
        cluster.told(id)
        stopped(cluster, *members)


def test_a_value_of_each_rank() -> None:
    with Cluster().node(cpus=2) as cluster:
        id = gang(cluster, 2, by_rank=True, num_returns=2)
        members = started(cluster, id, 2)
        inner = cluster.put(client=members[1])
        cluster.returned(members[1], part_id(id, 1), Value(b"one", holds=[inner]))
        cluster.released(inner, client=members[1])  # the value still holds it
        cluster.done(members[0], id, data=b"zero")
        second = (int.from_bytes(id, "big") + 1).to_bytes(16, "big")
        assert cluster.told(id).data == b"zero"
        assert cluster.told(second).data == b"one"
        cluster.released(id, second)
        assert cluster.is_clean()


def test_the_memory_of_a_value_of_a_dead_member_is_freed_once() -> None:
    with Cluster().node(cpus=3) as cluster:
        id = gang(cluster, 3, by_rank=True, num_returns=3)
        members = started(cluster, id, 3)
        for rank in (1, 2):
            stored = Stored(0, 4096 * rank, 4096)
            cluster.returned(members[rank], part_id(id, rank), Value(b"", stored))
        cluster.died(members[1], extents=[4096])
        cluster.take(StopExecutor, 2)
        assert cluster.one(Free) == Free([4096], members[1])
        cluster.died(members[0], id)
        for _, _, message in [one for one in cluster.recorded if one[0] == "client"]:
            assert cluster.told(message.id).code == "WorkerCrashedError"
        cluster.nothing()  # the value of rank 2 is freed with its process
        cluster.died(members[2], extents=[8192])
        assert cluster.one(Free) == Free([8192], members[2])


def test_scattered_arguments_go_to_their_ranks() -> None:
    with Cluster().node(cpus=2) as cluster:
        common, first, second = (cluster.put() for _ in range(3))
        spec = cluster.spec(ranks=2)
        id = cluster.id()
        cluster.client_says(DRIVER, spec, Call(id, spec.id, b"", (common, first, second), scattered=1))
        sent = [effect for _, _, effect in cluster.recorded if isinstance(effect, Call)]
        assert [one.arguments for one in sent] == [(common, first), (common, second)]
        members = started(cluster, id, 2)
        ends(cluster, id, members)
        cluster.told(id)
        cluster.released(common, first, second, id)
        assert cluster.is_clean()


def test_a_cancelled_call_is_interrupted_on_all_members_and_killed_after_the_grace() -> None:
    with Cluster().node(cpus=2) as cluster:
        id = gang(cluster, 2)
        members = started(cluster, id, 2)
        cluster.client_says(DRIVER, CancelRequested(id, False, False))
        assert {order.executor for order in cluster.take(Cancel, 2)} == set(members)
        cluster.later(GRACE_US + 1)
        stopped(cluster, *members)
        assert cluster.told(id).code == "TaskCancelledError"
        cluster.released(id)
        assert cluster.is_clean()


def test_cancel_by_force_kills_all() -> None:
    with Cluster().node(cpus=2) as cluster:
        id = gang(cluster, 2)
        members = started(cluster, id, 2)
        cluster.client_says(DRIVER, CancelRequested(id, True, False))
        cluster.one(Cancel)
        stopped(cluster, *members)
        assert cluster.told(id).code == "TaskCancelledError"


def test_the_end_of_a_gang_on_several_nodes_is_reported_with_its_last_member() -> None:
    with Cluster().node(cpus=3).node(cpus=2) as cluster:
        alone = gang(cluster, 3)
        members = started(cluster, alone, 3)
        cluster.died(members[0], alone)
        stopped(cluster, *members[1:])
        cluster.told(alone)
        assert cluster.ended_gangs == [], "its members were on one node"
        spread = gang(cluster, 4)
        forks = cluster.take(StartExecutor, 4)
        assert forks[0].member is not None
        members = started(cluster, spread, 4)
        cluster.died(members[0], spread)
        cluster.take(StopExecutor, 3)
        for member in members[1:]:
            assert cluster.ended_gangs == []
            cluster.died(member)
        assert cluster.ended_gangs == [forks[0].member.gang]
        cluster.told(spread)


def test_the_loss_of_a_rank_frees_members_everywhere() -> None:
    with Cluster().head().node(cpus=2).node(cpus=2).node(cpus=2) as cluster:
        id = gang(cluster, 4, max_retries=2)
        members = started(cluster, id, 4)
        cluster.rank_says(RankLost(2))
        orders = cluster.take(StopExecutor, 2)
        for order in orders:
            cluster.died(order.executor)
        assert len(members) == 4
        ends(cluster, id, started(cluster, id, 4))
        cluster.told(id)


def test_two_gangs_that_wait_hold_nothing() -> None:
    with Cluster().node(cpus=2).node(cpus=2) as cluster:
        first, second = gang(cluster, 3), gang(cluster, 3)
        members = started(cluster, first, 3)
        cluster.nothing()
        cluster.died(members[1], part_id(first, 1))
        stopped(cluster, members[0], members[2])
        cluster.told(first)
        ends(cluster, second, started(cluster, second, 3))
        cluster.told(second)


def test_a_gang_runs_in_a_placement_group_and_dies_with_it() -> None:
    with Cluster().node(cpus=2).node(cpus=2) as cluster:
        group = cluster.group({"cpu": 1}, {"cpu": 1}, strategy="STRICT_SPREAD")
        cluster.told(group)
        id = gang(cluster, 2, where=Where(group=group))
        members = started(cluster, id, 2)
        cluster.remove_group(group)
        cluster.forget()
        for executor in members:
            cluster.died(executor)
        cluster.forget()
        cluster.released(group, id)
        assert cluster.is_clean()


def test_members_see_all_devices_of_their_gang_and_idle_processes_give_way() -> None:
    with Cluster().node(cpus=4, gpus=2) as cluster:
        one = cluster.submit(gpu=1)
        executor = cluster.placed(one)
        cluster.done(executor, one)
        cluster.told(one)
        id = gang(cluster, 2, gpu=1)
        assert cluster.one(StopExecutor).executor == executor  # it idles with one of the devices
        cluster.died(executor)
        forks = cluster.take(StartExecutor, 2)
        assert [fork.gpu_ids for fork in forks] == [[0, 1], [0, 1]]
        members = started(cluster, id, 2)
        ends(cluster, id, members)
        cluster.told(id)
        other = cluster.submit(gpu=1)
        for order in cluster.take(StopExecutor, 2):  # the gang gives way
            cluster.died(order.executor)
        assert cluster.placed(other) not in members


def test_a_call_on_a_gang_is_explained() -> None:
    with Cluster().node(cpus=2) as cluster:
        one = cluster.submit()
        cluster.placed(one)
        id = gang(cluster, 2)
        assert "all 2 members of a gang" in cluster.explain(id).why
        cluster.recorded = [one for one in cluster.recorded if not isinstance(one[2], effects.Answer)]


def test_a_call_on_a_gang_is_listed_once() -> None:
    with Cluster().node(cpus=2) as cluster:
        id = gang(cluster, 2)
        members = started(cluster, id, 2)
        (listed,) = cluster.ask(Tasks())
        assert (listed.num_ranks, listed.worker_id) == (2, f"{members[0]:032x}")
        glance = cluster.scheduler.answer(Glance(), cluster.now)
        assert (glance.counts.running, glance.running[0].name) == (1, "f (2 ranks)")
        assert "a gang of 2 on host0" in cluster.explain(id).why


def actor_gang(cluster: Cluster, ranks: int, **fields: Any) -> tuple[bytes, list[int]]:
    """An actor on a gang that has been created, and its members."""
    id = cluster.actor(ranks=ranks, held_cpu=UNIT, **fields)
    members = started(cluster, id, ranks)
    ends(cluster, id, members)
    cluster.told(id)
    return id, members


def test_methods_of_an_actor_run_on_all_members_one_after_the_other() -> None:
    with Cluster().node(cpus=3) as cluster:
        actor, members = actor_gang(cluster, 2)
        first, second = cluster.method(actor), cluster.method(actor)
        assert started(cluster, first, 2) == members
        cluster.done(members[0], first, data=b"of rank 0")
        cluster.nothing()  # rank 1 has not ended, and the next call waits
        cluster.done(members[1], part_id(first, 1))
        assert cluster.told(first).data == b"of rank 0"
        assert started(cluster, second, 2) == members
        ends(cluster, second, members)
        cluster.told(second)
        cluster.later(2 * GANG_IDLE_US)
        one = cluster.submit()
        assert cluster.placed(one) not in members  # the actor keeps two CPUs
        cluster.released(actor, first, second, one)
        stopped(cluster, *members)
        cluster.forget()


def test_the_death_of_a_member_is_the_death_of_the_actor() -> None:
    with Cluster().node(cpus=2) as cluster:
        actor, members = actor_gang(cluster, 2, max_restarts=1)
        cluster.died(members[1])  # while it has no call
        stopped(cluster, members[0])
        again = started(cluster, actor, 2)
        assert not set(again) & set(members)
        ends(cluster, actor, again)
        cluster.forget()
        call = cluster.method(actor)
        started(cluster, call, 2)
        cluster.died(again[0], call)
        stopped(cluster, again[1])
        assert cluster.told(call).code == "ActorDiedError"
        cluster.forget()


def test_the_members_of_a_call_that_raised_are_killed_if_they_do_not_end() -> None:
    with Cluster().node(cpus=2) as cluster:
        actor, members = actor_gang(cluster, 2)
        call = cluster.method(actor)
        started(cluster, call, 2)
        for rank, executor in enumerate(members):
            cluster.raised(executor, part_id(call, rank) if rank else call, b"of rank %d" % rank)
        assert cluster.told(call).data == b"of rank 0"
        other = cluster.method(actor)
        assert started(cluster, other, 2) == members  # all have raised: they wait for nothing
        cluster.raised(members[1], part_id(other, 1))
        cluster.later(GRACE_US + 1)
        cluster.told(other)
        stopped(cluster, *members)
        cluster.forget()


def test_an_actor_whose_constructor_raises_on_one_member_is_not_created() -> None:
    with Cluster().node(cpus=2) as cluster:
        id = cluster.actor(ranks=2, held_cpu=UNIT)
        members = started(cluster, id, 2)
        cluster.raised(members[1], part_id(id, 1), b"of rank 1")
        cluster.done(members[0], id)
        stopped(cluster, *members)
        call = cluster.method(id)
        assert cluster.told(call).data == b"of rank 1"
        cluster.forget()


def test_room_for_members_with_gpus_is_that_of_the_gpus_too() -> None:
    pool = pool_for(Request(cpu=8 * UNIT, gpu=2 * UNIT))
    assert room(Request(cpu=UNIT, gpu=UNIT), pool, 8) == 2
    assert room(Request(cpu=UNIT, gpu=UNIT // 2), pool, 8) == 4
    assert room(Request(cpu=3 * UNIT), pool, 8) == 2
    assert room(Request(), pool, 8) == 8
