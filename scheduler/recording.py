"""Recordings: the events of a job's scheduler, so that its decisions can be repeated.

A recording is a list of frames, each with its length before it: the events of clients and ranks, with the times at
which they were handled, and a hash of the effects of each decision. The scheduler is a function of these, so the same
events give the same decisions in a new scheduler, to the last byte, and every state on the way can be inspected. The
last frame may be cut off. The recording contains all calls and small values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct

from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.protocol.effects import Effects
from mpi_runtime.scheduler.protocol.events import ClientEvent, RefusedError
from mpi_runtime.scheduler.protocol.ids import digest
from mpi_runtime.scheduler.protocol.rank_events import HeadEvent, RankEvent

MAGIC = b"mpi_runtime recording 2\n"
"""The first bytes of a recording; the number changes with the format."""
LENGTH_BYTES = 4
DIGEST_BYTES = 16


class ClientSaid(Struct, array_like=True, tag=1):
    """Events of a client."""

    now: int
    client: int
    events: list[ClientEvent]
    ended: int | None = None
    """The number of calls that end in them, as its agent counts."""


class RankSaid(Struct, array_like=True, tag=2):
    """An event of a rank or of the head."""

    now: int
    event: RankEvent | HeadEvent


class Decided(Struct, array_like=True, tag=3):
    """A decision was made."""

    now: int
    digest: bytes


Entry: TypeAlias = "ClientSaid | RankSaid | Decided"

_encoder = msgspec.msgpack.Encoder()


def digest_of(effects: Effects) -> bytes:
    """A hash of all effects of a decision."""
    return digest(_encoder.encode(effects), DIGEST_BYTES)


class RecordedScheduler(Scheduler):
    """A scheduler that records each event before it handles it."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        """Pass the bytes of the recording to this function."""
        super().__init__()
        self._write = write
        self._is_settled = False
        """Whether there was no event since the last decision."""
        write(MAGIC)

    def _record(self, entry: Entry) -> None:
        self._is_settled = isinstance(entry, Decided)
        frame = _encoder.encode(entry)
        self._write(len(frame).to_bytes(LENGTH_BYTES, "big") + frame)

    def handle(
        self, client_number: int, events: Sequence[ClientEvent], now: int, ended_in_frame: int | None = None
    ) -> None:
        """See `Scheduler`."""
        self._record(ClientSaid(now, client_number, list(events), ended_in_frame))
        super().handle(client_number, events, now, ended_in_frame)

    def handle_rank(self, event: RankEvent | HeadEvent, now: int) -> None:
        """See `Scheduler`."""
        self._record(RankSaid(now, event))
        super().handle_rank(event, now)

    def decide(self, now: int) -> Effects:
        """See `Scheduler`. A decision without a cause is not recorded: the head makes many."""
        deadline = self.deadline()
        if self._is_settled and (deadline is None or now < deadline):
            return Effects()
        effects = super().decide(now)
        self._record(Decided(now, digest_of(effects)))
        return effects


class NotARecordingError(ValueError):
    """The bytes are not a recording of this version."""


class Recording:
    """The entries of a recording, in order."""

    def __init__(self, data: bytes) -> None:
        """Read a recording.

        Raises:
            NotARecordingError: it does not begin like one.
        """
        if not data.startswith(MAGIC):
            kind = "a recording of another version" if data.startswith(MAGIC[:-3]) else "no recording of a job"
            raise NotARecordingError(f"this is {kind}: it begins with {data[: len(MAGIC)]!r}, not with {MAGIC!r}")
        self._data = data
        self.torn = 0
        """The bytes of a cut-off entry at the end. Known when all entries have been read."""

    def __iter__(self) -> Iterator[Entry]:
        decoder = msgspec.msgpack.Decoder(ClientSaid | RankSaid | Decided)
        data, at = memoryview(self._data), len(MAGIC)
        while at < len(data):
            start = at + LENGTH_BYTES
            end = start + int.from_bytes(data[at:start], "big")
            if start > len(data) or end > len(data):
                self.torn = len(data) - at
                return
            yield decoder.decode(data[start:end])
            at = end


class Outcome(Struct):
    """The result of a replay."""

    events: int = 0
    decisions: int = 0
    difference: str = ""
    """The first difference, if any."""
    error: Exception | None = None
    """The error of the scheduler at which the replay ends, if any."""

    def __str__(self) -> str:
        so_far = f"{self.events} events, {self.decisions} decisions"
        if self.difference:
            return f"{so_far}: {self.difference}"
        if self.error is not None:
            return f"{so_far}: identical until the scheduler raised {type(self.error).__name__}: {self.error}"
        return f"{so_far}: identical"


def replay(recording: Recording, scheduler: Scheduler) -> Outcome:
    """Pass a recording to a fresh scheduler, and compare the effects."""
    outcome = Outcome()
    since: list[str] = []
    for entry in recording:
        try:
            if isinstance(entry, ClientSaid):
                outcome.events += len(entry.events)
                since += [f"client {entry.client}: {event}" for event in entry.events]
                scheduler.handle(entry.client, entry.events, entry.now, entry.ended)
                continue
            if isinstance(entry, RankSaid):
                outcome.events += 1
                since.append(f"a rank: {entry.event}")
                scheduler.handle_rank(entry.event, entry.now)
                continue
            effects = scheduler.decide(entry.now)
        except Exception as error:
            if isinstance(error, RefusedError) and isinstance(entry, RankSaid):
                continue  # the head dropped it
            outcome.error = error
            return outcome
        outcome.decisions += 1
        if digest_of(effects) != entry.digest:
            events = "\n  ".join(since) or "none"
            outcome.difference = (
                f"decision {outcome.decisions}, at {entry.now} us, has other effects than the recording:\n  {effects}\n"
                f"The events before it:\n  {events}"
            )
            return outcome
        since.clear()
    return outcome
