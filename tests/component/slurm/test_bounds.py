"""The CPUs of the largest node, as sinfo reports them."""

import math
from pathlib import Path

import pytest

from mpi_runtime.slurm import bounds
from mpi_runtime.slurm.script import Request


def test_whole_nodes_have_the_cpus_of_the_largest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "sinfo").write_text("#!/bin/sh\nprintf '16\\n64\\n64\\n'\n")
    (tmp_path / "sinfo").chmod(0o755)
    assert bounds.of(Request()).cpus == 64
    (tmp_path / "sinfo").write_text("#!/bin/sh\nexit 1\n")
    assert bounds.of(Request()).cpus == math.inf
