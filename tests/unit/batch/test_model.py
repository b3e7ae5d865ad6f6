"""Commands of batches: options and their readers, placeholders, rows of parameters."""

import os
import re
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_runtime.batch.file.model import Asked, Command, Demand, as_first_packed, call_options
from mpi_runtime.batch.file.options import OPTIONS, read_command, seconds
from mpi_runtime.batch.file.parameters import combined, product, rows, zipped
from mpi_runtime.batch.file.text import BUILT_IN, fill, names_in, plain
from tests.helpers import ROOT

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)


def messages(text: Any = "true", options: dict[str, Any] | None = None, **values: Any) -> list[str]:
    made, wrong = read_command(text, options or {}, values)
    assert (made is None) == bool(wrong)
    return [message for _, message in wrong]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (90, 90),
        ("90", 90),
        ("1.5", 1.5),
        ("10m", 600),
        ("1h30m", 5400),
        ("500ms", 0.5),
        ("2:00:00", 7200),
        ("02:30", 150),
        ("1-00:00:01", 86401),
        ("2d", 172800),
    ],
)
def test_durations(text: Any, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "m", "10 minutes", "-1", "1:2:3:4", True, None, "1h-2m"])
def test_what_is_no_duration(text: Any) -> None:
    with pytest.raises(ValueError, match="must be a duration"):
        seconds(text)


def test_options_may_be_written_as_texts_or_as_values() -> None:
    as_texts = {
        "num_cpus": "2",
        "num_gpus": "0.5",
        "memory": "4GB",
        "time_limit": "10m",
        "priority": "3",
        "retries": "2",
        "retry_codes": "3,-9",
        "after": "a,b",
        "env": "A=1,B=x=y",
        "resources": "licence=1, scratch=0.5",
        "pin": "true",
        "success_codes": "0,1",
    }
    as_values = {
        "num_cpus": 2,
        "num_gpus": 0.5,
        "memory": 4_000_000_000,
        "time_limit": 600,
        "priority": 3,
        "retries": 2,
        "retry_codes": [3, -9],
        "after": ["a", "b"],
        "env": {"A": 1, "B": "x=y"},
        "resources": {"licence": 1, "scratch": 0.5},
        "pin": True,
        "success_codes": [0, 1],
    }
    first, second = read_command("true", as_texts, {})[0], read_command("true", as_values, {})[0]
    assert first == second
    assert first is not None
    assert (first.memory, first.retry_codes, first.after) == (4_000_000_000, (3, -9), ("a", "b"))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num_cpus", -1, "num_cpus must be a number, 0 or more"),
        ("num_cpus", "nan", "num_cpus must be a number"),
        ("num_cpus", True, "num_cpus must be a number"),
        ("num_gpus", 1.5, "num_gpus must be 0, a share below 1, or a whole number"),
        ("memory", "much", "memory must be a number of bytes"),
        ("time_limit", 0, "time_limit must be more than 0 seconds"),
        ("priority", "high", "priority must be a whole number"),
        ("retries", -1, "retries must be 0 or more"),
        ("success_codes", [256], "success_codes must be exit codes from 0 to 255"),
        ("name", "a/b", "name must have letters, digits"),
        ("name", "..", "name must have letters, digits"),
        ("after", 3, "after must be a list of names"),
        ("after", [3], "after must be a text"),
        ("env", {"A=B": "c"}, "env must be variables"),
        ("resources", "licence", "resources must be names and amounts, such as licence=1,scratch=20, not 'licence'"),
        ("resources", {"licence": -1}, "resources must be names and amounts"),
        ("resources", {"licence": True}, "resources must be names and amounts"),
        ("resources", ["licence"], "resources must be names and amounts"),
        ("resources", "GPU=1", "resources must be names and amounts, such as licence=1,scratch=20, not 'GPU=1'"),
        ("on_failure", "explode", "on_failure must be 'skip', 'continue', 'stop'"),
        ("pin", "maybe", "pin must be true or false"),
        ("cwd", "a\0b", "cwd must be a text"),
        ("ranks", 0, "ranks must be 1 or more, not 0"),
        ("launcher", "aprun -n 3", "launcher must begin with one of srun, mpirun"),
        ("launcher", "self -v", "launcher must begin with one of srun, mpirun"),
        ("launcher", "", "launcher must begin with one of srun, mpirun"),
        ("launcher", "srun '", "launcher must be words for a shell"),
        ("launcher", 3, "launcher must be a text"),
        ("num_cpu", 1, "there is no option 'num_cpu'; did you mean 'num_cpus'?"),
    ],
)
def test_wrong_options_are_refused_with_a_word(name: str, value: Any, message: str) -> None:
    (found,) = messages("true", {name: value})
    assert found.startswith(message)


def test_all_that_is_wrong_is_said_at_once() -> None:
    found = messages("run {a} {b}", {"num_cpus": "x", "colour": 1}, b=1, c=2)
    assert len(found) == 4
    assert "command must not be empty" in messages("  ")[0]
    assert "reserved name" in messages("echo {gpu}", gpu=1)[0]


def test_options_beside_a_launcher() -> None:
    launched = {"launcher": "srun --overlap", "ranks": 2}
    assert messages("run {hosts} {ranks} {workdir} {hostfile}", launched) == []
    assert "{rank} has no value with a launcher" in messages("run {rank}", launched)[0]
    assert "{rank} has no value" in messages("run", {**launched, "env": {"A": "{rank}"}})[0]
    assert "pin has no meaning" in messages("run", {**launched, "pin": True})[0]
    assert "one request" in messages("run", {"launcher": "self", "alternatives": "num_cpus=1 | num_cpus=2"})[0]
    assert "set launcher to 'self'" in messages("run {hostfile}", {"ranks": 2})[0]


def test_a_name_is_short_enough_for_its_files() -> None:
    assert read_command("true", {"name": "x" * 247}, {})[1] == []
    assert "at most 247 letters" in read_command("true", {"name": "x" * 248}, {})[1][0][1]


def test_placeholders_of_other_texts_count() -> None:
    assert messages("true", {"stdout": "{seed}.out", "env": {"A": "{rate}"}}, seed=1, rate=2) == []
    assert messages("true", {"cwd": "{where}"})[0].startswith("there is no placeholder 'where'")


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("echo {x}", "echo 'a b'"),
        ("echo {{x}} ${x} ${HOME} {a,b} {}", "echo {x} ${x} ${HOME} {a,b} {}"),
        ("{ ls; } {y}", "{ ls; } {y}"),
        ("awk '{print $1}'", "awk '{print $1}'"),
    ],
)
def test_filling(text: str, filled: str) -> None:
    assert fill(text, {"x": "a b"}) == filled


def test_what_a_value_has_is_never_a_placeholder() -> None:
    assert fill("{a} {b}", {"a": "{b}", "b": "2"}, plain) == "{b} 2"


@given(NAMES, st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])))
def test_the_shell_reads_a_value_as_one_word(name: str, value: str) -> None:
    assert shlex.split(fill(f"echo {{{name}}} end", {name: value})) == ["echo", value, "end"]
    assert names_in(f"echo {{{name}}}") == {name}


def test_products_and_zips() -> None:
    assert product(a=[1, 2], b=["x", "y"]) == [{"a": a, "b": b} for a in (1, 2) for b in ("x", "y")]
    assert product() == [{}]
    assert zipped(a=[1, 2], b=["x", "y"]) == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    with pytest.raises(ValueError, match="a has 1, b has 2"):
        zipped(a=[1], b=[1, 2])
    with pytest.raises(TypeError, match="parameter 'a' must be a list of values, not 'xyz'"):
        product(a="xyz")
    with pytest.raises(ValueError, match="parameter 'a' is given twice"):
        combined([[{"a": 1}], [{"a": 2}]])


@given(st.dictionaries(NAMES, st.lists(st.integers(), max_size=4), max_size=3))
def test_a_product_has_every_combination_once(values: dict[str, list[int]]) -> None:
    found = product(**values)
    count = 1
    for one in values.values():
        count *= len(one)
    assert len(found) == count
    assert all(row[name] in values[name] for row in found for name in values)
    assert combined([product(**{name: one}) for name, one in values.items()]) == found


def test_rows_of_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('x,y\n1,"two, three"\n')
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n\n{"x": 2}\n')
    assert rows(tmp_path / "a.csv") == [{"x": "1", "y": "two, three"}]
    assert rows(tmp_path / "a.jsonl") == [{"x": 1}, {"x": 2}]
    (tmp_path / "b.csv").write_text("x,y\n1\n")
    (tmp_path / "b.jsonl").write_text('{"x": 1}\n{"x"\n')
    (tmp_path / "c.jsonl").write_text("3\n")
    (tmp_path / "c.csv").write_bytes("x\ngrün\n".encode("latin-1"))
    messages = {
        "b.csv": "line 2", "b.jsonl": "line 2, column 5", "c.jsonl": "must be an object", "c.csv": "UTF-8.*0xfc",
    }  # fmt: skip
    for name, message in messages.items():
        with pytest.raises(ValueError, match=message):
            rows(tmp_path / name)


def test_the_documentation_has_every_option_and_placeholder() -> None:
    text = (ROOT / "docs" / "batch.md").read_text()
    for header, names in (("option", OPTIONS), ("placeholder", [f"{{{name}}}" for name in BUILT_IN])):
        table = re.search(rf"^\| {header} \| .*\n\| --- .*\n((?:\| .*\n)+)", text, re.MULTILINE)
        assert table is not None
        assert re.findall(r"^\| `([^` ]+)`", table[1], re.MULTILINE) == [*names]


def test_a_number_is_no_path_of_rows() -> None:
    """It would be a descriptor, which reading closes."""
    descriptor = os.memfd_create("rows")
    with pytest.raises(TypeError, match="not int"):
        rows(descriptor)  # type: ignore[arg-type]
    os.close(descriptor)


@pytest.mark.parametrize(
    ("options", "words"), [({"num_gpus": 1 << 5000}, "num_gpus must"), ({"stdin": "\udc80"}, "UTF-8")]
)
def test_values_that_cannot_be_sent_are_refused(options: dict[str, Any], words: str) -> None:
    found, wrong = read_command("true", options, {})
    assert found is None
    assert words in wrong[0][1]


def test_commands_are_packed_as_the_first_version_packed_them() -> None:
    """Journals of programs have hashes of these bytes. They begin with a long head, also with few fields."""
    few, wrong = read_command("echo {seed}", {"name": "a", "num_cpus": 2, "retries": 1}, {"seed": 1})
    assert few is not None
    assert not wrong
    text = b"\xa4text\xabecho {seed}\xa4name\xa1a\xa6values\x81\xa4seed\xa11"
    assert as_first_packed(few) == b"\xde\x00\x05" + text + b"\xa8num_cpus\xcb\x40" + bytes(7) + b"\xa7retries\x01"
    many = Command(
        text="t", shell="bash", name="a", num_cpus=2, num_gpus=1, memory=3, expect=1, grace=1, priority=1, ranks=2,
        launcher="srun", group="g", group_limit=1, cwd="c", stdin="i", stdout="o", stderr="e",
    )  # fmt: skip
    assert as_first_packed(many)[:3] == b"\xde\x00\x11"
    for command in (few, many):
        assert msgspec.msgpack.decode(as_first_packed(command), type=Command) == command


def test_what_a_command_asks_can_be_read_from_its_bytes_alone() -> None:
    """So what jobs offer each other need not repeat it."""
    command, _ = read_command("t", {"priority": 2, "group": "g", "alternatives": "num_cpus=4 | num_gpus=1"}, {})
    assert command is not None
    asked = msgspec.msgpack.decode(msgspec.msgpack.encode(command), type=Asked)
    assert asked == Asked(num_cpus=4, priority=2, group="g", alternatives=(Demand(4), Demand(1, 1)))
    assert call_options(asked) == call_options(command)
