"""What a rerun says before it does it: what is done, changed and new; commands are compared by their words."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.parse import Group, read_batch
from mpi_runtime.batch.file.selection import Selection
from mpi_runtime.batch.history.batch_history import History, read_history
from mpi_runtime.batch.history.journal import BatchJournal
from mpi_runtime.batch.history.keys import by_words, key_of
from mpi_runtime.batch.history.outlook import changes_in_words, outlook_of, plan_of
from mpi_runtime.batch.history.results import CommandResult

SAME = [
    ("python  train.py --seed 1", "python train.py --seed 1"),
    ("\tpython train.py\t--seed 1 ", "python train.py --seed 1"),
    ("echo 'a  b'   c", "echo 'a  b' c"),
    ('echo "a  b"   c', 'echo "a  b" c'),
    ("echo a\\  b   c", "echo a\\  b c"),
    ("one &&\n    two\n", "one &&\n two"),
    ("echo it\\'s   fine", "echo it\\'s fine"),
]
OTHER = [
    ("echo 'a  b'", "echo 'a b'"),
    ('echo "a  b"', 'echo "a b"'),
    ("echo a\\  ", "echo a\\ "),
    ('echo "$(echo "a  b")"', 'echo "$(echo "a b")"'),
    ("cat <<E\na  b\nE", "cat <<E\na b\nE"),
    ("echo $'it\\'s  x'", "echo $'it\\'s x'"),
    ("true # don't\necho 'a  b'", "true # don't\necho 'a b'"),
    ("echo a\necho b", "echo a echo b"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_blanks_between_words_are_no_difference(one: str, other: str) -> None:
    assert by_words(one) == by_words(other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_blanks_that_a_shell_would_keep_are_one(one: str, other: str) -> None:
    assert by_words(one) != by_words(other)


def ran(
    folder: Path, text: str, failed: Sequence[str] = (), is_exact: bool = False, cut_at: str = "", cancelled: str = ""
) -> None:
    """Run a list, as far as the journal knows. `cut_at`: the run is killed before this command."""
    groups, wrong = read_batch(text, "lines", {})
    assert not wrong
    with contextlib.closing(BatchJournal(str(folder))) as made:
        made.plan(plan_of(made.history, groups))
        if cancelled:
            made.controlled([cancelled], "cancel")
        for command in (one for group in groups for one in group.commands):
            if command.name == cut_at:
                return
            known = made.keys.find(command)
            key = key_of(command, [], is_exact=True) if is_exact else known.key
            code = int(command.name in failed)
            result = CommandResult(
                name=command.name, command=command.shown(), exit_code=code, is_success=not code, start=1.0, end=2.0,
                host="here",
            )  # fmt: skip
            made.ended(command, key, result, made.next_number())
        made.finished(int(bool(failed)), ())


def counts(folder: Path, text: str, **chosen: Any) -> tuple[int, list[str], int, int, int]:
    groups, _ = read_batch(text, "lines", {})
    found = outlook_of(groups, read_history(str(folder)), Selection(**chosen))
    return found.done, [one.name for one in found.changed], found.after_changed, found.failed, found.new


LIST = "a  1\nb 2\nc 3 #batch after=line-1\nd 4\n"


def test_a_rerun_counts_what_is_done_changed_failed_and_new(tmp_path: Path) -> None:
    ran(tmp_path, LIST, failed=["line-4"])
    assert counts(tmp_path, LIST) == (3, [], 0, 1, 0)
    assert counts(tmp_path, LIST.replace("a  1", "a 1")) == (3, [], 0, 1, 0), "a changed blank is no change"
    assert counts(tmp_path, LIST.replace("a  1", "a 9") + "e 5\n") == (1, ["line-1"], 1, 1, 1)
    assert counts(tmp_path, LIST.replace("a  1", "a 9"), keeps_done=True) == (2, ["line-1"], 0, 1, 0)
    assert counts(tmp_path, LIST, only=frozenset({"line-2"}), again=frozenset({"line-2"})) == (2, [], 0, 0, 0)


def test_a_rerun_of_a_batch_that_was_cut_short_counts_what_stays_failed_or_cancelled(tmp_path: Path) -> None:
    text = "a 1\nb 2\nc 3 #batch after=line-2\nd 4\ne 5\n"
    ran(tmp_path, text, failed=["line-2"], cut_at="line-3", cancelled="line-4")
    groups, _ = read_batch(text, "lines", {})
    history = read_history(str(tmp_path))
    found = outlook_of(groups, history, Selection())
    assert found.in_words() == "1 done, 1 failed, and not run again yet, 1 cancelled, 1 skipped, 1 new"
    again = Selection(is_retry=True, only=frozenset({"line-2"}))
    assert outlook_of(groups, history, again).in_words() == "1 done, 1 failed"


def test_keys_of_a_journal_in_which_blanks_counted_stay_valid(tmp_path: Path) -> None:
    text = LIST.replace("after=line-1", "")
    ran(tmp_path, text, is_exact=True)
    history = read_history(str(tmp_path))
    assert key_of(history.plan["line-1"].commands[0], []) != history.ends["line-1"].key
    assert counts(tmp_path, text) == (4, [], 0, 0, 0)


def test_lines_that_have_moved_are_named(tmp_path: Path) -> None:
    ran(tmp_path, "a 1\nb 2\n")
    groups, _ = read_batch("new\na 1\nb 2\n", "lines", {})
    history = read_history(str(tmp_path))
    found = outlook_of(groups, history, Selection())
    assert (found.moved, found.new) == (["line-2"], 1)
    said = "\n".join(changes_in_words(found, history, False))
    assert said.startswith(
        "of the commands that are done, 2 run again, because they have changed since: line-1, line-2"
    )
    assert "line-1 was  a 1\n    line-1 is   new\n" in said
    assert "1 of them are done under another name" in said
    assert "--keep-done" in said


def test_an_outlook_changes_no_history() -> None:
    history = History()
    group = Group("a", (Command(text="true", name="a"),))
    assert outlook_of([group], history, Selection()).new == 1
    assert not history.plan
    assert not history.is_planned
