"""What a batch remembers: keys, ends that still hold, torn files, two runs at a time; which commands a run is about."""

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.file.selection import Selection, select
from mpi_runtime.batch.history import batch_history, submitted
from mpi_runtime.batch.history.batch_history import FOLDER, Planning, read_history, source_of, used_by
from mpi_runtime.batch.history.journal import BatchJournal, is_next_of
from mpi_runtime.batch.history.keys import key_of
from mpi_runtime.batch.history.results import CommandResult
from mpi_runtime.errors import JournalError
from mpi_runtime.files import segments


def command(name: str = "a", **options: Any) -> Command:
    return Command(text=options.pop("text", "true"), name=name, **options)


def result(name: str, code: int = 0) -> CommandResult:
    return CommandResult(
        name=name, command="true", exit_code=code, is_success=not code, start=1.0, end=2.5, host="here"
    )


@contextlib.contextmanager
def journal(folder: Path, is_fresh: bool = False) -> Iterator[BatchJournal]:
    with contextlib.closing(BatchJournal(str(folder), is_fresh)) as made:
        yield made


def test_what_a_command_does_is_its_key_and_how_it_is_run_is_not(tmp_path: Path) -> None:
    key = key_of(command(), [])
    others: list[dict[str, Any]] = [
        {"text": "false"}, {"cwd": "/"}, {"env": {"A": "1"}}, {"stdout": "x"}, {"stderr": "x"}, {"stdin": "x"},
    ]  # fmt: skip
    assert len({key, *(key_of(command(**one), []) for one in others)}) == 7
    same: list[dict[str, Any]] = [
        {"name": "b"},
        {"time_limit": 3.0},
        {"priority": 1},
        {"num_cpus": 2.0},
        {"retries": 1},
    ]
    assert {key_of(command(**one), []) for one in same} == {key}
    assert key_of(command(text="run {i}", values={"i": "1"}), []) == key_of(command(text="run 1"), [])
    assert key_of(command(), [b"before"]) != key
    path = tmp_path / "input"
    path.write_text("one")
    before = key_of(command(stdin=str(path)), [])
    assert key_of(command(stdin=str(path)), []) == before
    path.write_text("two, longer")
    assert key_of(command(stdin=str(path)), []) != before


def test_an_end_holds_until_something_before_it_ends_again(tmp_path: Path) -> None:
    first, second = command("first"), command("second", after=("first",))

    def known(made: BatchJournal, one: Command) -> bool:
        known = made.keys.find(one)
        if known.ended is not None:
            made.keys.settle(one.name, known.key, known.ended.number)
        return known.ended is not None

    def run(made: BatchJournal, one: Command) -> None:
        made.ended(one, made.keys.find(one).key, result(one.name), made.next_number())

    with journal(tmp_path) as made:
        assert not known(made, first)
        run(made, first)
        run(made, second)
    with journal(tmp_path) as made:
        assert known(made, first)
        assert known(made, second)
    with journal(tmp_path) as made:
        run(made, first)
    with journal(tmp_path) as made:
        assert known(made, first)
        assert not known(made, second), "the end before it is a later one"
    with journal(tmp_path, is_fresh=True) as made:
        assert not known(made, first)


def test_an_array_ends_with_its_last_command(tmp_path: Path) -> None:
    after = command("after", after=("all",))
    with journal(tmp_path) as made:
        for name in ("all.0", "all.1"):
            one = command(name, text=name)
            made.ended(one, made.keys.find(one).key, result(name), made.next_number())
        made.keys.settle_array("all", ["all.0", "all.1"])
        key, number = made.keys.find(after).key, made.keys.find(after).after
        assert number == made.history.number
        made.keys.settle("all.0", b"another key", number + 5)
        made.keys.settle_array("all", ["all.0", "all.1"])
        assert made.keys.find(after).key != key
        assert made.keys.find(after).after == number + 5


def test_a_run_is_read_while_it_writes_and_after_it_was_torn(tmp_path: Path) -> None:
    with journal(tmp_path) as made:
        made.plan(Planning([Group("a", (command("a"),)), Group("b", (command("b"),))]))
        made.began("a", 1)
        made.began("b", 2)
        made.placed("b", "node7", 1234.0)
        made.placed("b", "node7", 1235.0)
        made.placed("unknown", "node7", 1235.0)
        assert not read_history(str(tmp_path)).plan, "nothing is written before the turn"
        made.turn()
        made.ended(command("a"), b"k" * 16, result("a", 3), 1)
        made.turn()
        found = read_history(str(tmp_path))
        assert [one.name for one in found.commands()] == ["a", "b"]
        assert [(one.name, one.host) for one in found.began.values()] == [("b", "node7")]
        assert found.ends["a"].result == result("a", 3)
        assert "pid" in used_by(str(tmp_path))
        with pytest.raises(JournalError, match="is in use by"):
            BatchJournal(str(tmp_path))
    assert used_by(str(tmp_path)) == ""
    path = segments.paths(tmp_path / FOLDER)[0]
    path.write_bytes(path.read_bytes()[:-5])
    found = read_history(str(tmp_path))
    assert not found.ends
    assert found.damaged_bytes > 0
    with journal(tmp_path) as made:
        assert not made.history.began, "what was running then is not any more"
        assert len(made.history.runs) == 2


def test_the_journal_of_another_file_is_refused_unless_the_directory_is_named(tmp_path: Path) -> None:
    folder, (first, second) = str(tmp_path / "out"), (str(tmp_path / name / "jobs.txt") for name in "ab")
    with contextlib.closing(BatchJournal(folder, file=first)) as made:
        made.plan(Planning([], source=source_of(folder, first)))
        made.turn()
    for is_fresh in (False, True):
        with pytest.raises(JournalError, match=r"another file, a/jobs\.txt.*--directory"):
            BatchJournal(folder, is_fresh, second)
    with contextlib.closing(BatchJournal(folder, file=first)) as same:
        assert same.history.source == "a/jobs.txt"
    with contextlib.closing(BatchJournal(folder)) as named:
        named.plan(Planning([], source=source_of(folder, second)))
        named.turn()
        assert read_history(folder).source == "b/jobs.txt"


def test_a_journal_of_something_else_is_refused(tmp_path: Path) -> None:
    with journal(tmp_path) as made:
        made.began("a", 1)
        add_raw(made, {"wrong": 1})
    with pytest.raises(JournalError, match="of another version"):
        read_history(str(tmp_path))
    with journal(tmp_path, is_fresh=True) as made:
        assert not made.history.runs[:-1]


def group(name: str, *after: str, count: int | None = None) -> Group:
    names = [name] if count is None else [f"{name}.{number}" for number in range(count)]
    return Group(name, tuple(command(one, after=after) for one in names), after, (1, 1), (1, 1), count is not None)


GROUPS = [group("a", count=2), group("b", "a"), group("c", "a.1", count=1), group("d", "c"), group("e")]


@pytest.mark.parametrize(
    ("failed", "only", "begin", "is_retry", "again", "alone"),
    [
        ([], [], [], False, "", None),
        ([], ["a"], [], False, "a.0 a.1", "a.0 a.1"),
        ([], ["a.0", "e"], [], False, "a.0 e", "a.0 e"),
        ([], [], ["a.0"], False, "a.0 b", None),
        ([], [], ["a"], False, "a.0 a.1 b c.0 d", None),
        ([], [], ["c"], False, "c.0 d", None),
        (["c.0", "gone"], [], [], True, "", "c.0 d"),
        ([], [], [], True, "", ""),
        (["e"], ["b"], [], True, "b", "b e"),
        ([], ["e"], ["d"], False, "d e", "d e"),
        ([], ["a.0-1"], [], False, "a.0 a.1", "a.0 a.1"),
        ([], [], ["a.1-1", "d"], False, "a.1 b c.0 d", None),
    ],
)
def test_names_mean_commands_arrays_and_what_comes_after(
    failed: list[str], only: list[str], begin: list[str], is_retry: bool, again: str, alone: str | None
) -> None:
    found, wrong = select(GROUPS, failed, only, begin, is_retry)
    assert not wrong
    assert found.again == set(again.split())
    assert found.only == (None if alone is None else set(alone.split()))


def test_names_that_nothing_has_are_said() -> None:
    _, wrong = select(GROUPS, [], ["aa", "a.0-2"], ["f"], False)
    assert [message.split(";")[0] for message in wrong] == [
        "there is no command or array 'aa'",
        "there is no command or array 'a.0-2'",
        "there is no command or array 'f'",
    ]


def add_raw(made: BatchJournal, content: dict[str, object]) -> None:
    """Record this as the begin of a command."""
    names: dict[Any, str] = batch_history.NAMES
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(names, dict, names[batch_history.Began])
        made._add(content)  # type: ignore[arg-type]


def test_results_are_small_on_disk() -> None:
    assert len(msgspec.msgpack.encode(command("a"))) < 30, "what is as always is not written"


def test_records_of_several_jobs_count_in_any_order() -> None:
    """A command that a job which was taken for dead has ended too; one that began again; one that ran after another."""
    records: list[batch_history.Content] = [
        batch_history.Ended(7, b"", result("a", 1)),
        batch_history.Ended(7, b"", result("a")),
        batch_history.Ended(3, b"", result("a", 2)),
        batch_history.Began("a", 1.0, "", 7),
        batch_history.Began("b", 1.0, "", 8),
        batch_history.Ended(5, b"", result("b", 1)),
    ]
    for order in itertools.permutations(records):
        history = batch_history.History()
        for content in order:
            history.add(content)
        assert history.ends["a"].result.is_success
        assert [*history.began] == ["b"]


def test_a_batch_that_an_earlier_version_began_continues(tmp_path: Path) -> None:
    """Its ends are counted from 1, and its commands have no numbers: new ones are higher than all of these."""
    first, second = command("first"), command("second", after=("first",))
    with journal(tmp_path) as made:
        key = made.keys.find(first).key
        made.ended(first, key, result("first"), 1)
        made.ended(second, made.keys.find(second).key, result("second"), 2)
        add_raw(made, {"name": "third", "time_s": 1.0})
    with journal(tmp_path) as made:
        known = made.keys.find(first).ended
        assert known is not None
        made.keys.settle("first", key, known.number)
        assert made.keys.find(second).ended is not None
        made.ended(first, key, result("first"), made.next_number())
        assert made.keys.find(second).ended is None, "the end before it is a later one"


def test_a_journal_that_may_not_be_read_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_history(str(tmp_path / "none")).ends == {}

    def refused(path: object) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "listdir", refused)
    with pytest.raises(JournalError, match="cannot be read: Permission denied"):
        read_history(str(tmp_path))


def open_history(*contents: batch_history.Content) -> batch_history.History:
    history = batch_history.History()
    for content in contents:
        history.add(content)
    return history


def planned(since: int, failed_since: int | None, **more: Any) -> Planning:
    return Planning([Group("a", (command("a"),))], since=since, failed_since=failed_since, **more)


def test_a_batch_is_open_from_its_plan_to_its_end() -> None:
    assert not batch_history.History().is_open
    assert not open_history(planned(5, None)).is_open, "an earlier version recorded no end"
    assert open_history(planned(5, 5)).is_open
    done = batch_history.Finished(1, ("7",))
    assert not open_history(planned(5, 5), done).is_open
    again = open_history(planned(5, 5), done, planned(9, 9), Planning([], is_new=False))
    assert again.is_open
    assert again.failed_since == 9


def test_failures_stay_since_the_batch_began() -> None:
    history = open_history(planned(9, 5))
    ends = [batch_history.Ended(number, b"", result("a", 1)) for number in (5, 6, 10)]
    assert [history.stays_failed(ended) for ended in ends] == [False, True, True]
    assert not history.stays_failed(batch_history.Ended(6, b"", result("a", 1), lacked_room=True))
    assert not open_history(planned(9, None)).stays_failed(ends[2])


def test_requests_of_users_count_until_the_batch_is_finished() -> None:
    requests = batch_history.Control(["a", "b"], "cancel")
    history = open_history(planned(5, 5), requests)
    history.new_run()
    assert history.controls == {"a": "cancel", "b": "cancel"}
    history.add(planned(9, 5, selection=Selection(frozenset(["a"]))))
    assert history.controls == {"b": "cancel"}, "the other one was named"
    history.add(batch_history.Control(["a"], "cancel"))
    history.add(planned(9, 5, selection=Selection(frozenset(["a"]))))
    assert len(history.controls) == 2, "a job takes the place of another in this run"
    history.add(batch_history.Finished(1))
    history.new_run()
    assert not history.controls


def test_a_requeued_job_continues_its_run_and_one_that_starts_late_has_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def life(job: str, restarts: int, is_fresh: bool = False) -> tuple[bool, bool]:
        monkeypatch.setenv("SLURM_JOB_ID", job)
        monkeypatch.setenv("SLURM_RESTART_COUNT", str(restarts))
        with journal(tmp_path, is_fresh) as made:
            found = made.continues, made.is_late
            if not made.is_late:
                made.plan(planned(1, 1, life=made.life))
        return found

    submitted.note(str(tmp_path), ["7"])
    submitted.note(str(tmp_path), ["8"])
    assert life("7", 0) == (False, False)
    assert life("7", 0) == (False, False), "its script has a second line"
    assert life("7", 1, is_fresh=True) == (True, False)
    assert life("8", 1) == (False, False)
    assert life("7", 2) == (False, False), "another job has begun since"
    found, folder = read_history(str(tmp_path)), str(tmp_path)
    assert not is_next_of(("7", 2), found, folder)
    assert is_next_of(("7", 2), found, folder, is_counted=False), "Grid Engine has 1 for all of its lives"
    with journal(tmp_path) as made:
        made.finished(1, submitted.noted(str(tmp_path)))
    for job in ("7", "8"):
        (tmp_path / FOLDER / f"{submitted.JOB}{job}").unlink()
    assert life("8", 0, is_fresh=True) == (False, True)
    assert not read_history(str(tmp_path)).is_open, "it has neither forgotten nor begun anything"
    submitted.note(str(tmp_path), ["8"])
    assert life("8", 0) == (False, False), "it was submitted again"
