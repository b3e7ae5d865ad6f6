"""Commands that run with one of several requests: each knows which, and the journal and `whatif` do too."""

import json
from pathlib import Path

import pytest

from mpi_runtime.batch.history.batch_history import read_history
from tests.e2e.cli.test_batch import run_batch, run_verb, written
from tests.helpers import seconds_of

SWEEP = """
[[task]]
name = "fit"
command = "echo {i} $MPI_RUNTIME_NUM_CPUS {cpus} g{gpu} $CUDA_VISIBLE_DEVICES; sleep 0.3"
alternatives = [{ num_cpus = 2 }, { num_gpus = 1, num_cpus = 0.5 }]
product = { i = [0, 1, 2, 3] }
"""


@pytest.mark.timeout(120)
def test_commands_take_cpus_or_a_gpu_and_know_which(tmp_path: Path) -> None:
    file = written(tmp_path / "jobs.toml", SWEEP)
    env = {"MPI_RUNTIME_NUM_CPUS": "2.5"}
    nodes = ["--cpus-per-node", "2", "--gpus-per-node", "1"]
    checked = run_batch(file, "--check", *nodes, cwd=tmp_path, env=env).expect(0)
    assert "fit (4): 2 CPU or 0.5 CPU, 1 GPU: " in checked.stdout
    run_batch(file, "--gpus-per-node", "1", cwd=tmp_path, env=env).expect(0)
    seen = [(tmp_path / "batch-jobs" / f"fit.{i}.out").read_text().split() for i in range(4)]
    kinds = {tuple(words[1:]) for words in seen}
    assert kinds == {("2", "2", "g"), ("1", "0.5", "g0", "0")}
    ends = read_history(str(tmp_path / "batch-jobs")).ends
    assert {(one.result.alternative, one.cpus, one.gpus) for one in ends.values()} == {(0, 2.0, 0.0), (1, 0.5, 1.0)}
    table = run_verb("whatif", "batch-jobs", "--nodes", "1", "--gpus-per-node", "0,1,4", cwd=tmp_path).expect(0).stdout
    spans = [seconds_of(*line.split()[3:5]) for line in table.splitlines()[2:]]
    assert spans[0] > spans[1] >= spans[2] > 0, "with more GPUs it takes less time, without any it runs on CPUs"


def test_mistakes_in_alternatives_are_found(tmp_path: Path) -> None:
    lines = [
        "a #batch alternatives=num_cpus=4",
        "b #batch alternatives='num_cpus=4 | num_cups=1'",
        "c #batch alternatives='num_cpus=4 | num_gpus=many'",
        "d #batch num_cpus=2 alternatives='num_cpus=2 | num_gpus=0'",
        "e #batch alternatives='num_cpus=4000 | num_gpus=400'",
    ]
    said = run_batch(written(tmp_path / "jobs.txt", "\n".join(lines[:4])), "--check", cwd=tmp_path).expect(2).stderr
    assert "jobs.txt:1:10: alternatives must be two or more requests, as in 'num_cpus=4 | num_gpus=1'" in said
    assert "jobs.txt:2:10: alternatives there is no resource 'num_cups'; did you mean 'num_cpus'?" in said
    assert "has a wrong request {'num_gpus': 'many'}: the value must be a number" in said
    assert "jobs.txt:4:21: alternatives must differ" in said
    nodes = ["--cpus-per-node", "64", "--gpus-per-node", "1"]
    said = run_batch(written(tmp_path / "jobs.txt", lines[4]), "--check", *nodes, cwd=tmp_path).expect(2).stderr
    assert "can never run: it needs CPU 4000" in said
    assert "; nor with another alternative: can never run: it needs CPU 1, GPU 400" in said


def test_one_that_no_node_has_is_never_taken(tmp_path: Path) -> None:
    line = json.dumps({"command": "echo {cpus}", "name": "a", "alternatives": [{"num_cpus": 4000}, {"num_cpus": 1}]})
    run_batch(written(tmp_path / "jobs.jsonl", line), cwd=tmp_path).expect(0)
    assert (tmp_path / "batch-jobs" / "a.out").read_text() == "1\n"
