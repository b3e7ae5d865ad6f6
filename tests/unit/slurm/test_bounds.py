"""A batch that a job can never run is refused before it waits in a queue."""

import math
from pathlib import Path

import pytest

from mpi_runtime.cli import slurm as cli
from mpi_runtime.errors import LaunchError
from mpi_runtime.slurm import bounds, walltime
from mpi_runtime.slurm.bounds import Bounds
from mpi_runtime.slurm.script import Request


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        (None, math.inf), ("UNLIMITED", math.inf), ("2", 120), ("0:30", 30), ("1:02:03", 3723), ("2-0", 172800),
        ("1-2:03", 93780), ("1-2:03:04", 93784),
    ],
)  # fmt: skip
def test_a_time_limit_in_seconds(time: str | None, seconds: float) -> None:
    assert bounds.seconds(time) == seconds
    if time is not None:
        Request(time=time)  # it is one that a request may have


def test_the_bounds_of_a_request() -> None:
    def of(**options: object) -> Bounds:
        return bounds.of(Request(cpus_per_node=4, **options))  # type: ignore[arg-type]

    assert of() == (4, 0, math.inf, math.inf, 1)
    assert of(gpus_per_node=2, memory="1G", time="2", nodes=3) == (4, 2, 1 << 30, 120, 3)
    assert of(gpus_per_node="a100:4", memory="500") == (4, 4, 500 << 20, math.inf, 1)
    assert of(gpus_per_node="a100", memory="0").gpus == 1
    assert of(memory="0").memory == math.inf
    assert of(sbatch=("--gres=gpu:2",)).gpus == math.inf


@pytest.mark.parametrize(
    ("line", "words", "why"),
    [
        ("true #batch num_gpus=1", "", "can never run: it needs CPU 1, GPU 1, and no node has more than GPU 0"),
        ("true #batch num_cpus=64", "", "no node has more than CPU 2"),
        ("true #batch memory=100G", "--memory 1G", "no node has more than memory"),
        ("true #batch time_limit=3h", "--time 2", "can never end: it may take 3 h 00 min .* ends commands after 95 s"),
        ("true #batch time_limit=58s", "--time 1", "ends commands after 35 s"),
        ("true #batch ranks=5", "-N 2", "the nodes have room for 4 of its 5 ranks"),
        ("true #batch ranks=4", "-N 2", ""),
        ("true #batch num_gpus=1", "--gpus-per-node 1", ""),
        ("true #batch num_gpus=1", "-- --gpus 1", ""),
        ("true #batch num_gpus=1", "-- --gpus-per-node=1", ""),
        ("true #batch num_cpus=2 memory=1G resources=licence=3", "--memory 1G", ""),
        ("true #batch time_limit=85s", "--time 2", ""),
        ("true #batch time_limit=100h num_cpus=2", "", ""),
    ],
)
def test_what_can_never_run_is_refused_at_once(
    line: str, words: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MPI_RUNTIME_PROFILES", str(tmp_path / "none.toml"))
    path = tmp_path / "jobs.txt"
    path.write_text(f"true\n{line}\n")
    own, _, rest = words.partition("-- ")
    command = ["--batch", str(path), "--cpus-per-node=2", "--dry-run", *own.split()]
    command += ["--", *rest.split()] if rest else []
    if not why:
        assert cli.submit(command) == 0
        assert "mpi_runtime.batch" in capsys.readouterr().out
        return
    with pytest.raises(LaunchError, match=why) as caught:
        cli.submit(command)
    assert f"{path}:2" in str(caught.value)
    assert "nothing was submitted" in str(caught.value)


def test_a_short_job_is_ended_in_its_second_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walltime.time, "time", lambda: 1000.0)
    assert walltime.lead_s(60, None) == 60
    assert walltime.lead_s(60, 1060) == 30
    assert walltime.lead_s(60, 4600) == 60
    assert walltime.lead_s(60, 900) == 0
