"""Files of people: as a whole, or as they were before."""

import contextlib
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mpi_runtime.files import writing


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.html"
    writing.replace_file(str(path), "old")

    def full(first: str, second: str) -> None:
        raise OSError

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError) as caught:  # noqa: PT011
        writing.replace_file(str(path), "new")
    assert caught.value.filename == str(path)
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["page.html"])


def test_a_name_is_given_once_and_nothing_is_left_of_a_block_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "answer"
    for text in ("first", "second"):
        with (
            contextlib.suppress(FileExistsError),
            writing.beside(path, is_new=True) as place,
        ):
            Path(place).write_text(text)
    with contextlib.suppress(ZeroDivisionError), writing.beside(tmp_path / "folder") as place:
        os.mkdir(place)
        Path(place, "file").touch()
        raise ZeroDivisionError
    assert (path.read_text(), os.listdir(tmp_path)) == ("first", ["answer"])


def test_a_pipe_gets_the_content(tmp_path: Path) -> None:
    """As `--output /dev/stdout` has it, where no file can be made beside."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writing.replace_file(str(path), "a page")
    assert (os.read(reader, 100), os.listdir(tmp_path)) == (b"a page", ["pipe"])
    os.close(reader)


def test_a_new_directory_is_of_one_caller_only(tmp_path: Path) -> None:
    wanted = tmp_path / "above" / "run_1"
    with ThreadPoolExecutor(8) as threads:
        made = [*threads.map(lambda _: writing.make_new_directory(wanted, 0o700), range(40))]
    assert sorted(made) == sorted([wanted, *(wanted.with_name(f"run_1_{number}") for number in range(1, 40))])
    assert {stat.S_IMODE(one.stat().st_mode) for one in made} == {0o700}
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        writing.make_new_directory(tmp_path / "file" / "run")
