"""The invariants see a state that contradicts itself, and say how."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mpi_runtime.scheduler.actors import calls as actor_calls
from mpi_runtime.scheduler.protocol.events import Where
from mpi_runtime.scheduler.records.records import Bundle, Executor, Queue
from mpi_runtime.scheduler.records.state import State
from tests.builders import LARGE, UNIT, Cluster
from tests.checks import executors as invariants


def busy() -> State:
    """One of everything: calls that run and wait, an actor with a call, a group, an executor that idles."""
    cluster = Cluster().node(cpus=4, gpus=1, memory=1 << 30, disk=2)
    measured = cluster.submit()
    cluster.done(cluster.placed(measured), measured, us=1000)
    actor = cluster.actor(held_cpu=UNIT)
    cluster.done(cluster.placed(actor), actor)
    cluster.method(actor)
    cluster.group({"cpu": 1}, name="pair", request=1)
    cluster.group({"cpu": 4})
    cluster.submit_many(3)
    cluster.submit(name="waits", cpu=3)
    with_gpu = cluster.submit(cpu=0, gpu=1)
    cluster.done(cluster.placed(with_gpu), with_gpu)
    cluster.put(size=LARGE)
    cluster.forget()
    invariants.check(cluster.state)
    return cluster.state


def running(state: State) -> Executor:
    return next(one for one in state.executors.values() if one.queue is not None and one.assigned)


def served(state: State) -> Queue:
    queue = running(state).queue
    assert queue is not None
    return queue


def waiting(state: State) -> Queue:
    return next(iter(state.waiting)).by_order[0]


def bundle(state: State) -> Bundle:
    return next(group.bundles[0] for group in state.groups.values() if group.bundles)


def idle(state: State) -> Executor:
    return next(one for one in state.nodes[0].all_idle() if one.key.gpu_ids)


def a_cpu_is_lost(state: State) -> None:
    state.nodes[0].free.cpu -= 1


def memory_is_sold_twice(state: State) -> None:
    state.nodes[0].free.memory += 1


def a_gpu_is_sold_twice(state: State) -> None:
    state.nodes[0].free.gpu_units[0] -= 1


def a_resource_is_lost(state: State) -> None:
    state.nodes[0].free.custom["disk"] -= 1


def what_actors_hold_is_wrong(state: State) -> None:
    state.nodes[0].actor_cpu += 1


def a_quarantined_gpu_idles(state: State) -> None:
    inventory = state.nodes[0].total.inventory
    assert inventory is not None
    inventory.out[0] = "it failed"


def who_idles_has_a_grant(state: State) -> None:
    idle(state).grant = running(state).grant


def nobody_idles(state: State) -> None:
    next(iter(state.nodes[0].idle.values())).clear()


def an_executor_is_in_two_places(state: State) -> None:
    idle(state).queue = served(state)


def an_executor_is_no_client(state: State) -> None:
    del state.clients[running(state).id]


def a_load_is_wrong(state: State) -> None:
    running(state).load_us += 1


def an_executor_is_not_known_to_its_queue(state: State) -> None:
    executor = running(state)
    del served(state).executors[executor.id]


def a_loaded_executor_is_forgotten(state: State) -> None:
    served(state).loaded.clear()


def a_queue_that_waits_is_forgotten(state: State) -> None:
    del state.waiting[waiting(state).family]


def a_queue_waits_at_the_wrong_place(state: State) -> None:
    waiting(state).waits_at += 1


def a_queue_with_calls_does_not_wait(state: State) -> None:
    waiting(state).waits_at = -1


def a_family_forgets_a_queue(state: State) -> None:
    waiting(state).family.by_order.clear()


def a_call_is_queued_twice(state: State) -> None:
    queue = waiting(state)
    queue.ready.append(queue.ready[0])


def a_call_is_in_another_queue(state: State) -> None:
    waiting(state).depth += 1


def a_queue_is_dirty(state: State) -> None:
    waiting(state).dirty = True


def something_is_free_and_nobody_served(state: State) -> None:
    state.freed = True


def a_queue_of_a_group_that_is_gone(state: State) -> None:
    waiting(state).where = Where(group=b"gone")


def a_queue_where_it_may_not_be(state: State) -> None:
    served(state).where = Where(group=b"elsewhere")


def a_reservation_that_nobody_knows(state: State) -> None:
    waiting(state).family.reserved.append(bundle(state))


def a_node_is_kept_for_nobody(state: State) -> None:
    state.nodes[0].reserved_for = served(state).family


def a_bundle_lies_nowhere(state: State) -> None:
    state.nodes[0].bundles.clear()
    state.nodes[0].free.cpu += UNIT
    state.index.update(state.nodes[0])


def a_group_that_is_gone_has_a_name(state: State) -> None:
    state.group_names["", "other"] = b"gone"


def a_group_that_is_gone_waits(state: State) -> None:
    id = next(iter(state.waiting_groups))
    state.waiting_groups[b"gone"] = state.waiting_groups[id]


def an_actor_has_another_handle(state: State) -> None:
    actor = next(iter(state.actors.values()))
    state.objects[actor.id].actor = None


def an_object_counts_a_reference_too_many(state: State) -> None:
    next(iter(state.objects.values())).references += 1


CONTRADICTIONS: dict[Callable[[State], None], str] = {
    a_cpu_is_lost: "node 0: CPU",
    memory_is_sold_twice: "node 0: memory does not add up",
    a_gpu_is_sold_twice: "node 0: GPU 0 does not add up",
    a_resource_is_lost: "node 0: disk does not add up",
    what_actors_hold_is_wrong: "actors hold 10000 CPU units of 0, not 10001",
    a_quarantined_gpu_idles: "idles with a GPU that is quarantined",
    who_idles_has_a_grant: "idles with a grant|does not add up|CPU",
    nobody_idles: "of which none idles",
    an_executor_is_in_two_places: "is in 2 places",
    an_executor_is_no_client: "is not a client",
    a_load_is_wrong: "load .*, and its calls are",
    an_executor_is_not_known_to_its_queue: "usable True, but its queue thinks otherwise",
    a_loaded_executor_is_forgotten: "loaded True, but its queue thinks otherwise",
    a_queue_that_waits_is_forgotten: "a family waits without queues that do, or the reverse",
    a_queue_waits_at_the_wrong_place: "at the place of another call than its first",
    a_queue_with_calls_does_not_wait: "is not waiting, or the reverse",
    a_family_forgets_a_queue: "a family has other queues that wait, or in another order",
    a_call_is_queued_twice: "is queued 2 times",
    a_call_is_in_another_queue: "in a queue of another depth",
    a_queue_is_dirty: "is dirty after a decision",
    something_is_free_and_nobody_served: "resources became free, without a decision",
    a_queue_of_a_group_that_is_gone: "left of a group that was removed",
    a_queue_where_it_may_not_be: "is not where it may be",
    a_reservation_that_nobody_knows: "reservation is not known to the node",
    a_node_is_kept_for_nobody: "is kept for somebody who does not know",
    a_bundle_lies_nowhere: "a bundle lies on no node",
    a_group_that_is_gone_has_a_name: "that was removed has a name",
    a_group_that_is_gone_waits: "a group waits that was removed",
    an_actor_has_another_handle: "has a handle of another",
    an_object_counts_a_reference_too_many: "counts 2, 1 hold it",
}


@pytest.mark.parametrize("contradict", CONTRADICTIONS, ids=lambda one: one.__name__)
def test_a_contradiction_is_seen(contradict: Callable[[State], None]) -> None:
    state = busy()
    contradict(state)
    with pytest.raises(AssertionError, match=CONTRADICTIONS[contradict]):
        invariants.check(state)


def test_a_call_that_an_actor_could_have_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster().node()
    actor = cluster.actor()
    executor = cluster.placed(actor)
    cluster.done(executor, actor)
    monkeypatch.setattr(actor_calls, "ACTOR_CALLS_MAX", 1)
    cluster.placed(cluster.method(actor))
    cluster.method(actor)  # waits, as it must
    monkeypatch.setattr(actor_calls, "ACTOR_CALLS_MAX", 2)
    with pytest.raises(AssertionError, match="a call that could be sent is not"):
        invariants.check(cluster.state)
