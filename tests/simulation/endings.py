"""How calls of virtual executors end: with values, with values that were kept, or with an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mpi_runtime.scheduler.protocol.events import (
    ActorSpec,
    Call,
    Done,
    MethodSpec,
    Returned,
    Spec,
    Stored,
    Value,
)
from tests.simulation import oracle
from tests.simulation.journals import UNREADABLE
from tests.simulation.processes import CANCELLED, TAINT, Content
from tests.simulation.scope import Pause, Program, Scope, TaintedError
from tests.simulation.steps import Job

if TYPE_CHECKING:
    from tests.simulation.executors import Executor


class Running(Scope):
    """A call that runs."""

    def __init__(self, call: Call, spec: Spec, job: Job, began_us: int) -> None:
        super().__init__(call.id, call.attempt, call, spec.name)
        self.id = call.id
        self.attempt = call.attempt
        self.spec = spec
        self.job = job
        self.began_us = began_us
        self.yielded = 0
        self.program: Program
        self.pause: Pause | None = None


class PassedOnError(Exception):
    """A call ends with this error of user code, its own or an argument's."""

    def __init__(self, kind: str, name: bytes) -> None:
        super().__init__(kind, name)
        self.kind = kind
        self.name = name


def result(executor: Executor, running: Running) -> Done | Returned:
    """What a call that has returned says."""
    job, spec, call = running.job, running.spec, running.id
    name = oracle.digest(job.key, *running.seen)
    duration_us = executor.world.now - running.began_us
    if isinstance(spec.kind, ActorSpec) or spec.num_returns <= 0:
        data = msgspec.msgpack.encode(Content(name if isinstance(spec.kind, ActorSpec) else oracle.digest(name, 0)))
        return Done(call, data, duration_us)
    inner = [running.slots[slot] for slot in job.holds if slot in running.slots]
    values = []
    for index, size in enumerate(job.sizes):
        holds = inner if index == 0 else []
        try:
            values.append(
                executor.store(Content(oracle.digest(name, index), holds, attempt=running.attempt), size, holds)
            )
        except TaintedError:
            executor.keeper.abandon([value.stored.offset for value in values if value.stored is not None])
            raise
    if len(values) == 1 and values[0].stored is None and not inner:
        return Done(call, values[0].data, duration_us)
    for index, value in enumerate(values):
        if value.stored is not None and executor.world.journal is not None and spec.code and not value.holds:
            content = executor.arenas(value.stored.rank)[value.stored.offset]
            executor.world.journal.write(call, index, content, value)
    return Returned(call, values, duration_us)


def kept(executor: Executor, running: Running) -> Returned | None:
    """What a call with kept values says; None if one of them cannot be read."""
    journal, call = executor.world.journal, running.call
    assert journal is not None
    assert call is not None
    if not isinstance(running.spec.kind, MethodSpec) and executor.world.rng.random() < UNREADABLE:
        executor.world.counters["kept values that cannot be read"] += 1
        return None
    executor.world.counters["kept values"] += 1
    values = []
    for kept in call.kept:
        content, size = journal.files[kept.file] if kept.file else (kept.data, 0)
        if not kept.file:
            values.append(Value(content))
            continue
        rank, offset = executor.allocate()
        if offset < 0:
            executor.keeper.abandon([value.stored.offset for value in values if value.stored is not None])
            raise TaintedError("ObjectStoreFullError")
        executor.arenas(rank)[offset] = content
        values.append(Value(b"", Stored(rank, offset, size), digest=kept.digest))
    return Returned(running.id, values, executor.world.now - running.began_us)


def raised(executor: Executor, running: Running, error: PassedOnError) -> Returned:
    """What a call that has raised says. Whatever it was: when the call has been cancelled, that was the reason."""
    duration_us = executor.world.now - running.began_us
    if (running.id, running.attempt) in executor.cancelled:
        return Returned(running.id, [Value(CANCELLED, None, [], True)], duration_us, raised=True)
    if error.kind != oracle.ERROR:
        value = Value(error.name if error.name.startswith(TAINT) else TAINT + error.name, None, [], True)
        return Returned(running.id, [value], duration_us)
    size = running.job.sizes[0]
    try:
        value = executor.store(Content(error.name), size, [], is_error=True)
    except TaintedError:
        value = executor.store(Content(error.name), 8, [], is_error=True)
    return Returned(running.id, [value], duration_us, raised=True, said=f"raised by {running.id.hex()}")
