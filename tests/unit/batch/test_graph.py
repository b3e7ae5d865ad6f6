"""The order of a batch: what may start, what is skipped, what stops all; cycles and unknown names."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_runtime.batch.file.model import CONTINUE, SKIP, STOP, Command
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.history.graph import DONE, FAILED, SKIPPED, WAITING, Graph, wrong_names
from mpi_runtime.batch.show.overview import AFTER_SHOWN_MAX, described


def group(name: str, *after: str, count: int | None = None, on_failure: str = SKIP) -> Group:
    names = [name] if count is None else [f"{name}.{number}" for number in range(count)]
    commands = tuple(Command(text="true", name=one, after=after, on_failure=on_failure) for one in names)
    return Group(name, commands, after, (1, 1), (1, 1), count is not None)


def ready(graph: Graph) -> list[str]:
    return [command.name for command in graph.take_ready()]


def test_a_command_starts_after_all_of_an_array() -> None:
    graph = Graph()
    graph.add([group("end", "a"), group("a", "begin", count=2), group("begin")])
    assert ready(graph) == ["begin"]
    graph.end("begin", True)
    assert ready(graph) == ["a.0", "a.1"]
    graph.end("a.1", True)
    assert ready(graph) == []
    graph.end("a.0", True)
    assert ready(graph) == ["end"]
    assert not graph.is_over()
    graph.end("end", True)
    assert graph.is_over()
    assert graph.counts[DONE] == 4


def test_what_comes_after_a_failed_one_is_skipped() -> None:
    graph = Graph()
    graph.add([group("a", count=2), group("b", "a"), group("c", "b", count=1), group("d", "c"), group("other")])
    assert ready(graph) == ["a.0", "a.1", "other"]
    graph.end("a.0", False)
    assert graph.states["b"] == WAITING, "the whole array is waited for"
    graph.end("a.1", True)
    assert [graph.states[name] for name in ("b", "c.0", "d", "other")] == [SKIPPED] * 3 + ["started"]


def test_or_goes_on_or_stops_the_batch() -> None:
    graph = Graph()
    graph.add([group("a", on_failure=CONTINUE), group("b", "a", on_failure=STOP), group("c", "b"), group("d", "c")])
    assert ready(graph) == ["a"]
    graph.end("a", False)
    assert ready(graph) == ["b"]
    graph.end("b", False)
    assert ready(graph) == []
    assert graph.is_over()
    assert graph.is_stopped
    assert (graph.counts[FAILED], graph.counts[SKIPPED]) == (2, 2)


def test_a_cancelled_one_is_skipped_and_what_comes_after_it() -> None:
    graph = Graph()
    graph.add([group("a"), group("b", "a")])
    ready(graph)
    graph.cancelled("a")
    assert graph.counts[SKIPPED] == 2
    assert graph.is_over()


def test_commands_may_be_added_later() -> None:
    graph = Graph()
    graph.add([group("a"), group("bad")])
    ready(graph)
    graph.end("a", True)
    graph.add([group("b", "a"), group("empty", count=0), group("c", "empty")])
    assert ready(graph) == ["b", "c"]
    graph.end("bad", False)
    graph.add([group("d", "bad"), group("e", "d")])
    assert (graph.states["d"], graph.states["e"]) == (SKIPPED, SKIPPED)
    graph.stop()
    graph.add([group("late")])
    assert graph.states["late"] == SKIPPED


def test_a_long_chain_needs_no_recursion() -> None:
    graph = Graph()
    count = 5000
    graph.add([group(f"n{number}", *([f"n{number - 1}"] if number else [])) for number in range(count)])
    ready(graph)
    graph.end("n0", False)
    assert graph.counts[SKIPPED] == count - 1


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([group("a"), group("a")], ["there are two of the name 'a'"]),
        ([group("a", count=2), group("a.1")], ["there are two of the name 'a.1'"]),
        ([group("train"), group("b", "tran")], ["no command or array 'tran'; did you mean 'train'?"]),
        ([group("a", "a")], ["a cycle: a after a"]),
        (
            [group("a", "b"), group("b", "c", count=2), group("c", "a"), group("d", "a")],
            ["a cycle: a after b after c after a"],
        ),
        (
            [group("a", "b"), group("b", "a"), group("c", "d"), group("d", "c")],
            ["a after b after a", "c after d after c"],
        ),
        ([group("a", "b.1"), group("b", "a", count=2)], ["a cycle: a after b after a"]),
    ],
)
def test_wrong_names(groups: list[Group], words: list[str]) -> None:
    found = [problem.message for problem in wrong_names(groups)]
    assert len(found) == len(words)
    assert all(word in message for word, message in zip(words, found, strict=True))


def test_names_of_before_are_known() -> None:
    graph = Graph()
    graph.add([group("a", count=1)])
    assert wrong_names([group("b", "a", "a.0")], graph) == []
    assert len(wrong_names([group("a")], graph)) == 1


@st.composite
def batches(draw: st.DrawFn) -> list[Group]:
    """Groups without cycles, in any order."""
    groups: list[Group] = []
    for number in range(draw(st.integers(1, 8))):
        names = [one.name for one in groups] + [one.name for each in groups for one in each.commands]
        after = draw(st.lists(st.sampled_from(names), max_size=3, unique=True)) if names else []
        count = draw(st.sampled_from([None, None, 0, 1, 3]))
        policy = draw(st.sampled_from([SKIP, SKIP, CONTINUE]))
        groups.append(group(f"g{number}", *after, count=count, on_failure=policy))
    return draw(st.permutations(groups))


@given(batches(), st.integers(0, 2**32), st.floats(0, 1), st.data())
def test_every_command_ends_once_and_after_what_it_comes_after(
    groups: list[Group], seed: int, failing: float, data: Any
) -> None:
    assert wrong_names(groups) == []
    rng = random.Random(seed)
    graph = Graph()
    graph.add(groups)
    members = {one.name: [command.name for command in one.commands] for one in groups}
    running: list[str] = []
    started: set[str] = set()
    while not graph.is_over():
        for command in graph.take_ready():
            assert command.name not in started
            started.add(command.name)
            before = [name for after in command.after for name in members.get(after, [after])]
            assert all(
                graph.states[name] == DONE
                or (graph.states[name] == FAILED and graph.commands[name].on_failure == CONTINUE)
                for name in before
            )
            running.append(command.name)
        graph.end(running.pop(rng.randrange(len(running))), rng.random() >= failing)
    assert not running
    states = graph.states
    for name, command in graph.commands.items():
        before = [name for after in command.after for name in members.get(after, [after])]
        is_broken = any(
            states[one] == SKIPPED or (states[one] == FAILED and graph.commands[one].on_failure == SKIP)
            for one in before
        )
        assert (states[name] == SKIPPED) == is_broken == (name not in started)
    assert sum(graph.counts.values()) == len(graph.commands)


def test_few_of_many_names_that_a_command_comes_after_are_shown() -> None:
    names = [f"t{number}" for number in range(AFTER_SHOWN_MAX + 1)]
    for count, shown in [(1, "t0"), (AFTER_SHOWN_MAX, ", ".join(names[:-1]))]:
        assert described([group("end", *names[:count])]) == [f"end: 1 CPU, after {shown}: true", "1 command"]
    assert described([group("end", *names)])[0].endswith(f", t{AFTER_SHOWN_MAX - 1}, 1 more: true")
