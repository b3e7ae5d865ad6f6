"""Reports of the ends of members: that of one that called MPI_Abort waits for those of other nodes."""

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from mpi_runtime.core.agent.executors import LocalExecutor
from mpi_runtime.core.agent.gangs import Gangs, LocalGang
from mpi_runtime.core.transport.poller import Poller


@pytest.fixture
def gangs() -> Iterator[Gangs]:
    poller = Poller()
    agent: Any = SimpleNamespace(poller=poller, rank=1, scratch="/nowhere")  # nothing else is asked of it
    one = Gangs(agent)
    yield one
    one.close()
    poller.close()


def test_the_end_of_a_member_that_aborted_is_reported_after_others(
    gangs: Gangs, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    aborted, other = (LocalExecutor(number, 0, -1, None) for number in (1, 2))
    aborted.end_waits_s = 0.25
    reported: list[int] = []
    gangs.report_end(aborted, lambda: reported.append(1))
    gangs.report_end(other, lambda: reported.append(2))
    assert (gangs.turn(), reported) == (0.25, [2])
    now_s += 0.125
    assert (gangs.turn(), reported) == (0.125, [2])
    now_s += 0.125
    assert (gangs.turn(), reported) == (None, [2, 1])
    assert (gangs.turn(), reported) == (None, [2, 1])


def test_the_end_of_a_member_that_aborted_is_reported_at_once_when_the_head_stops_it(
    gangs: Gangs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head knows of another end: its connection to that member is why it has aborted."""
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    aborted, other = (LocalExecutor(number, 0, -1, None) for number in (1, 2))
    reported: list[int] = []
    for member in (aborted, other):
        member.end_waits_s = 0.25
        gangs.report_end(member, partial(reported.append, member.number))
    gangs.stopped(aborted.number)
    assert (gangs.turn(), reported) == (0.25, [1])


def test_an_abort_after_the_head_has_stopped_a_member_is_not_its_end(gangs: Gangs) -> None:
    start: Any = SimpleNamespace(texts=[], problem="", is_ready=True, aborted=(0, 1, ""), initialised=set())
    shape: Any = SimpleNamespace(names=["here", "there"], gang=7)
    gang = gangs._gangs[7] = LocalGang(shape, 0)
    gang.start, gang.has_looked = start, True
    member = gang.members[0] = LocalExecutor(1, 0, -1, None)
    gangs.stopped(member.number)
    gangs._look(gang)
    assert (member.death_note, member.end_waits_s) == ("", 0.0)
    gangs._gangs.clear()


@pytest.mark.parametrize("names", [["here"], ["here", "there"]])
def test_texts_of_members_that_die_with_others_are_dropped(
    gangs: Gangs, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    """On several nodes the library reports that the connection to a dead member is lost."""
    now_s, shown = 100.0, list[bytes]()
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    shape: Any = SimpleNamespace(names=names, gang=7)
    start: Any = SimpleNamespace(
        texts=[], problem="", is_ready=True, aborted=None, initialised=set(), close=lambda: None
    )
    gang = gangs._gangs[7] = LocalGang(shape, 0)
    gang.start, gang.has_looked = start, True
    for rank in range(3):
        member = gang.members[rank] = LocalExecutor(rank + 1, 0, -1, None)
        member.gang, member.gang_rank = 7, rank
        output: Any = SimpleNamespace(forward=shown.append)
        member.outputs.append(output)
        start.texts += [(rank, b"of %d\n" % rank, rank != 2), (2, b"known\n", False)]
    gangs._look(gang)
    members = list(gang.members.values())
    assert members[2].mpi_words == b"known\nknown\nof 2\nknown\n"
    if len(names) == 1:
        assert shown == [b"of 0\n", b"of 1\n"]
        return
    assert shown == []
    gangs.stopped(members[1].number)
    gangs.ended(members[1])
    now_s += 0.5
    gangs.turn()
    assert shown == [b"of 0\n"]
    start.texts.append((0, b"left\n", True))
    gangs._look(gang)
    gangs.ended(members[0])
    assert shown == [b"of 0\n", b"left\n"]
