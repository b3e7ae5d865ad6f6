"""What a job takes of the offers, and what it starts. Pure: the caller makes names and starts commands.

A job takes a slice only when it has almost nothing left to start, so that the coordinator can give the rest to others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from mpi_runtime.batch.elastic.records import Offer, Work, share_on
from mpi_runtime.scheduler.protocol.resources import Pool

FEED_S = 1.0
"""How much work, beside what its nodes can run at once, waits in the scheduler of a job."""

QUIET_S = 3.0
"""After this time without a start or an end a job gives back what it has taken and not started."""


class Member:
    """The work of one job."""

    def __init__(self, token: str, nodes: tuple[Pool, ...]) -> None:
        """Make a member without work; `nodes`: the resources of each of its nodes."""
        self.token = token
        self.nodes = nodes
        self.started: dict[int, Work] = {}
        """Commands in its scheduler, by number."""
        self.waiting: dict[int, Work] = {}
        """Commands of slices that it has taken, not started yet."""
        self.slices: dict[int, str] = {}
        """The slice of each of these."""
        self._offers: deque[Offer] = deque()
        self._share = self._work_s = 0.0
        self.given_back: list[int] = []
        """Commands that it has given back, for when it becomes the coordinator."""
        self._stopped: set[int] = set()
        self._settled: list[int] = []
        """Stopped commands that this job has, and does not run: they count as its own until the coordinator knows."""
        self._elsewhere: set[int] = set()
        """Commands of this job that another has been offered since."""
        self._doubtful = ""
        self._changed = False
        """Whether a command has started or ended since the last question."""
        self._quiet_s = 0.0

    def offered(self, offer: Offer) -> list[int]:
        """Note an offer. Return the numbers of commands that this job has, and that another job gets now."""
        if offer.token == self.token:
            self._offers.append(offer)
            return []
        numbers = [work.number for work in offer.works if work.number in self.started or work.number in self.waiting]
        self._elsewhere.update(numbers)
        return numbers

    def wants(self) -> Offer | None:
        """The offer whose name is to be made; None: there is enough to do."""
        if not self._offers or self.waiting or not self._has_room():
            return None
        return self._offers[0]

    def doubt(self, offer: Offer) -> None:
        """Making the name of an offer has failed, or only the answer is lost: the next attempt shows."""
        self._doubtful = offer.slice

    def took(self, offer: Offer, is_ours: bool) -> None:
        """The name of an offer was made, by this job or by another."""
        self._offers.remove(offer)
        if is_ours:
            works = {work.number: work for work in offer.works}
            self.slices.update(dict.fromkeys(works, offer.slice))
            self._settled += [number for number in works if number in self._stopped]
            self.waiting.update({number: work for number, work in works.items() if number not in self._stopped})
            self._changed = True
            self._elsewhere.difference_update(self.waiting)

    def start(self) -> list[Work]:
        """Take the commands that are to be started now."""
        found: list[Work] = []
        while self.waiting and self._has_room():
            work = self.waiting.pop(next(iter(self.waiting)))
            self.adopt(work)
            found.append(work)
        return found

    def adopt(self, work: Work) -> None:
        """Count a command as started."""
        self.started[work.number] = work
        self._changed = True
        share = share_on(work, self.nodes)
        self._share += share
        self._work_s += share * work.seconds

    def ended(self, number: int) -> None:
        """A started command has ended, or was never begun by the scheduler."""
        work = self.started.pop(number, None)
        if work is not None:
            self._changed = True
            share = share_on(work, self.nodes)
            self._share -= share
            self._work_s -= share * work.seconds
            if not self.started:
                self._share = self._work_s = 0.0

    def not_begun(self, number: int) -> None:
        """A started command came too late to its turn here: it waits once more, unless it is for another job now."""
        work = self.started.get(number)
        self.ended(number)
        if work is None:
            return
        if number in self._stopped:
            self._settled.append(number)
        elif number not in self._elsewhere:
            self.waiting[number] = work

    def drop(self, numbers: Iterable[int]) -> list[int]:
        """Forget commands that wait; return the numbers of those that were started, and must be ended."""
        left = [number for number in numbers if self.waiting.pop(number, None) is None]
        return [number for number in left if number in self.started]

    def stop(self, numbers: Sequence[int]) -> list[int]:
        """Never start these commands, also those of offers that are not taken; return those that must be ended."""
        self._stopped.update(numbers)
        self._settled += [number for number in self._stopped.intersection(numbers) if number in self.waiting]
        return self.drop(numbers)

    def is_stopped(self, number: int) -> bool:
        """Whether a command must not run: one that has been ended is given back, so that others get what it had."""
        return number in self._stopped

    def settled(self) -> list[int]:
        """Take the stopped commands that this job does not run."""
        found, self._settled = self._settled, []
        return found

    def new_coordinator(self) -> None:
        """Forget offers that were not taken: the next coordinator takes them back."""
        self._offers = deque(offer for offer in self._offers if offer.slice == self._doubtful)

    def overdue(self, now_s: float) -> list[int]:
        """Give back commands that were taken, if nothing has started or ended here for long: others may have room."""
        if not self.waiting or self._changed:
            self._changed = False
            self._quiet_s = now_s
        if now_s - self._quiet_s < QUIET_S:
            return []
        numbers = [*self.waiting]
        self.waiting.clear()
        return numbers

    def leave(self) -> list[int]:
        """Take nothing more. Return the numbers of commands that were taken and not started."""
        self._offers.clear()
        numbers = [*self.waiting]
        self.waiting.clear()
        return numbers

    def is_idle(self) -> bool:
        """Whether it has nothing to do."""
        return not (self.started or self.waiting or self._offers)

    def _has_room(self) -> bool:
        return self._share < 1.0 - 1e-9 or self._work_s < FEED_S
