"""What earlier versions left on disk continues, and what this one writes names public modules only."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpi_runtime.batch.elastic.coordinator import Coordinator
from mpi_runtime.batch.elastic.records import ENTRIES, Offer, fits
from mpi_runtime.files.segments import bodies_in
from tests.helpers import run_program

HERE = Path(__file__).parent
NEEDS_3_11 = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="the bytecode of 3.11 is a part of the recorded functions"
)


def copied(folder: Path, name: str = "journal-3.11") -> Path:
    """A copy of the recorded journal that belongs to this user alone."""
    journal = shutil.copytree(HERE / name, folder / "journal")
    for path in (journal, *journal.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return journal


@NEEDS_3_11
def test_a_journal_of_before_the_core_continues(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    source = (HERE / "journal_program.py").read_text()
    journal = copied(tmp_path)
    for _ in range(2):
        done = run_program(source, str(journal), str(marks))
        assert done.stdout.splitlines() == [
            "[0, 1, 4]", "True", "49995000.5", "[16, 25, 36, 49]", "81 True TaskTimeoutError", "[11, 13, 16]",
        ]  # fmt: skip
        assert [mark.name for mark in marks.iterdir()] == ["load_state"], "no recorded call ran again"


@NEEDS_3_11
def test_commands_of_a_program_that_an_earlier_version_has_run_do_not_run_again(tmp_path: Path) -> None:
    """Their bytes are a part of the journal, and so are the names of their results' classes."""
    journal = copied(tmp_path, "commands-3.11")
    done = run_program((HERE / "commands_program.py").read_text(), str(journal), str(tmp_path))
    assert done.stdout.splitlines() == [str([True] * 6)]
    assert not (tmp_path / "marks").exists()


def test_a_batch_of_an_earlier_version_continues(tmp_path: Path) -> None:
    """Done commands stay done. What has failed and must not start twice does not, and what is after it runs again."""
    shutil.copy(HERE / "batch" / "earlier.toml", tmp_path)
    (tmp_path / "output").mkdir()
    copied(tmp_path / "output", "batch/output/journal")
    (tmp_path / "input.txt").write_text("words\n")
    os.utime(tmp_path / "input.txt", (1767225600, 1767225600))  # 2026, as it was: a command reads it
    command = [sys.executable, "-m", "mpi_runtime", "batch", "earlier.toml", "--directory", "output"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert "5 commands were done by earlier runs" in done.stderr
    assert "it has started before" in done.stderr
    assert (tmp_path / "marks").read_text().split() == ["last"]
    assert done.returncode == 1


def test_offers_of_a_job_of_an_earlier_version_are_read() -> None:
    """A job that takes its place knows what each command needs."""
    offers, size = bodies_in((HERE / "batch" / "offers").read_bytes(), ENTRIES)
    assert size == (HERE / "batch" / "offers").stat().st_size
    (offer,) = offers
    assert isinstance(offer, Offer)
    gang, either, shared = offer.works
    assert [work.name for work in offer.works] == ["gang", "either", "shared"]
    two, one = ({"CPU": 4.0, "GPU": 0.0, "memory": 1e9},) * 2, ({"CPU": 1.0, "GPU": 0.0, "memory": 1e9},)
    assert [fits(work, two) for work in offer.works] == [True, True, True]
    assert [fits(work, one) for work in offer.works] == [False, True, True]
    assert not fits(gang, ({"CPU": 9.0},)), "two of its ranks run on each node"
    coordinator = Coordinator(2)
    coordinator.joined("0" * 16, two, 30.0)  # too short for the gang, which may take 62 s
    for work in offer.works:
        coordinator.add(work)
    names = [work.name for order in coordinator.orders(0.0) if isinstance(order, Offer) for work in order.works]
    assert names == ["either", "shared"]
    assert [gang.path_us, either.attempt, shared.together] == [1 << 20, 0, "one.txt"]


def test_pickles_name_public_modules_only() -> None:
    """So modules inside may move without losing what lies on disk."""
    done = run_program((HERE / "public_paths_program.py").read_text())
    named = {word for line in done.stdout.splitlines() for word in line.split() if word.startswith("mpi_runtime")}
    assert len(done.stdout.splitlines()) == 16
    assert "by value" not in done.stdout, "cloudpickle has not found it where it is offered"
    assert named == {
        "mpi_runtime", "mpi_runtime.actor", "mpi_runtime.batch", "mpi_runtime.errors", "mpi_runtime.errors.ray",
        "mpi_runtime.runtime_env",
        "mpi_runtime.util", "mpi_runtime.util.placement_group", "mpi_runtime.util.scheduling_strategies",
    }  # fmt: skip
