"""The verb `journal`."""

import errno
import os
from pathlib import Path

import pytest

from mpi_runtime.cli.main import main
from mpi_runtime.core.journal import value_files
from mpi_runtime.core.journal.earlier_results import Earlier
from mpi_runtime.files.claim import Claim
from mpi_runtime.scheduler.protocol.effects import Record
from mpi_runtime.scheduler.protocol.events import Kept
from tests.unit.core.journal.test_journal import CODE, id_of, recall, record, run

LARGE = bytes(range(256)) * 4


def journal(folder: Path) -> Path:
    """Two runs, with a value in a file, one that nobody has, and a call twice."""
    name, found = value_files.write(str(folder), "large1", [(0, LARGE)])
    value_files.write(str(folder), "other1", [(0, LARGE)])
    values = [Kept(b"small"), Kept(b"", name, len(LARGE), found)]
    run(folder, record(1), Record(id_of(2), id_of(1002), CODE, "g", 2_500_000, values))
    run(folder, record(1), record(3))
    return folder


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["journal", *words])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_runs_and_calls_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = call(capsys, "list", str(journal(tmp_path)))
    assert code == 0
    lines = text.splitlines()
    assert lines[0].startswith("000001.journal: 2 calls in ")
    assert lines[1].endswith(" a job")
    assert lines[2].startswith("000002.journal: 2 calls in ")
    assert lines[4:] == ["       3 f", "       1 g"]
    code, text = call(capsys, "show", str(tmp_path))
    assert text.splitlines()[1] == f"{id_of(2).hex()} g took 2.500000 s: 5 bytes, 1024 bytes in values/e1/large1"


def test_damage_is_found_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal(tmp_path)
    whole = "4 calls, 0 bytes that cannot be read, 1 values in files, 0 of them damaged\n"
    assert call(capsys, "verify", str(tmp_path)) == (0, whole)
    with (tmp_path / "000002.journal").open("ab") as file:
        file.write(b"torn")
    (tmp_path / "values" / "e1" / "large1").unlink()
    code, text = call(capsys, "verify", str(tmp_path))
    assert code == 1
    assert text.splitlines()[0] == "values/e1/large1 is missing, or its bytes have changed"
    assert "4 calls, 4 bytes that cannot be read, 1 values in files, 1 of them damaged" in text
    assert call(capsys, "compact", str(tmp_path))[0] == 0
    empty = "2 calls, 0 bytes that cannot be read, 0 values in files, 0 of them damaged\n"
    assert call(capsys, "verify", str(tmp_path)) == (0, empty)


def test_a_compact_journal_has_each_call_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = call(capsys, "compact", str(journal(tmp_path)))
    assert code == 0
    before, after = (int(word) for word in text.split() if word.isdecimal())
    assert after < before - len(LARGE)
    names = [path.name for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    assert names == ["000003.journal", "owner-3", "large1"]
    found = Earlier(tmp_path)
    assert found.count == 3
    assert list(found.programs) == ["program.py"]
    assert [bool(found.take(recall(number))[0]) for number in (1, 2, 3)] == [True, True, True]
    found.close()


def test_a_full_disk_leaves_a_journal_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal(tmp_path)
    before = sorted(path.name for path in tmp_path.glob("*.journal"))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    code, text = call(capsys, "compact", str(tmp_path))
    assert (code, f"{tmp_path} stays as it was, since its new file cannot be written: No space left" in text) == (
        2,
        True,
    )
    assert sorted(path.name for path in tmp_path.glob("*.journal")) == before


def test_what_is_in_use_is_not_made_compact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal(tmp_path)
    claim = Claim(tmp_path, "the job")
    code, text = call(capsys, "compact", str(tmp_path))
    assert code == 2
    assert "in use by the job" in text
    assert call(capsys, "list", str(tmp_path))[1].endswith("in use by the job\n")
    claim.release()


def test_a_journal_of_another_user_is_named_without_a_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: object) -> object:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    journal(tmp_path)
    monkeypatch.setattr(os, "listdir", refused)
    code, text = call(capsys, "list", str(tmp_path))
    assert (code, f"{tmp_path}: Permission denied. Only the user who" in text, "[Errno" in text) == (2, True, False)


@pytest.mark.parametrize("verb", ["list", "show", "verify", "compact"])
def test_other_directories_are_refused(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = call(capsys, verb, str(tmp_path))
    assert code == 2
    assert f"{tmp_path} is not a journal" in text
    assert call(capsys, verb, str(tmp_path / "nowhere"))[0] == 2
    assert not [*tmp_path.iterdir()], "it is not claimed"
    (tmp_path / "file").touch()
    assert "is not a journal" in call(capsys, verb, str(tmp_path / "file"))[1]
