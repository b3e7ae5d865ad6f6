"""A Snakemake workflow as one job of a real Slurm, on two nodes: see plugins/snakemake."""

import pytest

from tests.slurm.cluster import Cluster
from tests.snakemake.test_workflows import PYTHON

TEXT = """
rule all:
    input: expand("part.{i}.txt", i=range(4))

rule part:
    output: "part.{i}.txt"
    threads: 2
    resources: mem_mb=200
    shell: "sleep 2; hostname > {output}"
"""


@pytest.mark.skipif(not PYTHON.exists(), reason="`make test-snakemake` makes the environment")
@pytest.mark.timeout(400)
def test_jobs_of_a_workflow_run_on_all_nodes_of_its_job(slurm: Cluster) -> None:
    folder = slurm.directory()
    (folder / "Snakefile").write_text(TEXT)
    words = ["submit", f"--python={PYTHON}", "-N", "2", "--cpus-per-node=2", "--time=10", f"--env=HOME={folder}"]
    words += ["-m", "mpi_runtime", "-m", "snakemake", "--executor", "mpi-runtime", "--jobs", "8"]
    job = slurm.run("mpi-runtime", *words, cwd=folder).stdout.strip()
    ended = slurm.wait(job).expect()
    assert "5 of 5 steps (100%) done" in ended.stdout
    assert len({path.read_text() for path in folder.glob("part.*.txt")}) == 2
