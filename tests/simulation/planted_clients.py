"""Bugs to be planted in what every client is made of: the simulator's processes run it as the real ones do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from mpi_runtime.core.client import scope
from mpi_runtime.core.client.blocking import Blocking
from mpi_runtime.core.client.executor_feed import Feed
from mpi_runtime.core.client.incoming import Arrivals, ReceivedItems
from mpi_runtime.core.client.outgoing import Outgoing
from mpi_runtime.core.client.references import References
from mpi_runtime.core.client.scope import Scope
from mpi_runtime.scheduler.protocol.effects import Demand, Entry, Item
from mpi_runtime.scheduler.protocol.events import Call, Consumed, Released


def a_reference_is_gone_before_what_it_was_needed_for(patch: pytest.MonkeyPatch) -> None:
    frame = Outgoing.frame

    def planted(self: Outgoing) -> list[object]:
        return sorted(frame(self), key=lambda message: type(message) is not Released)

    patch.setattr(Outgoing, "frame", planted)


def one_of_two_references_is_taken_off_too_many(patch: pytest.MonkeyPatch) -> None:
    settle = References.settle

    def planted(self: References) -> list[bytes]:
        for id in self.dropped:
            if self.counts[id] == 2:
                self.counts[id] = 1
        return settle(self)

    patch.setattr(References, "settle", planted)


def the_last_reference_is_not_told(patch: pytest.MonkeyPatch) -> None:
    settle = References.settle
    patch.setattr(References, "settle", lambda self: settle(self)[1:])


def a_reference_in_a_value_is_not_told(patch: pytest.MonkeyPatch) -> None:
    add = References.add
    patch.setattr(References, "add", lambda self, id: add(self, id) and False)


def what_others_made_is_not_asked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(References, "subscribe", lambda self, ids, fetch: None)


def what_others_made_is_announced_and_not_brought(patch: pytest.MonkeyPatch) -> None:
    subscribe = References.subscribe
    patch.setattr(References, "subscribe", lambda self, ids, fetch: subscribe(self, ids, False))
    patch.setattr(References, "ask_again", lambda self, ids: None)


def what_is_ready_elsewhere_is_not_asked_for_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(References, "ask_again", lambda self, ids: None)


def a_value_is_kept_when_its_last_reference_is_gone(patch: pytest.MonkeyPatch) -> None:
    settle = References.settle

    def planted(self: References) -> list[bytes]:
        kept = dict(self.values)
        gone = settle(self)
        self.values.update(kept)
        return gone

    patch.setattr(References, "settle", planted)


def a_value_that_comes_late_is_kept(patch: pytest.MonkeyPatch) -> None:
    take = Arrivals.take

    def planted(self: Arrivals, messages: list[object]) -> None:
        take(self, messages)
        self._references.values.update({one.id: one for one in messages if isinstance(one, Entry)})

    patch.setattr(Arrivals, "take", planted)


def an_item_that_nobody_wants_is_kept(patch: pytest.MonkeyPatch) -> None:
    came = ReceivedItems.came

    def planted(self: ReceivedItems, message: Item) -> None:
        if message.call in self._waiting:
            came(self, message)

    patch.setattr(ReceivedItems, "came", planted)


def items_that_were_not_taken_are_kept(patch: pytest.MonkeyPatch) -> None:
    forget = ReceivedItems.forget

    def planted(self: ReceivedItems, call: bytes, cancel: bool = False) -> None:
        self._waiting.pop(call, None)
        forget(self, call, cancel)

    patch.setattr(ReceivedItems, "forget", planted)


def the_last_item_is_taken_first(patch: pytest.MonkeyPatch) -> None:
    came = ReceivedItems.came

    def planted(self: ReceivedItems, message: Item) -> None:
        came(self, message)
        if message.call in self._waiting:
            self._waiting[message.call].rotate()

    patch.setattr(ReceivedItems, "came", planted)


def nobody_hears_that_no_more_items_are_wanted(patch: pytest.MonkeyPatch) -> None:
    def planted(self: ReceivedItems, call: bytes, cancel: bool = False) -> None:
        self._taken.pop(call, None)
        forget(self, call, cancel)

    forget = ReceivedItems.forget
    patch.setattr(ReceivedItems, "forget", planted)


def more_is_said_to_be_taken_than_was(patch: pytest.MonkeyPatch) -> None:
    post = Outgoing.post

    def planted(self: Outgoing, message: object) -> None:
        post(self, Consumed(message.call, message.count + 1) if isinstance(message, Consumed) else message)

    patch.setattr(Outgoing, "post", planted)


def a_demand_is_not_heard(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Feed, message: Demand) -> None:
        """Nothing."""

    patch.setattr(Feed, "demanded", planted)


def one_item_too_many_is_yielded(patch: pytest.MonkeyPatch) -> None:
    wants = Feed.wants
    patch.setattr(Feed, "wants", lambda self, call, index, most: wants(self, call, index, most + 1))


def fewer_calls_are_said_to_have_come(patch: pytest.MonkeyPatch) -> None:
    came = Feed.came

    def planted(self: Feed, call: Call, arguments: list[Entry]) -> None:
        came(self, call, arguments)
        self.received -= not call.arguments

    patch.setattr(Feed, "came", planted)


def a_call_that_waits_keeps_its_cpu(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Blocking, scope: Scope, ids: Sequence[bytes]) -> None:
        scope.waiting += 1

    patch.setattr(Blocking, "waits", planted)


def nobody_hears_that_a_call_goes_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Blocking, "resumes", lambda self: None)


def a_second_attempt_makes_the_same_ids(patch: pytest.MonkeyPatch) -> None:
    prefix_of = scope.prefix_of
    patch.setattr(scope, "prefix_of", lambda parent, attempt: prefix_of(parent, 0))


def ids_of_several_values_overlap(patch: pytest.MonkeyPatch) -> None:
    next_ids = Scope.next_ids
    patch.setattr(Scope, "next_ids", lambda self, count: next_ids(self, 1))


BUGS: list[Callable[[pytest.MonkeyPatch], None]] = [
    a_reference_is_gone_before_what_it_was_needed_for,
    one_of_two_references_is_taken_off_too_many,
    the_last_reference_is_not_told,
    a_reference_in_a_value_is_not_told,
    what_others_made_is_not_asked_for,
    what_others_made_is_announced_and_not_brought,
    what_is_ready_elsewhere_is_not_asked_for_again,
    a_value_is_kept_when_its_last_reference_is_gone,
    a_value_that_comes_late_is_kept,
    an_item_that_nobody_wants_is_kept,
    items_that_were_not_taken_are_kept,
    the_last_item_is_taken_first,
    nobody_hears_that_no_more_items_are_wanted,
    more_is_said_to_be_taken_than_was,
    a_demand_is_not_heard,
    one_item_too_many_is_yielded,
    fewer_calls_are_said_to_have_come,
    a_call_that_waits_keeps_its_cpu,
    nobody_hears_that_a_call_goes_on,
    a_second_attempt_makes_the_same_ids,
    ids_of_several_values_overlap,
]
