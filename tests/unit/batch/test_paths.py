"""How long commands and the longest chains after them take."""

from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.history.graph import Paths


def group(name: str, after: tuple[str, ...] = (), limit: float | None = None, count: int = 1) -> Group:
    names = [f"{name}.{number}" for number in range(count)] if count > 1 else [name]
    commands = tuple(Command(text="true", name=one, time_limit=limit, after=after) for one in names)
    return Group(name, commands, after, (1, 1), (1, 1), count > 1)


def paths_s(paths: Paths, *names: str) -> list[float]:
    return [paths.path_us(name) / 1e6 for name in names]


def test_limits_add_up_along_the_longest_chain() -> None:
    paths = Paths()
    paths.add([group("a", limit=1.1), group("b", ("a",), 16.0), group("c", ("a",), 2.1), group("d", ("b", "c"), 16.0)])
    paths.path_us("a")
    assert {name: round(path, 1) for name, path in paths._paths.items()} == {"a": 33.1, "b": 32.0, "c": 18.1, "d": 16.0}


def test_paths_are_powers_of_two() -> None:
    paths = Paths()
    paths.add([group("a", limit=100.0), group("b", limit=101.0), group("c", limit=300.0)])
    assert paths.path_us("a") == paths.path_us("b") == 1 << 26
    assert paths.path_us("c") == 1 << 28


def test_measured_durations_count_where_no_limit_is_stated() -> None:
    paths = Paths()
    paths.add([group("train", count=3), group("sum", ("train",), limit=4.0)])
    assert paths_s(paths, "train.0") < [9.0], "4 s each: the mean of what is known"
    paths.measured("train.1", 40.0)
    assert paths_s(paths, "train.0", "train.2") == [33.554432] * 2


def test_what_is_expected_counts_until_it_is_known() -> None:
    paths = Paths()
    command = Command(text="true", name="a", time_limit=3600.0, expect=20.0)
    paths.add([Group("a", (command,), (), (1, 1), (1, 1))])
    assert paths.duration_s("a") == 20.0
    paths.measured("a", 30.0)
    assert paths.duration_s("a") == 30.0


def test_a_limit_counts_until_commands_of_the_array_have_ended() -> None:
    paths = Paths()
    paths.add([group("train", limit=600.0, count=3), group("sum", ("train",), limit=4.0)])
    assert (paths.duration_s("train"), paths.is_measured("train.0")) == (600.0, False)
    paths.measured("train.1", 40.0)
    assert (paths.duration_s("train"), paths.is_measured("train.0")) == (40.0, True)
    assert paths.duration_s("sum") == 4.0


def test_where_nothing_is_known_the_number_of_steps_counts() -> None:
    paths = Paths()
    paths.add([group("alone"), group("first"), group("second", ("first",)), group("third", ("second",))])
    assert paths.path_us("first") > paths.path_us("second") > paths.path_us("alone")


def test_what_comes_after_one_of_an_array_counts_for_all_of_it() -> None:
    paths = Paths()
    paths.add([group("many", limit=1.0, count=3), group("one", ("many.1",), limit=100.0)])
    assert paths_s(paths, "many.0") == paths_s(paths, "many.1") == [67.108864]


def test_names_that_nothing_is_known_of_have_no_path() -> None:
    assert Paths().path_us("nothing") == 0
