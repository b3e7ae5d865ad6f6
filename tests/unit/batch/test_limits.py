"""Short batch files that stand for much, files without an end, and numbers that no computer has."""

import json
import os
import random
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime.batch.file import entries, parse
from mpi_runtime.batch.file.options import OPTIONS, read_command
from mpi_runtime.batch.file.parameters import product, rows, zipped
from mpi_runtime.batch.file.parse import JSON, LINES, TOML, read_batch, read_text
from mpi_runtime.batch.history.graph import Graph
from mpi_runtime.batch.run.control import expanded
from mpi_runtime.errors import LaunchError

HUGE = ("1" + "0" * 400, "9" * 5000, "1e400", "99999999999999", f"0x{'f' * 5000}", "-1", "0", "7", "1.5", "nan")


def problem_of(text: str, form: str) -> str:
    _, problems = read_batch(text, form, {})
    assert len(problems) == 1, problems
    return problems[0].message


def array(values: str) -> str:
    return f'[[task]]\ncommand = "echo {{a}}{{b}}"\n{values}\n'


@pytest.mark.parametrize(
    ("values", "count"),
    [
        ("product = {a = {range = [0, 100_000_000]}, b = {range = [0, 10_000_000]}}", 10**15),
        ("product = {a = {range = [0, 1_000_000_000_000]}, b = [1]}", 10**12),
        (f"product = {{a = {{range = [0, {10**30}]}}, b = [1]}}", 10**30),
        (f"product = {{a = {{range = [{10**30}, 0, -1]}}, b = [1]}}", 10**30),
        ("zip = {a = {range = [0, 1_000_000_000_000]}, b = {range = [0, 1_000_000_000_000]}}", 10**12),
        ("product = {a = {range = [0, 4000]}}\nzip = {b = {range = [0, 4000]}}", 16_000_000),
    ],
)
def test_an_array_with_more_commands_than_a_batch_can_have(values: str, count: int) -> None:
    key = values.partition(" ")[0] if "\n" not in values else "zip"
    message = f"{key}: there are {count} rows, and a batch can have 10000000 commands: split it"
    tracemalloc.start()
    try:
        assert problem_of(array(values), TOML) == message
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def test_arrays_that_together_have_too_many_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "COMMANDS_MAX", 1000)
    one = array("product = {a = {range = [0, 30]}, b = {range = [0, 20]}}")
    groups, problems = read_batch(one, TOML, {})
    assert (len(groups[0].commands), problems) == (600, [])
    groups, problems = read_batch(one * 3, TOML, {})
    assert [(one.line, one.message) for one in problems] == [
        (4, "with 600 more the batch has more than 1000 commands: split it")
    ], "once, and the next array is not made"


def test_values_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="there are 1000000000000 rows"):
        product(a=range(10**6), b=range(10**6))
    with pytest.raises(ValueError, match="there are 1000000000000 rows"):
        zipped(a=range(10**12), b=[1])
    assert product(a=range(0), b=range(10**6)) == []
    assert len(product(a=(n for n in range(3)), b=range(5, 0, -2))) == 9
    monkeypatch.setattr("mpi_runtime.batch.file.parameters.COMMANDS_MAX", 1000)
    with pytest.raises(ValueError, match="there are 1001 rows"):
        product(a=iter(int, 1))


@pytest.mark.parametrize(
    ("text", "form", "message"),
    [
        (f'[[task]]\ncommand = "true"\nname = {"[" * 100_000}', TOML, "this is nested more than 100 deep"),
        (f"[[task]]\ncommand = 'true'\nname = {'[' * 101}{']' * 101}", TOML, "this is nested more than 100 deep"),
        (f"[{'a.' * 200}b]\nx = 1", TOML, "this is nested more than 100 deep"),
        (f"[[task]]\ncommand = 'true'\npriority = {'9' * 5000}", TOML, "a number has more than 4000 digits"),
        (f"[[task]]\ncommand = 'true'\npriority = 0x{'f' * 5000}", TOML, "a number has more than 4000 digits"),
        (f'{{"command": {"[" * 100_000}', JSON, "this is nested more than 100 deep"),
        (f'{{"command": {"[" * 200}{"]" * 200}}}', JSON, "this is nested more than 100 deep"),
        (f'{{"command": "true", "priority": {"9" * 5000}}}', JSON, "a number has more than 4000 digits"),
        (json.dumps({f"a{n}": 1 for n in range(2000)}), JSON, "a command has at most 1000 keys, not 2000"),
        (
            "[[task]]\n" + "".join(f"a{n} = 1\n" for n in range(2000)),
            TOML,
            "a command has at most 1000 keys, not 2000",
        ),
        (
            json.dumps({"command": "{a}" * 40_000, "product": {"a": ["x" * 1_000_000]}}),
            JSON,
            "command has 40000000000 letters with its values, and the kernel takes 131071 bytes",
        ),
        (
            f"true #batch alternatives='{' | '.join(f'num_cpus={n + 1}' for n in range(101))}'",
            LINES,
            "alternatives must be at most 100 requests, not 101",
        ),
        ("true #batch ranks=100001", LINES, "ranks must be at most 100000, not '100001'"),
    ],
)
def test_a_text_that_stands_for_much_is_one_problem(text: str, form: str, message: str) -> None:
    assert problem_of(text, form) == message


@pytest.mark.parametrize("text", [f"{'9' * 400}d", "1000000001", "11575-00:00"])
def test_durations_are_at_most_thirty_years(text: str) -> None:
    assert "must be at most 1e+09 seconds" in problem_of(f"true #batch time_limit={text}", LINES)
    assert "must be a duration" in problem_of(f"true #batch expect={'9' * 5000}-00:00", LINES)


def test_a_file_has_no_more_lines_than_a_batch_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "COMMANDS_MAX", 1000)
    assert problem_of("true\n" * 1001, LINES) == "there are 1001 lines, and a batch can have 1000: split it"


def test_only_files_and_pipes_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LaunchError, match=r"/dev/zero.*: it is neither a file nor a pipe"):
        read_text("/dev/zero", LINES)
    with pytest.raises(ValueError, match=r"/dev/zero.*: it is neither a file nor a pipe"):
        rows("/dev/zero")
    sparse = tmp_path / "jobs.txt"
    sparse.touch()
    os.truncate(sparse, 1 << 40)
    with pytest.raises(LaunchError, match=r"jobs\.txt is not a batch file: it has more than 1024 MiB"):
        read_text(str(sparse), LINES)
    with pytest.raises(LaunchError, match="Is a directory"):
        read_text(str(tmp_path), LINES)
    monkeypatch.setattr(entries, "TEXT_BYTES_MAX", 1 << 20)
    endless, written = os.pipe()
    writer = threading.Thread(target=write_without_end, args=(written,))
    writer.start()
    with pytest.raises(LaunchError, match="it has more than 1 MiB"):
        read_text(f"/dev/fd/{endless}", LINES)
    os.close(endless)
    writer.join()


def write_without_end(descriptor: int) -> None:
    try:
        while True:
            os.write(descriptor, b"true\n" * 1000)
    except BrokenPipeError:
        os.close(descriptor)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_a_pipe_is_awaited_with_a_line(
    pipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(entries, "_PATIENCE_S", 0.05)
    found = []
    reader = threading.Thread(target=lambda: found.append(read_text(str(pipe), LINES)))
    reader.start()
    shown = ""
    while not shown:
        shown = capsys.readouterr().err
        time.sleep(0.01)
    assert shown == f"mpi-runtime: waits for a program that writes to the pipe {pipe}\n"
    pipe.write_bytes(b"echo hi\r\n")
    reader.join()
    assert found == ["echo hi\n"]
    assert capsys.readouterr().err == ""


def test_rows_keep_the_ends_of_lines_in_their_values(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbfx,y\r\n1,"two\r\nthree"\r\n')
    assert rows(tmp_path / "a.csv") == [{"x": "1", "y": "two\r\nthree"}]
    (tmp_path / "a.jsonl").write_text(f'{{"x": 1}}\n{{"x": {"[" * 200}{"]" * 200}}}\n')
    with pytest.raises(ValueError, match=r"line 2: this is nested more than 100 deep"):
        rows(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_text(f'{{"x": {"9" * 5000}}}\n')
    with pytest.raises(ValueError, match=r"line 1: a number has more than 4000 digits"):
        rows(tmp_path / "b.jsonl")


def test_a_range_of_commands_that_are_not_there() -> None:
    graph = Graph()
    groups, _ = read_batch(array("product = {a = [1, 2, 3], b = [1]}\nname = 'train'"), TOML, {})
    graph.add(groups)
    assert expanded(graph, ("train.0-2",)) == (["train.0", "train.1", "train.2"], "")
    for words in ("train.0-99999999999", "train.0-999999999", f"train.0-{'9' * 5000}"):
        found, wrong = expanded(graph, (words,))
        assert found == []
        assert "there is no command or array" in wrong


def texts(rng: random.Random) -> Iterator[tuple[str, str]]:
    """Batch files with numbers that no computer has."""
    number, other = rng.choice(HUGE), rng.choice(HUGE)
    option, more = rng.sample([*OPTIONS], 2)
    unit = rng.choice(("", "GB", "d", "%", ",", "|", " | num_cpus="))
    yield LINES, f"true #batch {option}='{number}{unit}{other}' {more}={other}\n"
    yield JSON, f'{{"command": "{{a}}", "{option}": {number}, "product": {{"a": {{"range": [{number}, {other}]}}}}}}'
    yield TOML, f"[[task]]\ncommand = '{{a}}'\n{option} = {number}\nproduct = {{a = {{range = [{other}, {number}]}}}}"
    yield TOML, f"[defaults]\n{option} = [{number}, '{other}']\n[[task]]\ncommand = 'true'\n{more} = '{number}{unit}'"


def test_any_number_is_read_or_refused_in_little_memory() -> None:
    rng = random.Random(1)
    tracemalloc.start()
    try:
        for _ in range(40):
            for form, text in texts(rng):
                groups, problems = read_batch(text, form, {})
                assert problems or sum(len(group.commands) for group in groups) < 100
                assert all("Exceeds the limit" not in problem.message for problem in problems)
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("value", [10**400, 1e308, float("inf"), "1e400GB", f"{'9' * 400}GB", "9" * 5000])
def test_numbers_of_python(value: Any) -> None:
    for name in ("num_cpus", "num_gpus", "memory", "time_limit", "expect", "grace", "retries", "output_limit", "ranks"):
        command, wrong = read_command("true", {name: value}, {})
        assert command is None
        assert wrong[0][1].startswith(f"{name} must be ")
