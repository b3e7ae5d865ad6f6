"""Cancels that come at any line of what a client does, one after the other: nothing is left behind.

Run by `test_client.py` in a process of its own.
"""

import contextlib
import gc
import linecache
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy
import pytest

from mpi_runtime.core.client import (
    blocking,
    connection,
    generators,
    object_ref,
    outbox,
    outgoing,
    references,
    store,
    submitting,
    waiting,
)
from mpi_runtime.core.client.client import Client
from mpi_runtime.core.client.interrupts import CANCEL_SIGNAL
from mpi_runtime.core.client.object_ref import ActorRef, adopt
from mpi_runtime.core.executor import cancels as executor_cancels
from mpi_runtime.core.executor.cancels import Cancels
from mpi_runtime.core.objects import serialize
from mpi_runtime.scheduler.protocol.effects import Ready, ReadyStored
from mpi_runtime.scheduler.protocol.events import (
    STREAMING,
    Blocked,
    Call,
    Held,
    Put,
    Released,
    Spec,
    TaskSpec,
    Unblocked,
)
from mpi_runtime.scheduler.protocol.ids import attempt_of, return_ids
from tests.unit.core.client.test_client import Peer, both, put, submit

__all__ = ["both"]


@pytest.fixture
def cancels(both: tuple[Client, Peer], monkeypatch: pytest.MonkeyPatch) -> Iterator[Cancels]:
    """As in an executor that runs a call, which is cancelled when the signal comes.

    An interrupt that Python had to ignore is not repeated: it would come later, at a line that nobody has chosen.
    """
    monkeypatch.setattr(executor_cancels, "_interrupt_again", lambda: None)
    monkeypatch.setattr(outbox, "TICKS_IDLE_MAX", 1)  # each of hundreds of lines waits for the end of a sending thread
    reading, writing = os.pipe2(os.O_NONBLOCK)
    before, hook = signal.getsignal(CANCEL_SIGNAL), sys.unraisablehook
    cancels = Cancels(reading)
    cancels.listen()
    both[0].outbox.interrupts = cancels
    yield cancels
    cancels.interruptible = None
    signal.signal(CANCEL_SIGNAL, before)
    sys.unraisablehook = hook
    for descriptor in (reading, writing):
        os.close(descriptor)


def cancelled_at(
    number: int,
    cancels: Cancels,
    modules: Sequence[types.ModuleType],
    work: Callable[[], object],
    events: Sequence[str] = ("line",),
) -> bool:
    """Run, with the signal of a cancel at the n-th line, or return, in these modules; whether it came to that.

    With returns, not at lines of `with`: at their end the tracing is called where Python runs no handler.
    """
    left, files = number, {module.__file__ for module in modules}
    cancels.interruptible = call = Call(b"x" * 16, 1, b"")
    cancels.attempts[call.id] = attempt_of(call.id, call.attempt)

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in files:
            return None
        at_with = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with ")
        if event in events and not (at_with and "return" in events):
            left -= 1
            if not left:
                signal.raise_signal(CANCEL_SIGNAL)
        return trace

    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        cancels.interruptible = None
        sys.settrace(None)
    return left <= 0


@pytest.mark.parametrize("plant", [False, True])
def test_a_cancel_anywhere_in_a_wait_leaves_no_call_that_waits(
    both: tuple[Client, Peer], cancels: Cancels, plant: bool
) -> None:
    """Else its end is refused, as of a call that waits. The bug that is planted: cancels are not put off."""
    client, peer = both
    client.blocking.lends_cpu = True
    if plant:
        client.outbox.interrupts = contextlib.nullcontext()
    said, number, is_left, came = set(), 0, False, True
    while came and not is_left:
        number += 1
        ref = submit(client)
        peer.rest()
        peer.say(Ready(ref.binary(), serialize.dumps(number).data))
        came = cancelled_at(number, cancels, [connection, blocking], partial(client.waiting.get, [ref.binary()], 1))
        if client.blocking.is_reported:  # as at the end of a call
            client.blocking.resumes()
        client.outbox.flush()
        told = [type(message) for message in peer.rest() if type(message) in (Blocked, Unblocked)]
        said.add(tuple(told))
        is_left = told not in ([], [Blocked, Unblocked])
    assert is_left == plant, said
    assert plant or (number > 20 and len(said) == 2)


@pytest.mark.parametrize("plant", [False, True])
def test_a_cancel_anywhere_in_a_wait_keeps_no_other_thread_waiting(
    both: tuple[Client, Peer], cancels: Cancels, plant: bool
) -> None:
    """The bug that is planted: `with` takes the lock by Python code, in which a cancel may come when it has it."""
    client, peer = both
    line = client.line
    if plant:
        line._lock = threading.Condition()  # type: ignore[assignment]
    number, is_kept, came, found = 0, False, True, [False]

    def other() -> None:
        with line._lock:
            found[0] = not line._leading

    while came and not is_kept:
        number += 1
        ref = submit(client)
        peer.rest()
        peer.say(Ready(ref.binary(), serialize.dumps(number).data))
        wait = partial(client.waiting.get, [ref.binary()], 1)
        came = cancelled_at(number, cancels, [connection, threading], wait, ("line", "return"))
        found[0] = False
        thread = threading.Thread(target=other, daemon=True)
        thread.start()
        thread.join(10.0 if not plant else 0.5)
        is_kept = not found[0]
        if thread.is_alive():  # this thread has the lock
            line._lock.release()
            thread.join()
        client.outbox.flush()
        peer.rest()
    assert is_kept == plant, number
    assert plant or number > 40


def asks(client: Client, count: int) -> None:
    """Submit a call with so many values."""
    submitting.submit(
        client, Call(client.scopes.next_ids(max(1, count)), 1, b""), Spec(1, TaskSpec(), "f", b"", num_returns=count)
    )


def creates(client: Client) -> None:
    submitting.create_actor(client, Call(client.scopes.next_ids(1), 1, b""))


def finds(client: Client) -> None:
    """Find references in a value."""
    adopt(os.urandom(16))
    adopt(os.urandom(16), ActorRef)


def makes(client: Client) -> None:
    put(client, "small")


@pytest.mark.parametrize(
    ("work", "values"),
    [*((partial(asks, count=count), count) for count in (0, 1, 3, STREAMING)), (creates, 1), (finds, 1), (makes, 1)],
    ids=["no value", "a value", "values", "items", "actor", "found", "made"],
)
def test_a_cancel_anywhere_leaves_no_reference(
    both: tuple[Client, Peer], cancels: Cancels, work: Any, values: int
) -> None:
    """What the scheduler has heard of it hears the end of."""
    client, peer = both
    number, came, heard = 0, True, 0
    while came:
        number += 1
        came = cancelled_at(
            number, cancels, [submitting, object_ref, outbox, outgoing, references, generators], lambda: work(client)
        )
        gc.collect()
        client.outbox.flush()
        said = peer.rest()
        known = {id for one in said if type(one) is Held for id in one.ids}
        known |= {id for one in said if type(one) in (Call, Put) for id in return_ids(one.id, values)}
        heard += bool(known)
        gone = {id for one in said if type(one) is Released for id in one.ids}
        assert known <= gone, number
    assert number > 5
    assert heard > 1


def test_a_cancel_anywhere_leaves_no_view(both: tuple[Client, Peer], cancels: Cancels) -> None:
    """What lies in the arena and was looked at can be moved and freed again."""
    client, _ = both
    written = serialize.dumps(numpy.arange(9_000))
    size, seen = written.size(), b"seen".ljust(16)
    modules = [object_ref, outbox, outgoing, references, store, waiting, connection]
    client.store._arena.write(0, 0, size, written.parts())
    client.references.counts[seen] = 1
    client.references.values[seen] = ReadyStored(seen, 0, 0, size)
    number, came = 0, True
    while came:
        number += 1
        came = cancelled_at(number, cancels, modules, lambda: client.waiting.get([seen], 1))
        gc.collect()
        client.outbox.flush()
        assert not client.references.views, number
        assert client.references.counts == {seen: 1}
    assert number > 20
