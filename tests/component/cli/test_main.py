"""What the command prints where letters are missing, nobody reads it, or its disk is full."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mpi_runtime.cli import main
from tests.unit.cli.test_journals import journal


def test_an_advised_command_has_all_words(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`mpi-runtime list 17` would be refused: what to list is missing."""
    monkeypatch.setattr("mpi_runtime.core.head.inspecting.jobs", lambda: [17, 18])
    assert main.main(["list", "actors"]) == 2
    assert "\n  mpi-runtime list actors 17 " in capsys.readouterr().err


def test_a_terminal_without_utf_8_gets_other_letters() -> None:
    assert main.main(["version"]) == 0
    text = "24\u202f000 calls, 5 µs \u2013 é \udcff"
    assert text.encode("ascii", "mpi_runtime") == rb"24 000 calls, 5 us - \xe9 \udcff"
    assert "é\udcff".encode(errors="mpi_runtime") == "é\\udcff".encode()


def test_ctrl_c_shows_no_traceback_unless_code_of_a_user_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "import_module", interrupted)
    assert main.main(["view"]) == 130
    with pytest.raises(KeyboardInterrupt):
        main.main(["run", "app.py"])


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_empty(tmp_path: Path, closed: str) -> None:
    """As cron and daemons may start it."""
    (tmp_path / "jobs.txt").write_text("echo one\n")
    words = f"exec {sys.executable} -m mpi_runtime batch jobs.txt --directory out {closed}"
    done = subprocess.run(["bash", "-c", words], cwd=tmp_path, timeout=100, check=False, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert (tmp_path / "out/line-1.out").read_text() == "one\n"


@pytest.mark.parametrize("verb", ["batch /etc/hostname", "run app.py"])
def test_a_working_directory_that_was_removed_is_named(tmp_path: Path, verb: str) -> None:
    (tmp_path / "gone").mkdir()
    words = f"cd {tmp_path}/gone; rmdir ../gone; exec {sys.executable} -m mpi_runtime {verb}"
    done = subprocess.run(["bash", "-c", words], timeout=100, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"mpi-runtime {verb.split()[0]}: its working directory was removed")
    assert "Traceback" not in done.stderr


def printed_to(output: int, *verb: str, unbuffered: str = "") -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "mpi_runtime", *verb], stdout=output, stderr=subprocess.PIPE, text=True, timeout=60,
        check=False, env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )  # fmt: skip
    return done.returncode, done.stderr


def test_output_that_nobody_reads_is_no_error_and_a_full_disk_no_traceback(tmp_path: Path) -> None:
    listed = ("journal", "list", str(journal(tmp_path)))
    full = os.open("/dev/full", os.O_WRONLY)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        for verb, unbuffered in ((("completion", "bash"), "1"), (listed, "")):
            assert printed_to(writer, *verb, unbuffered=unbuffered) == (141, "")
            code, text = printed_to(full, *verb, unbuffered=unbuffered)
            assert code == 2
            assert text.startswith(f"mpi-runtime {verb[0]}: ")
            assert text.endswith("No space left on device\n")
            assert text.count("\n") == 1
    finally:
        os.close(writer)
        os.close(full)
