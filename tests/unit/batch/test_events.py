"""What hinders a job that takes part in a batch is shown if it lasts; what it gives back is not lost."""

from types import SimpleNamespace
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime.batch.elastic.member import Member
from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.history.graph import DONE, SKIPPED, STARTED
from mpi_runtime.batch.history.keys import Keys
from mpi_runtime.batch.run.commands import Commands, Setting
from mpi_runtime.batch.run.running import AGAIN_S, LASTS_S, CommandEnded, Place, Running, Started, Trouble
from mpi_runtime.errors import TaskCancelledError


def test_a_problem_is_shown_when_it_lasts_and_again_from_time_to_time() -> None:
    said: list[str] = []
    trouble = Trouble(said.append)
    trouble.note("stale", 0.0)
    trouble.note("", 1.0)
    trouble.note("stale", 2.0)
    trouble.note("stale", 1.0 + LASTS_S)
    assert (said, trouble.problem) == ([], ""), "a look that fails now and then is no problem"
    shown_s = 2.0 + LASTS_S
    for passed_s in (0.0, 1.0, AGAIN_S - 1.0):
        trouble.note("full", shown_s + passed_s)
    assert (said, trouble.problem) == (["full"], "full")
    trouble.note("full", shown_s + AGAIN_S)
    assert said == ["full", "full"]
    trouble.note("", shown_s + AGAIN_S + 1.0)
    assert trouble.problem == ""


def test_a_command_that_is_given_back_while_its_job_becomes_the_coordinator_is_offered_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cancelled: list[object] = []
    monkeypatch.setattr(mpi_runtime, "cancel", cancelled.append)
    history = SimpleNamespace(controls={}, began={})
    journal: Any = SimpleNamespace(history=history, keys=Keys({}), is_successor=True)
    ref: Any = SimpleNamespace(binary=lambda: b"id of the call")
    running = Running("out")
    running.by_number[7] = Started(ref, "late", b"key", 7, 0)
    running.give_back(running.by_number.values())  # another job may have room; and meanwhile the coordinator dies
    nothing: Any = None
    place = Place(nothing, running, Member("token", ()), nothing)

    leader = Commands(Setting("out", print, journal, place=place))
    leader.graph.add([Group("late", (Command(text="true", name="late"),))])
    leader.graph.take_ready()
    leader._given["late"] = 7
    returned: list[int] = []
    sharing: Any = SimpleNamespace(returned=returned.append)
    leader.sharing = sharing
    outcome: Any = SimpleNamespace(exception=TaskCancelledError)
    assert leader.end(CommandEnded(7, outcome), False) is None
    assert cancelled == [ref]
    assert returned == [7]
    assert leader.graph.states["late"] == STARTED, "it is skipped only if nobody wants it"


def test_a_successor_that_ends_at_once_ends_each_command_once() -> None:
    """Commands that were offered before are still in its way to the graph: one of them has ended in another job."""
    journal: Any = SimpleNamespace(history=SimpleNamespace(controls={}, began={}), keys=Keys({}), is_successor=True)
    leader = Commands(Setting("out", print, journal))
    leader.graph.add([Group(name, (Command(text="true", name=name),)) for name in ("begun", "offered", "ended", "new")])
    assert leader.next_ready() is not None
    leader._given = {"offered": 7}
    leader.graph.end("ended", True)
    leader.stop((), is_everywhere=False)
    assert leader.graph.states == {"begun": STARTED, "offered": SKIPPED, "ended": DONE, "new": SKIPPED}
