"""Records that refer to each other, such as an executor and its rank, taken apart at the end of a job.

Python's collector does not see records (`gc=False`): a process that serves one job after another would keep them.
"""

from __future__ import annotations

from mpi_runtime.scheduler.records.state import State


def dissolve(state: State) -> None:
    """Take every circle of records apart."""
    for node in state.nodes.values():
        for of_node in (node.ranks, node.idle, node.bundles):
            of_node.clear()
    for rank in state.ranks.values():
        rank.executors.clear()
    for executor in state.executors.values():
        executor.assigned.clear()
        executor.children.clear()
        executor.actor = executor.gang = executor.queue = executor.forked_for = None
    for actor in state.actors.values():
        actor.creation.actor = None
        actor.callers.clear()
    for claimant in (*state.groups.values(), *state.families.values()):
        claimant.reserved.clear()
    for group in state.groups.values():
        group.bundles.clear()
        group.functions.clear()
    for family in state.families.values():
        family.by_order.clear()
        family.by_length.clear()
    for queue in state.queues.values():
        for of_queue in (queue.ready, queue.executors, queue.hungry, queue.loaded, queue.awaited):
            of_queue.clear()
    for function in state.functions.values():
        function.queues.clear()
        function.choice = []
