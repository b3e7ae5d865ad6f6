"""In which order a batch starts its commands, and how long it would take elsewhere."""

import sys
from pathlib import Path

import pytest

from mpi_runtime.batch.history.batch_history import read_history
from mpi_runtime.whatif.batches import Batch
from mpi_runtime.whatif.virtual_cluster import Shape
from tests import helpers

pytestmark = pytest.mark.timeout(120)

BATCH = """
[defaults]
group = "one at a time"
group_limit = 1

[[task]]
name = "begin"
command = "sleep 1.5; echo begin >> order"
time_limit = "5h"

[[task]]
name = "alone"
command = "echo alone >> order"
time_limit = "1m"

[[task]]
name = "first"
command = "echo first >> order"
time_limit = "1m"

[[task]]
name = "second"
command = "echo second >> order"
time_limit = "1h"
after = ["first"]

[[task]]
name = "urgent"
command = "echo urgent >> order"
time_limit = "1m"
priority = 1
"""


def run(place: Path, *words: str, **variables: str) -> helpers.Completed:
    program = helpers.start_command([sys.executable, "-m", "mpi_runtime", *words], cwd=place, env=variables)
    with program:
        return program.finish()


def test_longest_chains_go_first_and_a_group_has_its_limit(tmp_path: Path) -> None:
    """While the first command takes the only place of the group, all others are known, most from the beginning."""
    (tmp_path / "jobs.toml").write_text(BATCH.replace("one at a time", "single"))
    done = run(tmp_path, "batch", "jobs.toml").expect(0)
    assert "5 of 5 done" in done.stderr, done.output()
    order = (tmp_path / "order").read_text().split()
    assert sorted(order[:2]) == ["begin", "urgent"], "the first may have begun before the urgent one was read"
    assert order[2:] == ["first", "alone", "second"]

    told = run(tmp_path, "whatif", "batch-jobs", "--nodes", "1,8", "--cpus-per-node", "4").expect(0).stdout.splitlines()
    assert told[0] == "5 commands"
    assert [line.split()[:3] for line in told[2:]] == [["1", "4", "0"], ["8", "4", "0"]]
    assert told[2].split()[3:5] == told[3].split()[3:5], "one at a time, on however many nodes"


def test_custom_resources_are_shared_and_those_of_no_node_refused(tmp_path: Path) -> None:
    """Of three commands that need the licence one runs at a time: each finds no other's directory."""
    alone = "mkdir alone && sleep 0.2 && rmdir alone #batch resources=licence=1\n"
    (tmp_path / "jobs.txt").write_text(alone * 3 + "true\n")
    variables = {"MPI_RUNTIME_NUM_CPUS": "4", "MPI_RUNTIME_RESOURCES": "licence=1"}
    done = run(tmp_path, "batch", "jobs.txt", **variables).expect(0)
    assert "4 of 4 done" in done.stderr, done.output()
    assert "line-1: 1 CPU, 1 licence: mkdir" in run(tmp_path, "batch", "jobs.txt", "--check", **variables).stdout
    refused = run(tmp_path, "batch", "jobs.txt", "--resources", "ssd=1").expect(2).stderr
    assert "line-1: can never run: it needs CPU 1, licence 1, and no node has more than licence 0" in refused
    assert "line-4: can never run: it needs CPU 1, ssd 1, and no node has more than ssd 0" in refused
    told = run(tmp_path, "whatif", "batch-jobs", "--nodes", "1,3").expect(0).stdout.splitlines()
    assert told[2].split()[:2] == ["1", "4"]
    one, three = (helpers.seconds_of(*line.split()[3:5]) for line in told[2:4])
    assert one >= 0.6 > three, "each of three nodes would have a licence"


def test_a_group_has_a_name_like_others(tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(BATCH)
    assert "group must have letters" in run(tmp_path, "batch", "jobs.toml").expect(2).stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([sys.executable], "is no recording of a job"),
        (["batch-none"], "there is no batch 'batch-none' here"),
        (["batch-none", "--nodes", "0"], "must be whole numbers of 1 or more"),
        (["batch-none", "--gpus-per-node", "many"], "must be numbers with commas between them, not 'many'"),
    ],
)
def test_what_cannot_be_said_is_refused(tmp_path: Path, words: list[str], said: str) -> None:
    assert said in run(tmp_path, "whatif", *words).expect(2).stderr


def test_whatif_tells_how_long_a_real_run_took(tmp_path: Path) -> None:
    """Commands that sleep, and depend on each other. Starting them takes real time and no virtual time."""
    text = """
        [[task]]
        name = "begin"
        command = "sleep 0.5"
        [[task]]
        name = "map"
        command = "sleep {t}"
        product = { t = [0.4, 0.6, 0.8, 1.0, 1.2, 0.3] }
        after = ["begin"]
        [[task]]
        name = "both"
        command = "sleep 0.5"
        num_cpus = 2
        after = ["map"]
    """
    (tmp_path / "jobs.toml").write_text(text)
    run(tmp_path, "batch", "jobs.toml", MPI_RUNTIME_NUM_CPUS="2").expect(0)
    history = read_history(str(tmp_path / "batch-jobs"))
    results = [ended.result for ended in history.all_ends]
    real_s = max(one.end for one in results) - min(one.start for one in results)
    said_s = Batch(history).on(1, Shape(2)).seconds
    assert said_s > 3.1
    assert 0.9 * said_s <= real_s <= 1.1 * said_s + 2, "a busy machine takes longer between commands"


JOB = """
import time
import mpi_runtime as ray

@ray.remote
def sleep(seconds, *after):
    time.sleep(seconds)

@ray.remote
def outer():
    ray.get([sleep.remote(0.5) for _ in range(2)])
    time.sleep(0.5)

ray.init()
begin = time.time()
first = [sleep.remote(0.4 + 0.1 * n) for n in range(6)]
ray.get([sleep.remote(0.5, *first), outer.remote()])
ray.get([sleep.remote(0.5) for _ in range(4)])
print(time.time() - begin)
"""


def test_whatif_tells_how_long_a_real_job_took_from_its_recording(tmp_path: Path) -> None:
    """The same job on one CPU is looked at from the recording of two: an upper and a lower bound, and the real time."""
    real_s = {}
    for cpus in ("1", "2"):
        variables = {"MPI_RUNTIME_NUM_CPUS": cpus, "MPI_RUNTIME_RECORD": str(tmp_path / f"{cpus}.rec")}
        done = helpers.run_program(JOB, env=variables, cwd=tmp_path).expect(0)
        real_s[cpus] = float(done.stdout)
    for source in ("1", "2"):
        for cpus in ("1", "2"):
            words = ["whatif", f"{source}.rec", "--nodes", "1", "--cpus-per-node", cpus]
            first, _, row = run(tmp_path, *words).expect(0).stdout.splitlines()
            assert first == "14 calls"
            said_s = float(row.split()[3])
            work_s = (3.9 + 0.5 + 1.5 + 2.0) / int(cpus)
            assert work_s <= said_s
            assert 0.9 * said_s <= real_s[cpus] + 0.5, (source, cpus, real_s, row)
            assert real_s[cpus] <= 1.1 * said_s + 4, (source, cpus, real_s, row)
