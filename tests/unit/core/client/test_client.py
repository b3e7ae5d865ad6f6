"""The client against a scheduler that is only a socket: what it says, in which order, and how it counts references."""

import asyncio
import gc
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mpi_runtime import errors
from mpi_runtime.core.client import current, submitting
from mpi_runtime.core.client.client import Client
from mpi_runtime.core.client.generators import ObjectRefGenerator
from mpi_runtime.core.client.object_ref import ActorRef, ObjectRef, adopt
from mpi_runtime.core.client.outbox import SLOW_TICK_S
from mpi_runtime.core.client.scope import Scope
from mpi_runtime.core.client.spare_extents import COUNT_MAX
from mpi_runtime.core.objects import arena, serialize
from mpi_runtime.core.objects.arena import ClientArena
from mpi_runtime.core.transport import channel, codec
from mpi_runtime.core.transport.channel import LOCAL, Splitter, packed
from mpi_runtime.core.transport.messages import Abandon, Ahead, Allocate, Allocated, GiveBack, Shutdown
from mpi_runtime.errors import remote as remote_errors
from mpi_runtime.scheduler.protocol.effects import Ready, ReadyElsewhere, ReadyError, ReadyFailed
from mpi_runtime.scheduler.protocol.events import (
    STREAMING,
    Blocked,
    Call,
    Held,
    Put,
    Query,
    Released,
    Spec,
    SubscriptionRequested,
    TaskSpec,
    Unblocked,
)
from tests.helpers import wait_until, wait_until_in_client

LIMIT_S = 10.0


class Peer:
    """The other end: keeps what the client says, says what the test wants."""

    def __init__(self, end: socket.socket, client: Client) -> None:
        self.end = end
        self._outbox = client.outbox
        self.said: list[Any] = []
        self._splitter = Splitter()

    def hear(self, *kinds: type, timeout_s: float = LIMIT_S) -> list[Any]:
        """Listen until a message of each of these kinds was said; all that was said since the last time."""
        end = time.monotonic() + timeout_s
        while not all(any(type(message) is kind for message in self.said) for kind in kinds):
            assert time.monotonic() < end, f"heard only {self.said}, not {kinds}"
            self._listen(0.01)
        said, self.said = self.said, []
        return said

    def rest(self) -> list[Any]:
        """All that the client has said, and what its thread has yet to send."""
        end = time.monotonic() + LIMIT_S
        while self._outbox.messages or self._outbox.ticking:
            assert time.monotonic() < end, f"unsent: {self._outbox.messages}"
            self._listen(0.01)
        with self._outbox.lock:  # nobody is sending
            pass
        while self._listen(0.0):
            pass
        said, self.said = self.said, []
        return said

    def _listen(self, timeout_s: float) -> bool:
        self.end.settimeout(timeout_s)
        try:
            data = self.end.recv(1 << 18)
        except (TimeoutError, BlockingIOError):
            return False
        for count, frame in self._splitter.feed(data):
            decoder = codec.to_agent if count == LOCAL else codec.from_client
            self.said += decoder.decode(frame)
        return bool(data)

    def say(self, *messages: Any) -> None:
        """Send a frame to the client."""
        frame = codec.encode(messages)
        self.end.sendall(packed(frame, 0))


@pytest.fixture
def both() -> Iterator[tuple[Client, Peer]]:
    ours, theirs = channel.pair()
    descriptor = arena.create(1 << 20, 1)
    client = Client(ours, ClientArena(descriptor), {0: 0}, 65536)
    client.scopes.running = Scope(b"test")
    current.set_client(client)
    yield client, Peer(theirs, client)
    current.set_client(None)
    end = time.monotonic() + LIMIT_S
    while client.outbox.ticking and time.monotonic() < end:
        time.sleep(0.001)
    client.close()
    for one in (ours, theirs):
        one.close()
    os.close(descriptor)


def submit(client: Client, *arguments: bytes) -> ObjectRef[Any]:
    call = Call(client.scopes.next_ids(1), 1, b"", arguments)
    ref: ObjectRef[Any] = submitting.submit(client, call, Spec(1, TaskSpec(), "f", b""))
    return ref


def put(client: Client, value: object) -> ObjectRef[Any]:
    return submitting.put(client, serialize.dumps(value))


def in_thread(work: Any) -> tuple[threading.Thread, list[Any]]:
    """Run it; what it returned or raised comes into the list."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


# Ids


def test_ids_derive_from_the_parent_and_the_order(both: tuple[Client, Peer]) -> None:
    client, _ = both
    counts = (1, 3, 1, 2)
    client.scopes.running = Scope(b"parent")
    first = [client.scopes.next_ids(count) for count in counts]
    client.scopes.running = Scope(b"parent")
    assert [client.scopes.next_ids(count) for count in counts] == first
    client.scopes.running = Scope(b"parent", 1)
    assert client.scopes.next_ids(1) != first[0]
    client.scopes.running = Scope(b"other")
    assert client.scopes.next_ids(1) != first[0]
    assert all(len(id) == 16 for id in first)


def test_ids_of_threads_never_overlap(both: tuple[Client, Peer]) -> None:
    client, _ = both
    found: list[bytes] = []

    def work(count: int) -> None:
        for _ in range(2000):
            start = int.from_bytes(client.scopes.next_ids(count), "big")
            found.extend((start + index).to_bytes(16, "big") for index in range(max(1, count)))

    threads = [threading.Thread(target=work, args=(count,)) for count in (0, 1, 2, 3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == len(found) == 2000 * 12


# What is said, and when


def test_a_lone_call_is_said_at_once(both: tuple[Client, Peer]) -> None:
    client, peer = both
    ref = submit(client)
    (call,) = peer.hear(Call)
    assert call.id == ref.binary()


def test_many_calls_share_frames_and_keep_their_order(both: tuple[Client, Peer]) -> None:
    client, peer = both
    refs = [submit(client) for _ in range(1000)]
    calls = [message for message in peer.rest() if type(message) is Call]
    assert [call.id for call in calls] == [ref.binary() for ref in refs]


def test_the_last_of_a_burst_is_not_left_behind(both: tuple[Client, Peer]) -> None:
    client, peer = both
    refs = [submit(client) for _ in range(7)]
    said = peer.rest()  # though the client does nothing more
    assert sum(type(message) is Call for message in said) == len(refs)


def test_a_spec_is_said_once(both: tuple[Client, Peer]) -> None:
    client, peer = both
    for _ in range(3):
        client.register(Spec(5, TaskSpec(), "f", b""))
    assert [type(message) for message in peer.rest()] == [Spec]


def test_nothing_follows_the_last_message(both: tuple[Client, Peer]) -> None:
    client, peer = both
    refs = [put(client, n) for n in range(10)]
    client.outbox.send_last(Shutdown())
    refs.clear()
    submit(client)
    said = peer.rest()
    assert type(said[-1]) is Shutdown
    assert sum(type(message) is Put for message in said) == 10


def test_a_message_on_a_busy_connection_is_sent_without_a_further_call(both: tuple[Client, Peer]) -> None:
    client, peer = both
    for _ in range(3):
        submit(client)
        submit(client)
        peer.hear(Call)
        wait_until(lambda: not client.outbox.ticking)  # the thread ends, and the next message starts it again


def test_the_thread_looks_less_often_while_the_client_sends_everything_itself(
    both: tuple[Client, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, peer = both
    pauses, sleep = [], time.sleep

    def noting(seconds: float) -> None:
        pauses.append(seconds)
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", noting)
    end = time.monotonic() + LIMIT_S
    while pauses.count(SLOW_TICK_S) < 5:
        assert time.monotonic() < end
        submit(client)
        client.outbox.flush()
        peer._listen(0.0)
    submit(client)
    submit(client)
    peer.hear(Call)
    wait_until(lambda: not client.outbox.ticking)


def test_a_release_is_sent_without_a_further_call(both: tuple[Client, Peer]) -> None:
    client, peer = both
    ref = submit(client)
    peer.rest()
    del ref
    peer.hear(Released)


# Counting


def test_the_last_reference_is_told_once(both: tuple[Client, Peer]) -> None:
    client, peer = both
    ref = submit(client)
    id = ref.binary()
    other: ObjectRef[Any] = adopt(id)
    peer.rest()
    del ref
    assert not any(type(message) is Released for message in peer.rest())
    del other
    released = [message.ids for message in peer.hear(Released) if type(message) is Released]
    assert released == [[id]]
    assert client.references.counts == {}


def test_a_reference_that_comes_back_is_held_after_its_release(both: tuple[Client, Peer]) -> None:
    client, peer = both
    ref = submit(client)
    id = ref.binary()
    peer.rest()
    del ref
    again: ObjectRef[Any] = adopt(id)
    said = [message for message in peer.rest() if type(message) in (Released, Held)]
    # Either it was back before anything was told, or both are told in this order.
    assert [type(message) for message in said] in ([], [Released, Held])
    del again
    peer.hear(Released)


def test_an_argument_is_said_before_its_release(both: tuple[Client, Peer]) -> None:
    client, peer = both
    for _ in range(50):
        ref = put(client, 1)
        id = ref.binary()
        result = submit(client, id)
        del ref
        said = peer.hear(Call) + peer.rest()
        call = next(number for number, message in enumerate(said) if type(message) is Call)
        assert not any(type(message) is Released and id in message.ids for message in said[:call])
        del result


def test_values_of_gone_references_are_forgotten(both: tuple[Client, Peer]) -> None:
    client, peer = both
    refs = [submit(client) for _ in range(10)]
    peer.say(*[Ready(ref.binary(), serialize.dumps(n).data) for n, ref in enumerate(refs)])
    assert client.waiting.get([ref.binary() for ref in refs], LIMIT_S) == list(range(10))
    late = refs[3].binary()
    refs.clear()
    client.outbox.flush()
    assert client.references.values == {}
    peer.say(Ready(late, b""))  # it was on its way when the reference went
    client.waiting.wait([put(client, 0).binary()], 1, 0)
    assert late not in client.references.values


def test_references_dropped_by_the_collector(both: tuple[Client, Peer]) -> None:
    client, peer = both
    cycle: list[Any] = [put(client, 1)]
    cycle.append(cycle)
    peer.rest()
    del cycle
    gc.collect()
    client.outbox.flush()
    assert [type(message) for message in peer.rest()] == [Released]


# Waiting


@pytest.mark.parametrize("kind", [ObjectRef, ActorRef, ObjectRefGenerator])
def test_what_was_interrupted_while_it_was_made_goes_without_a_word(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    unfinished = object.__new__(kind)
    del unfinished
    assert not said


def test_get_waits_for_what_is_missing(both: tuple[Client, Peer]) -> None:
    client, peer = both
    refs = [submit(client) for _ in range(3)]
    thread, found = in_thread(lambda: client.waiting.get([ref.binary() for ref in refs], LIMIT_S))
    for n in (2, 0, 1):
        peer.say(Ready(refs[n].binary(), serialize.dumps(n).data))
    thread.join(LIMIT_S)
    assert found == [[0, 1, 2]]


def test_borrowed_objects_are_subscribed_to_once(both: tuple[Client, Peer]) -> None:
    client, peer = both
    id = bytes(16)
    ref: ObjectRef[Any] = adopt(id)
    with pytest.raises(errors.GetTimeoutError):
        client.waiting.get([id], 0.01)
    with pytest.raises(errors.GetTimeoutError):
        client.waiting.get([id], 0.01)
    assert sum(type(message) is SubscriptionRequested for message in peer.rest()) == 1
    peer.say(Ready(id, serialize.dumps("v").data))
    assert client.waiting.get([id], LIMIT_S) == ["v"]
    del ref


def test_values_elsewhere_are_asked_for_together(both: tuple[Client, Peer]) -> None:
    client, peer = both
    refs = [submit(client) for _ in range(50)]
    ids = [ref.binary() for ref in refs]
    peer.rest()
    peer.say(*[ReadyElsewhere(id) for id in ids])
    assert all(client.waiting.wait(ids, len(ids), LIMIT_S))
    thread, found = in_thread(lambda: client.waiting.get(ids, LIMIT_S))
    (asked,) = peer.hear(SubscriptionRequested)
    assert asked.ids == ids
    assert asked.fetch
    peer.say(*[Ready(id, serialize.dumps(n).data) for n, id in enumerate(ids)])
    thread.join(LIMIT_S)
    assert found == [list(range(50))]


@pytest.mark.parametrize("known", [True, False])
def test_an_error_ends_the_wait(both: tuple[Client, Peer], known: bool) -> None:
    client, peer = both
    never, bad, worse = (submit(client) for _ in range(3))
    messages = [
        ReadyError(bad.binary(), remote_errors.to_bytes(errors.task_error(KeyError("k"), "text"))),
        ReadyFailed(worse.binary(), "WorkerCrashedError", "it died"),
    ]
    if known:
        peer.say(*messages)
        client.waiting.wait([bad.binary(), worse.binary()], 2, LIMIT_S)
    threads = [
        in_thread(lambda ref=ref: client.waiting.get([never.binary(), ref.binary()], LIMIT_S)) for ref in (bad, worse)
    ]
    if not known:
        for thread, _ in threads:
            wait_until_in_client(thread)
        peer.say(*messages)
    for thread, _ in threads:
        thread.join(LIMIT_S)
    (first,), (second,) = (found for _, found in threads)
    assert isinstance(first, KeyError)
    assert isinstance(second, errors.WorkerCrashedError)


def test_an_executor_says_that_it_waits(both: tuple[Client, Peer]) -> None:
    client, peer = both
    client.blocking.lends_cpu = True
    ref = submit(client)
    peer.rest()
    threads = [in_thread(lambda: client.waiting.get([ref.binary()], LIMIT_S)) for _ in range(3)]
    said = [message for message in peer.hear(Blocked) if type(message) is Blocked]
    wait_until(lambda: client.scopes.running.waiting == 3, LIMIT_S, "all threads")
    client.outbox.flush()
    said += [message for message in peer.rest() if type(message) is Blocked]
    assert [message.ids for message in said] == [[ref.binary()]] * 3
    peer.say(Ready(ref.binary(), serialize.dumps(1).data))
    for thread, _ in threads:
        thread.join(LIMIT_S)
    client.outbox.flush()
    assert [type(message) for message in peer.rest()] == [Unblocked]
    assert [found for _, found in threads] == [[[1]]] * 3


def test_an_executor_says_that_a_coroutine_waits(both: tuple[Client, Peer]) -> None:
    client, peer = both
    client.blocking.lends_cpu = True
    ref = submit(client)
    peer.rest()

    async def main() -> list[object]:
        waiting = [ref.as_future(), ref.as_future()]
        cancelled = ref.as_future()
        said = [message for message in peer.hear(Blocked) if type(message) is Blocked]
        said += [message for message in peer.rest() if type(message) is Blocked]
        assert [message.ids for message in said] == [[ref.binary()]] * 3
        cancelled.cancel()
        await asyncio.sleep(0)
        client.outbox.flush()
        assert not any(type(message) is Unblocked for message in peer.rest())
        peer.say(Ready(ref.binary(), serialize.dumps(1).data))
        return [*await asyncio.gather(*waiting), await ref]  # the value is here, and the last one does not wait

    assert asyncio.run(main()) == [1, 1, 1]
    client.outbox.flush()
    assert [type(message) for message in peer.rest()] == [Unblocked]


def test_threads_left_behind_by_a_call_do_not_count(both: tuple[Client, Peer]) -> None:
    client, peer = both
    client.blocking.lends_cpu = True
    client.scopes.running = Scope(b"first call")
    ref = submit(client)
    thread, found = in_thread(lambda: client.waiting.get([ref.binary()], LIMIT_S))
    peer.hear(Blocked)
    client.blocking.resumes()  # as at the end of the call
    peer.hear(Unblocked)
    client.scopes.running = Scope(b"second call")
    peer.say(Ready(ref.binary(), serialize.dumps(1).data))
    thread.join(LIMIT_S)
    client.outbox.flush()
    assert found == [[1]]
    assert not any(type(message) in (Blocked, Unblocked) for message in peer.rest())


def test_a_lost_connection_is_told_to_all_threads(both: tuple[Client, Peer]) -> None:
    client, peer = both
    ref = submit(client)
    threads = [in_thread(lambda: client.waiting.get([ref.binary()], None)) for _ in range(3)]
    for thread, _ in threads:
        wait_until_in_client(thread)
    peer.end.shutdown(socket.SHUT_RDWR)
    for thread, _ in threads:
        thread.join(LIMIT_S)
    assert all(isinstance(found[0], errors.HeadDiedError) for _, found in threads)


def test_queries_of_threads_get_their_own_answers(both: tuple[Client, Peer]) -> None:
    import msgspec

    from mpi_runtime.scheduler.protocol.effects import Answer
    from mpi_runtime.scheduler.protocol.questions import Group

    client, peer = both
    threads = [in_thread(lambda n=n: client.questions.ask(Group(bytes([n] * 16)))) for n in range(4)]
    asked: list[Query] = []
    end = time.monotonic() + LIMIT_S
    while len(asked) < 4 and time.monotonic() < end:
        asked += [message for message in peer.rest() if type(message) is Query]
    for query in reversed(asked):
        assert isinstance(query.question, Group)
        peer.say(Answer(query.request, msgspec.msgpack.encode(query.question.id)))
    for thread, _ in threads:
        thread.join(LIMIT_S)
    assert [found for _, found in threads] == [[bytes([n] * 16)] for n in range(4)]


# Interrupts


@pytest.mark.parametrize("late", [True, False])
def test_memory_that_nobody_waits_for_any_more_is_given_back(
    both: tuple[Client, Peer], monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    client, peer = both
    read = client.line.wait_until

    def interrupted(*_: Any) -> bool:
        (asked,) = (message for message in peer.hear(Allocate) if type(message) is Allocate)
        if not late:
            peer.say(Allocated(asked.request, 0, 64, ""))
            read(lambda: asked.request in client.questions._replies.arrived, LIMIT_S, None)
        requests.append(asked.request)
        raise KeyboardInterrupt

    requests: list[int] = []
    monkeypatch.setattr(client.line, "wait_until", interrupted)
    with pytest.raises(KeyboardInterrupt):
        put(client, bytes(100_000))
    if late:
        peer.say(Allocated(requests[0], 0, 64, ""))
        read(lambda: not client.questions._replies.unwanted, LIMIT_S, None)
    (given_back,) = (message for message in peer.hear(Abandon) if type(message) is Abandon)
    assert given_back.offset == 64
    assert not client.questions._replies.arrived
    assert not client.questions._replies.unwanted


def test_who_writes_the_same_size_again_uses_memory_that_came_ahead(both: tuple[Client, Peer]) -> None:
    client, peer = both
    put_in_thread(client, peer, Allocated(1, 0, 0))
    again = put_in_thread(client, peer, Allocated(2, 0, 100_352), Ahead(0, again_size(), [200_704, 301_056]))
    assert again.ahead == COUNT_MAX
    put(client, bytes(100_000))
    put(client, bytes(100_000))
    places = [stored.offset for message in peer.rest() if type(message) is Put and (stored := message.value.stored)]
    assert places[-2:] == [200_704, 301_056]
    assert put_in_thread(client, peer, Allocated(3, 0, 401_408)).ahead == COUNT_MAX, "they are used up"


def test_memory_that_came_ahead_is_given_back_when_it_is_wanted(both: tuple[Client, Peer]) -> None:
    client, peer = both
    peer.say(Ahead(0, 100_000, [64, 128]), GiveBack())
    client.line.wait_until(lambda: client.line._arrivals.taken == 2, LIMIT_S, None)
    assert [message.offset for message in peer.hear(Abandon) if type(message) is Abandon] == [64, 128]


def test_a_forked_child_does_not_use_what_its_parent_was_given_ahead(both: tuple[Client, Peer]) -> None:
    client, peer = both
    peer.say(Ahead(0, 100_000, [64]))
    client.line.wait_until(lambda: client.line._arrivals.taken == 1, LIMIT_S, None)
    client.forked()
    with pytest.raises(errors.RuntimeNotInitializedError, match="forked child"):
        put(client, bytes(99_990))
    client.outbox.ticking = False  # a forked child has no thread that sends: nobody is to wait for its end


def again_size() -> int:
    return serialize.dumps(bytes(100_000)).size()


def put_in_thread(client: Client, peer: Peer, *answer: Any) -> Allocate:
    """Put 100 000 bytes, and answer; what was asked for."""
    thread, found = in_thread(lambda: put(client, bytes(100_000)))
    (asked,) = (message for message in peer.hear(Allocate) if type(message) is Allocate)
    answer[0].request = asked.request
    peer.say(*answer)
    thread.join(LIMIT_S)
    assert type(found[0]) is ObjectRef
    return asked


# Streams


def test_a_large_error_on_another_host_ends_a_stream_as_an_error(both: tuple[Client, Peer]) -> None:
    client, peer = both
    spec = Spec(2, TaskSpec(), "g", b"", num_returns=STREAMING)
    stream: ObjectRefGenerator[Any] = submitting.submit(client, Call(client.scopes.next_ids(1), 2, b""), spec)
    peer.say(ReadyElsewhere(stream.completed().binary()))
    assert next(stream) is stream.completed()
    assert list(stream) == []
