"""A batch with resources on three hosts: what runs where, what `status` says of it, and that it goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpi_runtime.batch.history.batch_history import read_history
from mpi_runtime.batch.history.results import CommandResult
from mpi_runtime.batch.show.overview import in_lines, overview
from tests.helpers import Program, wait_until
from tests.hosts.lab import Lab, lab, missing

pytestmark = [pytest.mark.mpi, pytest.mark.hosts, pytest.mark.timeout(180)]
ON_RANKS = "import sys; from mpi_runtime.cli.main import main; sys.exit(main(['batch', *sys.argv[1:]]))"
HOSTS = ("host1", "host2", "host3")
BATCH = """
    [[task]]
    name = "share"
    command = "while [ ! -e {gate} ]; do sleep 0.05; done; echo {host} {gpu} {i}"
    num_cpus = 0.25
    num_gpus = 0.5
    zip = { i = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11] }
    rows = "rows.csv"

    [[task]]
    name = "large"
    command = "sleep 0.3; echo {host} {cpus} {i}"
    num_cpus = 3
    product = { i = { range = [0, 6] } }
    after = ["share"]

    [[task]]
    name = "memory"
    command = "sleep 0.3; echo {host} {i}"
    memory = "MEMORY"
    product = { i = [0, 1, 2] }
    after = ["share"]

    [[task]]
    name = "end"
    command = "cat OUT/large.*.out; [ -e {gate}.well ]"
    after = ["large", "memory"]
    rows = "rows.csv"
"""


@pytest.fixture(scope="module")
def three_hosts() -> Iterator[Lab]:
    if reason := missing():
        pytest.skip(reason)
    with lab(len(HOSTS)) as found:
        yield found


def start(hosts: Lab, mpi: str, file: Path, out: Path) -> Program:
    """Run a batch on a rank of each host, with 4 CPUs and 2 GPUs that are taken for granted."""
    words = (str(file), "--directory", str(out), "--gpus-per-node", "2")
    return hosts.mpirun(ON_RANKS, *words, ranks=dict.fromkeys(HOSTS, 1), mpi=mpi, env={"MPI_RUNTIME_NUM_CPUS": "4"})


def together(results: list[CommandResult]) -> int:
    """How many of them ran at a time at most."""
    return max(sum(one.start <= other.start < one.end for one in results) for other in results)


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_a_batch_with_resources_on_three_hosts(mpi: str, three_hosts: Lab) -> None:
    place = three_hosts.place / f"batch-on-{mpi}"
    place.mkdir()
    file, out, gate = place / "jobs.toml", place / "out", place / "gate"
    (place / "rows.csv").write_text(f"gate\n{gate}\n")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 6 // 10
    file.write_text(BATCH.replace("MEMORY", str(memory)).replace("OUT", str(out)))

    with start(three_hosts, mpi, file, out) as program:

        def hosts_of_running() -> list[str]:
            return sorted(began.host for began in read_history(str(out)).began.values()) if out.exists() else []

        wait_until(lambda: hosts_of_running() == sorted(HOSTS * 4), 60, "four halves of two GPUs on each host")
        lines = in_lines("jobs", overview(read_history(str(out)), 1e12, True), "somebody", 1e12)
        assert lines[1] == "0 of 22 done, 12 running, 10 waiting"
        assert {line.split(" on ")[-1] for line in lines[3:13]} == set(HOSTS)
        gate.touch()
        program.finish().expect(1)

    history = read_history(str(out))
    results = {name: ended.result for name, ended in history.ends.items()}
    for host in HOSTS:
        shares = [one for name, one in results.items() if name.startswith("share.") and one.host == host]
        assert sorted(one.gpu_ids for one in shares) == [(0,), (0,), (1,), (1,)]
        for kind in ("large.", "memory."):
            here = [one for name, one in results.items() if name.startswith(kind) and one.host == host]
            assert not here or together(here) == 1, f"there is room for one on {host}"
    assert {node.host: (node.cpus, node.gpus) for node in history.runs[0].nodes} == dict.fromkeys(HOSTS, (4.0, 2.0))
    assert (out / "large.0.out").read_text() == f"{results['large.0'].host} 3 0\n"
    assert results["end.0"].ending() == "exit code 1"
    assert not results["end.0"].is_success

    gate.with_suffix(".well").touch()
    with start(three_hosts, mpi, file, out) as program:
        completed = program.finish().expect(0)
    assert "21 commands were done by earlier runs" in completed.stderr
    assert [ended.result.name for ended in read_history(str(out)).all_ends].count("share.0") == 1
