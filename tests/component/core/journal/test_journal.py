"""Journals where this user may not write, on a read-only file system, and on a disk that is full."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mpi_runtime.core.journal.earlier_results import Earlier
from mpi_runtime.scheduler.protocol.events import Kept
from tests.unit.core.journal.test_journal import recall, record, run

OPEN = """
import os, sys
from mpi_runtime.core.journal.journal import Journal
from tests.unit.core.journal.test_journal import BEGAN
if os.geteuid() == 0 and sys.argv[2:]:
    os.setuid(65534)
Journal(sys.argv[1], BEGAN, 0.0)
"""


@pytest.mark.parametrize(("mode", "name"), [(0o555, ""), (0o555, "new"), (0o777, "")], ids=["old", "new", "another's"])
def test_a_directory_in_which_this_user_may_not_write_is_an_error(mode: int, name: str) -> None:
    """Root may write everywhere: it becomes another user before it opens the journal."""
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), record(1))
        before = sorted(os.listdir(folder))
        os.chmod(folder, mode)
        command = [sys.executable, "-c", OPEN, os.path.join(folder, name), "as somebody else"]
        said = subprocess.run(command, capture_output=True, text=True).stderr.splitlines()[-1]
        os.chmod(folder, 0o700)
        why = r"(Permission denied|loading its values can run code, and \S+ (belongs to another|can be written to by))"
        assert re.search(rf"JournalError: the journal \S+ cannot be used: {why}.*It needs a directory", said)
        assert sorted(os.listdir(folder)) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system for reading")
def test_a_file_system_for_reading_only_is_an_error(tmp_path: Path) -> None:
    run(tmp_path, record(1))
    script = f"mount --bind {tmp_path} {tmp_path} && mount -o remount,bind,ro {tmp_path} && exec {sys.executable} -c"
    opened = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{script} "$@"', "sh", OPEN, str(tmp_path)], capture_output=True, text=True
    )
    said = opened.stderr.splitlines()[-1]
    assert re.search(r"JournalError: the journal \S+ cannot be used: Read-only file system \(\S+\)\. It needs", said)


def test_a_full_disk_ends_the_journal_and_not_the_job(tmp_path: Path) -> None:
    code = f"""
import resource, signal, time
from mpi_runtime.core.journal.journal import Journal
from tests.unit.core.journal.test_journal import BEGAN, record
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
journal = Journal({str(tmp_path)!r}, BEGAN, 0.0)
journal.give(record(1))
journal.turn()
while journal._writer._batches.qsize():
    time.sleep(0.01)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
journal.give(record(2, bytes(10_000)))
while not journal.turn():
    time.sleep(0.01)
print(journal.problem)
journal.close(30)
"""
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert told == f"File too large ({tmp_path}/000001.journal)\n"
    found = Earlier(tmp_path)
    assert found.take(recall(1))[0] == [Kept(b"value")]
    assert found.take(recall(2))[0] == []
    found.close()
