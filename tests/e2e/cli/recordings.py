"""Recordings of real jobs: made while a program runs, and replayed."""

import re
from pathlib import Path

from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.protocol.events import Call
from mpi_runtime.scheduler.protocol.rank_events import JobBegan, RankJoined
from mpi_runtime.scheduler.recording import ClientSaid, RankSaid, Recording, replay


def replayed(path: Path) -> Recording:
    """Assert that the decisions of the job come out the same. Return its recording."""
    recording = Recording(path.read_bytes())
    outcome = replay(recording, Scheduler())
    assert recording.torn == 0
    assert outcome.events > 10
    assert re.fullmatch(r"\d+ events, \d+ decisions: identical", str(outcome))
    return recording


def replayed_with_calls(path: Path, ranks: int) -> None:
    """Assert that they come out the same in a job of this many ranks, which joined in their order and ran calls."""
    entries = list(replayed(path))
    first = [entry.event for entry in entries if isinstance(entry, RankSaid)][: ranks + 1]
    joined = [event.rank for event in first if isinstance(event, RankJoined)]
    assert joined == list(range(ranks)), "in their order, whichever came first"
    assert isinstance(first[ranks], JobBegan)
    assert any(isinstance(event, Call) for entry in entries if isinstance(entry, ClientSaid) for event in entry.events)
    assert [one.name for one in path.parent.iterdir()] == [path.name], "rank 0 alone records"
