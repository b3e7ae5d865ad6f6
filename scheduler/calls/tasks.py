"""Calls from submission to their end: what they wait for, and when they are run again."""

from __future__ import annotations

from mpi_runtime.scheduler.actors import calls as actor_calls
from mpi_runtime.scheduler.actors import checkpoints, lifetimes
from mpi_runtime.scheduler.calls.refusals import check_scattered, check_spec, check_unknown_end
from mpi_runtime.scheduler.dispatch import alternatives, backoff
from mpi_runtime.scheduler.dispatch.fair_shares import account_of
from mpi_runtime.scheduler.dispatch.queues import enqueue
from mpi_runtime.scheduler.log import errors, history
from mpi_runtime.scheduler.places import constraints, gang_places, gpu_pool
from mpi_runtime.scheduler.protocol import past
from mpi_runtime.scheduler.protocol.events import (
    DRIVER,
    FOLLOWED_BYTES_MAX,
    STREAMING,
    Call,
    Done,
    MethodSpec,
    RefusedError,
    Returned,
    Spec,
    TaskSpec,
    Value,
    driver_of,
)
from mpi_runtime.scheduler.protocol.limits import WANTED_MAX
from mpi_runtime.scheduler.protocol.rank_events import Recalled
from mpi_runtime.scheduler.protocol.resources import fits
from mpi_runtime.scheduler.records import lifecycle
from mpi_runtime.scheduler.records.lifecycle import FINISH, READY, SENT, VALUE, WAITING, advance, so_far
from mpi_runtime.scheduler.records.parts import Stream
from mpi_runtime.scheduler.records.records import ANYWHERE, Executor, Function, Task
from mpi_runtime.scheduler.records.state import Client, Failure, Object, State
from mpi_runtime.scheduler.values import call_ends, items, journaling, objects, retries
from mpi_runtime.scheduler.values.message_checks import check_ids, check_values, require


def register(state: State, client: Client, spec: Spec, now: int) -> None:
    """Register a spec of a client. Decides, once, whether any node can run its calls."""
    if spec.id in state.functions:
        return
    check_spec(spec)
    driver = client.driver
    of = driver_of(spec.environment)
    require(of == (driver.number if driver is not None else DRIVER), f"{spec.name} is a function of driver {of}")
    codes = state.codes if driver is None else driver.codes
    spec.function = codes.setdefault(spec.function, spec.function)
    function = Function(spec, [], account=account_of(state, spec, driver), driver=driver)
    if spec.where is not None:
        function.where = constraints.resolve(state, spec.where, function.spec.asks)
        if (group := state.groups.get(spec.where.group)) is not None:
            group.functions.append(function)
    if isinstance(spec.kind, MethodSpec):  # it may turn out to take long after many of its calls were sent ahead
        function.is_timed = state.end_us is not None
    else:
        function.is_timed = function.limit_us > 0 or function.is_expected
        if isinstance(spec.kind, TaskSpec) and spec.kind.alternatives:
            alternatives.register(state, function, spec.kind)
        for one in function.choice or [function]:
            one.infeasible = why_infeasible(state, one)
    state.functions[spec.id] = function
    if driver is not None:
        driver.functions[spec.id] = function


def why_infeasible(state: State, function: Function) -> str:
    """Why no node can ever serve the function's request; empty if one can."""
    nodes = [node for node in state.nodes.values() if node.hosts_executors]
    if not nodes:
        return (
            f"{function.spec.name} cannot run: all ranks that run calls have died, and rank 0 runs none. Start the job "
            "with more ranks."
        )
    if function.spec.gang is not None:
        return gang_places.why_never(state, function)
    if function.where is not ANYWHERE:
        return constraints.why_nowhere(state, function)
    if any(fits(function.spec.asks, node.total) for node in nodes):
        return ""
    return (
        f"{function.spec.name} asks for {function.requests()} on one node, and no node owns that much. "
        f"Largest of {len(nodes)} node(s): {gpu_pool.largest(nodes)}."
        f"{constraints.why_few_cpus(nodes, function.spec.asks.cpu)}{gpu_pool.why_not(nodes, function.spec.asks)} "
        "Ask for less, start the job with more, "
        "or state what nodes have with init(num_cpus=..., num_gpus=..., resources=...)."
    )


def submit(state: State, client: Client, call: Call, now: int) -> None:
    """Handle a submitted call. The client holds the return values, and so does the call until it has ended."""
    try:
        function = state.functions[call.spec]
    except KeyError:
        raise RefusedError(f"a call of function {call.spec}, which nobody has sent") from None
    driver = function.driver
    if driver is not client.driver:
        raise RefusedError(f"a call of function {call.spec}, which another driver has sent")
    if function.choice:
        function = alternatives.first(function)
        call.spec = function.spec.id
    if call.scattered:
        check_scattered(call, function.spec)
    count = function.spec.num_returns
    objects_by_id = state.objects
    if count > 1 or call.id in objects_by_id:
        check_ids(state, call.id, count)
    executor = client.executor
    depth = 0
    running = None
    if executor is not None:
        running = executor.running()
        depth = running.depth + 1 if running is not None else 1
    state.submitted = order = state.submitted + 1
    function.submitted += 1
    retries = function.spec.max_retries
    if call.attempt and retries > 0:
        retries = max(0, retries - call.attempt)
    begins = WAITING if call.arguments or function.where is not ANYWHERE or call.digest else READY
    task = Task(call, function, client.id, depth, order, retries, now, begins)
    if driver is not None:
        driver.begin(task, client.id if executor is None else driver.owner(executor))
        if driver.has_left:
            state.alarms.set(driver, now)
    if executor is not None:
        executor.children[call.id] = task
        if running is not None:
            task.parent = running.call.id
        if state.has_journal:
            journaling.submitted(executor, task)
    held = client.held
    if count == 1:
        objects_by_id[call.id] = Object(call.id, client.id, 2, task=task)
        held[call.id] = None
    else:
        if count == STREAMING:
            task.stream = Stream()
        for id in task.return_ids():
            objects_by_id[id] = Object(id, client.id, 2, task=task)
            held[id] = None
    if not isinstance(function.spec.kind, TaskSpec):
        lifetimes.submit(state, task)
    lost = None
    if call.arguments or call.holds:
        lost = hold_arguments(state, task)
    elif call.actor:  # the frequent case of an actor's call
        handle = objects_by_id.get(call.actor)
        if handle is not None:
            handle.references += 1
        else:
            call.actor = b""
    if begins == READY and lost is None and not function.infeasible:  # the frequent case
        if type(function.spec.kind) is not MethodSpec:
            enqueue(state, task)
        else:
            actor_calls.ready(state, task)
    else:
        begin(state, task, lost)


def begin(state: State, task: Task, lost: bytes | None) -> None:
    """Have a call wait for missing arguments, or fail. `lost`: an argument that no longer exists."""
    function = task.function
    if lost is not None:
        story = so_far(state.stories.of(lost))
        message = f"an argument of {function.spec.name}, object {lost.hex()}, is gone.{story}"
        fail(state, task, "ObjectLostError", message)
    elif function.infeasible:
        fail(state, task, "InfeasibleResourceError", function.infeasible)
    elif removed := constraints.why_removed(state, function):
        fail(state, task, "PlacementGroupRemovedError", removed)
    else:
        constraints.await_group(state, task)
        if not task.missing:
            arguments_ready(state, task)
        elif task.missing <= WANTED_MAX:
            state.leads.append(task)


def hold_arguments(state: State, task: Task) -> bytes | None:
    """Hold all objects that the call needs, and count those without a value.

    Returns one that does not exist, or None.
    """
    call = task.call
    lost = None
    for id in call.arguments:
        found = state.objects.get(id)
        if found is None:
            lost = id
            continue
        found.references += 1
        if found.state in lifecycle.UNSEALED:
            objects.await_value(found, task)
    if call.holds:  # an object that is gone is not held, and a later one with its id must not be released
        call.holds = tuple([id for id in call.holds if objects.hold(state, id)])
    if call.actor and not objects.hold(state, call.actor):
        call.actor = b""
    return lost


def fail(state: State, task: Task, code: str, message: str) -> None:
    """Fail a call that cannot run, with an error of the runtime."""
    call_ends.fail(state, task, code, message)
    not_run(state, task, None, f"could not be created: {message.removesuffix('.')}")


def not_run(state: State, task: Task, error: Value | None, cause: str) -> None:
    """Handle a failed call: the actor that it creates ends; later calls of the actor that it calls continue."""
    if task.function.is_actor:
        lifetimes.creation_failed(state, task, error, cause)
    elif task.actor is not None:
        actor_calls.go_past(state, task.actor, task)


def arguments_ready(state: State, task: Task) -> None:
    """Handle a call with all arguments: queue it, unless an argument is an error, which becomes the call's result."""
    if task.state != WAITING or task.missing or task.is_asked:
        return  # it has failed, or has lost an argument
    for id in task.call.arguments:
        found = state.objects[id]
        if found.is_error:
            break  # a large error: the executor raises it; later errors do not matter
        if found.state == lifecycle.RUNTIME_ERROR:
            objects.pass_on(found)
            fail(state, task, found.code, found.data.decode())
            return
        if found.state == lifecycle.ERROR:
            error = Value(found.data, holds=found.holds or [], is_error=True)
            call_ends.conclude(state, task, [error], lifecycle.FAIL, objects.pass_on(found))
            not_run(state, task, error, "could not be created")
            return
    kind = task.function.spec.kind
    asks = (
        journaling.asks if isinstance(kind, TaskSpec) else checkpoints.creation_ready
    )  # for methods it is asked later
    if task.call.digest and not isinstance(kind, MethodSpec) and asks(state, task):
        return
    advance(state.stories, task, lifecycle.ARGUMENTS_READY)
    if type(kind) is MethodSpec:
        actor_calls.ready(state, task)
    else:
        enqueue(state, task)


def recalled(state: State, event: Recalled, now: int) -> None:
    """Handle the answer of the journal: the call has ended, or continues."""
    task = journaling.answered(state, event)
    if task is None:
        return
    function, values = task.function, list[Value]()
    if function.is_actor:
        checkpoints.creation_recalled(state, task, event)
    elif function.is_method or len(event.values) == max(1, function.spec.num_returns):
        values = journaling.recalled(task, event)
    if function.is_method:
        assert task.actor is not None
        state.called[task.actor] = None
    if values:
        call_ends.conclude(state, task, values, lifecycle.RECALL)
        if task.actor is not None and function.is_method:
            actor_calls.leave_queue(task.actor, task)
    elif not function.is_method:
        arguments_ready(state, task)


def done(state: State, executor: Executor | None, event: Done) -> None:
    """Handle the end of a call with one small value: the frequent case, kept short."""
    if executor is None:
        raise RefusedError("the driver ends a call")
    task = executor.drop(event.id)
    if task is None:
        check_unknown_end(executor)
        return
    function = task.function
    if task.state != SENT or function.spec.num_returns > 1:
        executor.put_back(task)
        raise RefusedError(f"a call of {function.spec.name} ends as it cannot")
    known = function.duration_us
    function.duration_us = event.duration_us if known < 0 else (7 * known + event.duration_us) >> 3
    function.is_plain = len(event.data) <= FOLLOWED_BYTES_MAX
    history.record(state, executor, task, event.start_us, event.duration_us, past.RETURNED)
    advance(state.stories, task, FINISH)
    if task.call.digest:
        note_for_journal(state, task, event)
    found = state.objects[event.id]
    found.task = None
    if found.references == 1:
        objects.release(state, event.id)
    else:
        found.references -= 1
        found.data = event.data
        advance(state.stories, found, VALUE)
        objects.announce(state, found)
    if task.stream is not None:
        items.ended(state, task)
    call = task.call
    if call.arguments or call.holds:
        call_ends.release_arguments(state, task)
    elif call.actor:
        objects.release(state, call.actor)
    if not isinstance(function.spec.kind, TaskSpec):
        lifetimes.ended(state, task)
    if task.depth:
        call_ends.forget_child(state, task)
    if function.driver is not None:
        call_ends.leave_driver(state, function.driver, task)
    task.executor = None  # its record may be kept
    function.done += 1
    state.finished += 1


def returned(state: State, client: Client, event: Returned, now: int) -> None:
    """Handle the end of a call with any values or with an error of user code."""
    executor = client.executor
    if executor is None:
        raise RefusedError("the driver ends a call")
    check_values(state, event.values)
    task = executor.assigned.get(event.id)
    if task is None:
        check_unknown_end(executor)
        objects.discard(state, *event.values)
        return
    function = task.function
    is_whole = len(event.values) in (1, function.spec.num_returns)
    if task.state != SENT or not is_whole:
        raise RefusedError(f"a call of {function.spec.name} ends as it cannot")
    executor.drop(event.id)
    function.is_plain = False
    outcome = past.RAISED if event.raised else past.RETURNED
    if event.raised and task.is_cancelled:
        outcome = past.CANCELLED
    else:
        known = function.duration_us
        function.duration_us = event.duration_us if known < 0 else (7 * known + event.duration_us) >> 3
    history.record(state, executor, task, event.start_us, event.duration_us, outcome)
    if event.raised and task.overdue and not task.is_cancelled:
        objects.discard(state, *event.values)
        end_overdue(state, task)
        return
    again = event.raised and event.may_retry and function.spec.retry is not None and task.retries
    # A large error among the arguments is raised by the executor, and would be again.
    if again and not function.is_actor and not any(state.objects[id].is_error for id in task.call.arguments):
        objects.discard(state, *event.values)
        errors.note(state, task, event.said, executor, event.trace, again=True)
        run_again(state, task, "it raised an error for which it is retried")
        return
    is_news = event.said and not task.is_cancelled  # after a cancel no client waits for its error
    failure = Failure(function.spec.name, event.said, executor.rank) if is_news else None
    if event.raised and function.is_actor:
        if failure is not None:  # waiting calls get the error now
            objects.mark(state, task.return_ids(), failure)
        lifetimes.creation_failed(state, task, event.values[0], "could not be created")
    if task.call.digest:
        note_for_journal(state, task, event)
    call_ends.conclude(state, task, event.values, FINISH, failure, event.trace)
    if not isinstance(function.spec.kind, TaskSpec):
        lifetimes.ended(state, task)


def note_for_journal(state: State, task: Task, event: Done | Returned) -> None:
    """Record an ended call in the journal, if that is possible."""
    if isinstance(task.function.spec.kind, TaskSpec):
        journaling.ended(state, task, event)
    elif task.function.is_method:
        checkpoints.method_ended(state, task, event)


def end_overdue(state: State, task: Task) -> None:
    """Retry a call that was interrupted because of its time limit, or fail it."""
    if task.actor is not None and task.actor.saves is not None:
        why = f"a call of {task.function.spec.name} was interrupted, having run too long"
        checkpoints.give_up(state, task.actor, task.actor.saves, why)
    if not retries.may_exceed_again(task):
        call_ends.overdue(state, task)
        if task.actor is not None:
            lifetimes.ended(state, task)
    else:
        run_again(state, task, task.overdue)


def run_again(state: State, task: Task, cause: str) -> None:
    """Retry a call that has ended in its executor."""
    if task.actor is not None:
        actor_calls.give_again(state, task.actor, task, cause, has_run=True)
        state.called[task.actor] = None
    else:
        advance(state.stories, task, lifecycle.LOSE, cause)
        retry(state, task, now=0, has_crashed=False)


def retry(state: State, task: Task, now: int, had_ended: bool = False, has_crashed: bool = True) -> None:
    """Run a lost call again."""
    retries.spend(state, task, had_ended)
    backoff.run_again(state, task, now, has_crashed and not had_ended)
