"""Mutants that change nothing that matters, each with the reason. Found by file, function and text, not by line."""

from __future__ import annotations

from typing import NamedTuple

from tests.mutants.mutations import Mutation


class Equivalent(NamedTuple):
    """One of them, or several of the same lines."""

    file: str
    function: str
    before: str
    after: str
    """Empty: whatever is made of these lines."""
    reason: str

    def names(self, mutation: Mutation) -> bool:
        """Whether it is this one."""
        return (
            (self.file, self.function, self.before) == (mutation.file, mutation.function, mutation.before)
            and self.after in ("", mutation.after)
        )  # fmt: skip


NO_NODE = "every number below 0 means that there is none"
ANY_STEP = "numbers that grow: by how much does not matter"
ONE_MORE = "a limit of policy, in microseconds: nobody can tell one more or less"

EQUIVALENT = [
    Equivalent(
        "scheduler/dispatch/locality.py",
        "nearest",
        "best = max(able, key=lambda number: (found[number], -number), default=-1)",
        "best = max(able, key=lambda number: (found[number], -number), default=-2)",
        NO_NODE,
    ),
    Equivalent(
        "scheduler/dispatch/queues.py", "find_queue", "own = spec.id if function.is_timed else 0", "", "ids are hashes"
    ),
    Equivalent("scheduler/dispatch/queues.py", "Turns.push", "self._count += 1", "self._count += 2", ANY_STEP),
    Equivalent("scheduler/dispatch/dispatch.py", "settle", "behind_us = 0", "behind_us = 1", ONE_MORE),
    Equivalent(
        "scheduler/answers/inspection.py",
        "oldest",
        "firsts = [task for queue in queues for task in islice(queue.ready, 50) if task.function.spec.name == name]",
        "firsts = [task for queue in queues for task in islice(queue.ready, 51) if task.function.spec.name == name]",
        "a bound on what an answer looks at",
    ),
    Equivalent(
        "scheduler/dispatch/executors.py",
        "acquire",
        "if can_wait and work_us < limits.HIRE_WORTH_US and any_is_free_soon(queue):",
        "if can_wait and work_us <= limits.HIRE_WORTH_US and any_is_free_soon(queue):",
        ONE_MORE,
    ),
    Equivalent(
        "scheduler/dispatch/dispatch.py",
        "estimate_us",
        "return function.duration_us + 3 if function.duration_us >= 0 else limits.LOCAL_QUEUE_US",
        "return function.duration_us + 4 if function.duration_us >= 0 else limits.LOCAL_QUEUE_US",
        ONE_MORE,
    ),
    Equivalent(
        "scheduler/dispatch/dispatch.py",
        "estimate_us",
        "return function.duration_us + 3 if function.duration_us >= 0 else limits.LOCAL_QUEUE_US",
        "return function.duration_us + 2 if function.duration_us >= 0 else limits.LOCAL_QUEUE_US",
        ONE_MORE,
    ),
    Equivalent(
        "scheduler/nodes/groups.py",
        "find_spots",
        "return None # the frequent case, and a cheap check",
        "pass # the frequent case, and a cheap check",
        "saves the search that finds the same",
    ),
    Equivalent(
        "scheduler/places/gpu_pool.py", "homes", "return inventory.homes", "pass", "saves making the same again"
    ),
    Equivalent(
        "scheduler/calls/tasks.py",
        "submit",
        "if call.attempt and retries > 0:",
        "if call.attempt and retries >= 0:",
        "of 0 retries 0 are left",
    ),
    Equivalent(
        "scheduler/values/objects.py",
        "give_up",
        "if found.references > 1:",
        "if found.references > 0:",
        "saves giving an error to what is freed in the next line",
    ),
]
