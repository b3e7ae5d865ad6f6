"""The end of an allocation, as the system's commands report it."""

import time
from pathlib import Path

import pytest

from mpi_runtime.slurm import walltime


@pytest.mark.parametrize(
    ("env", "tool", "answer"),
    [
        ({"PBS_JOBID": "1.head"}, "qstat", " Resource_List.walltime = 01:00:00\n resources_used.walltime = 00:20:00"),
        ({"LSB_JOBID": "77", "LSB_MCPU_HOSTS": "a 1"}, "bjobs", "0:40 L"),
    ],
)  # fmt: skip
def test_end_time_asks_the_commands(
    env: dict[str, str], tool: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**env, "PATH": f"{tmp_path}:/usr/bin:/bin"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert walltime.end_time() is None, "the command is not there"
    (tmp_path / tool).write_text(f"#!/bin/sh\ncat <<'end'\n{answer}\nend\n")
    (tmp_path / tool).chmod(0o755)
    for ask in (walltime.end_time, walltime.end_time_at_start):
        end_s = ask()
        assert end_s is not None
        assert abs(end_s - time.time() - 40 * 60) < 60
    (tmp_path / tool).write_text(f"#!/bin/sh\necho '{tool}: cannot connect to server' >&2\nexit 255\n")
    assert walltime.end_time() is None
