"""The loss of a rank: its process is gone, with its agent, its executors and its part of the arena.

Each of these steps closes a race:
1. Nothing is sent to the rank any more. Its later messages are ignored.
2. Its executors die like others (`dead_executors.py`), but nobody knows how far they got. The first call of each counts
   as running, and not as overdue. The others may have run. They run again without using a retry; those that may run
   only once fail.
3. It leaves its node. While another rank of the node runs calls, the node keeps its resources: executors may use every
   processor. GPUs that only this rank could use are quarantined. Its reports of memory pressure are dropped. If no rank
   of the node runs calls, the bundles of placement groups move to other nodes. A node without ranks is removed.
4. Its part of the arena is lost. Processes of its host can still use their views: that memory is not used again, and
   still counts against the capacity.
5. Copies on their way from the rank come from another source. Copies on their way to it go to another rank of the node.
6. Objects without a copy are rebuilt or given up (`items.py` for those that a call will yield again, `rebuilding.py`
   for others). Calls that have them as arguments wait again.
7. Calls that no node can serve any more fail.
"""

from __future__ import annotations

from mpi_runtime.gpu.ledger import Inventory
from mpi_runtime.scheduler.actors.calls import leave_queue, out_of_order
from mpi_runtime.scheduler.dispatch import dispatch, fair_shares
from mpi_runtime.scheduler.dispatch.dependencies import await_lost, elsewhere, wait_again
from mpi_runtime.scheduler.dispatch.queues import clear, mark_dirty, requeue
from mpi_runtime.scheduler.dispatch.reservations import end_reservation
from mpi_runtime.scheduler.log import notes
from mpi_runtime.scheduler.losses import dead_executors, rebuilding
from mpi_runtime.scheduler.nodes import gpu_quarantine, groups, spilling
from mpi_runtime.scheduler.places import constraints
from mpi_runtime.scheduler.protocol.effects import RANK_LOST
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied, RankLost
from mpi_runtime.scheduler.protocol.resources import Pool
from mpi_runtime.scheduler.records.lifecycle import READY, STAGING, STOPPING, WAITING
from mpi_runtime.scheduler.records.records import Node, Rank, Task
from mpi_runtime.scheduler.records.state import Fetching, Object, State
from mpi_runtime.scheduler.values import items, objects, spreading


def rank_lost(state: State, event: RankLost, now: int) -> None:
    """Handle the loss of a rank. The steps are at the head of this file."""
    rank = state.ranks.pop(event.rank)
    state.lost[event.rank] = event.cause
    state.effects.ranks.pop(event.rank, None)
    cause = f"rank {event.rank} on {rank.node.hostname} {event.cause}"
    executors = len(rank.executors)
    for executor in list(rank.executors.values()):
        first = executor.running()
        for task in executor.assigned.values():
            task.overdue = ""  # it may have died with the rank before its time limit was over
        death = ExecutorDied(executor.id, first.id if first else b"", f"died when {cause}", is_unwatched=True)
        dead_executors.executor_died(state, death, now)
    leave_node(state, rank, cause)
    without = lose_copies(state, event.rank)
    spilling.lose_rank(state, event.rank)
    move_fetches(state, event.rank)
    for found in without:
        holds, found.holds = found.holds or [], None
        for id in holds:
            objects.release(state, id)
    lost = {found.id: found for found in without if state.objects.get(found.id) is found}
    open_calls = under_way(state)
    needing = [task for task in open_calls if any(id in lost for id in task.call.arguments)]
    items.lost(state, lost, open_calls, cause)
    calls, hopeless = rebuilding.rebuild(state, [found for found in lost.values() if found.task is None], cause)
    for task in needing:
        wait_for(state, task, lost, now)
    for queue in state.queues.values():
        queue.ready = clear(queue)  # without those that wait again
        if queue.waits_at >= 0:
            mark_dirty(state, queue)
    for task in under_way(state):
        bring_again(state, task)
    state.frees.pop(event.rank, None)
    state.spilling.erasures.pop(event.rank, None)
    state.freed = True
    text = (
        f"{cause}, and {notes.counted(executors, 'executor')} with it. {notes.counted(len(lost), 'object')} had no "
        f"other copy: calls run again for them: {calls}, lost for good: {hopeless}."
    )
    notes.log(state, notes.WARNING, RANK_LOST, text, rank)


def leave_node(state: State, rank: Rank, cause: str) -> None:
    """Do steps 3 and 7."""
    node = rank.node
    ran_calls = node.hosts_executors
    node.ranks.remove(rank)
    state.able.clear()
    node.pressure.pop(rank.number, None)
    if node.hosts_executors:
        unseen = node.inventory.forget_rank(rank.number)
        if unseen:
            text = f"{len(unseen)} GPU(s) are not used any more: only rank {rank.number} could use them, which is gone"
            gpu_quarantine.quarantine(state, node, unseen, "the rank that could use it is gone", text)
    elif ran_calls:
        close(state, node, cause)
    if not node.ranks:
        del state.nodes[node.number]


def close(state: State, node: Node, cause: str) -> None:
    """Close a node without a rank that runs calls: its calls go elsewhere."""
    if node.reserved_for is not None:
        end_reservation(state, node.reserved_for)
    groups.lose_node(state, node)
    state.index.remove(node)
    inventory = Inventory()
    node.total, node.free = Pool(0, 0, {}, [], [], inventory), Pool(0, 0, {}, [], [], inventory)
    node.cpus.clear()
    fair_shares.measure(state)
    groups.look_again(state, cause)
    for function in state.functions.values():
        where = function.spec.where
        if where is not None and where.node and where.soft:
            resolved = constraints.resolve(state, where, function.spec.asks)
            if resolved != function.where:
                function.where = resolved
                function.queues.clear()
    for queue in list(state.queues.values()):
        ready = clear(queue)
        queue.ready.extend(task for task in ready if task.function.where == queue.where)
        mark_dirty(state, queue)
        requeue(state, [task for task in ready if task.function.where != queue.where])
    gpu_quarantine.find_hopeless(state, lambda function: True)


def lose_copies(state: State, number: int) -> list[Object]:
    """Do step 4. Returns the objects without a copy."""
    without = []
    for found in state.objects.values():
        if found.copies is None:
            continue
        for node, place in list(found.copies.items()):
            if place.rank == number:
                del found.copies[node]
                state.extents.pop((place.rank, place.offset), None)
        if found.disk is not None and found.disk.rank == number:
            del state.spilling.on_disk[number, found.disk.offset]
            found.disk = None
        if not found.places():
            without.append(found)
    return without


def move_fetches(state: State, number: int) -> None:
    """Do step 5."""
    for id, fetches in list(state.fetching.items()):
        found = state.objects[id]
        for one in list(fetches.values()):
            if one.rank == number:
                move_receiver(state, found, one)
            elif one.source is not None and one.source.rank == number:
                spreading.unassign(state, one)
        if found.places():
            spreading.serve(state, found)
            for _ in range(spreading.give_up_unneeded(state, found)):
                objects.release(state, id)
            continue
        for one in list(state.fetching.get(id, {}).values()):
            spreading.give_up(state, one)
            subscribe(state, found, one)
            objects.release(state, found.id)


def move_receiver(state: State, found: Object, fetching: Fetching) -> None:
    """Have another rank of the node fetch a copy that was on its way to the lost rank, if it is still needed there."""
    spreading.remove(state, fetching)
    is_needed = fetching.waiting or fetching.is_ahead
    if is_needed and found.places() and fetching.node in state.nodes:
        again = spreading.begin(state, found, fetching.node)
        again.waiting, again.is_ahead = fetching.waiting, fetching.is_ahead
    else:
        subscribe(state, found, fetching)
    objects.release(state, found.id)


def subscribe(state: State, found: Object, fetching: Fetching) -> None:
    """Subscribe the clients that waited for a copy: the object will have a value again."""
    for waiter in fetching.waiting:
        if isinstance(waiter, int) and waiter in state.clients:
            objects.subscribe(found, waiter, fetch=True)


def under_way(state: State) -> list[Task]:
    """All calls that have not ended, each once, and their parts in gangs."""
    tasks = {task.id: task for found in state.objects.values() if (task := found.task) is not None}
    parts = [part for one in state.executors.values() if one.gang_rank for part in one.assigned.values()]
    return [*tasks.values(), *parts]


def bring_again(state: State, task: Task) -> None:
    """Do step 5 for a call that waits for copies and had an argument in the arena of the lost rank."""
    executor = task.executor
    if task.state != STAGING or executor is None or executor.state == STOPPING:
        return
    number = executor.rank.node.number
    for id in elsewhere(state, task, number):
        fetching = state.fetching.get(id, {}).get(number)
        if fetching is None or (task, executor) not in fetching.waiting:
            spreading.start(state, state.objects[id], number, (task, executor))


def wait_for(state: State, task: Task, lost: dict[bytes, Object], now: int) -> None:
    """Do step 6 for a call that has lost arguments."""
    if task.state == WAITING:
        await_lost(state, task, [id for id in task.call.arguments if id in lost])
        return
    executor = task.executor
    if task.state == STAGING and executor is not None:
        is_in_gang = executor.gang is not None and executor.gang.task is (task.leader or task)
        if task.function.is_actor or is_in_gang:  # its process is for this actor or gang only
            state.stop(executor, "an argument of its actor or its gang is lost", force=True)
            return
        executor.drop(task.id)
        task.executor = None
    elif task.state == READY:
        executor = None
        if not task.function.is_method:
            assert task.queue is not None
            mark_dirty(state, task.queue)
    else:
        return  # it has been sent, with the value
    wait_again(state, task)
    if task.actor is not None and task.function.is_method:
        if out_of_order(task.actor):
            leave_queue(task.actor, task)
        state.called[task.actor] = None
    elif executor is not None:
        dispatch.settle(state, executor, now)
