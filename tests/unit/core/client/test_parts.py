"""What every client is made of, without a line: counts, order, items, what feeds an executor."""

from types import SimpleNamespace
from typing import Any

import pytest

from mpi_runtime.core.calls import arguments
from mpi_runtime.core.client.blocking import Blocking
from mpi_runtime.core.client.executor_feed import ALL, FOLLOWED_MAX, Feed
from mpi_runtime.core.client.incoming import Arrivals, ReceivedItems, Watch
from mpi_runtime.core.client.outgoing import Outgoing, ends_in
from mpi_runtime.core.client.references import References
from mpi_runtime.core.client.scope import Scope, Scopes
from mpi_runtime.core.transport.messages import Allocated, Exit
from mpi_runtime.scheduler.protocol.effects import (
    Answer,
    Demand,
    Item,
    Ready,
    ReadyElsewhere,
    ReadyError,
    ReadyFailed,
    ReadyStored,
)
from mpi_runtime.scheduler.protocol.events import (
    BLOCKED_IDS_MAX,
    FOLLOWED_BYTES_MAX,
    Blocked,
    Call,
    CancelRequested,
    Consumed,
    Done,
    Held,
    Put,
    Released,
    Returned,
    Spec,
    Stored,
    SubscriptionRequested,
    TaskSpec,
    Unblocked,
    Unfilled,
    Value,
)
from mpi_runtime.scheduler.protocol.ids import first_of, return_ids

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


class Parts:
    """One client without a line."""

    def __init__(self) -> None:
        self.references = References()
        self.outgoing = Outgoing(self.references)
        self.items = ReceivedItems(self.outgoing)
        self.feed = Feed()
        self.answers: list[object] = []
        self.arrivals = Arrivals(self.references, self.items, self.feed, self.answers.append, self.outgoing.forget)


@pytest.fixture
def client() -> Parts:
    return Parts()


# References


def test_only_the_first_and_the_last_reference_are_told(client: Parts) -> None:
    for _ in range(3):
        client.outgoing.adopt(A)
    assert client.outgoing.frame() == [Held([A])]
    client.outgoing.drop(A)
    client.outgoing.drop(A)
    assert client.outgoing.frame() == []
    assert client.references.counts == {A: 1}
    client.outgoing.drop(A)
    assert client.outgoing.frame() == [Released([A])]
    assert client.references.counts == client.references.borrowed == {}


def test_a_reference_that_comes_back_before_its_end_was_told_was_never_gone(client: Parts) -> None:
    client.outgoing.adopt(A)
    client.outgoing.frame()
    client.outgoing.drop(A)
    client.outgoing.adopt(A)
    assert client.outgoing.frame() == []
    client.outgoing.drop(A)
    assert client.outgoing.frame() == [Released([A])]


def test_a_reference_that_comes_back_later_is_told_in_a_later_frame(client: Parts) -> None:
    client.references.counts[A] = 1
    client.outgoing.drop(A)
    assert client.outgoing.frame() == [Released([A])]
    client.outgoing.adopt(A)
    assert client.outgoing.frame() == [Held([A])]


def test_what_was_inside_is_held_before_its_box_is_gone(client: Parts) -> None:
    client.references.counts[A] = 1
    client.outgoing.drop(A)
    client.outgoing.adopt(B)
    assert client.outgoing.frame() == [Held([B]), Released([A])]


def test_an_argument_is_gone_after_its_call(client: Parts) -> None:
    client.references.counts[A] = 1
    client.outgoing.drop(A)
    call = Call(B, 1, b"", (A,))
    client.outgoing.post(call)
    assert client.outgoing.frame() == [call, Released([A])]
    assert client.outgoing.frame() == []


@pytest.mark.parametrize("end", [Done(C, b"", 0), Returned(C, [], 0)])
def test_what_lived_within_one_call_is_not_mentioned(client: Parts, end: Done | Returned) -> None:
    client.outgoing.view(A)
    client.outgoing.view(B)
    client.outgoing.drop_view(A)
    client.outgoing.post(end)
    assert client.outgoing.frame() == [Held([B]), end]
    client.outgoing.drop_view(B)
    assert client.outgoing.frame() == [Released([B])]
    assert client.references.counts == client.references.views == client.references.borrowed == {}


@pytest.mark.parametrize(
    "messages",
    [
        [Done(C, b"", 0), Returned(B, [], 0)],  # the first call may be what holds it
        [Done(C, b"", 0), Call(B, 1, b"", (A,))],
        [Call(B, 1, b"", (A,))],
    ],
)
def test_what_may_be_needed_longer_is_held(client: Parts, messages: list[object]) -> None:
    client.outgoing.view(A)
    for message in messages:
        client.outgoing.post(message)
    client.outgoing.drop_view(A)
    assert client.outgoing.frame() == [Held([A]), *messages, Released([A])]


def test_ends_are_counted_for_the_agent() -> None:
    assert ends_in([Done(A, b"", 0), Held([B]), Returned(C, [], 0), Unfilled(B)]) == 3


def test_an_argument_that_did_not_arrive_is_filled_in_from_the_results_of_calls_before(client: Parts) -> None:
    client.arrivals.take([Ready(B, b"sent"), Call(C, 1, b"", (A, B))])
    _, arguments = client.feed.calls[0]
    assert client.feed.is_follower(arguments)
    client.feed.remember(Done(B, b"another", 0))
    assert not client.feed.fill(arguments), "nobody has made A"
    client.feed.remember(Done(A, b"made", 0))
    assert client.feed.fill(arguments)
    assert arguments == [Ready(A, b"made"), Ready(B, b"sent")]
    assert not client.feed.is_follower(arguments)


def test_a_place_that_was_not_sent_with_the_call_is_not_used(client: Parts) -> None:
    client.references.counts[A] = client.references.counts[B] = 1
    client.arrivals.take([ReadyStored(A, 0, 64, 1000), Ready(B, b"small")])
    client.arrivals.take([Call(C, 1, b"", (A, B))])
    assert client.feed.calls[0][1] == [ReadyElsewhere(A), Ready(B, b"small")]
    client.arrivals.take([ReadyStored(A, 0, 128, 1000), Call(C, 1, b"", (A,))])
    assert client.feed.calls[1][1] == [ReadyStored(A, 0, 128, 1000)]


def test_only_the_last_small_results_are_kept_for_calls_behind() -> None:
    feed = Feed()
    feed.remember(Done(A, bytes(FOLLOWED_BYTES_MAX + 1), 0))
    assert not feed.fill([ReadyElsewhere(A)])
    ids = [number.to_bytes(16, "big") for number in range(2 * FOLLOWED_MAX + 1)]
    for id in ids:
        feed.remember(Done(id, b"value", 0))
    kept = [id for id in ids if feed.fill([ReadyElsewhere(id)])]
    assert kept == ids[FOLLOWED_MAX:]


@pytest.mark.parametrize(
    ("value", "entry"),
    [(Value(b"data"), Ready(A, b"data")), (Value(b"", Stored(3, 64, 1000)), ReadyStored(A, 3, 64, 1000))],
)
def test_what_was_made_here_is_known_here(client: Parts, value: Value, entry: object) -> None:
    assert client.references.made(A, value) == Put(A, value)
    assert client.references.values == {A: entry}
    assert client.references.counts == {A: 1}
    assert client.references.subscribe([A], True) is None, "it is our own"


def test_what_others_made_is_subscribed_to_once(client: Parts) -> None:
    client.outgoing.adopt(A)
    client.outgoing.adopt(B)
    client.arrivals.take([Ready(B, b"")])
    assert client.references.subscribe([A, B, C], False) == SubscriptionRequested([A], False)
    assert client.references.subscribe([A], True) is None


def test_what_is_ready_elsewhere_is_asked_for_again(client: Parts) -> None:
    client.outgoing.adopt(A)
    client.arrivals.take([ReadyElsewhere(A)])
    assert client.references.ask_again([A, B]) == SubscriptionRequested([A], True)
    assert client.references.values == {}
    assert client.references.ask_again([A]) is None


# Items


def items_of(client: Parts, is_limited: bool) -> None:
    client.items.begin(A, is_limited)
    client.arrivals.take([Item(A, B), Item(A, C)])


def test_items_are_taken_in_order_up_to_the_end(client: Parts) -> None:
    client.references.counts[A] = 1
    client.items.begin(A, False)
    assert not client.items.has_ended_or_item(A)
    client.arrivals.take([Item(A, B), Item(A, C), Ready(A, b"")])
    assert not client.items.is_drained(A)
    assert [client.items.take(A), client.items.take(A), client.items.take(A)] == [B, C, None]
    assert client.items.is_drained(A)
    assert client.references.counts == {A: 1, B: 1, C: 1}
    assert client.outgoing.frame() == []


def test_who_waits_for_that_hears_what_is_taken(client: Parts) -> None:
    items_of(client, is_limited=True)
    client.items.take(A)
    client.items.take(A)
    assert client.outgoing.frame() == [Consumed(A, 1), Consumed(A, 2)]


@pytest.mark.parametrize("is_limited", [True, False])
def test_items_that_nobody_takes_are_dropped(client: Parts, is_limited: bool) -> None:
    items_of(client, is_limited)
    client.items.forget(A)
    late = b"d" * 16
    client.arrivals.take([Item(A, late)])
    said = client.outgoing.frame()
    assert said == [Consumed(A, ALL)] * is_limited + [Released([B, C, late])]
    client.items.forget(A)
    assert client.outgoing.frame() == []
    assert client.items.is_ready(A), "nobody need wait"


def test_a_call_is_cancelled_with_its_items(client: Parts) -> None:
    items_of(client, is_limited=False)
    client.items.forget(A, cancel=True)
    assert client.outgoing.frame() == [CancelRequested(A, False, False), Released([B, C])]


# What feeds an executor


def test_calls_come_with_the_values_in_their_frame_or_with_those_that_are_here(client: Parts) -> None:
    client.outgoing.adopt(B)
    client.arrivals.take([Ready(B, b"here")])
    spec, call = Spec(1, TaskSpec(), "f", b""), Call(C, 1, b"", (A, B))
    assert not client.feed.is_ready()
    client.arrivals.take([spec, Ready(A, b"in the frame"), call])
    assert client.feed.is_ready()
    assert list(client.feed.calls) == [(call, [Ready(A, b"in the frame"), Ready(B, b"here")])]
    assert client.feed.specs == {1: spec}
    assert A not in client.references.values
    assert client.arrivals.taken == 4


def test_one_that_retires_or_is_told_to_exit_ends(client: Parts) -> None:
    client.arrivals.take([Call(A, 1, b"")])
    client.feed.retire()
    assert client.feed.exiting
    assert not client.feed.calls
    other = Parts()
    other.arrivals.take([Exit()])
    assert other.feed.is_ready()


def test_back_pressure_counts_what_was_taken(client: Parts) -> None:
    feed = client.feed
    client.arrivals.take([Demand(A, 7)])  # of an earlier attempt: it has not begun here
    feed.begins_to_yield(A)
    assert [feed.wants(A, index, 2) for index in range(4)] == [True, True, False, False]
    client.arrivals.take([Demand(A, 1)])
    assert [feed.wants(A, index, 2) for index in range(4)] == [True, True, True, False]
    feed.ends_yielding(A)
    client.arrivals.take([Demand(A, 2)])
    feed.begins_to_yield(A)
    assert not feed.wants(A, 2, 2)


# What comes


def test_values_of_what_is_gone_are_not_kept(client: Parts) -> None:
    client.arrivals.take([Ready(A, b""), ReadyFailed(B, "code", "text")])
    assert client.references.values == {}


def test_those_who_wait_hear_of_errors_and_of_what_they_expect(client: Parts) -> None:
    for id in (A, B, C):
        client.outgoing.adopt(id)
    watch = Watch([A, B])
    client.arrivals.watches.append(watch)
    client.arrivals.expected.update((B, C))
    client.arrivals.take([Ready(A, b""), ReadyError(B, b""), ReadyStored(C, 0, 0, 1)])
    assert watch.failed == [B]
    assert list(client.arrivals.arrived) == [B, C]


def test_answers_go_to_who_asks(client: Parts) -> None:
    replies: list[Any] = [Answer(1, b""), Allocated(2, 0, 0, "")]
    client.arrivals.take(replies)
    assert client.answers == replies


# What runs


def test_a_call_waits_while_one_of_its_threads_does() -> None:
    outgoing, running = Outgoing(References()), Scope(A)
    blocking = Blocking(outgoing)
    ids = [bytes([number]) * 16 for number in range(30)]
    blocking.waits(running, ids)
    blocking.waits(running, [B])
    blocking.ends_wait(running, running)
    assert outgoing.frame() == [Blocked(ids[:BLOCKED_IDS_MAX]), Blocked([B])]
    blocking.ends_wait(running, running)
    blocking.resumes()
    assert outgoing.frame() == [Unblocked()]


def test_threads_that_a_call_leaves_behind_say_nothing_for_the_next() -> None:
    outgoing, first, second = Outgoing(References()), Scope(A), Scope(B)
    blocking = Blocking(outgoing)
    blocking.waits(first, [C])
    blocking.resumes()  # the first call ends
    blocking.waits(second, [C])
    blocking.ends_wait(first, second)
    assert outgoing.frame() == [Blocked([C]), Unblocked(), Blocked([C])]


def test_ids_of_several_values_follow_each_other_and_meet_no_others() -> None:
    scopes = Scopes()
    scopes.running = Scope(A)
    found = [id for count in (1, 3, 0, 2, -1) for id in return_ids(scopes.next_ids(count), count)]
    assert len(set(found)) == 1 + 3 + 1 + 2 + 1
    assert int.from_bytes(found[3], "big") - int.from_bytes(found[1], "big") == 2
    assert [first_of(id) for id in found] == [found[0], *[found[1]] * 3, found[4], *[found[5]] * 2, found[7]]
    scopes.running = Scope(A, attempt=1)
    assert scopes.next_ids(1) not in found


def test_arguments_above_inline_bytes_max_become_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "put", lambda client, serialized: SimpleNamespace(binary=lambda: b"whole"))

    def packed(most: int) -> arguments.Packed:
        client: Any = SimpleNamespace(store=SimpleNamespace(inline_bytes_max=most))
        return arguments.pack(client, (b"x" * 100_000,), {}, "f")

    assert len(packed(1 << 20).payload) > 100_000
    assert (packed(1000).payload, packed(1000).arguments) == (b"", (b"whole",))
