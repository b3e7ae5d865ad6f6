"""Variables of a launcher that processes keep from their children."""

import os
import subprocess
import sys

import pytest

from mpi_runtime.core.host import launchers


def test_driver_leaves_the_launcher() -> None:
    program = (
        "import os, subprocess, sys\n"
        "from mpi_runtime.core.host.launchers import leave_launcher\n"
        "leave_launcher()\n"
        'child = \'import os; print(sorted(n for n in os.environ if n[:3] in ("PMI", "OMP", "KEP")))\'\n'
        "subprocess.run([sys.executable, '-c', child], check=True)\n"
    )
    env = os.environ | {"PMI_RANK": "0", "OMPI_COMM_WORLD_RANK": "0", "KEPT": "1", "OMP_NUM_THREADS": "2"}
    env = {name: value for name, value in env.items() if "ALLOW_RUN_AS_ROOT" not in name and "_MCA_" not in name}
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "['KEPT', 'OMP_NUM_THREADS']"


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"])
@pytest.mark.parametrize(("own", "launcher", "expected"), [
    ("0,1", "mpich", "4,5"),  # the list of the first node, which MPICH's mpirun hands on
    ("7", "mpich", "7"),  # the user's
    ("0,1", "openmpi", "0,1"),
])  # fmt: skip
def test_gpus_of_this_node_and_not_of_the_first(
    monkeypatch: pytest.MonkeyPatch, name: str, own: str, launcher: str, expected: str
) -> None:
    env = {"SLURM_STEP_ID": "3", name: "4,5"}
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()  # it has its environment now
        monkeypatch.setattr(os, "getppid", lambda: parent.pid)
        monkeypatch.setenv("SLURM_JOB_GPUS", "0,1")
        for one in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"):
            monkeypatch.delenv(one, raising=False)
        monkeypatch.setenv(name, own)
        launchers.take_own_gpus(launcher)
        found = os.environ[name]
        parent.communicate(b"\n")
    assert found == expected
