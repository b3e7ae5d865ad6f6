"""Recordings: what was told to a scheduler, told to a fresh one, makes the same effects to the last byte."""

import pytest

from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.protocol.effects import Effects
from mpi_runtime.scheduler.protocol.events import Call, ClientEvent, Done, Query, RefusedError, TaskSpec
from mpi_runtime.scheduler.protocol.questions import Nodes
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied, ExecutorStarted, JobBegan, RankJoined, RankLost
from mpi_runtime.scheduler.recording import (
    MAGIC,
    ClientSaid,
    Decided,
    NotARecordingError,
    RecordedScheduler,
    Recording,
    replay,
)
from tests.builders import spec_of

DRIVER = 0


def id_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


def play(scheduler: Scheduler) -> None:
    """A short job with a crash in it."""
    scheduler.handle_rank(RankJoined(0, 0, "host0", [0, 1], -1, 0, 0, {}, 1 << 30), 1_000_000)
    scheduler.handle_rank(JobBegan(), 1_000_000)
    scheduler.decide(1_000_100)
    events: list[ClientEvent] = [spec_of(1, TaskSpec, "f", b"code", 10_000, max_retries=1)]
    events += [Call(id_of(number), 1, b"payload") for number in (1, 2)]
    scheduler.handle(DRIVER, events, 1_001_000)
    scheduler.decide(1_001_100)
    scheduler.handle_rank(ExecutorStarted(1, 4001), 1_002_000)
    scheduler.handle(1, [Done(id_of(1), b"value", 100)], 1_003_000)
    scheduler.handle_rank(ExecutorDied(2, id_of(2), "was killed by signal 9"), 1_003_000)
    scheduler.decide(1_003_100)


def recorded() -> bytes:
    data = bytearray()
    play(RecordedScheduler(data.extend))
    return bytes(data)


def test_a_replay_is_the_same_to_the_last_byte() -> None:
    outcome = replay(Recording(recorded()), Scheduler())
    assert str(outcome) == "8 events, 3 decisions: identical"


def test_the_state_is_that_of_the_job() -> None:
    played, replayed = Scheduler(), Scheduler()
    play(played)
    replay(Recording(recorded()), replayed)
    assert replayed.state.finished == played.state.finished == 1
    assert replayed.state.retried == played.state.retried == 1
    assert replayed.state.stories.of(id_of(2)) == played.state.stories.of(id_of(2)) != ""


def test_the_first_difference_is_shown_with_what_led_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = Recording(recorded())
    monkeypatch.setattr("mpi_runtime.scheduler.values.objects.PUSH_BYTES_MAX", 2)
    difference = replay(recording, Scheduler()).difference
    assert difference.startswith("decision 3, at 1003100 us, has other effects than the recording:")
    assert "ReadyElsewhere" in difference
    assert "client 1: Done(" in difference
    assert "a rank: ExecutorDied(" in difference
    assert "Spec(" not in difference, "what came before earlier decisions made no difference"


def test_what_ended_the_job_is_raised_again() -> None:
    data = bytearray()
    scheduler = RecordedScheduler(data.extend)
    play(scheduler)
    event = Call(id_of(9), 77, b"of a spec that was never told")
    with pytest.raises(RefusedError):
        scheduler.handle(DRIVER, [event], 1_004_000)
    outcome = replay(Recording(bytes(data)), Scheduler())
    assert isinstance(outcome.error, RefusedError)
    assert str(outcome) == (
        "9 events, 3 decisions: identical until the scheduler raised RefusedError: "
        "a call of function 77, which nobody has sent"
    )


def test_what_a_rank_cannot_have_said_is_dropped_again() -> None:
    data = bytearray()
    scheduler = RecordedScheduler(data.extend)
    play(scheduler)
    with pytest.raises(RefusedError):
        scheduler.handle_rank(RankLost(0), 1_004_000)
    scheduler.handle(DRIVER, [Query(1, Nodes())], 1_005_000)
    scheduler.decide(1_006_000)
    assert str(replay(Recording(bytes(data)), Scheduler())) == "10 events, 4 decisions: identical"


def test_every_end_of_a_file_is_tolerated() -> None:
    data = recorded()
    whole = list(Recording(data))
    seen = set()
    for end in range(len(MAGIC), len(data)):
        recording = Recording(data[:end])
        entries = list(recording)
        assert entries == whole[: len(entries)]
        seen.add((len(entries), recording.torn == 0))
        assert replay(Recording(data[:end]), Scheduler()).difference == ""
    assert {count for count, _ in seen} == set(range(len(whole)))


def test_a_file_that_is_no_recording_is_refused() -> None:
    with pytest.raises(NotARecordingError, match="no recording of a job"):
        Recording(b"PK\3\4")
    assert MAGIC == b"mpi_runtime recording 2\n"
    for number in (b"1", b"3"):
        with pytest.raises(
            NotARecordingError, match=r"of another version .* Read it with the version that has made it"
        ):
            Recording(recorded().replace(b"recording 2", b"recording " + number))


def test_decisions_without_a_reason_are_not_recorded() -> None:
    data = bytearray()
    scheduler = RecordedScheduler(data.extend)
    play(scheduler)
    before = len(data)
    for now in range(1_003_200, 1_004_000, 100):
        assert scheduler.decide(now) == Effects()
    assert len(data) == before


def test_a_decision_at_an_alarm_is_recorded() -> None:
    data = bytearray()
    scheduler = RecordedScheduler(data.extend)
    play(scheduler)
    scheduler.state.alarms.set(next(iter(scheduler.state.nodes.values())), 2_000_000)
    before = len(list(Recording(bytes(data))))
    scheduler.decide(2_000_000)
    *_, last = Recording(bytes(data))
    assert isinstance(last, Decided)
    assert last.now == 2_000_000
    assert len(list(Recording(bytes(data)))) == before + 1


def test_what_is_written_is_what_was_said_not_what_became_of_it() -> None:
    """Records of events live on in the scheduler, and change there."""
    said = [event for entry in Recording(recorded()) if isinstance(entry, ClientSaid) for event in entry.events]
    assert [event.attempt for event in said if isinstance(event, Call)] == [0, 0]
