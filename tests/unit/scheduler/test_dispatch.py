"""Which executor runs which call."""

import pytest

from mpi_runtime.scheduler.protocol.effects import Cancel, Fetch, Ready, StartExecutor, StopExecutor, TakeBack
from mpi_runtime.scheduler.protocol.events import IN, Call, CancelRequested, Label, Spec, Value, Where
from mpi_runtime.scheduler.protocol.limits import IDLE_KEYS_MAX, IDLE_US_MAX, RESERVATION_US, STUCK_US
from mpi_runtime.scheduler.protocol.rank_events import Fetched, RankJoined
from tests.builders import DRIVER, LARGE, UNIT, Cluster


def test_calls_are_spread_over_the_nodes_with_most_room() -> None:
    with Cluster().node(cpus=1).node(cpus=4) as cluster:
        ids = cluster.submit_many(5)
        started = [to for who, to, effect in cluster.recorded if isinstance(effect, StartExecutor)]
        assert sorted(started) == [0, 1, 1, 1, 1]
        assert len(set(cluster.running(*ids))) == 5


def test_an_executor_is_used_again() -> None:
    with Cluster().node() as cluster:
        first, second = cluster.submit_many(2)
        executor = cluster.placed(first)
        cluster.done(executor, first)
        cluster.told(first)
        assert cluster.placed(second) == executor


def test_calls_of_one_shape_are_sent_ahead_once_their_duration_is_known() -> None:
    with Cluster().node() as cluster:
        ids = cluster.submit_many(30)
        executor = cluster.placed(ids[0])
        cluster.done(executor, ids[0], us=400)
        sent = cluster.take(Call, 9, to=executor)  # 4 ms of work
        assert [call.id for call in sent] == ids[1:10]
        cluster.told(ids[0])


def test_a_duration_is_a_moving_mean_of_the_calls_that_have_ended() -> None:
    with Cluster().node() as cluster:
        first, second, third = cluster.submit_many(3)
        executor = cluster.placed(first)
        cluster.returned(executor, first, Value(b"value"), us=400)
        cluster.returned(executor, second, Value(b"value"), us=8400)
        cluster.done(executor, third, us=2400)
        (function,) = cluster.state.functions.values()
        assert function.duration_us == (7 * 1400 + 2400) // 8
        cluster.forget()


@pytest.mark.parametrize("us", [100, 4000], ids=["not worth another executor", "not worth a fork"])
def test_a_call_that_is_left_to_a_busy_executor_is_not_left_to_it_for_long(us: int) -> None:
    """The one executor of its queue might take it soon, but has to yield to a larger call."""
    with Cluster().node(cpus=2).node(cpus=2) as cluster:
        cluster.placed(cluster.submit(name="elsewhere", where=Where(node=f"{0:032x}")))
        measured = cluster.submit()
        cluster.done(cluster.placed(measured), measured, us=us)
        cluster.told(measured)
        executor = cluster.placed(cluster.submit())
        cluster.submit(name="large", cpu=2, priority=1)
        left = cluster.submit()
        cluster.nothing()
        cluster.later(STUCK_US)
        assert cluster.placed(left) != executor


@pytest.mark.parametrize(("us", "bursts"), [(3000, 7), (90, 0)], ids=["as often as a fork costs", "never"])
def test_small_backlogs_that_come_back_are_worth_a_fork_in_the_end(us: int, bursts: int) -> None:
    """Each leaves one call behind the running one: half of its duration is lost for each executor, with one more."""
    with Cluster().node(cpus=2) as cluster:
        first = cluster.submit()
        executor = cluster.placed(first)
        cluster.done(executor, first, us=us)
        cluster.told(first)
        forked = []
        for _ in range(50):
            ids = cluster.submit_many(2)
            for call_executor, id in zip(cluster.running(*ids), ids, strict=True):
                cluster.done(call_executor, id, us=us)
                cluster.told(id)
                forked.append(call_executor != executor)
        assert sum(forked) == (50 + 1 - bursts if bursts else 0), "from then on one of two calls runs there"


def test_a_call_that_was_cancelled_says_nothing_of_the_duration_of_others() -> None:
    """It was cut short. Or it has not run at all: then its executor states a duration of 0."""
    with Cluster().node() as cluster:
        first, cancelled = cluster.submit_many(2)
        executor = cluster.placed(first)
        cluster.done(executor, first, us=20_000)
        cluster.told(first)
        cluster.placed(cancelled)
        cluster.client_says(DRIVER, CancelRequested(cancelled, False, False))
        cluster.one(Cancel)
        cluster.returned(executor, cancelled, Value(b"error", is_error=True), raised=True, us=0)
        cluster.told(cancelled)
        (function,) = cluster.state.functions.values()
        assert function.duration_us == 20_000


def test_other_environments_need_other_executors() -> None:
    with Cluster().node(cpus=2) as cluster:
        plain = cluster.submit()
        executor = cluster.placed(plain)
        cluster.done(executor, plain)
        cluster.told(plain)
        id = cluster.submit(environment={"MODE": "a"})
        assert cluster.one(StartExecutor).environment == {"MODE": "a"}
        assert cluster.placed(id) != executor


def test_deeper_calls_go_first() -> None:
    with Cluster().node() as cluster:
        parent, waiting = cluster.submit(name="parent"), cluster.submit(name="other")
        executor = cluster.placed(parent)
        child = cluster.submit(name="child", client=executor)
        cluster.blocked(executor, child)
        inner = cluster.placed(child)
        cluster.done(inner, child)
        cluster.told(child, to=executor)
        cluster.placed(waiting)


def test_calls_with_a_higher_priority_go_first() -> None:
    with Cluster().node() as cluster:
        executor = cluster.placed(running := cluster.submit(name="running"))
        low = cluster.submit(name="low", priority=-1)
        usual = cluster.submit(name="usual")
        high = cluster.submit(name="high", priority=5)
        for call in (high, usual, low):
            cluster.done(executor, running)
            cluster.told(running)
            executor, running = cluster.placed(call), call


def test_a_large_request_that_lost_its_reservation_still_goes_before_those_of_lower_priority() -> None:
    with Cluster().node(cpus=4) as cluster:
        running = cluster.submit(name="running", cpu=4)
        executor = cluster.placed(running)
        low_spec, middle_spec = (cluster.spec(f"{priority}", cpu=4, priority=priority) for priority in (-1, 0))
        low, middle = cluster.id(), cluster.id()
        calls = Call(low, low_spec.id, b""), Call(middle, middle_spec.id, b"")
        cluster.client_says(DRIVER, low_spec, middle_spec, *calls)
        high = cluster.submit(cpu=4, priority=7, name="high")
        for ends, begins in ((running, high), (high, middle), (middle, low)):
            cluster.done(executor, ends)
            executor = cluster.placed(begins)
        cluster.forget()


def test_nothing_is_kept_for_a_large_request_of_lower_priority() -> None:
    with Cluster().node(cpus=2) as cluster:
        first, second = cluster.submit(name="first"), cluster.submit(name="second")
        executors = cluster.running(first, second)
        large = cluster.submit(name="large", cpu=2, priority=-1)
        assert cluster.state.nodes[0].reserved_for is not None
        small = cluster.submit(name="small", priority=1)
        assert cluster.state.nodes[0].reserved_for is None
        cluster.done(executors[0], first)
        cluster.told(first)
        executor = cluster.placed(small)
        cluster.done(executors[1], second)
        cluster.told(second)
        cluster.nothing()
        cluster.done(executor, small)
        cluster.told(small)
        cluster.placed(large)


def test_a_blocked_call_lends_its_cpu_and_takes_it_back() -> None:
    with Cluster().node() as cluster:
        first = cluster.submit()
        executor = cluster.placed(first)
        second, third = cluster.submit(), cluster.submit()
        cluster.blocked(executor, second)
        other = cluster.placed(second)
        cluster.unblocked(executor)
        assert cluster.state.nodes[0].free.cpu == -10_000  # overdrawn: nothing starts
        cluster.done(other, second)
        cluster.told(second)
        cluster.nothing()
        cluster.done(executor, first)
        cluster.told(first)
        cluster.placed(third)


def test_an_overdrawn_node_is_not_kept_overdrawn_by_sending_more() -> None:
    with Cluster().node() as cluster:
        parent = cluster.submit(name="parent")
        executor = cluster.placed(parent)
        ids = cluster.submit_many(3)
        cluster.blocked(executor, ids[0])
        other = cluster.placed(ids[0])
        cluster.unblocked(executor)
        cluster.done(other, ids[0], us=10_000)
        cluster.told(ids[0])
        cluster.nothing()


def test_what_stands_behind_a_blocked_call_is_taken_back() -> None:
    with Cluster().node(cpus=1) as cluster:
        ids = cluster.submit_many(4)
        executor = cluster.placed(ids[0])
        cluster.done(executor, ids[0])
        cluster.take(Call, 3, to=executor)
        cluster.told(ids[0])
        cluster.blocked(executor, ids[3])
        assert cluster.one(TakeBack) == TakeBack(executor, 2)
        cluster.taken_back(executor, *ids[2:])
        assert cluster.placed(ids[2]) == cluster.placed(ids[3]) != executor


def test_what_stands_behind_a_long_call_is_taken_back_if_there_is_room() -> None:
    with Cluster().node(cpus=2) as cluster:
        ids = cluster.submit_many(6)
        first, second = cluster.running(*ids[:2])
        cluster.done(first, ids[0])
        cluster.forget()
        behind = list(cluster.state.executors[first].assigned)
        cluster.done(second, ids[1])
        cluster.forget()
        cluster.done(second, *cluster.state.executors[second].assigned)
        cluster.forget()
        cluster.later(2 * STUCK_US)
        assert cluster.one(TakeBack) == TakeBack(first, len(behind) - 1)
        cluster.taken_back(first, *behind[1:])
        assert {cluster.placed(id) for id in behind[1:2]} == {second}
        cluster.forget()


def test_a_stuck_executor_does_not_hold_up_calls_that_nobody_has() -> None:
    with Cluster().node(cpus=2) as cluster:
        ids = cluster.submit_many(1)
        executor = cluster.placed(ids[0])
        cluster.done(executor, ids[0], us=3000)
        cluster.told(ids[0])
        ids = cluster.submit_many(3)  # two to the executor; forking for the third seems not to be worth it
        cluster.take(Call, 2, to=executor)
        cluster.later(2 * STUCK_US)
        cluster.one(TakeBack)
        assert cluster.placed(ids[2]) != executor
        cluster.forget()


def test_short_calls_do_not_wait_for_the_end_of_a_long_one() -> None:
    with Cluster().node(cpus=2) as cluster:
        quick = cluster.submit(name="quick")
        cluster.done(cluster.placed(quick), quick, us=100)
        cluster.told(quick)
        slow = cluster.submit_many(3, name="slow")
        _, second = cluster.running(*slow[:2])  # both are full with what nobody has measured
        cluster.client_says(DRIVER, CancelRequested(slow[2], False, False))
        cluster.told(slow[2])
        cluster.done(second, slow[1], us=100_000)
        cluster.told(slow[1])
        waiting = cluster.submit(name="quick")
        cluster.nothing()  # there is room; so little work seems to be done soon by the executor of the queue
        cluster.later(STUCK_US - 1)
        cluster.nothing()
        cluster.later(1)
        assert cluster.placed(waiting) == second
        cluster.nothing()


def test_the_silent_one_is_found_though_another_one_was_loaded_before() -> None:
    with Cluster().node(cpus=3) as cluster:
        ids = cluster.submit_many(2)
        first, second = cluster.running(*ids)
        for executor, id in ((first, ids[0]), (second, ids[1])):
            cluster.done(executor, id, us=1000)
            cluster.told(id)
        cluster.submit_many(8)
        cluster.forget()
        early, late = list(next(iter(cluster.state.queues.values())).loaded)
        cluster.later(STUCK_US - 1000)
        call = next(iter(cluster.state.executors[early].assigned))
        cluster.done(early, call, us=1000)
        cluster.forget()
        cluster.later(1000)
        assert cluster.take(TakeBack, 1)[0].executor == late
        cluster.forget()


def test_calls_that_take_no_time_are_sent_ahead_of_a_running_one() -> None:
    with Cluster().node() as cluster:
        first = cluster.submit()
        executor = cluster.placed(first)
        cluster.done(executor, first, us=0)
        cluster.told(first)
        assert cluster.placed(cluster.submit()) == executor
        cluster.submit_many(5)
        cluster.take(Call, 5, to=executor)


def test_who_cannot_serve_a_call_that_goes_first_gets_more_of_its_own() -> None:
    with Cluster().node(labels={"zone": "a"}).node(labels={"zone": "b"}) as cluster:
        in_b = Where(labels=(Label("zone", IN, ("b",)),))
        quick = cluster.submit(where=Where(labels=(Label("zone", IN, ("a",)),)))
        executor = cluster.placed(quick)
        cluster.done(executor, quick, us=400)
        cluster.told(quick)
        cluster.placed(cluster.submit(name="holds b", where=in_b))
        cluster.submit(name="waits for b", where=in_b, priority=1)
        cluster.submit_many(5, where=Where(labels=(Label("zone", IN, ("a",)),)))
        cluster.take(Call, 5, to=executor)
        cluster.nothing()


def test_calls_without_large_arguments_do_not_follow_those_that_have_some() -> None:
    with Cluster().node(cpus=1).node(cpus=4) as cluster:
        data = cluster.put(size=LARGE, rank=0)
        near = cluster.submit(data)
        executor = cluster.placed(near)
        assert cluster.state.executors[executor].rank.number == 0
        cluster.done(executor, near)
        cluster.told(near)
        plain = cluster.submit()
        assert cluster.state.executors[cluster.placed(plain)].rank.number == 1, "where most is free"
        cluster.placed(cluster.submit(data))
        cluster.forget()


@pytest.mark.parametrize(("us", "executors"), [(100, 1), (400, 2), (4000, 2)])
def test_two_calls_run_side_by_side_if_they_take_longer_than_a_wake_up(us: int, executors: int) -> None:
    with Cluster().node(cpus=2) as cluster:
        ids = cluster.submit_many(2)
        for executor, id in zip(cluster.running(*ids), ids, strict=True):  # two executors, which idle then
            cluster.done(executor, id, us=us)
            cluster.told(id)
        ids = cluster.submit_many(2)
        assert len({cluster.placed(id) for id in ids}) == executors


def test_an_idle_executor_takes_over_half_of_a_long_queue() -> None:
    with Cluster().node(cpus=2) as cluster:
        ids = cluster.submit_many(2)
        first, second = cluster.running(*ids)
        cluster.done(first, ids[0], us=1000)
        cluster.done(second, ids[1], us=1000)
        cluster.told(ids[0])
        cluster.told(ids[1])
        cluster.submit_many(5)
        cluster.forget()
        hands = [list(cluster.state.executors[executor].assigned) for executor in (first, second)]
        assert sorted(map(len, hands)) == [2, 3]
        quick, slow = (0, 1) if len(hands[0]) == 2 else (1, 0)
        cluster.done((first, second)[quick], *hands[quick], us=1000)
        assert cluster.one(TakeBack) == TakeBack((first, second)[slow], 1)
        cluster.taken_back((first, second)[slow], hands[slow][-1])
        assert cluster.placed(hands[slow][-1]) in (first, second)
        cluster.forget()


def test_a_large_request_is_not_starved_by_small_ones() -> None:
    with Cluster().node(cpus=2) as cluster:
        small = cluster.submit_many(2)
        executors = cluster.running(*small)
        large = cluster.submit(name="large", cpu=2)
        late = cluster.submit_many(2)
        cluster.done(executors[0], small[0])
        cluster.told(small[0])
        cluster.nothing()  # the node is kept
        cluster.done(executors[1], small[1])
        cluster.told(small[1])
        executor = cluster.placed(large)
        cluster.done(executor, large)
        cluster.told(large)
        cluster.running(*late)


def test_a_reservation_lapses() -> None:
    with Cluster().node(cpus=2) as cluster:
        held = cluster.submit()
        cluster.placed(held)
        cluster.submit(name="large", cpu=2)
        late = cluster.submit(name="late")
        cluster.nothing()
        cluster.later(RESERVATION_US)
        cluster.placed(late)


def test_a_node_that_has_been_used_is_kept_anew_for_the_next_call() -> None:
    with Cluster().node(cpus=4) as cluster:
        small = cluster.submit_many(4)
        executors = cluster.running(*small)
        first, second, late = (cluster.submit(name=name, cpu=cpu) for name, cpu in (("a", 3), ("a", 3), ("late", 1)))
        cluster.later(RESERVATION_US - 10)
        for executor, id in list(zip(executors, small, strict=True))[:3]:
            cluster.done(executor, id)
            cluster.told(id)
        user = cluster.placed(first)
        cluster.later(20)
        cluster.done(executors[3], small[3])
        cluster.told(small[3])
        cluster.nothing()
        cluster.done(user, first)
        cluster.told(first)
        cluster.running(second, late)


def test_the_one_that_had_room_first_is_sent_more_first() -> None:
    with Cluster().node(cpus=2) as cluster:
        ids = cluster.submit_many(2)
        executors = cluster.running(*ids)
        for executor, id in zip(executors, ids, strict=True):
            cluster.done(executor, id, us=1000)
        cluster.submit_many(6)
        hands = {executor: list(cluster.state.executors[executor].assigned) for executor in executors}
        assert [len(hand) for hand in hands.values()] == [3, 3]
        for executor in reversed(executors):
            cluster.done(executor, hands[executor][0], us=1000)
        cluster.forget()
        assert [cluster.placed(cluster.submit()) for _ in executors] == executors[::-1]
        cluster.forget()


def test_what_a_reservation_leaves_over_is_given_out_at_once() -> None:
    with Cluster().node(cpus=4) as cluster:
        ids = cluster.submit_many(2)
        executors = cluster.running(*ids)
        large, late = cluster.submit(name="large", cpu=3), cluster.submit(name="late")
        cluster.nothing()
        cluster.done(executors[0], ids[0])
        cluster.told(ids[0])
        cluster.placed(large)
        cluster.nothing()
        cluster.done(executors[1], ids[1])
        cluster.told(ids[1])
        cluster.placed(late)


def test_ranks_of_a_host_are_one_pool() -> None:
    with Cluster().head().node(cpus=4, ranks=3) as cluster:
        assert cluster.state.nodes[1].total.cpu == 40_000
        id = cluster.submit(cpu=4)
        effect = cluster.one(StartExecutor)
        assert (effect.threads, effect.cpus) == (4, [0, 1, 2, 3])
        cluster.placed(id)
        assert all(node.free.cpu == 0 for node in cluster.state.nodes.values())


def test_stated_cpus_add_up_and_need_no_processors() -> None:
    cluster = Cluster()
    for rank in (0, 1):
        cluster.join(RankJoined(rank, 0, "host", [0], 30_000, 0, 0, {}, 0))
    with cluster:
        assert cluster.state.nodes[0].total.cpu == 60_000
        assert len(set(cluster.running(*cluster.submit_many(6)))) == 6


def test_executors_are_dealt_out_to_the_ranks_of_a_host_in_groups() -> None:
    with Cluster().node(cpus=13, ranks=3) as cluster:
        ids = cluster.submit_many(13)
        starts = [to for _, to, effect in cluster.recorded if isinstance(effect, StartExecutor)]
        assert sorted(starts) == [0] * 5 + [1] * 4 + [2] * 4
        cluster.running(*ids)


def test_executors_are_dealt_out_one_by_one_if_a_rank_may_be_lost() -> None:
    with Cluster().node(cpus=4, ranks=2) as cluster:
        cluster.begin(survives_losses=True)
        ids = cluster.submit_many(4)
        starts = [to for _, to, effect in cluster.recorded if isinstance(effect, StartExecutor)]
        assert sorted(starts) == [0, 0, 1, 1]
        cluster.running(*ids)


def test_calls_run_where_their_large_arguments_lie() -> None:
    with Cluster().head().node(cpus=8).node(cpus=2) as cluster:
        maker = cluster.submit(cpu=2)
        executor = cluster.placed(maker)
        far = cluster.put(client=executor, size=LARGE, rank=2)
        id = cluster.submit(far)
        assert cluster.one(StartExecutor).executor == cluster.placed(id)
        assert cluster.state.executors[max(cluster.state.executors)].rank.number == 2


def test_an_argument_elsewhere_is_fetched_before_the_call_is_sent() -> None:
    with Cluster().head().node() as cluster:
        value, other = cluster.put(size=100_000, rank=0), cluster.put(size=200_000, rank=0, offset=64)
        id = cluster.submit(value, other, value)
        executor = cluster.one(StartExecutor).executor
        assert cluster.take(Fetch, 2) == [Fetch(value, 0, 0, 100_000, 1), Fetch(other, 0, 64, 200_000, 2)]
        cluster.rank_says(Fetched(1, value, 512))
        cluster.nothing()
        cluster.rank_says(Fetched(1, other, 1024))
        assert cluster.placed(id) == executor


def test_calls_in_hand_are_in_the_order_in_which_they_were_sent() -> None:
    with Cluster().head().node() as cluster:
        first = cluster.submit()
        cluster.done(cluster.placed(first), first)
        cluster.told(first)
        values = [cluster.put(size=100_000, rank=0, offset=place) for place in (0, 1 << 20)]
        spec, ids = cluster.spec(), [cluster.id(), cluster.id()]
        cluster.client_says(0, *(Call(id, spec.id, b"", (value,)) for id, value in zip(ids, values, strict=True)))
        cluster.take(Fetch, 2)
        for place, number in enumerate((1, 0)):
            cluster.rank_says(Fetched(1, values[number], place << 20))
            executor = cluster.placed(ids[number])
        assert list(cluster.state.executors[executor].assigned) == ids[::-1]


def test_the_values_of_arguments_come_before_the_call_in_one_frame() -> None:
    with Cluster().node() as cluster:
        value = cluster.put()
        id = cluster.submit(value)
        executor = cluster.one(StartExecutor).executor
        kinds = [type(effect) for _, to, effect in cluster.recorded if to == executor]
        assert kinds in ([Ready, Spec, Call], [Spec, Ready, Call])
        cluster.placed(id)


@pytest.mark.parametrize("cpu", [0.5, 1])
def test_executors_beyond_the_cpus_are_stopped_when_they_idle_and_one_is_kept(cpu: float) -> None:
    cluster = Cluster().join(RankJoined(0, 0, "host0", [0], round(cpu * UNIT), 0, 0, {}, 1 << 30))
    with cluster:
        for mode in ("a", "b", "c"):
            id = cluster.submit(environment={"MODE": mode}, cpu=cpu)
            cluster.done(cluster.placed(id), id)
            cluster.told(id)
        cluster.later(IDLE_US_MAX + 1)
        assert [effect.force for effect in cluster.take(StopExecutor, 2)] == [False, False]
        cluster.died(1)
        cluster.died(2)
        assert list(cluster.state.executors) == [3]


def test_environments_that_were_used_least_recently_leave_no_executors_if_there_are_many() -> None:
    with Cluster().node() as cluster:
        modes = [str(number) for number in range(IDLE_KEYS_MAX)]
        for mode in (*modes, "0", "more"):
            id = cluster.submit(environment={"MODE": mode})
            cluster.done(cluster.placed(id), id)
            cluster.told(id)
        (stopped,) = cluster.take(StopExecutor, 1)
        assert not stopped.force
        assert stopped.executor == 2, "its environment was the second, and the first was used again"
        cluster.died(2)
        assert len(cluster.state.executors) == IDLE_KEYS_MAX


def test_an_executor_that_served_another_depth_is_filled_again() -> None:
    with Cluster().node() as cluster:
        parent = cluster.submit()
        executor = cluster.placed(parent)
        child = cluster.submit(client=executor)
        cluster.blocked(executor, child)
        inner = cluster.placed(child)
        cluster.done(inner, child)
        cluster.told(child, to=executor)
        more = cluster.submit_many(3)
        cluster.unblocked(executor)
        cluster.done(executor, parent)
        cluster.told(parent)
        cluster.running(*more)


def test_an_executor_whose_calls_wait_for_copies_is_not_stuck() -> None:
    with Cluster().head().node(cpus=2) as cluster:
        first = cluster.submit()
        cluster.done(cluster.placed(first), first)
        cluster.told(first)
        far, spec = cluster.put(size=100_000, rank=0), cluster.spec()
        ids = [cluster.id(), cluster.id()]
        cluster.client_says(0, *(Call(id, spec.id, b"", (far,)) for id in ids))
        cluster.one(Fetch)
        cluster.later(3 * STUCK_US)
        cluster.nothing()
        cluster.rank_says(Fetched(1, far, 0))
        assert cluster.placed(ids[0]) == cluster.placed(ids[1])


def test_parts_of_a_cpu_do_not_keep_out_a_call_that_wants_all_of_it() -> None:
    with Cluster().node(cpus=1) as cluster:
        first, second = cluster.submit(name="half", cpu=0.5), cluster.submit(name="half", cpu=0.5)
        running = dict(zip(cluster.running(first, second), (first, second), strict=True))
        whole = cluster.submit(name="whole")
        for _ in range(20):
            cluster.submit(name="half", cpu=0.5)
        sent: list[bytes] = []
        while whole not in sent:
            assert running, "nothing runs, and it was not started"
            executor, id = running.popitem()
            cluster.submit(name="half", cpu=0.5)
            cluster.done(executor, id)
            calls = {to: effect.id for _, to, effect in cluster.recorded if type(effect) is Call}
            running.update(calls)
            sent += calls.values()
            assert len(sent) < 20
            cluster.forget()
