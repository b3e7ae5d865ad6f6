"""Drivers that join the job, and the end of what belongs to one that has left.

What belongs to a driver ends in slices of at most LEAVING_STEPS steps, one for each decision, so that others need not
wait:

1. Its open calls end, the last one first: then no call waits for one that ends before it, and a line of calls is
   emptied from its end. Running tasks are killed. Methods that run in actors of others continue; those that were sent
   ahead are taken back.
2. Its actors are killed, whoever has handles. Its placement groups are removed.
3. Its references are released. Values that others hold stay.
4. Its executors are killed, its functions, queues and accounts forgotten. If actors of its classes are detached, they
   stay, with all that they need, until the last of them has ended.

A driver that has left and still has views of values keeps its references until its line is closed. What its executors
still submit, until they are gone, ends in the same way.
"""

from __future__ import annotations

from mpi_runtime.scheduler.actors import calls as actor_calls
from mpi_runtime.scheduler.actors import lifetimes
from mpi_runtime.scheduler.calls import copies
from mpi_runtime.scheduler.dispatch import fair_shares, queues
from mpi_runtime.scheduler.dispatch.reservations import end_reservation
from mpi_runtime.scheduler.losses import cancel
from mpi_runtime.scheduler.nodes import groups
from mpi_runtime.scheduler.protocol.effects import Free
from mpi_runtime.scheduler.protocol.events import DRIVER, ActorSpec, Forgotten, MethodSpec, Released
from mpi_runtime.scheduler.protocol.limits import LEAVING_STEPS
from mpi_runtime.scheduler.protocol.rank_events import DriverJoined, DriverLeft
from mpi_runtime.scheduler.records.lifecycle import BLOCKED, ENDED, SENT, STAGING, STOPPING
from mpi_runtime.scheduler.records.parts import Account
from mpi_runtime.scheduler.records.records import Driver, Executor, Task
from mpi_runtime.scheduler.records.state import Client, State
from mpi_runtime.scheduler.values import call_ends, items, lineage, objects

OF_VIEWS = (Released, Forgotten)
"""The events of a driver that has left and still has views of values."""
CAUSE = "was killed because its driver has left the job"


def join(state: State, event: DriverJoined, now: int) -> None:
    """Let a driver submit calls. It belongs to the node of rank 0."""
    driver = Driver(event.number, Account(f"driver {event.number}"), event.program, event.pid, now)
    state.next_executor += 1
    state.totals.drivers += 1
    state.drivers[driver.number] = driver
    node = state.clients[DRIVER].node
    state.clients[driver.number] = Client(driver.number, node, None, driver=driver)
    fair_shares.measure(state)


def leave(state: State, event: DriverLeft, now: int) -> None:
    """Begin to end what belongs to a driver."""
    driver, client = state.drivers[event.number], state.clients[event.number]
    if event.has_views and not client.is_silent:
        client.is_silent = True
    else:
        del state.clients[driver.number]
        state.effects.clients.pop(driver.number, None)
        state.leaving[driver.number] = client
        for room in state.spilling.rooms.values():
            for rank, waiting in room.waiting.items():
                room.waiting[rank] = [one for one in waiting if one != driver.number]
    if event.extents:
        state.send_frees(0)  # strictly before
        state.to_rank(0, Free([one for one in event.extents if (0, one) not in state.extents], driver.number))
    driver.has_left = True
    state.alarms.set(driver, now)


def clear_up(state: State, driver: Driver, now: int) -> None:
    """Do a slice of the steps at the head of this file."""
    for _ in range(LEAVING_STEPS):
        if not any(step(state, driver, now) for step in _STEPS):
            return  # something of it ends by itself, and then this is called again; or nothing is left
    state.alarms.set(driver, now)


def _end_call(state: State, driver: Driver, now: int) -> bool:
    """Do step 1 for its last call. Returns whether there was one."""
    if not driver.tasks:
        return False
    id, task = driver.tasks.popitem()
    driver.ending[id] = task
    kind = task.function.spec.kind
    if isinstance(kind, ActorSpec):
        assert task.actor is not None
        lifetimes.end(state, task.actor, CAUSE, force=True)
    elif isinstance(kind, MethodSpec) and task.state == SENT:
        _leave_alone(state, driver, task)
    elif task.state in (SENT, BLOCKED) and (executor := task.executor) is not None and _is_free(executor):
        _end_executor(state, executor)
    elif task.state not in ENDED:
        cancel.cancel_one(state, task, True, now)
    return True


def _is_free(executor: Executor) -> bool:
    """Whether an executor can be killed with all its calls: none is detached, and it is not a member of a gang."""
    return executor.gang is None and all(task.driver for task in executor.assigned.values())


def _end_executor(state: State, executor: Executor) -> None:
    """Kill an executor and end its calls."""
    executor.rank.node.remove_idle(executor)
    for task in executor.assigned.values():
        if task.state == STAGING:
            copies.unwanted(state, task, executor)
    tasks = executor.drop_all()
    if executor.queue is not None:
        executor.queue.forget(executor)
        executor.queue = None
    state.stop(executor, CAUSE, force=True)
    for task in tasks:
        executor.kept += [id for id in (*task.call.arguments, *task.call.holds) if objects.hold(state, id)]
        call_ends.cancelled(state, task)


def _leave_alone(state: State, driver: Driver, task: Task) -> None:
    """Let a method of another's actor continue if it runs. If it has not begun, it comes back and ends then."""
    actor = task.actor
    if actor is None or actor.driver == driver.number:
        return  # it is killed
    task.is_cancelled, task.retries = True, 0
    if task.stream is not None and task.function.spec.backpressure:
        items.demand(state, task, task.stream, items.ALL)
    actor_calls.take_back(state, actor)


def _end_actor(state: State, driver: Driver, now: int) -> bool:
    """Do step 2 for one of its actors. Returns whether there was one."""
    if not driver.actors:
        return False
    actor = driver.actors.popitem()[1]
    lifetimes.end(state, actor, CAUSE, force=True)
    return True


def _end_group(state: State, driver: Driver, now: int) -> bool:
    """Do step 2 for one of its placement groups. Returns whether there was one."""
    if not driver.groups:
        return False
    groups.remove(state, driver.groups.popitem()[0], "its driver has left the job")
    return True


def _release(state: State, driver: Driver, now: int) -> bool:
    """Do step 3 for one of its references. Returns whether there was one."""
    client = state.leaving.get(driver.number)
    if client is None:
        return False
    if client.held:
        objects.let_go(state, client, client.held.popitem()[0])
    else:
        del state.leaving[driver.number]
    return True


def _kill_executors(state: State, driver: Driver, now: int) -> bool:
    """Kill its executors, if nothing detached needs them. Returns False: there are not many."""
    if not driver.is_ending():
        return False
    for executor in driver.executors.values():
        if executor.state != STOPPING and executor.actor is None:
            if executor.gang is not None:
                state.stop(executor, CAUSE, force=True)
            else:
                _end_executor(state, executor)
    return False


def is_kept(driver: Driver) -> bool:
    """Whether its functions are still needed: something of it is left, or what is detached."""
    own = driver.tasks or driver.ending or driver.actors or driver.executors
    return bool(own or driver.detached or driver.detached_actors)


def _forget(state: State, driver: Driver, now: int) -> bool:
    """Forget one of its functions, queues and families, and at last the driver. Returns whether there was one."""
    if is_kept(driver):
        return False
    if driver.functions:
        spec, function = driver.functions.popitem()
        del state.functions[spec]
        function.spec.function = b""  # the history of calls keeps the record, and need not keep the code
        function.queues.clear()
        function.choice = []
        group = state.groups.get(function.where.group)
        if group is not None and function in group.functions:
            group.functions.remove(function)
        return True
    if driver.queues:
        queues.remove(state, driver.queues.popitem()[0])
        return True
    if driver.families:
        key, family = driver.families.popitem()
        if state.families.pop(key, None) is not None:
            end_reservation(state, family)
            family.by_order.clear()
            family.by_length.clear()
            state.waiting.pop(family, None)
        return True
    driver.codes.clear()
    driver.accounts.clear()
    for id in lineage.forget_driver(state, driver):
        objects.release(state, id)
    if driver.number not in state.clients:
        state.drivers.pop(driver.number, None)
    return False


_STEPS = (_end_call, _end_actor, _end_group, _release, _kill_executors, _forget)
