"""Ranks measure while somebody asks, as often as the head can take."""

from mpi_runtime.core.head.measures import ANSWERS_PER_S, SIZES_MAX, Measures
from mpi_runtime.core.transport.messages import Measure, Measured
from mpi_runtime.scheduler.protocol.entries import HostUse
from mpi_runtime.scheduler.protocol.window_questions import ProcessSize


def test_one_rank_of_each_host_measures_it_and_not_at_each_question() -> None:
    sent: list[tuple[int, Measure]] = []
    found = Measures([0, 0, 1], ["a", "a", "b"], lambda rank, message: sent.append((rank, message)))
    assert found.answer([0, 1, 2]).nodes == {}
    found.answer([0, 1, 2])
    assert [(rank, message.host) for rank, message in sent] == [(0, False), (1, True), (2, True)]
    found.take(Measured(1, HostUse(0.5, 1, 2), [(7, 100)]))
    found.take(Measured(2, HostUse(0.25, 1, 2), [(7, 100)] * (2 * SIZES_MAX)))
    answer = found.answer([0, 1, 2])
    assert answer.nodes == {"a": HostUse(0.5, 1, 2), "b": HostUse(0.25, 1, 2)}
    assert answer.sizes[:2] == [ProcessSize("a", 7, 100), ProcessSize("b", 7, 100)]
    assert len(answer.sizes) == SIZES_MAX
    assert list(found.answer([0, 1]).nodes) == ["a"], "the other rank has died"


def test_names_of_any_length_fit_an_answer() -> None:
    found = Measures([0], ["host" * 20], lambda *_: None)
    found.take(Measured(0, HostUse(0.5, 1, 2), [(7, 100)] * SIZES_MAX))
    assert len(found.answer([0]).sizes) in range(1, SIZES_MAX)


def test_many_ranks_measure_less_often() -> None:
    count = 100 * ANSWERS_PER_S
    found = Measures(range(count), ["a"] * count, lambda *_: None)
    assert found.answer([]).period_s == 100
