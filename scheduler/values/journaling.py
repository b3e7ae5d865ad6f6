"""The journal in the scheduler: which calls are recorded, under which keys, and recalled.

The key of a call is a hash of its code, its arguments, and the values of arguments that are references. So the journal
is asked when a call has all its arguments. A call has no key if one of these values holds references or is an actor:
then the effect of the call depends on more than its arguments.

A task is recorded with its return values, if these are its whole effect: see `is_partial` of `Task`. `checkpoints.py`
does the same for actors.
"""

from __future__ import annotations

from mpi_runtime.scheduler.protocol.effects import Recall, Record
from mpi_runtime.scheduler.protocol.events import TASK, Done, JournalFailed, Kept, Returned, Value
from mpi_runtime.scheduler.protocol.ids import digest
from mpi_runtime.scheduler.protocol.rank_events import Recalled
from mpi_runtime.scheduler.records.lifecycle import INLINE, STORED
from mpi_runtime.scheduler.records.records import Executor, Task
from mpi_runtime.scheduler.records.state import Client, State

KEY_BYTES = 16


def submitted(executor: Executor, task: Task) -> None:
    """The call that runs in an executor has submitted another call."""
    parent = executor.running()
    if parent is None:
        return
    if task.function.spec.kind == TASK:
        task.parent = parent
        parent.open_children += 1
    else:
        parent.is_partial = True


def failed(state: State, client: Client, event: JournalFailed, now: int) -> None:
    """A process could not write a file of the journal. The head decides whether the job continues."""
    state.effects.journal.append(event)


def touches_actor(executor: Executor | None) -> None:
    """The call that runs in an executor has changed an actor without calling it: it has killed it, for instance."""
    parent = executor.running() if executor is not None else None
    if parent is not None:
        parent.is_partial = True


def forget_parent(task: Task) -> None:
    """A call has ended. If its values are not its whole effect, this is true of the call that submitted it too."""
    parent, task.parent = task.parent, None
    if parent is not None:
        parent.open_children -= 1
        parent.is_partial = parent.is_partial or task.is_partial or task.open_children > 0


def asks(state: State, task: Task) -> bool:
    """A call has all its arguments: find its key. Returns whether the journal is asked for its values."""
    task.key = key_of(state, task)
    if not task.key or not state.recalls:
        return False
    spec = task.function.spec
    state.effects.journal.append(Recall(task.id, task.key, spec.code, spec.name))
    task.recalling = True
    return True


def forget_key(task: Task) -> None:
    """An argument of a task is made again, or may be: its value can differ, so the key is no longer valid."""
    if task.function.spec.kind == TASK:  # the state of an actor does not change with its arguments
        task.key = b""
        task.call.kept = ()


def answered(state: State, event: Recalled) -> Task | None:
    """The journal has answered. Returns the call; None: it has ended meanwhile."""
    found = state.objects.get(event.id)
    task = found.task if found is not None else None
    if task is None or not task.recalling:
        return None
    task.recalling = False
    return task


def recalled(task: Task, event: Recalled) -> list[Value]:
    """The values of a task from the journal. Empty if one is large: then the executor loads them."""
    if len(event.values) != max(1, task.function.spec.num_returns):
        return []
    if any(value.file for value in event.values):
        task.call.kept = tuple(event.values)
        return []
    return [Value(value.data) for value in event.values]


def ended(state: State, task: Task, event: Done | Returned) -> None:
    """A call has returned: record it, if its values are its whole effect and a later run can read them."""
    key = task.key or key_of(state, task)  # references inside its arguments have values by now
    if not key or task.is_partial or task.open_children:
        return
    if type(event) is Done:
        values = [Kept(event.data)]
    else:
        assert isinstance(event, Returned)
        if event.raised or event.has_errors or not all(map(_can_be_kept, event.values)):
            return
        values = [kept(value) for value in event.values]
    if task.call.kept and not any(value.file for value in values):
        return  # they were loaded from there
    spec = task.function.spec
    state.totals.recorded += 1
    state.effects.journal.append(Record(task.id, key, spec.code, spec.name, event.duration_us, values))


def _can_be_kept(value: Value) -> bool:
    return not value.holds and not value.is_error and (value.stored is None or bool(value.file))


def kept(value: Value) -> Kept:
    """A value as the journal has it: a small one in the record, a large one in a file of its own."""
    if value.stored is None:
        return Kept(value.data, is_error=value.is_error)
    return Kept(b"", value.file, value.stored.size, value.digest)


def key_of(state: State, task: Task) -> bytes:
    """The key of a call; empty: it has none, or not yet."""
    call = task.call
    parts = [task.function.spec.code, call.digest]
    for id in (*call.arguments, *call.holds):
        content = _content(state, id)
        if not content:
            return b""
        parts.append(content)
    return digest(b"".join(parts), KEY_BYTES)


def _content(state: State, id: bytes) -> bytes:
    """The hash of an object's value; empty: it has no value, is an error or an actor, or holds references."""
    found = state.objects.get(id)
    if found is None or found.holds or found.is_error or found.actor is not None:
        return b""
    if found.state == INLINE:
        return digest(found.data, KEY_BYTES)
    return found.digest if found.state == STORED else b""
