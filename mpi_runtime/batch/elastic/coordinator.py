"""What is offered to which job, and what is taken back. Pure: the caller writes offers and makes names.

Work goes, in its order, to the job with the least to do among those where it fits and that it would not outlast. A job
gets a few seconds of work ahead. What fits no job waits; what is behind it does not. A job with nothing to do gets what
another has not begun.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from operator import attrgetter

import msgspec

from mpi_runtime.batch.elastic.records import Offer, Work, can_run, share_on
from mpi_runtime.scheduler.protocol.resources import Pool

AHEAD_S = 4.0
"""How much work a job has ahead, for all of its nodes together."""
SLICE_S = 1.5
"""How much work a slice has. Jobs look about once a second."""
SLICE_MAX = 500
LONG_S = 60.0
"""Shorter commands are offered before there is room for them."""


class TakeBack(msgspec.Struct, frozen=True):
    """Make the name of a slice, so that no job can begin it. The answer goes to `took_back`."""

    slice: str


class _Slice(msgspec.Struct):
    token: str
    works: dict[int, Work]
    """Those that have not ended."""
    is_begun: bool = False
    """Its name was made by its job."""
    is_asked: bool = False
    """It is being taken back."""


class _Member(msgspec.Struct):
    nodes: tuple[Pool, ...]
    ends_s: float | None
    """When it starts nothing more, by the clock of the caller; None: not known."""
    share: float = 0.0
    work_s: float = 0.0
    is_silent: bool = False
    """It does not show that it lives: nothing is offered to it, and what it has begun is not begun elsewhere yet."""


_Queue = tuple[object, ...]
"""What works have in common that wait in one queue: all that decides which job has room for them."""


class Coordinator:
    """All work of a batch that may start."""

    def __init__(self, epoch: int, seconds: Callable[[Work], float] = attrgetter("seconds")) -> None:
        """Make a coordinator without work.

        `epoch`: higher than those of all before it; `seconds`: how long a command is assumed to take when it is
        offered. It may have been added before anything was measured.
        """
        self.epoch = epoch
        self._seconds = seconds
        self.members: dict[str, _Member] = {}
        self._slices: dict[str, _Slice] = {}
        self._slice_of: dict[int, str] = {}
        """The slice that has a command, by its number."""
        self._queues: dict[_Queue, list[tuple[tuple[int, int], int, int, Work]]] = {}
        """Heaps of order, number, serial number and work."""
        self._queued: dict[int, int] = {}
        """The serial numbers of the entries that count, by the numbers of commands."""
        self._serial = 0
        self._ended: set[int] = set()
        self._stopped: set[int] = set()
        """Commands that are ended where they run. They count there until that job gives them back, or is gone."""
        self._found: dict[str, int] = {}
        """The highest number of each command in the offers of earlier coordinators."""
        self._returned: set[tuple[int, str]] = set()
        """Commands that a job has given back, with their slices: an offer of these may be read later than this."""
        self._running: Counter[str] = Counter()
        """Commands in slices for each group."""
        self._used: dict[str, float] = {}
        """What commands in slices have of resources that all jobs share."""
        self._homes: dict[str, str] = {}
        """The jobs of works that run together."""
        self._asked: list[TakeBack] = []
        self._last_slice = 0

    def add(self, work: Work) -> None:
        """A command may start."""
        if work.number in self._ended or work.number in self._stopped or work.number in self._queued:
            return
        asked = work.asked
        own = work.together, asked.group, asked.ranks, asked.ranks_per_node
        key = (*own, *asked.shared(), *work.requests())
        queue = self._queues.setdefault(key, [])
        self._serial += 1
        heapq.heappush(queue, (work.order, work.number, self._serial, work))
        self._queued[work.number] = self._serial

    def joined(self, token: str, nodes: tuple[Pool, ...], ends_s: float | None) -> None:
        """A job takes part, or the end of its time has changed."""
        known = self.members.get(token)
        if known is None:
            self.members[token] = _Member(nodes, ends_s)
            for one in self._slices.values():
                if one.token == token:
                    self._count(self.members[token], one.works.values(), 1)
        else:
            known.ends_s = ends_s
            known.is_silent = False

    def refuses(self, token: str) -> None:
        """A job begins nothing at present: its disk is full, or its time is over."""
        for name, one in self._slices.items():
            if one.token == token and not one.is_begun:
                self._ask(name)

    def silent(self, token: str) -> float:
        """A job does not show that it lives. Return the longest time that one of its commands is assumed to take."""
        member = self.members.get(token)
        if member is None:
            return 0.0
        member.is_silent = True
        self.refuses(token)
        own = (one for one in self._slices.values() if one.token == token)
        return max((work.seconds for one in own for work in one.works.values()), default=0.0)

    def found(self, offer: Offer) -> None:
        """An earlier coordinator has made this offer. It is taken back; if its job has begun it, it stays with it."""
        works = {work.number: work for work in offer.works if work.number not in self._ended}
        for number, work in [*works.items()]:
            other = self._found.get(work.name, 0)
            if other > number:  # a coordinator that stood still has offered it, and did not know of the later one
                del works[number]
            else:
                self._found[work.name] = number
                if other and other != number:
                    self.stopped(other)
        for number in [number for number in works if (number, offer.slice) in self._returned]:
            self._take_out(number)
            self.add(works.pop(number))
        for number in works:
            self._take_out(number)  # it was offered again: the later offer counts
        if works:
            self._place(offer.slice, offer.token, works)
            self._ask(offer.slice)

    def begun(self, offer: Offer) -> None:
        """A job has begun these commands before they were shared."""
        self._place(offer.slice, offer.token, {work.number: work for work in offer.works})
        self._slices[offer.slice].is_begun = True

    def ended(self, number: int) -> None:
        """A command has ended somewhere. Its number is not offered any more."""
        self._ended.add(number)
        self._queued.pop(number, None)
        self._take_out(number)

    def stopped(self, number: int) -> None:
        """A command is not to run any more: the caller has it ended where it runs. What it holds is not free yet."""
        self._stopped.add(number)
        self._queued.pop(number, None)
        slice = self._slice_of.get(number)
        if slice is not None and not self._slices[slice].is_begun:
            self._ask(slice)

    def is_ending(self) -> bool:
        """Whether a job may still run a command that is stopped."""
        return not self._stopped.isdisjoint(self._slice_of)

    def returned(self, numbers: Iterable[int], slices: Iterable[str], is_begun: bool = False) -> None:
        """A job gives commands back that it has taken with these slices.

        `is_begun`: they were begun, and have ended without a result.
        """
        for number, slice in zip(numbers, slices, strict=True):
            self._returned.add((number, slice))
            work = self._take_out(number) if self._slice_of.get(number) == slice else None
            if work is not None:
                self.add(msgspec.structs.replace(work, attempt=work.attempt + is_begun))

    def lost(self, token: str) -> None:
        """A job is gone, or counts as gone. Its slices are taken back before they are offered again."""
        member = self.members.pop(token, None)
        if member is not None:
            self._homes = {what: home for what, home in self._homes.items() if home != token}
        for name in [name for name, one in self._slices.items() if one.token == token]:
            one = self._slices[name]
            if one.is_begun:
                self._again(name, 1)
            else:
                self._ask(name)

    def took_back(self, slice: str, is_ours: bool) -> None:
        """The answer to `TakeBack`: whether the name is this coordinator's. Else its job has begun it."""
        one = self._slices.get(slice)
        if one is None:
            return
        one.is_asked = False
        if is_ours:
            self._again(slice, 0)
        else:
            one.is_begun = True
            if one.token not in self.members:
                self._again(slice, 1)

    def token_of(self, slice: str) -> str | None:
        """The job of a slice; None: all of it has ended."""
        one = self._slices.get(slice)
        return one.token if one is not None else None

    def job_with(self, number: int) -> str:
        """The job that was offered a command, if that has not ended; empty: none."""
        return self.token_of(self._slice_of.get(number, "")) or ""

    def orders(self, now_s: float) -> list[Offer | TakeBack]:
        """Take what is to be done now. Offers are in order."""
        offers = self._offers(now_s)
        if not offers:
            self._steal(now_s)
        asked, self._asked = self._asked, []
        return [*asked, *offers]

    def outstanding(self) -> dict[int, Work]:
        """The commands that were offered, and have neither ended nor been stopped."""
        works = {number: work for one in self._slices.values() for number, work in one.works.items()}
        return {number: work for number, work in works.items() if number not in self._stopped}

    def waiting(self) -> list[Work]:
        """The commands that no job has been offered, in their order."""
        entries = (one for queue in self._queues.values() for one in queue if self._queued.get(one[1]) == one[2])
        return [one[3] for one in sorted(entries, key=lambda one: one[:3])]

    def stuck(self) -> list[Work]:
        """The commands that wait, if no job has anything to do; empty otherwise."""
        return self.waiting() if self._queued and not self._slices else []

    def withdraw(self, number: int) -> bool:
        """Forget a command that no job has been offered; return whether this was one."""
        return self._queued.pop(number, None) is not None

    def _offers(self, now_s: float) -> list[Offer]:
        chosen: dict[str, list[Work]] = {}
        loads = [(member.work_s, token) for token, member in self.members.items() if not member.is_silent]
        heapq.heapify(loads)
        while loads:
            _, token = heapq.heappop(loads)
            member = self.members[token]
            queue = self._first_for(token, member, now_s)
            if queue is None:
                continue
            work = heapq.heappop(self._queues[queue])[3]
            del self._queued[work.number]
            if work.together:
                self._homes[work.together] = token
            self._hold(work, 1)
            self._count(member, [work], 1)
            chosen.setdefault(token, []).append(work)
            heapq.heappush(loads, (member.work_s, token))
        return [offer for token, works in chosen.items() for offer in self._cut(token, works)]

    def _first_for(self, token: str, member: _Member, now_s: float) -> _Queue | None:
        """The queue with the first command that this job can take now."""
        best: _Queue | None = None
        for key, queue in self._queues.items():
            while queue and self._queued.get(queue[0][1]) != queue[0][2]:
                heapq.heappop(queue)
            if not queue or (best is not None and self._queues[best][0][:3] < queue[0][:3]):
                continue
            work = queue[0][3]
            asked = work.asked
            if asked.group_limit and self._running[asked.group] >= asked.group_limit:
                continue
            if any(self._used.get(name, 0.0) + amount > total + 1e-9 for name, amount, total in asked.shared()):
                continue
            if self._homes.get(work.together, token) != token or not can_run(work, member.nodes):
                continue
            work = msgspec.structs.replace(work, seconds=self._seconds(work))
            queue[0] = (*queue[0][:3], work)
            if _has_room(member, work) and _ends_in_time(work, member, now_s):
                best = key
        return best

    def _cut(self, token: str, works: list[Work]) -> list[Offer]:
        """Cut the work of one job into slices."""
        offers = []
        nodes = self.members[token].nodes
        while works:
            size, work_s = 0, 0.0
            while size < len(works) and size < SLICE_MAX and (not size or work_s < SLICE_S):
                work_s += share_on(works[size], nodes) * works[size].seconds
                size += 1
            self._last_slice += 1
            offer = Offer(f"{self.epoch}-{self._last_slice}", token, tuple(works[:size]))
            works = works[size:]
            self._slices[offer.slice] = _Slice(token, {work.number: work for work in offer.works})
            self._slice_of.update(dict.fromkeys(self._slices[offer.slice].works, offer.slice))
            offers.append(offer)
        return offers

    def _steal(self, now_s: float) -> None:
        """For each job with nothing to do take back a slice that its job has no room to begin now."""
        busy = {one.token for one in self._slices.values()}
        free = [member for token, member in self.members.items() if not member.is_silent and token not in busy]
        idle = [member for member in free if member.share < 1.0 - 1e-9]
        for member in idle if len(idle) < len(self.members) else ():
            for name, one in reversed(self._slices.items()):
                if self._may_move(one, member, now_s):
                    self._ask(name)
                    break

    def _may_move(self, one: _Slice, to: _Member, now_s: float) -> bool:
        victim = self.members.get(one.token)
        if one.is_begun or one.is_asked or victim is None:
            return False
        own = sum(share_on(work, victim.nodes) for work in one.works.values())
        return victim.share - own > 1.0 - 1e-9 and all(
            not work.together and can_run(work, to.nodes) and _ends_in_time(work, to, now_s)
            for work in one.works.values()
        )

    def _ask(self, slice: str) -> None:
        if not self._slices[slice].is_asked:
            self._slices[slice].is_asked = True
            self._asked.append(TakeBack(slice))

    def _place(self, name: str, token: str, works: dict[int, Work]) -> None:
        self._slices[name] = _Slice(token, works)
        for number, work in works.items():
            self._slice_of[number] = name
            self._queued.pop(number, None)
            self._hold(work, 1)
        if token in self.members:
            self._count(self.members[token], works.values(), 1)

    def _again(self, slice: str, attempts: int) -> None:
        """Queue what a slice has left."""
        for number in [*self._slices[slice].works]:
            work = self._take_out(number)
            if work is not None:
                self.add(msgspec.structs.replace(work, attempt=work.attempt + attempts))

    def _take_out(self, number: int) -> Work | None:
        name = self._slice_of.pop(number, "")
        one = self._slices.get(name)
        work = one.works.pop(number, None) if one is not None else None
        if one is None or work is None:
            return None
        self._hold(work, -1)
        member = self.members.get(one.token)
        if member is not None:
            self._count(member, [work], -1)
        if not one.works:
            del self._slices[name]
        return work

    def _hold(self, work: Work, sign: int) -> None:
        """Count what a command takes of what all jobs share."""
        self._running[work.asked.group] += sign
        for name, amount in work.asked.shares.items():
            self._used[name] = self._used.get(name, 0.0) + sign * amount

    def _count(self, member: _Member, works: Iterable[Work], sign: int) -> None:
        for work in works:
            share = sign * share_on(work, member.nodes)
            member.share = max(0.0, member.share + share)
            member.work_s = max(0.0, member.work_s + share * work.seconds)


def _has_room(member: _Member, work: Work) -> bool:
    if member.share < 1.0 - 1e-9:
        return True
    return member.work_s < AHEAD_S or (member.share < 2.0 and work.seconds < LONG_S)


def _ends_in_time(work: Work, member: _Member, now_s: float) -> bool:
    return member.ends_s is None or now_s + (work.limit_s or work.seconds) <= member.ends_s
