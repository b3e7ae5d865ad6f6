"""A rank that its launcher has bound reports it, for the errors of calls that need more CPUs."""

import os

import pytest

from mpi_runtime.core.rank.joining import _cpu_limit


def test_a_bound_rank_names_the_cure_of_its_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    said = _cpu_limit("openmpi", 1, 2)
    assert said.startswith("rank 1 is bound to 2 of 8 CPUs")
    assert said.endswith("`mpi-runtime run`, or with: mpirun --bind-to none")
    assert _cpu_limit("slurm-pmix", 1, 2).endswith("srun --mpi=pmix --cpu-bind=none")
    assert _cpu_limit("openmpi", 1, 8) == _cpu_limit("none", 0, 2) == ""
