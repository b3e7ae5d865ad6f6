"""How a person works in an allocation: program after program, and a notebook with the job's ranks behind it."""

from __future__ import annotations

import pytest

from tests.slurm.cluster import Cluster

# What Jupyter does for a notebook.
NOTEBOOK = """
from jupyter_client.manager import start_new_kernel

cells = [
    "import mpi_runtime as ray, os",
    "context = ray.init(num_cpus=2)",
    "@ray.remote\\ndef where(x):\\n    return os.uname().nodename, x",
    "print('first', len(ray.nodes()), ray.get([where.remote(x) for x in range(2)])[1][1])",
    "ray.shutdown()",
    "context = ray.init(num_cpus=1)",
    "names = [node['NodeManagerHostname'] for node in ray.nodes()]",
    "print('again', [ray.get(where.options(resources={'node:' + name: 0.01}).remote(1))[0] == name for name in names])",
]
manager, client = start_new_kernel()
for cell in cells:
    reply = client.execute_interactive(
        cell, timeout=60, output_hook=lambda message: print(message["content"].get("text", ""), end="", flush=True)
    )
    assert reply["content"]["status"] == "ok", reply
client.stop_channels()
manager.shutdown_kernel()
"""
PROGRAM = "import mpi_runtime as ray\nray.init()\nprint('program', len(ray.nodes()), flush=True)\n"


def test_an_allocation_runs_one_program_after_the_other_and_a_notebook(slurm: Cluster) -> None:
    pytest.importorskip("ipykernel")
    directory = slurm.directory()
    (directory / "app.py").write_text(PROGRAM)
    (directory / "notebook.py").write_text(NOTEBOOK)
    in_a_step = "srun --ntasks-per-node=1 sh -c '[ $SLURM_PROCID != 0 ] || mpi-runtime run -n 2 app.py'"
    lines = (
        "mpi-runtime run -n 2 app.py",
        in_a_step,  # as in `srun --pty bash`
        "mpi-runtime run -n 2 -m mpi_runtime notebook.py",
    )
    # As a user has it who types them.
    done = slurm.run("salloc", "-N2", "--exclusive", "--time=5", "sh", "-ec", "\n".join(lines), cwd=directory)
    assert done.stdout.splitlines() == ["program 2", "program 2", "first 2 1", "again [True, True]"], done.stderr
