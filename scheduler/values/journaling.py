"""The journal in the scheduler: which calls are recorded, under which keys, and recalled.

The key of a call is a hash of its code, its arguments, and the values of referenced arguments. So the journal is asked
when a call has all its arguments. A call has no key if one of these values holds references or is an actor: then its
effect depends on more than its arguments.

A task is recorded with its return values, if these are its whole effect: see `Journaled`. `checkpoints.py`
does the same for actors.
"""

from __future__ import annotations

from mpi_runtime.scheduler.protocol.effects import Recall, Record
from mpi_runtime.scheduler.protocol.events import Done, Kept, Returned, TaskSpec, Value
from mpi_runtime.scheduler.protocol.ids import digest
from mpi_runtime.scheduler.protocol.rank_events import Recalled
from mpi_runtime.scheduler.records.lifecycle import INLINE, STORED
from mpi_runtime.scheduler.records.records import Executor, Journaled, Task
from mpi_runtime.scheduler.records.state import State

KEY_BYTES = 16


def submitted(executor: Executor, task: Task) -> None:
    """Note that the running call of an executor has submitted another call."""
    parent = executor.running()
    if parent is None:
        return
    if isinstance(task.function.spec.kind, TaskSpec):
        journaled(task).parent = parent
        journaled(parent).open_children += 1
    else:
        journaled(parent).is_partial = True


def journaled(task: Task) -> Journaled:
    """The properties of a call that matter to the journal."""
    if task.journaled is None:
        task.journaled = Journaled()
    return task.journaled


def touches_actor(executor: Executor | None) -> None:
    """Note that the running call of an executor has changed an actor without calling it: it has killed it."""
    parent = executor.running() if executor is not None else None
    if parent is not None:
        journaled(parent).is_partial = True


def forget_parent(task: Task) -> None:
    """Note that a call has ended. If its values are not its whole effect, nor are those of its parent."""
    own = task.journaled
    if own is None or own.parent is None:
        return
    its, own.parent = journaled(own.parent), None
    its.open_children -= 1
    its.is_partial = its.is_partial or not own.is_whole


def asks(state: State, task: Task) -> bool:
    """Find the key of a call with all its arguments. Returns whether the journal is asked for its values."""
    own = journaled(task)
    if own.key:
        return False
    own.key = key_of(state, task)
    return ask(state, task) if state.recalls else False


def ask(state: State, task: Task, actor: bytes = b"") -> bool:
    """Ask the journal for a call, if it has a key."""
    own = journaled(task)
    if own.key:
        spec = task.function.spec
        state.effects.journal.append(Recall(task.id, own.key, spec.code, spec.name, actor, task.function.is_actor))
        own.is_asked = True
    return bool(own.key)


def forget_key(task: Task) -> None:
    """Forget the key of a task with an argument that may be rebuilt: the value can differ."""
    if isinstance(task.function.spec.kind, TaskSpec):  # the state of an actor does not change with its arguments
        if task.journaled is not None:
            task.journaled.key = b""
        task.call.kept = ()


def answered(state: State, event: Recalled) -> Task | None:
    """Return the call about which the journal has answered; None: it has ended meanwhile."""
    found = state.objects.get(event.id)
    task = found.task if found is not None else None
    if task is None or task.journaled is None or not task.journaled.is_asked:
        return None
    task.journaled.is_asked = False
    return task


def recalled(task: Task, event: Recalled) -> list[Value]:
    """The values of a call from the journal. Empty if one is large: then the executor loads them."""
    if any(value.file for value in event.values):
        task.call.kept = tuple(event.values)
        return []
    return [Value(value.data, is_error=value.is_error) for value in event.values]


def ended(state: State, task: Task, event: Done | Returned) -> None:
    """Record a call that has returned, if its values are its whole effect and a later run can read them."""
    if isinstance(event, Returned) and (event.raised or event.has_errors or any(one.is_error for one in event.values)):
        return
    found = record(state, task, event)
    if isinstance(found, Record) and not (task.call.kept and not any(one.file for one in found.values)):
        state.totals.recorded += 1  # else the journal has them
        state.effects.journal.append(found)


def record(state: State, task: Task, event: Done | Returned, life: bytes = b"") -> Record | str:
    """The record of an ended call, or why no later run could use it."""
    spec, own = task.function.spec, journaled(task)
    key = own.key or key_of(state, task)  # references in its arguments have values by now
    if not key:
        return f"{spec.name} was given references, or handles of actors"
    if not own.is_whole:
        return f"{spec.name} has called or created actors, or has left calls behind"
    values = [Value(event.data)] if isinstance(event, Done) else event.values
    if any(one.holds or (one.stored is not None and not one.file) for one in values):
        return f"{spec.name} has returned references, or a large error"
    return Record(task.id, key, spec.code, spec.name, event.duration_us, [_kept(one) for one in values], life)


def _kept(value: Value) -> Kept:
    """The form of a value in the journal: a small one is in the record, a large one in a file."""
    if value.stored is None:
        return Kept(value.data, is_error=value.is_error)
    return Kept(b"", value.file, value.stored.size, value.digest)


def key_of(state: State, task: Task) -> bytes:
    """The key of a call; empty: no key, or not yet."""
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
        return found.digest or digest(found.data, KEY_BYTES)
    return found.digest if found.state == STORED else b""
