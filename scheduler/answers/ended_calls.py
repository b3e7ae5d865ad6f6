"""The last attempts of calls that have ended, newest first: those that have run, and those that have failed before."""

from __future__ import annotations

from itertools import islice
from operator import itemgetter

from mpi_runtime.scheduler.answers.listing import titles
from mpi_runtime.scheduler.log import history
from mpi_runtime.scheduler.log.descriptions import required
from mpi_runtime.scheduler.protocol.entries import TASK_TYPES, TaskEntry
from mpi_runtime.scheduler.protocol.limits import ENDED_MAX
from mpi_runtime.scheduler.protocol.past import DIED, LEFT, RETURNED
from mpi_runtime.scheduler.protocol.questions import Tasks
from mpi_runtime.scheduler.records.state import State
from mpi_runtime.scheduler.records.statistics import Failed, Run

TYPES = {
    "": "TASK_EXECUTION_EXCEPTION",
    "ActorDiedError": "ACTOR_DIED",
    "ActorUnavailableError": "ACTOR_UNAVAILABLE",
    "GpuExecutorDiedError": "WORKER_DIED",
    "InfeasibleResourceError": "TASK_UNSCHEDULABLE_ERROR",
    "ObjectLostError": "OBJECT_LOST",
    "OutOfMemoryError": "OUT_OF_MEMORY",
    "PlacementGroupRemovedError": "TASK_PLACEMENT_GROUP_REMOVED",
    "TaskCancelledError": "TASK_CANCELLED",
    "WorkerCrashedError": "WORKER_DIED",
}
"""Ray's words for errors. Errors that only this runtime has are their own words."""
_CREATION = "ACTOR_CREATION_TASK"


def ended(state: State, asked: Tasks) -> list[TaskEntry]:
    """The attempts that have ended, as many as are asked for; of a call by its id the last one, if it has ended."""
    most = ENDED_MAX if asked.id else min(asked.ended, ENDED_MAX)
    found = state.objects.get(asked.id)
    if most <= 0 or (found is not None and found.task is not None):
        return []
    failed = {(one.id, one.attempt): one for one in state.logs.failed}
    runs = list(islice(reversed(state.history), most))
    oldest = state.ran - len(runs) if len(runs) == most else -1
    has_run = {(run.id, run.attempt) for run in runs}
    ends: list[tuple[float, Run | Failed]] = [(state.ran - place, run) for place, run in enumerate(runs)]
    ends += [(one.ran + 0.5, one) for key, one in failed.items() if key not in has_run and one.ran > oldest]
    ends.sort(key=itemgetter(0), reverse=True)
    chosen = [one for _, one in ends if asked.id in (b"", one.id)][: 1 if asked.id else most]
    unmade = {one.actor for one in failed.values() if TASK_TYPES[one.function.spec.kind.number] == _CREATION}
    return [
        _run(state, one, failed.get((one.id, one.attempt))) if isinstance(one, Run) else _failed(state, one, unmade)
        for one in chosen
    ]


def _failed(state: State, failed: Failed, unmade: set[bytes]) -> TaskEntry:
    """One that has not run. `unmade`: the actors whose constructors have failed, whose error is that of their calls."""
    spec = failed.function.spec
    code = "ActorDiedError" if spec.kind.number and failed.actor in unmade and not failed.code else failed.code
    name, code_name = titles(spec, "")
    return TaskEntry(
        task_id=failed.id.hex(),
        name=name,
        func_or_class_name=code_name,
        type=TASK_TYPES[spec.kind.number],
        state="FAILED",
        attempt_number=failed.attempt,
        actor_id=failed.actor.hex() or None,
        node_id=None,
        worker_id=None,
        worker_pid=None,
        required_resources=required(spec.asks),
        parent_task_id=failed.parent.hex() or None,
        error_type=TYPES.get(code, code),
        error_message=failed.text,
        creation_time_ms=(failed.submitted_us + state.wall_us) // 1000,
        start_time_ms=None,
        end_time_ms=(failed.end_us + state.wall_us) // 1000,
        num_ranks=spec.ranks,
        driver=failed.driver,
    )


def _run(state: State, run: Run, failed: Failed | None) -> TaskEntry:
    spec, process = run.function.spec, run.process
    has_failed = run.outcome != LEFT and (run.outcome != RETURNED or failed is not None)
    code = (failed.code if failed is not None else "") or ("WorkerCrashedError" if run.outcome == DIED else "")
    name, code_name = titles(spec, process.name)
    start_us = history.start_us(run) + state.wall_us
    return TaskEntry(
        task_id=run.id.hex(),
        name=name,
        func_or_class_name=code_name,
        type=TASK_TYPES[spec.kind.number],
        state="FAILED" if has_failed else "FINISHED",
        attempt_number=run.attempt,
        actor_id=process.actor.hex() or None if spec.kind.number else None,
        node_id=process.node.id,
        worker_id=f"{process.executor:032x}",
        worker_pid=process.pid or None,
        required_resources=required(spec.asks),
        parent_task_id=run.parent.hex() or None,
        error_type=TYPES.get(code, code) if has_failed else None,
        error_message=(failed.text if failed is not None else history.OUTCOMES[run.outcome]) if has_failed else None,
        creation_time_ms=(run.submitted_us + state.wall_us) // 1000,
        start_time_ms=start_us // 1000,
        end_time_ms=(start_us + run.duration_us) // 1000,
        num_ranks=spec.ranks,
        driver=run.driver,
    )
