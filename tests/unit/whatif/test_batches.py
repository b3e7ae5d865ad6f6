"""What a batch would take on other nodes."""

from typing import Any

import pytest

from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.history.batch_history import Ended, History
from mpi_runtime.batch.history.results import CommandResult
from mpi_runtime.whatif.batches import Batch
from mpi_runtime.whatif.prospects import in_lines, proposal
from mpi_runtime.whatif.virtual_cluster import Shape


def history(*entries: tuple[Command, float | None]) -> History:
    """A batch of single commands; those with seconds have run."""
    found = History()
    for number, (command, seconds) in enumerate(entries, 1):
        found.plan[command.name] = Group(command.name, (command,), command.after)
        if seconds is not None:
            result = CommandResult(
                name=command.name, command=command.text, exit_code=0, signal=None, problem="", is_success=True,
                attempts=1, start=100.0, end=100.0 + seconds, host="host", cpus=(), gpu_ids=(),
                peak_memory=0, cpu_time=0.0,
                stdout="", stderr="", workdir="",
            )  # fmt: skip
            found.note(Ended(number, b"", result))
    return found


def command(name: str, after: tuple[str, ...] = (), **options: Any) -> Command:
    return Command(text="true", name=name, after=after, **options)


DIAMOND = history(
    (command("begin"), 10.0),
    (command("left", ("begin",)), 20.0),
    (command("right", ("begin",), num_cpus=2), 30.0),
    (command("end", ("left", "right")), 5.0),
)


def test_more_nodes_shorten_it_down_to_the_longest_chain() -> None:
    batch = Batch(DIAMOND)
    small, large = batch.on(1, Shape(2)), batch.on(2, Shape(2))
    assert (small.seconds, large.seconds) == (65, 45)
    assert small.node_hours == pytest.approx(65 / 3600)
    assert small.cpu_use == pytest.approx((10 + 20 + 60 + 5) / (2 * 65))
    assert small.bound == "the work on CPUs, 47.5 s"
    assert large.bound == "the longest chain, 45 s"
    assert not batch.guessed


def test_what_no_node_can_run_is_said() -> None:
    prospect = Batch(DIAMOND).on(4, Shape(1))
    assert prospect.never == 2
    assert prospect.bound == "2 of its commands can never run there"
    assert prospect.seconds == 30


def test_what_has_not_run_takes_its_limit_or_the_mean() -> None:
    batch = Batch(history((command("known"), 8.0), (command("limited", time_limit=50.0), None), (command("new"), None)))
    assert batch.durations == {"known": 8.0, "limited": 50.0, "new": 8.0}
    assert batch.guessed == 2


def test_all_nodes_together_have_no_more_of_a_batch_resource_than_there_is() -> None:
    licensed = [(sharing(f"train{number}"), 10.0) for number in range(6)]
    batch = Batch(history(*licensed, (command("plot"), 5.0), (sharing("urgent", priority=1), 7.0)))
    assert [batch.on(nodes, Shape(4)).seconds for nodes in (1, 4)] == [37, 37], "two at a time, on any number of nodes"
    assert batch.on(1, Shape(1)).seconds == 72
    ranks = Batch(history((sharing("first", ranks=2, shares={"licence": 2.0}), 10.0), (sharing("next"), 10.0)))
    assert ranks.on(2, Shape(4)).seconds == 20, "a command with ranks returns its share when all of them have ended"


def sharing(name: str, **options: Any) -> Command:
    return command(name, **{"batch_resources": {"licence": 2.0}, "shares": {"licence": 1.0}, **options})


def test_it_knows_no_more_than_the_batch_would() -> None:
    """In a first run durations are unknown, so the long last line starts last."""
    lengths = [1.0, 1.0, 1.0, 1.0, 5.0]
    batch = Batch(history(*((command(f"line-{number}"), seconds) for number, seconds in enumerate(lengths))))
    assert batch.on(1, Shape(2)).seconds == 7


def test_gpus_bound_it() -> None:
    batch = Batch(history(*((command(f"train{number}", num_gpus=1.0), 60.0) for number in range(8))))
    prospects = [batch.on(1, Shape(16, gpus)) for gpus in (1, 4)]
    assert [one.seconds for one in prospects] == [480, 120]
    assert prospects[0].bound == "the work on GPUs, 8 min 00 s"
    lines = in_lines(prospects)
    assert lines[0].split()[:4] == ["nodes", "CPUs", "GPUs", "makespan"]
    assert lines[2].split()[:5] == ["1", "16", "4", "2", "min"]


def test_custom_resources_bound_it_and_hosts_do_not() -> None:
    resources = {"licence": 1, "node:here": 0.01, "accelerator_type:H100": 0.01}
    batch = Batch(history(*((command(f"one{number}", resources=resources), 10.0) for number in range(8))))
    assert batch.on(2, Shape(8, resources=(("licence", 2.0),))).seconds == 20
    assert batch.on(2, Shape(8)).bound == "8 of its commands can never run there"


def test_a_group_has_no_more_than_its_limit() -> None:
    commands = [(command(f"one{number}", group="few", group_limit=2), 10.0) for number in range(8)]
    assert Batch(history(*commands)).on(1, Shape(8)).seconds == 40


def test_ranks_need_their_cpus_on_any_nodes_and_a_command_ends_with_the_last() -> None:
    batch = Batch(history((command("wide", ranks=4), 10.0), (command("end", ("wide",)), 5.0)))
    assert (batch.on(1, Shape(4)).seconds, batch.on(2, Shape(2)).seconds) == (15, 15)
    narrow = batch.on(1, Shape(2))
    assert narrow.seconds == 25
    assert narrow.never == 0


def test_jobs_that_share_a_batch_leave_when_nothing_is_left_for_them() -> None:
    wide = history(*((command(f"c{number}"), 100.0) for number in range(8)), (command("last", ("c0",)), 1000.0))
    one, two = (Batch(wide).on(jobs, Shape(2), jobs) for jobs in (1, 2))
    assert (one.seconds, two.seconds) == (1100, 1100)
    assert one.held_s == 1100
    assert 1100 + 160 <= two.held_s <= 1100 + 360, "the second leaves a minute after its last command"
    assert in_lines([one, two])[0].split()[:5] == ["jobs", "nodes", "each", "core", "hours"]
    assert proposal([one, two]).startswith("proposal: one job of 1 node with 2 CPUs: ")
    assert proposal([Batch(DIAMOND).on(4, Shape(1))]) == "", "some can never run there"


def test_a_node_with_one_cpu_is_proposed_as_such() -> None:
    even = Batch(history(*((command(f"c{number}"), 100.0) for number in range(2))))
    assert proposal([even.on(1, Shape(1))]).startswith("proposal: one job of 1 node with 1 CPU: ")


def test_jobs_that_cost_no_more_and_end_sooner_are_proposed() -> None:
    even = Batch(history(*((command(f"c{number}"), 100.0) for number in range(16))))
    prospects = [even.on(jobs, Shape(2), jobs) for jobs in (1, 2, 4)]
    assert [one.seconds for one in prospects] == [800, 400, 200]
    assert proposal(prospects) == "proposal: 4 jobs of 1 node with 2 CPUs: 3 min 20 s, 0.44 core hours"
