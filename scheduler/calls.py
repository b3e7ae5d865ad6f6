"""Calls from submission to their end: what they wait for, when they are run again."""

from __future__ import annotations

from mpi_runtime.scheduler import actors, devices, endings, history, objects, strategies
from mpi_runtime.scheduler.events import METHOD, TASK, Call, Done, Returned, Spec, Value
from mpi_runtime.scheduler.nodes import Executor, Node
from mpi_runtime.scheduler.objects import PENDING, Object
from mpi_runtime.scheduler.queues import enqueue
from mpi_runtime.scheduler.resources import TYPE, amount, fits, request_of
from mpi_runtime.scheduler.state import Client, State
from mpi_runtime.scheduler.tasks import (
    ARGUMENTS_READY,
    FAIL,
    FINISH,
    LOSE,
    WAITING,
    Function,
    Task,
    advance,
    return_ids,
)


def register(state: State, spec: Spec) -> None:
    """A client will make calls of this spec. Whether any node can run them is decided here, once."""
    if spec.id in state.functions:
        return
    function = Function(spec, request_of(spec), [])
    if spec.where is not None:
        function.where = strategies.resolve(state, spec.where, function.request)
    # A method of which nothing is known yet may turn out to take long, when many of its calls had been sent ahead.
    function.is_timed = state.end_us is not None and (spec.time_limit_us > 0 or spec.kind == METHOD)
    function.infeasible = "" if spec.kind == METHOD else why_infeasible(state, function)
    state.functions[spec.id] = function


def why_infeasible(state: State, function: Function) -> str:
    """Why no node can ever serve the function's request; empty if one can."""
    if function.where is not None:
        return strategies.why_nowhere(state, function, function.where)
    if any(fits(function.request, node.total) and node.hosts_executors for node in state.nodes.values()):
        return ""
    nodes = [node for node in state.nodes.values() if node.hosts_executors]
    return (
        f"{function.spec.name} asks for {function.request} on one node, and no node owns that much. "
        f"Largest of {len(nodes)} node(s): {largest(nodes)}.{devices.why_not(nodes, function.request)} "
        "Ask for less, start the job with more, "
        "or state what nodes have with init(num_cpus=..., num_gpus=..., resources=...)."
    )


def largest(nodes: list[Node]) -> str:
    """The node that owns most CPUs, in words, and who owns most of everything else."""
    if not nodes:
        return "none that runs calls"
    best = max(nodes, key=lambda node: (node.total.cpu, len(node.total.devices), -node.host))
    custom = [
        f"{amount(units)} of {name!r}"
        for name, units in best.total.custom.items()
        if not name.startswith(("node:", TYPE))  # what types of GPUs there are is said with them
    ]
    owned = [f"{amount(best.total.cpu)} CPU", devices.owned(best), f"{best.total.memory} bytes of memory"]
    return f"{best.hostname} with {', '.join(owned + custom)}"


def submit(state: State, client: Client, call: Call, now: int) -> None:
    """A client submitted a call. It holds the return values; so does the call until it has ended."""
    function = state.functions[call.spec]
    executor = client.executor
    depth = 0
    if executor is not None:
        running = executor.running()
        depth = running.depth + 1 if running is not None else 1
    state.submitted = order = state.submitted + 1
    retries = function.spec.max_retries
    if call.attempt and retries > 0:
        retries = max(0, retries - call.attempt)
    task = Task(call, function, client.id, depth, order, retries, now)
    if executor is not None:
        executor.children[call.id] = task
    objects_by_id = state.objects
    held = client.held
    if function.spec.num_returns == 1:
        objects_by_id[call.id] = Object(call.id, client.id, 2, task=task)
        held[call.id] = None
    else:
        for id in return_ids(task):
            objects_by_id[id] = Object(id, client.id, 2, task=task)
            held[id] = None
    if function.spec.kind != TASK:
        actors.submit(state, task)
    lost = hold_arguments(state, task) if call.arguments or call.holds or call.actor else None
    if lost is not None:
        fail(state, task, "ObjectLostError", f"an argument of {function.spec.name}, object {lost.hex()}, is gone")
    elif function.infeasible:
        fail(state, task, "InfeasibleResourceError", function.infeasible)
    elif function.where is not None and (removed := strategies.why_removed(state, function)):
        fail(state, task, "PlacementGroupRemovedError", removed)
    else:
        if function.where is not None:
            strategies.await_group(state, task)
        if not task.missing:
            arguments_ready(state, task)


def hold_arguments(state: State, task: Task) -> bytes | None:
    """Hold all objects that the call needs, count those without a value. Returns one that does not exist, or None."""
    call = task.call
    lost = None
    for id in call.arguments:
        found = state.objects.get(id)
        if found is None:
            lost = id
            continue
        found.references += 1
        if found.state == PENDING:
            task.missing += 1
            if found.waiters is None:
                found.waiters = [task]
            else:
                found.waiters.append(task)
    for id in call.holds:
        objects.hold(state, id)
    if call.actor:
        objects.hold(state, call.actor)
    return lost


def fail(state: State, task: Task, code: str, message: str) -> None:
    """The call cannot be run, for a reason of the runtime."""
    endings.fail(state, task, code, message)
    not_run(state, task, None, f"could not be created: {message}")


def not_run(state: State, task: Task, error: Value | None, cause: str) -> None:
    """The call has failed. If it was to create an actor, there will be none; if it is an actor's, others follow."""
    if task.function.is_actor:
        actors.creation_failed(state, task, error, cause)
    elif task.actor is not None:
        actors.go_past(state, task.actor, task)


def arguments_ready(state: State, task: Task) -> None:
    """Nothing is missing any more: on to the queue, unless an argument is an error, which then is the call's result."""
    if task.state != WAITING:
        return  # failed meanwhile
    for id in task.call.arguments:
        found = state.objects[id]
        if found.is_error:
            break  # it is large: the executor reads it and raises it; errors behind it do not count
        if found.state == objects.RUNTIME_ERROR:
            fail(state, task, found.code, found.data.decode())
            return
        if found.state == objects.ERROR:
            error = Value(found.data, holds=found.holds or [], is_error=True)
            endings.conclude(state, task, [error], FAIL)
            not_run(state, task, error, "could not be created")
            return
    advance(task, ARGUMENTS_READY)
    if task.function.spec.kind == METHOD:
        actors.ready(state, task)
    else:
        enqueue(state, task)


def done(state: State, executor: Executor, event: Done) -> None:
    """A call ended with one small value: the frequent case, kept short."""
    task = executor.in_hand.pop(event.id, None)
    if task is None:
        return  # it was given up meanwhile
    function = task.function
    executor.load_us -= task.estimate_us
    known = function.duration_us
    function.duration_us = event.duration_us if known < 0 else (7 * known + event.duration_us) >> 3
    history.record(state, executor, task, event.start_us, event.duration_us, history.RETURNED)
    task.state = FINISH[task.state]
    found = state.objects[event.id]
    found.task = None
    if found.references == 1:
        objects.release(state, event.id)  # nobody wants the value
    else:
        found.references -= 1
        found.data = event.data
        found.state = objects.INLINE
        objects.announce(state, found)
    call = task.call
    if call.arguments or call.holds or call.actor:
        endings.release_arguments(state, task)
    if function.spec.kind != TASK:
        actors.ended(state, task)
    if task.depth:
        endings.forget_child(state, task)
    state.finished += 1


def returned(state: State, executor: Executor, event: Returned) -> None:
    """A call ended with any values or with an error of user code."""
    task = executor.in_hand.pop(event.id, None)
    if task is None:
        for value in event.values:
            if value.stored is not None:
                objects.free_extent(state, value.stored)
        return
    executor.load_us -= task.estimate_us
    function = task.function
    known = function.duration_us
    function.duration_us = event.duration_us if known < 0 else (7 * known + event.duration_us) >> 3
    outcome = history.RAISED if event.raised else history.RETURNED
    history.record(state, executor, task, event.start_us, event.duration_us, outcome)
    again = event.raised and event.may_retry and function.spec.retry_exceptions and task.retries
    # A large error among the arguments is raised by the executor, and would be again.
    if again and not function.is_actor and not any(state.objects[id].is_error for id in task.call.arguments):
        for value in event.values:
            if value.stored is not None:
                objects.free_extent(state, value.stored)
        if task.actor is not None:
            actors.give_again(state, task.actor, task, has_run=True)
            state.called[task.actor] = None
            return
        advance(task, LOSE)
        retry(state, task)
        return
    if event.raised and function.is_actor:
        actors.creation_failed(state, task, event.values[0], "could not be created")
    endings.conclude(state, task, event.values, FINISH)
    if function.spec.kind != TASK:
        actors.ended(state, task)


def retry(state: State, task: Task, had_ended: bool = False) -> None:
    """Run a lost call again."""
    endings.again(state, task, had_ended)
    enqueue(state, task)
