"""Looks from outside at calls that are sent behind the calls that make their arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from mpi_runtime.scheduler.protocol.effects import Entry, Ready, TakeBack
from mpi_runtime.scheduler.protocol.events import Blocked, Call, Done, Returned, Unblocked
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied, TakenBack
from tests.simulation.processes import Content
from tests.simulation.require import require
from tests.simulation.steps import ACTOR, METHOD, TASK

if TYPE_CHECKING:
    from mpi_runtime.scheduler.protocol.effects import Effects
    from tests.simulation.checkers import Checker
    from tests.simulation.executors import Executor

CLOSE_US = 100
"""The most work between a follower and the call whose value it waits for."""
FEW = 8
"""Of a call with at most this many arguments the head knows before that it waits."""


class Followers:
    """What was sent to which executor, in order, and what was read of values before the head had them."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.world = checker.world
        self.assigned: dict[int, dict[bytes, None]] = {}
        """The calls of each executor, in order, as the head knows."""
        self.values: dict[bytes, int] = {}
        """The attempt that has made each value, as the head knows."""
        self.ended: set[bytes] = set()
        """Calls whose end the head has heard. Only for membership."""
        self.wanted: set[bytes] = set()
        """Calls that others have waited for before they were sent. Only for membership."""
        self.waiting: set[int] = set()
        """Executors that wait for objects without a value, as the head knows. Only for membership."""
        self.asked: Counter[int] = Counter()
        """The number of `TakeBack` for each executor that were not answered."""
        self.followed: Counter[bytes] = Counter()
        """How often each call was sent without an argument."""
        self.came: Counter[bytes] = Counter()
        """How often each call came back for want of one."""
        self.behind: set[bytes] = set()
        """Calls of actors that were sent without an argument, and have not ended since. Only for membership."""
        self.quick: set[int] = set()
        """Functions of which a call took less than half of its duration. Only for membership."""
        self.read: dict[tuple[bytes, int], dict[bytes, int]] = {}
        """What each attempt of a call has read before the head had it: the attempts that had made it."""

    # What the head hears

    def heard(self, client: int, event: object) -> None:
        """The head hears this from a client."""
        if isinstance(event, Call):
            few = event.arguments if len(event.arguments) <= FEW else ()
            self.wanted.update(one for id in few if (one := self.checker.call_of(id)) and one not in self.ended)
        elif isinstance(event, Done | Returned):
            self._gone(client, [event.id])
            self.ended.add(event.id)
            function = self.checker.function_of(event.id)
            if event.duration_us < function.duration_us // 2:
                self.quick.add(function.number)
            if isinstance(event, Done):
                self.values[event.id] = attempt_of(event.data)
            self._read_right(event.id)
        elif isinstance(event, Blocked) and not (event.ids and all(map(self._has_value, event.ids))):
            self.waiting.add(client)
        elif isinstance(event, Unblocked):
            self.waiting.discard(client)

    def rank_said(self, message: object) -> None:
        """The head hears this from a rank."""
        if isinstance(message, TakenBack):
            self.asked[message.executor] = 0
            self._gone(message.executor, message.ids)
        elif isinstance(message, ExecutorDied):
            self.behind.difference_update(self.assigned.pop(message.executor, ()))

    def came_back(self, client: int, id: bytes) -> None:
        """The head hears that a call lacks an argument."""
        self._gone(client, [id])
        self.came[id] += 1
        require(self.came[id] == 1, f"call {id.hex()} lacks an argument {self.came[id]} times")

    def _has_value(self, id: bytes) -> bool:
        return id in self.checker.quality.known or self.checker.call_of(id) in self.ended

    def _gone(self, client: int, ids: Sequence[bytes]) -> None:
        self.behind.difference_update(ids)
        for id in ids:
            self.assigned.get(client, {}).pop(id, None)

    def _read_right(self, id: bytes) -> None:
        """A call has ended: what it had read is what all others read."""
        _, last = self.checker.cancels.hands.get(id, (0, -1))
        for value, attempt in self.read.get((id, last), {}).items():
            known = self.values.get(value)
            require(known == attempt, f"call {id.hex()} has read attempt {attempt} of {value.hex()}, others {known}")

    # What the head does

    def decided(self, effects: Effects) -> None:
        """The head has decided: followers stand closely behind their makers, on executors that run."""
        for client, messages in effects.clients.items():
            for call in messages:
                if type(call) is Call:
                    self._sent(client, call)
        for some in effects.ranks.values():
            for effect in some:
                if isinstance(effect, TakeBack):
                    self.asked[effect.executor] += 1

    def _sent(self, client: int, call: Call) -> None:
        name = f"call {call.id.hex()} to executor {client}"
        function, assigned = self.checker.function_of(call.id), self.assigned.setdefault(client, {})
        if function.kind == TASK and call.id in self.wanted and call.id not in self.ended:
            require(call.wanted or self._all_follow(call.id), f"{name}: other calls wait for its end")
        makers = [self.checker.call_of(id) for id in call.arguments]
        missing = [
            one for one in makers if one not in self.ended and any(one in some for some in self.assigned.values())
        ]
        assigned[call.id] = None
        if function.kind == METHOD:
            self._sent_to_actor(name, call, missing, assigned)
        if not missing or function.kind == ACTOR:
            return
        self.world.counters["followers" if function.kind == TASK else "followers on actors"] += 1
        self.followed[call.id] += 1
        require(self.followed[call.id] == 1, f"{name}: it was sent so before")
        if function.kind == METHOD:
            return
        require(function.max_retries, f"{name}: it must not run twice")
        require(not self.asked[client], f"{name}: calls before it are being taken back")
        require(client not in self.waiting, f"{name}: a call before it waits for objects")
        order = list(assigned)
        require(all(one in assigned for one in missing), f"{name}: its arguments are made elsewhere")
        between = order[max(order.index(one) for one in missing) + 1 : -1]
        functions = [self.checker.function_of(one) for one in between]
        took_us = sum(one.duration_us // 2 for one in functions if one.number not in self.quick)
        require(took_us <= CLOSE_US, f"{name}: {took_us} us of other calls are before it")

    def _sent_to_actor(self, name: str, call: Call, missing: Sequence[bytes], assigned: dict[bytes, None]) -> None:
        """A call of an actor: if calls of its caller may come back, it needs the last one, and comes back too."""
        caller, calls = self._caller_of(call), self.checker.calls
        behind = [one for one in assigned if one in self.behind and self._caller_of(calls[one]) == caller]
        require(not behind or behind[-1] in missing, f"{name}: {behind[-1:]} may come back, and be overtaken")
        require(all(one in assigned for one in missing), f"{name}: its arguments are made elsewhere")
        several = self.checker.function_of(call.actor).concurrency
        require(not (missing and several), f"{name}: its actor takes several at a time")
        if missing:
            self.behind.add(call.id)

    def _caller_of(self, call: Call) -> tuple[bytes, int]:
        return call.actor, msgspec.msgpack.decode(call.payload)[1]

    def _all_follow(self, id: bytes) -> bool:
        """Whether all calls that wait for a value are sent behind it, in this decision or before."""
        return all(
            self.checker.cancels.is_to_end(one.id) or one.id in self.ended or self.may_follow(one)
            for one in self.checker.calls.values()
            if id in one.arguments
        )

    def may_follow(self, call: Call) -> bool:
        """Whether a call is one of those that follow."""
        return len(call.arguments) <= FEW and self.checker.function_of(call.id).kind == TASK

    # What executors do

    def filled(self, executor: Executor, call: Call, entries: Sequence[Entry]) -> None:
        """A call begins with values of calls before it: their ends are delivered even if it kills its process."""
        unsaid = {message.id for message in executor.outgoing.messages if isinstance(message, Done)}
        read = self.read[call.id, call.attempt] = {}
        for entry in entries:
            require(entry.id not in unsaid, f"{call.id.hex()} reads {entry.id.hex()}, which may be made again")
            if isinstance(entry, Ready) and self.checker.call_of(entry.id) and entry.id not in self.values:
                read[entry.id] = attempt_of(entry.data)
        self.world.counters["followers that ran"] += 1

    def is_final(self, call: Call, id: bytes) -> bool:
        """Whether the head had a value before a call read it."""
        return id not in self.read.get((call.id, call.attempt), ())


def attempt_of(data: bytes) -> int:
    """The attempt that has made a value; -1: it is the error of a fault."""
    try:
        return msgspec.msgpack.decode(data, type=Content).attempt
    except (msgspec.DecodeError, msgspec.ValidationError):
        return -1
