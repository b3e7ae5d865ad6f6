"""Spilling: objects are written from the arena to a file of this rank, and read back, as the scheduler orders."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from mpi_runtime.core.agent.extents import NOBODY, Extents
from mpi_runtime.core.objects.allocator import Allocator
from mpi_runtime.core.objects.arena import AgentArena
from mpi_runtime.core.transport.codec import BadFrameError
from mpi_runtime.core.transport.poller import Poller
from mpi_runtime.scheduler.protocol.effects import Erase, Restore, Spill
from mpi_runtime.scheduler.protocol.rank_events import Fetched, Spilled

if TYPE_CHECKING:
    from mpi_runtime.core.objects.spill_file import SpillFile


class Spills:
    """The spill file of this rank, with the writes and reads under way."""

    def __init__(
        self,
        rank: int,
        directory: Callable[[], str],
        arena: AgentArena,
        extents: Extents,
        poller: Poller,
        report: Callable[[Spilled | Fetched], None],
    ) -> None:
        """Spill from this arena. `directory` is called once, for the first object; `report` gets the ends."""
        self._rank = rank
        self._arena = arena
        self._extents = extents
        self._poller = poller
        self._report = report
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._directory = directory
        self._file: SpillFile | None = None
        """Opened with the first object: most jobs have none."""
        self._targets: dict[bytes, tuple[Restore, int]] = {}
        """By `_key`: reads under way, each with its place in the arena. A second read of an object may begin before
        an unwanted first one ends."""
        poller.add(self._bell, self._on_ended)

    def wake(self) -> None:
        """Wake the agent for its next turn. Any thread may call this."""
        os.eventfd_write(self._bell, 1)

    def obey(self, effect: Spill | Restore | Erase) -> None:
        """Perform an effect.

        Raises:
            BadFrameError: it is impossible.
        """
        try:
            if isinstance(effect, Spill):
                self._opened().write(effect.id, self._whole(effect.offset, effect.size), effect.for_copies)
            elif isinstance(effect, Erase):
                self._opened().free(effect.offsets)
            else:
                is_first = True
                self._extents.ask(
                    effect.size, NOBODY, lambda target, reason: self._restore(effect, target, reason, is_first)
                )
                is_first = False
        except ValueError as error:
            raise BadFrameError(str(error)) from error

    def _restore(self, effect: Restore, target: int, reason: str, is_first: bool) -> None:
        if target < 0:
            self._report(Fetched(self._rank, effect.id, -1, reason, order=effect.order))
            return
        try:
            self._opened().read(_key(effect), effect.offset, self._whole(target, effect.size))
        except ValueError:
            self._extents.free([target])
            if is_first:
                raise
            reason = "it was erased while it waited for memory"  # so it is not needed
            self._report(Fetched(self._rank, effect.id, -1, reason, is_lost=True, order=effect.order))
        else:
            self._targets[_key(effect)] = effect, target

    def _whole(self, offset: int, size: int) -> memoryview:
        """Return an extent with the rest of its last page, so that it can be read and written past the page cache."""
        return self._arena.view(offset, Allocator.rounded(size))

    def _opened(self) -> SpillFile:
        if self._file is None:
            from mpi_runtime.core.objects.spill_file import SpillFile  # not at the top: most jobs do not need it

            self._file = SpillFile(self._directory(), self.wake)
        return self._file

    def _on_ended(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        for ended in self._opened().poll() if self._file is not None else ():
            if ended.is_write:
                offset = -1 if ended.problem else ended.offset
                self._report(Spilled(self._rank, ended.id, offset, ended.problem, self._opened().path))
                continue
            effect, target = self._targets.pop(ended.id)
            if ended.problem:
                self._extents.free([target])
                reason = f"it cannot be read from disk: {ended.problem}"
                self._report(Fetched(self._rank, effect.id, -1, reason, is_lost=True, order=effect.order))
            else:
                self._report(Fetched(self._rank, effect.id, target, order=effect.order))

    def close(self) -> None:
        """Close the file."""
        self._poller.remove(self._bell)
        if self._file is not None:
            self._file.close()
        os.close(self._bell)


def _key(effect: Restore) -> bytes:
    return effect.order.to_bytes(8, "big")
