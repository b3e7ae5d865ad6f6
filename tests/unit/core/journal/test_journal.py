"""The files of a journal: whatever is cut off, damaged or somebody else's, a value is the right one or none."""

import errno
import io
import os
import struct
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpi_runtime.core.journal import value_files
from mpi_runtime.core.journal.earlier_results import Earlier
from mpi_runtime.core.journal.journal import Journal
from mpi_runtime.errors import JournalError
from mpi_runtime.files import segments
from mpi_runtime.files.segments import Began
from mpi_runtime.scheduler.protocol.effects import Recall, Record
from mpi_runtime.scheduler.protocol.events import Kept
from mpi_runtime.scheduler.protocol.ids import digest
from tests.helpers import wait_until

BEGAN = Began("program.py", "a job", 1.0)
CODE = b"c" * 16


def id_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


def record(number: int, value: bytes = b"value", key: int = 0) -> Record:
    return Record(id_of(number), id_of(1000 + (key or number)), CODE, "f", 10, [Kept(value)])


def recall(number: int, key: int = 0) -> Recall:
    return Recall(id_of(number), id_of(1000 + (key or number)), CODE, "f")


def segment(*records: Record) -> bytes:
    return segments.header() + segments.frame(BEGAN) + b"".join(map(segments.frame, records))


def read(data: bytes) -> list[segments.Body]:
    return [body for _, body in segments.read(io.BytesIO(data), segments.Damage())]


def earlier(folder: Path, *parts: bytes) -> Earlier:
    for number, data in enumerate(parts, 1):
        (folder / f"{number:06d}.journal").write_bytes(data)
    return Earlier(folder)


RECORDS = [record(1, b"one"), record(2, b""), record(3, bytes(range(40)))]
WHOLE = segment(*RECORDS)


def test_what_was_written_is_read() -> None:
    assert read(WHOLE) == [BEGAN, *RECORDS]


def test_a_journal_cut_off_anywhere_has_what_came_before() -> None:
    ends = [len(segment(*RECORDS[:count])) for count in range(4)]
    for length in range(len(WHOLE)):
        found = [body for body in read(WHOLE[:length]) if isinstance(body, Record)]
        assert found == RECORDS[: max(0, sum(end <= length for end in ends) - 1)]


def test_a_byte_flipped_anywhere_costs_one_record_and_never_changes_one() -> None:
    known: list[segments.Body] = [BEGAN, *RECORDS]
    for position in range(len(WHOLE)):
        for mask in (1, 0x80, 0xFF):
            data = bytearray(WHOLE)
            data[position] ^= mask
            found = read(bytes(data))
            assert all(body in known for body in found), position
            assert len(found) == (0 if position < segments.HEADER_BYTES else 3), position


@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.binary(max_size=30)), max_size=4))
@settings(max_examples=300, deadline=None)
def test_bytes_overwritten_anywhere_never_make_another_record(edits: list[tuple[int, bytes]]) -> None:
    data = bytearray(WHOLE)
    for position, garbage in edits:
        data[position : position + len(garbage)] = garbage
    assert all(body in [BEGAN, *RECORDS] for body in read(bytes(data)))


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_file_can_be_read(data: bytes) -> None:
    assert read(data) == []
    assert all(body in [BEGAN, *RECORDS] for body in read(WHOLE + data))


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    start = segments.MAGIC + struct.pack("<I", segments.FORMAT + 1)
    with pytest.raises(JournalError, match="written by a newer mpi_runtime: its format is 2"):
        earlier(tmp_path, start + digest(start, 8))


def test_each_record_is_taken_once_and_its_own_call_has_the_first_claim(tmp_path: Path) -> None:
    found = earlier(tmp_path, segment(*(record(number, b"%d" % number, key=7) for number in (1, 2, 3))))

    def take(number: int) -> bytes:
        values, _ = found.take(recall(number, key=7))
        return values[0].data if values else b""

    assert take(2) == b"2"
    assert take(9) == b"1", "another call with the same key has the oldest"
    assert take(9) == b"1", "and it again if it asks again"
    assert take(3) == b"3"
    assert take(1) == take(4) == b"", "there are no more"
    found.close()


def test_it_is_said_why_a_known_call_has_other_values(tmp_path: Path) -> None:
    found = earlier(tmp_path, segment(record(1)))
    assert found.take(recall(1, key=5)) == ([], "its arguments are")
    other = Recall(id_of(1), id_of(5), b"d" * 16, "f")
    assert found.take(other) == ([], "its code, or what that refers to, is")
    assert found.take(Recall(id_of(1), id_of(5), b"d" * 16, "g")) == ([], ""), "that is another function"
    assert found.take(recall(1)) == ([Kept(b"value")], "")
    found.close()


def test_a_record_that_is_damaged_after_it_was_read_is_not_taken(tmp_path: Path) -> None:
    found = earlier(tmp_path, segment(record(1)))
    path = tmp_path / "000001.journal"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert found.take(recall(1)) == ([], "")
    found.close()


def run(folder: Path, *records: Record) -> Journal:
    journal = Journal(str(folder), BEGAN, 0.0)
    for one in records:
        journal.give(one)
    journal.close(30)
    return journal


def test_a_run_finds_what_all_runs_before_it_have_recorded(tmp_path: Path) -> None:
    run(tmp_path / "new", record(1, b"one"))
    run(tmp_path / "new", record(2, b"two"))
    journal = Journal(str(tmp_path / "new"), BEGAN, 0.0)
    assert journal.start_lines() == [f"journal {tmp_path / 'new'}: 2 finished calls of earlier runs"]
    assert [journal.take(recall(number))[0] for number in (1, 2, 3)] == [[Kept(b"one")], [Kept(b"two")], []]
    journal.close(30)
    assert journal.totals_line() == "journal: 2 calls taken from earlier runs, 0 recorded"
    names = [*(f"00000{n}.journal" for n in (1, 2, 3)), "owner-3"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == names


def test_what_was_given_is_written_while_the_disk_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, is_done = threading.Event(), threading.Event()

    def slow(descriptor: int) -> None:
        asked.set()
        assert is_done.wait(30)

    monkeypatch.setattr("os.fsync", slow)
    journal = Journal(str(tmp_path), BEGAN, 0.0)
    assert asked.wait(30)
    journal.give(record(1))
    journal.turn()
    wait_until(lambda: record(1) in read((tmp_path / "000001.journal").read_bytes()))
    is_done.set()
    journal.close(30)
    assert journal.problem == "the job has ended"


def test_a_disk_that_fails_ends_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.fsync", fail)
    journal = Journal(str(tmp_path), BEGAN, 0.0)
    wait_until(journal.turn)
    assert journal.problem == f"Input/output error ({tmp_path}/000001.journal)"
    journal.close(30)


def test_another_program_and_damage_are_told_of(tmp_path: Path) -> None:
    run(tmp_path, record(1))
    with (tmp_path / "000001.journal").open("ab") as file:
        file.write(b"torn")
    journal = Journal(str(tmp_path), Began("other.py", "a job", 2.0), 0.0)
    lines = "\n".join(journal.start_lines())
    assert "written by program.py, which is another program" in lines
    assert "4 bytes of the journal cannot be read" in lines
    journal.close(30)


def test_a_directory_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match=r"file cannot be used: Not a directory .*all hosts of the job share"):
        Journal(str(tmp_path / "file"), BEGAN, 0.0)
    with pytest.raises(JournalError, match=r"cannot be used: Not a directory"):
        Journal(str(tmp_path / "file" / "in"), BEGAN, 0.0)


def test_a_full_disk_is_named_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(segments, "write_all", full)
    with pytest.raises(JournalError, match=r"No space left on device .*\. Free some space there\."):
        Journal(str(tmp_path), BEGAN, 0.0)


def test_all_is_made_for_this_user_alone(tmp_path: Path) -> None:
    for umask in (0, 0o777):
        folder = tmp_path / f"{umask:o}" / "journal"
        folder.parent.mkdir()
        before = os.umask(umask)
        try:
            run(folder, record(1))
            value_files.write(str(folder), "abcdef", PARTS)
        finally:
            os.umask(before)
        modes = {path.stat().st_mode & 0o777 for path in (folder, *folder.rglob("*")) if path.is_dir()}
        assert modes == {0o700}
        assert {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()} == {0o600}
        run(folder, record(2))


def test_a_journal_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    run(tmp_path, record(1))

    def refused(why: str) -> None:
        with pytest.raises(JournalError, match=rf"loading its values can run code, and \S+ {why}"):
            run(tmp_path)

    for mode in (0o770, 0o702, 0o720):
        tmp_path.chmod(mode)
        refused(r"can be written to by other users \(chmod -R go-w")
    tmp_path.chmod(0o755)
    run(tmp_path)
    (tmp_path / "values").symlink_to("/tmp")
    refused("is a symbolic link")
    (tmp_path / "values").unlink()
    if os.geteuid() == 0:
        os.chown(tmp_path / "000001.journal", 65534, -1)
        refused("belongs to another user")
        os.chown(tmp_path / "000001.journal", 0, -1)
        os.chown(tmp_path, 65534, -1)
        refused("belongs to another user")
        os.chown(tmp_path, 0, -1)


def test_a_value_behind_a_link_or_of_another_user_is_not_read(tmp_path: Path) -> None:
    name, found = value_files.write(str(tmp_path), "abcdef", PARTS)
    kept = Kept(b"", name, len(FLAT), found)
    path = tmp_path / name
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    assert not value_files.is_whole(str(tmp_path), kept)
    path.unlink()
    (tmp_path / "moved").rename(path)
    assert value_files.is_whole(str(tmp_path), kept)
    if os.geteuid() == 0:
        os.chown(path, 65534, -1)
        assert not value_files.is_whole(str(tmp_path), kept)


def test_a_call_with_an_unreadable_value_does_not_count_as_taken(tmp_path: Path) -> None:
    name, found = value_files.write(str(tmp_path), "abcdef", PARTS)
    large = Record(id_of(1), id_of(1001), CODE, "f", 10, [Kept(b"", name, len(FLAT), found)])
    run(tmp_path, large, record(2))
    journal = Journal(str(tmp_path), BEGAN, 0.0)
    assert journal.take(recall(1))[0]
    assert journal.take(recall(2))[0]
    line = journal.unreadable(f"{name} has other bytes than were written", name)
    assert line == f"a value in the journal cannot be read: {name} has other bytes than were written"
    assert journal.unreadable("again, in a retry", name) == ""
    journal.close(30)
    assert journal.totals_line() == "journal: 1 calls taken from earlier runs, 0 recorded"


PARTS = [(0, b"head"), (64, bytes(range(256)) * 3), (1024, b""), (1024, b"tail")]
FLAT = b"head".ljust(64, b"\0") + (bytes(range(256)) * 3).ljust(960, b"\0") + b"tail"


def test_a_value_is_written_and_read_as_it_lies_in_the_arena(tmp_path: Path) -> None:
    name, found = value_files.write(str(tmp_path), "abcdef", PARTS)
    assert (tmp_path / name).read_bytes() == FLAT
    assert found == value_files.digest_of(PARTS) == value_files.digest_of([(0, FLAT)])
    kept = Kept(b"", name, len(FLAT), found)
    assert b"".join(piece for _, piece in value_files.read(str(tmp_path), kept)) == FLAT
    assert value_files.is_whole(str(tmp_path), kept)


def test_a_value_with_other_bytes_is_never_taken_for_it(tmp_path: Path) -> None:
    name, found = value_files.write(str(tmp_path), "abcdef", PARTS)
    path, kept = tmp_path / name, Kept(b"", name, len(FLAT), found)
    for position in range(0, len(FLAT), 7):
        data = bytearray(FLAT)
        data[position] ^= 1
        path.write_bytes(data)
        assert not value_files.is_whole(str(tmp_path), kept)
    for length in range(0, len(FLAT), 7):
        path.write_bytes(FLAT[:length])
        assert not value_files.is_whole(str(tmp_path), kept)
    path.unlink()
    assert not value_files.is_whole(str(tmp_path), kept)
    assert not value_files.is_whole(str(tmp_path), Kept(b"", "../outside", 1, found))


def test_a_value_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    def parts() -> list[tuple[int, bytes]]:
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        value_files.write(str(tmp_path), "abcdef", (part for part in parts()))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
