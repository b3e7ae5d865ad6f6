"""Ranks that are each the first process of a container, with its own process ids, mounts and shared memory."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.helpers import Program, mpi_python, start_command
from tests.hosts.namespaces import missing

pytestmark = pytest.mark.skipif(bool(missing(["unshare", "mount"], "util-linux")), reason="mounts take root")
OWN = [
    "unshare",
    "--pid",
    "--fork",
    "--mount-proc",
    "--ipc",
    "bash",
    "-c",
    'mount -t tmpfs none /dev/shm; exec "$@"',
    "-",
]
LAUNCHERS = {
    "plain": ([], {}),
    "openmpi": (["mpirun", "-n", "3"], {"OMPI_MCA_btl": "tcp,self", "OMPI_MCA_pml": "ob1"}),
    "mpich": (["mpiexec", "-n", "3"], {"MPIR_CVAR_NOLOCAL": "1"}),
}
"""How the ranks are started, and what lets the MPI library use no shared memory within a host."""
PROGRAM = """
import os, time
import numpy
import mpi_runtime as ray

@ray.remote
def make(number):
    return numpy.full(300_000, number)

@ray.remote
def add(one, other):
    return one + other

@ray.remote(max_retries=1)
def die_once(mark):
    if not os.path.exists(mark):
        open(mark, "w").close()
        os.kill(os.getpid(), 9)
    return "came back"

ray.init(num_cpus=2)
print("I am process", os.getpid())
values = [make.remote(number) for number in range(8)]
while len(values) > 1:
    values = [add.remote(one, other) for one, other in zip(values[::2], values[1::2])]
print(ray.get(values[0])[0], ray.get(die_once.remote(os.path.abspath("mark"))), flush=True)
if "wait" in os.environ:
    time.sleep(60)
"""


def start(way: str, tmp_path: Path, **more: str) -> Program:
    app = tmp_path / "app.py"
    app.write_text(PROGRAM)
    launcher, env = LAUNCHERS[way]
    python = mpi_python(way) if launcher else Path(sys.executable)
    words = [str(python.with_name(one)) if one.startswith("mpi") else one for one in launcher]
    return start_command([*words, *OWN, python, app], env={**env, **more}, cwd=tmp_path)


@pytest.mark.parametrize("way", ["plain", *(pytest.param(one, marks=pytest.mark.mpi) for one in ("openmpi", "mpich"))])
def test_calls_and_values_and_a_death(way: str, tmp_path: Path) -> None:
    with start(way, tmp_path) as program:
        assert program.finish().expect().stdout == "I am process 1\n28 came back\n"


@pytest.mark.mpi
def test_the_head_is_killed(tmp_path: Path) -> None:
    """The launcher ends the other ranks by a signal, which the first process of a container ignores by default."""
    with start("openmpi", tmp_path, wait="1") as program:
        program.wait_for_line("came back")
        heads = [pid for pid in program.processes() if Path(f"/proc/{pid}/comm").read_text() == "mpi-rt-head\n"]
        assert len(heads) == 1
        os.kill(heads[0], signal.SIGKILL)
        completed = program.finish()
    assert completed.returncode
    assert "killed by signal 9" in completed.output(), completed.output()
    assert "worker.py" not in completed.output(), completed.output()
