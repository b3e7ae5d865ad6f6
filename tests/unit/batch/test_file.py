"""Batch files: three forms, one model; all problems at once, each with its line and column."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_runtime.batch.file import raw_bytes
from mpi_runtime.batch.file.entries import Problem, is_refused, unknown
from mpi_runtime.batch.file.parse import FORMS, JSON, LINES, TOML, Group, form_of, read_batch, read_text
from mpi_runtime.batch.file.selection import select
from mpi_runtime.batch.history.graph import SKIPPED, Graph, wrong_names
from mpi_runtime.errors import LaunchError

TEXTS = st.text(st.sampled_from("ab{}[]\"'#=\\\n \t,:.0x🙂\r"), max_size=60) | st.text(max_size=40)


def places(text: str, form: str, **defaults: Any) -> list[tuple[int, int, str]]:
    groups, problems = read_batch(text, form, defaults)
    return [(one.line, one.column, one.message) for one in sorted(problems + wrong_names(groups))]


def groups_of(text: str, form: str, **defaults: Any) -> list[Group]:
    groups, problems = read_batch(text, form, defaults)
    assert problems == []
    return groups


def test_options_in_a_comment_and_quoted_placeholders_get_a_note() -> None:
    text = "run # batch num_cpus=2\n#Batch num_cpus=1\n# batch of files\necho '{cpus}' \"{{cpus}}\" '{other'\n"
    groups, problems = read_batch(text, LINES, {})
    assert [group.commands[0].text for group in groups] == [
        "run # batch num_cpus=2",
        "echo '{cpus}' \"{{cpus}}\" '{other'",
    ]
    assert not is_refused(problems)
    assert [problem.shown("jobs.txt") for problem in problems] == [
        "jobs.txt:1:5: note: # batch num_cpus is a comment: write #batch, with a blank before and after it",
        "jobs.txt:2:1: note: #Batch num_cpus is a comment: write #batch, with a blank before and after it",
        "jobs.txt:4:1: note: the value of {cpus} is quoted for the shell already: leave out the quotes",
    ]


def test_an_option_whose_value_no_shell_could_read_is_a_problem() -> None:
    assert places('true #batch name=a\\\ntrue #batch env=A="b\\"\n', LINES) == [
        (1, 13, "name=a\\ is not a word for a shell (No escaped character): write \\\\ for \\"),
        (2, 13, 'env=A="b\\" is not a word for a shell (No closing quotation): write \\\\ for \\'),
    ]


OF_BASH = {
    "source a.sh; x": "source",
    "a && source b": "source",
    "if [[ -f x ]]; then y; fi": "[[",
    "diff <(a) <(b)": "<(",
    "module load cuda && x": "module load",
    "a=(1 2)": "a=(",
    "x &> f": "&>",
    "set -o pipefail; x": "pipefail",
    "echo {1..5}": "{1..5}",
}
OF_ANY_SHELL = """
echo 'source x' "<(" \\"[[ "
resource x
bash -c 'source x; [[ 1 ]]'
echo $((1<<3)) > f 2>&1 &
cat <<EOF
f() { ls; }; f (x)
ls {a,b} $(a) `b`
a=$(ls) b
echo source [[ module load
"""


@pytest.mark.parametrize("text", OF_BASH)
def test_a_command_for_bash_gets_a_note_under_another_shell(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpi_runtime.batch.file.text._is_bash", lambda path: False)
    _, problems = read_batch(f"ls\n{text}\n{text}\n", LINES, {})
    assert [problem.shown("jobs") for problem in problems] == [
        f'jobs:2:1: note: {OF_BASH[text]!r} is of bash, and /bin/sh runs this (and 1 more such): set shell to "bash"'
    ]
    assert groups_of(text, LINES, shell="bash")[0].commands[0].shell == "bash"
    monkeypatch.setattr("mpi_runtime.batch.file.text._is_bash", lambda path: True)
    groups_of(text, LINES)


def test_what_every_shell_knows_gets_no_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpi_runtime.batch.file.text._is_bash", lambda path: False)
    groups_of(OF_ANY_SHELL, LINES)


def test_a_total_of_which_no_command_takes_a_part_gets_a_note() -> None:
    text = "#batch batch_resources=licence=3,seat=2\nls #batch resources=seat=1\nls\n"
    groups, problems = read_batch(text, LINES, {})
    assert [problem.shown("jobs") for problem in problems] == [
        "jobs:2:1: note: batch_resources limits nothing: no command takes licence of it; give commands "
        "resources=licence=1"
    ]
    assert len(groups) == 2
    groups_of(text.replace("seat=1", "seat=1,licence=1"), LINES)
    assert [problem.is_note for problem in read_batch(f"{text}ls #batch nothing=1\n", LINES, {})[1]] == [False]


def test_options_on_a_line_of_their_own_are_for_all_commands() -> None:
    text = "# a list\n#batch shell=bash num_cpus=2\nls\nls #batch shell=/bin/dash\n"
    found = [group.commands[0] for group in groups_of(text, LINES, num_cpus="4")]
    assert [(one.name, one.shell, one.num_cpus) for one in found] == [("line-3", "bash", 2), ("line-4", "/bin/dash", 2)]
    assert places("#batch num_cpu=1 name=a\nls\n#batch num_cpus=1", LINES) == [
        (1, 8, "there is no option 'num_cpu'; did you mean 'num_cpus'?"),
        (1, 18, "name is for one task, not for all of them"),
        (3, 1, "options without a command are for all commands: write them once, before the first one"),
    ]
    assert places("ls #batch shell='bash -l'", LINES) == [
        (1, 11, "shell must be the path or the name of a shell such as 'bash', without options, not 'bash -l'")
    ]


@pytest.mark.parametrize(
    ("path", "form"),
    [("-", JSON), ("a.toml", TOML), ("a.jsonl", JSON), ("b/a.ndjson", JSON), ("a.txt", LINES), ("a", LINES)],
)
def test_the_end_of_the_name_tells_the_form(path: str, form: str) -> None:
    assert form_of(path) == form


def test_the_same_batch_in_three_forms_is_the_same() -> None:
    lines = "make  #batch name=first num_cpus=2\nplot 'a b' #batch name=second after=first time_limit=10m\n"
    toml = """
        [[task]]
        name = "first"
        command = "make"
        num_cpus = 2
        [[task]]
        name = "second"
        command = "plot 'a b'"
        after = ["first"]
        time_limit = "10m"
    """
    first = {"name": "first", "command": "make", "num_cpus": 2}
    second = {"name": "second", "command": "plot 'a b'", "after": "first", "time_limit": 600}
    found = [
        [one.commands for one in groups_of(text, form)]
        for text, form in ((lines, LINES), (toml, TOML), (f"{json.dumps(first)}\n\n{json.dumps(second)}", JSON))
    ]
    assert found[0] == found[1] == found[2]
    assert [one.name for group in found[0] for one in group] == ["first", "second"]


def test_lines_are_commands_but_for_comments() -> None:
    text = "# a comment\n\n  echo one # two\r\necho '#batch name=x' \\#batch #batchy\n"
    found = [group.commands[0] for group in groups_of(text, LINES, num_cpus="3")]
    assert [(one.name, one.text) for one in found] == [
        ("line-3", "echo one # two"),
        ("line-4", "echo '#batch name=x' \\#batch #batchy"),
    ]
    assert {one.num_cpus for one in found} == {3.0}


def test_options_behind_a_line_may_have_quotes_and_win_over_flags() -> None:
    (group,) = groups_of('run #batch env="A=b c" num_cpus=2', LINES, num_cpus="3", priority="1")
    assert (group.commands[0].env, group.commands[0].num_cpus, group.commands[0].priority) == ({"A": "b c"}, 2.0, 1)


def test_every_problem_of_lines_has_its_place() -> None:
    text = "true #batch num_cpu=1\n#batch name=x\ntrue #batch after=y nonsense\n\ntrue {z} #batch retries=x retries=1"
    assert places(text, LINES) == [
        (1, 13, "there is no key 'num_cpu'; did you mean 'num_cpus'?"),
        (2, 1, "options without a command are for all commands: write them once, before the first one"),
        (3, 13, "there is no command or array 'y'; there are: line-1, line-3, line-5"),
        (3, 21, "options are name=value with blanks between, not 'nonsense'"),
        (
            5,
            1,
            "there is no placeholder 'z'; there are: workdir, gpu, cpus, attempt, host, ranks, rank, hosts, hostfile; "
            "{{z}} stands for {z} itself",
        ),
        (5, 27, "retries is given twice"),
    ]


TOML_TEXT = '''[defaults]
num_cpus = 2
colour = "red"

[[task]]
name = "prepare"
command = """
[[task]]
retries = 3
"""
after = ["train"]

[[task]]  # the array
name = "train"
command = "train {seed}"
  ranks = 0
after = ["prepare", "nobody"]
[task.product]
seed = { range = [0, 3] }
rate = [1]

[[job]]
name = "x"
'''


def test_every_problem_of_toml_has_its_place() -> None:
    found = places(TOML_TEXT, TOML)
    assert [(line, column) for line, column, _ in found] == [(3, 1), (11, 1), (13, 1), (16, 3), (17, 1), (22, 1)]
    for (_, _, message), words in zip(
        found,
        (
            "no option 'colour'",
            "a cycle: prepare after train after prepare",
            "'rate' is not used",
            "ranks must be 1 or more, not 0",
            "no command or array 'nobody'",
            "no 'job' here",
        ),
        strict=True,
    ):
        assert words in message


def test_a_parameter_that_is_nearly_an_option_is_named_as_one() -> None:
    ((_, _, message),) = places('[[task]]\ncommand = "true"\nzip = { retris = [2] }\n', TOML)
    assert message == "parameter 'retris' is not used: no {retris} in the command; did you mean the option 'retries'?"


def test_what_is_not_toml_has_its_place() -> None:
    ((line, column, message),) = places('[[task]]\ncommand = "true"\nname = = 3\n', TOML)
    assert (line, column) == (3, 8)
    assert message.startswith("this is not TOML")
    assert places('[[task]]\ncommand = "true', TOML)[0][:2] == (2, 16)


def test_tasks_of_toml_may_be_written_inline() -> None:
    (group,) = groups_of('task = [{command = "true", name = "a"}]', TOML)
    assert group.commands[0].name == "a"
    assert places("task = 3", TOML) == [(1, 1, "tasks are written as [[task]]")]


def test_every_problem_of_json_lines_has_its_place() -> None:
    text = '{"command": "true", "retries": "x"}\n{"command" 3}\n[1]\n{"name": "a", "name": "b", "command": "true"}\n'
    found = places(text, JSON)
    assert [(line, column) for line, column, _ in found] == [(1, 21), (2, 12), (3, 1), (4, 2)]
    assert "name is given twice" in found[3][2]


def test_arrays() -> None:
    parameters = {"product": {"a": {"range": [2]}}, "zip": {"b": [1, 2], "c": ["x", "y"]}}
    entry = {"name": "t", "command": "run {a} {b} {c}", **parameters}
    after = {"name": "end", "command": "true", "after": ["t", "t.3"]}
    (group, end) = groups_of(f"{json.dumps(entry)}\n{json.dumps(after)}", JSON)
    assert [one.name for one in group.commands] == ["t.0", "t.1", "t.2", "t.3"]
    assert [one.shown() for one in group.commands] == ["run 0 1 x", "run 0 2 y", "run 1 1 x", "run 1 2 y"]
    assert wrong_names([group, end]) == []
    assert "no command or array 't.4'" in places(json.dumps({**entry, "after": "t.4"}), JSON)[0][2]


def test_rows_of_a_file_beside_the_batch(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("x\n1\n2\n", encoding="utf-8-sig")  # as Excel writes it
    text = '[[task]]\ncommand = "run {x}"\nrows = "p.csv"\n'
    (group,), problems = read_batch(text, TOML, {}, str(tmp_path))
    assert problems == []
    assert [one.shown() for one in group.commands] == ["run 1", "run 2"]
    assert places(text, TOML)[0][:2] == (3, 1)


@pytest.mark.parametrize("value", ["3", '"x"', "{range = [1, 2, 0]}", "{range = 3}", "{to = 3}"])
def test_wrong_parameters(value: str) -> None:
    ((line, column, message),) = places(f'[[task]]\ncommand = "run {{a}}"\nproduct = {{a = {value}}}\n', TOML)[:1]
    assert (line, column) == (3, 1)
    assert message.startswith("product: ")


def test_an_empty_batch_is_a_problem() -> None:
    assert [places(text, form)[0][2] for text, form in (("# x", LINES), ("", TOML), ("\n", JSON))] == [
        "there is no command here"
    ] * 3


@given(TEXTS, st.sampled_from(FORMS))
def test_any_text_is_a_batch_or_has_problems_inside_it(text: str, form: str) -> None:
    groups, problems = read_batch(text, form, {})
    assert groups or problems
    lines = text.split("\n")
    for one in problems:
        assert isinstance(one, Problem)
        assert 1 <= one.line <= len(lines)
        assert 1 <= one.column <= len(lines[one.line - 1]) + 1
    assert any(group.is_wrong for group in groups) <= bool(problems)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"command": st.text(st.characters(codec="utf-8", exclude_characters="{\0"), min_size=1).filter(str.strip)},
            optional={"num_cpus": st.integers(0, 9), "priority": st.integers(-9, 9), "retries": st.integers(0, 5)},
        ),
        min_size=1,
        max_size=4,
    )
)
def test_what_is_written_as_json_is_read_back(tasks: list[dict[str, Any]]) -> None:
    groups, problems = read_batch("\n".join(map(json.dumps, tasks)), JSON, {})
    assert all(problem.is_note for problem in problems), "some texts look like bash"
    for task, group in zip(tasks, groups, strict=True):
        assert group.commands[0].text == task["command"]
        assert all(getattr(group.commands[0], name) == value for name, value in task.items() if name != "command")


@pytest.mark.parametrize("form", [TOML, JSON])
def test_a_file_in_another_encoding_is_named_with_its_line(tmp_path: Path, form: str) -> None:
    (tmp_path / "jobs").write_bytes(b"true\necho gr\xfc\xdfe\n")
    with pytest.raises(LaunchError, match="not text in UTF-8: line 2 has a wrong byte, byte 12 of the file"):
        read_text(str(tmp_path / "jobs"), form)


@given(st.binary() | st.text(st.sampled_from("aé\U0010ffe9")).map(str.encode))
def test_bytes_of_all_kinds_are_text_and_bytes_again(data: bytes) -> None:
    text = raw_bytes.text_with(data)
    assert msgspec.json.decode(msgspec.json.encode(text), type=str) == text
    assert raw_bytes.bytes_of(text) == data
    if data.decode(errors="ignore").encode() != data:
        assert raw_bytes.has_raw(text)


def test_only_commands_of_lists_may_have_bytes_that_are_not_utf_8(tmp_path: Path) -> None:
    (tmp_path / "jobs.txt").write_bytes(b"cat caf\xe9 \xc3\xa9\ntrue #batch cwd=gr\xfcn env=A=\xfc\n")
    groups, problems = read_batch(read_text(str(tmp_path / "jobs.txt"), LINES), LINES, {})
    assert raw_bytes.bytes_of(groups[0].commands[0].text) == b"cat caf\xe9 \xc3\xa9"
    assert raw_bytes.shown(groups[0].commands[0].text) == "cat caf\\xe9 é"
    assert [problem.shown("f") for problem in problems] == [
        r"f:2:13: cwd must be UTF-8: only commands may have other bytes, not gr\xfcn",
        r"f:2:22: env must be UTF-8: only commands may have other bytes, not \xfc",
    ]


def test_an_unknown_name_is_not_answered_with_a_thousand_others() -> None:
    message = unknown("command", "zz", [f"line-{number}" for number in range(1000)])
    assert "line-49 and more" in message
    assert "line-50" not in message


ELEMENTS = """
[[task]]
name = "prep"
command = "prep {sample} {index}"
product = { sample = ["a", "b"] }
[[task]]
name = "train"
command = "train {sample}"
product = { sample = ["a", "b"] }
after = ["prep.{index}"]
[[task]]
name = "plot"
command = "plot"
zip = { i = [1, 0] }
after = "prep.{i}, train"
[[task]]
name = "twice"
command = "again"
repeat = 2
"""


def test_commands_of_arrays_may_come_after_one_of_another_and_be_repeated() -> None:
    groups, problems = read_batch(ELEMENTS, "toml", {})
    assert not problems
    commands = {one.name: one for group in groups for one in group.commands}
    assert [commands[f"prep.{n}"].shown() for n in range(2)] == ["prep a 0", "prep b 1"]
    assert [commands[f"train.{n}"].after for n in range(2)] == [("prep.0",), ("prep.1",)]
    assert [commands[f"plot.{n}"].after for n in range(2)] == [("prep.1", "train"), ("prep.0", "train")]
    assert [commands[f"twice.{n}"].shown() for n in range(2)] == ["again", "again"]
    assert [group.after for group in groups] == [(), ("prep.0", "prep.1"), ("prep.1", "train", "prep.0"), ()]
    assert wrong_names(groups) == []
    graph = Graph()
    graph.add(groups)
    assert [one.name for one in graph.take_ready()] == ["prep.0", "prep.1", "twice.0", "twice.1"]
    graph.end("prep.1", True)
    assert [one.name for one in graph.take_ready()] == ["train.1"], "not the whole array"
    graph.end("prep.0", False)
    assert (graph.states["train.0"], graph.counts[SKIPPED]) == ("skipped", 1)
    selection, _ = select(groups, [], [], ["prep.1"], False)
    assert selection.again == {"prep.1", "train.1", "plot.0", "plot.1"}
    found, problems = read_batch(ELEMENTS.replace("prep.{index}", "prep.{sampel}"), "toml", {})
    assert [problem.message for problem in problems] == ["there is no placeholder 'sampel'; did you mean 'sample'?"]
    assert found[1].is_wrong


def test_a_line_may_be_repeated() -> None:
    groups, problems = read_batch("sim --seed {index} #batch repeat=3 name=sim\n", "lines", {})
    assert not problems
    assert [one.shown() for one in groups[0].commands] == [f"sim --seed {n}" for n in range(3)]
    _, problems = read_batch("sim #batch repeat=100000000\n", "lines", {})
    assert "a batch can have 10000000 commands" in problems[0].message
