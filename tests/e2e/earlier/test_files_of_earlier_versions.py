"""What earlier versions left on disk continues, and what this one writes names public modules only."""

import importlib
import io
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime import rl
from mpi_runtime.batch.elastic.coordinator import Coordinator
from mpi_runtime.batch.elastic.records import ENTRIES, Offer, can_run, pool_of
from mpi_runtime.core.objects import first_version
from mpi_runtime.files.segments import bodies_in
from mpi_runtime.rl.checkpoints import read
from tests.helpers import run_program

HERE = Path(__file__).parent
NEEDS_3_11 = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="the bytecode of 3.11 is a part of the recorded functions"
)


def copied(name: str, folder: Path) -> Path:
    """A copy of recorded files that belongs to this user alone."""
    copy = shutil.copytree(HERE / name, folder / Path(name).name)
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return copy


@NEEDS_3_11
def test_a_journal_of_before_the_core_continues(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    source = (HERE / "journal_program.py").read_text()
    journal = copied("journal-3.11", tmp_path)
    for _ in range(2):
        done = run_program(source, str(journal), str(marks))
        assert done.stdout.splitlines() == [
            "[0, 1, 4]", "True", "49995000.5", "[16, 25, 36, 49]", "81 True TaskTimeoutError", "[11, 13, 16]",
        ]  # fmt: skip
        assert [mark.name for mark in marks.iterdir()] == ["load_state"], "no recorded call ran again"


@NEEDS_3_11
def test_commands_of_a_program_that_an_earlier_version_has_run_do_not_run_again(tmp_path: Path) -> None:
    """Their bytes are a part of the journal, and so are the names of their results' classes."""
    journal = copied("commands-3.11", tmp_path)
    done = run_program((HERE / "commands_program.py").read_text(), str(journal), str(tmp_path))
    assert done.stdout.splitlines() == [str([True] * 6)]
    assert not (tmp_path / "marks").exists()


def test_a_batch_of_an_earlier_version_continues(tmp_path: Path) -> None:
    """Done commands stay done. What has failed and must not start twice does not, and what is after it runs again."""
    shutil.copy(HERE / "batch" / "earlier.toml", tmp_path)
    (tmp_path / "output").mkdir()
    copied("batch/output/journal", tmp_path / "output")
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
    two, one = (pool_of({"CPU": 4.0, "memory": 1e9}),) * 2, (pool_of({"CPU": 1.0, "memory": 1e9}),)
    assert [can_run(work, two) for work in offer.works] == [True, True, True]
    assert [can_run(work, one) for work in offer.works] == [False, True, True]
    assert not can_run(gang, (pool_of({"CPU": 9.0}),)), "two of its ranks run on each node"
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


def test_an_experiment_that_names_inner_modules_continues(tmp_path: Path) -> None:
    copied("experiment", tmp_path)
    source = (HERE / "experiment_program.py").read_text()
    for _ in range(2):  # the second finds it ended
        done = run_program(source, str(tmp_path))
        assert done.stdout.splitlines() == [
            "TERMINATED 1 6.83 1", "TERMINATED 1 5.92 1", "TERMINATED 3 2.226667 3", "TERMINATED 3 1.961667 3",
            "TERMINATED 1 6.19 1", "TERMINATED 1 6.03 1", "00003",
        ]  # fmt: skip


def test_files_of_experiments_name_public_modules_only(tmp_path: Path) -> None:
    done = run_program((HERE / "public_paths_of_tune_program.py").read_text(), str(tmp_path))
    assert done.stdout.splitlines() == [
        "experiment mpi_runtime.train mpi_runtime.tune mpi_runtime.tune.schedulers mpi_runtime.tune.search",
        "training mpi_runtime.train mpi_runtime.train.torch mpi_runtime.tune mpi_runtime.tune.schedulers "
        "mpi_runtime.tune.search",
        "by value",
    ]


def test_all_that_earlier_files_name_is_offered() -> None:
    for (_, name), face in first_version.FACES.items():
        assert hasattr(importlib.import_module(face), name), f"{face} has no {name}"


def test_no_inner_module_need_stay_for_an_earlier_experiment() -> None:
    named: set[tuple[str, str]] = set()

    class Noting(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            named.add((module, name))
            return super().find_class(module, name)

    Noting(io.BytesIO((HERE / "experiment" / "tuner.pickle").read_bytes())).load()
    own = {one for one in named if one[0].startswith("mpi_runtime")}
    assert len(own) == 22
    assert own <= first_version.FACES.keys()


def test_a_checkpoint_may_name_a_module_that_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint"
    file.write_bytes(b"(dVformat\nI1\nsVmaker\ncmpi_runtime.rl.wrappers\natari\ns.")
    found: object = read(file)["maker"]
    assert found is rl.atari
