"""The executor plugin for Snakemake, in the real one. `make test-snakemake` makes the environment that it needs."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.sessions.started import session
from tests.helpers import ROOT, Completed, Program, start_command, wait_until

PYTHON = ROOT / ".venv-snakemake" / "bin" / "python"
GPUS = ("--mpi-runtime-gpus-per-node", "2")
SUM = """
rule all:
    input: "sum.txt"

rule part:
    output: "part.{i}.txt"
    resources: mem_mb=200, runtime=5
    shell: "echo {wildcards.i} $MPI_RUNTIME_NUM_CPUS $(hostname) > {output}"

rule sum:
    input: expand("part.{i}.txt", i=range(3))
    output: "sum.txt"
    threads: 2
    resources: mem_mb=200, gpu=1
    shell: "cat {input} > {output}; echo threads {threads} $MPI_RUNTIME_NUM_CPUS gpu $CUDA_VISIBLE_DEVICES >> {output}"
"""
WRONG = """
rule all:
    input: "good.txt", "bad.txt", "large.txt", "slow.txt"

rule good:
    output: "good.txt"
    resources: mem_mb=100
    shell: "echo {{curly}} > {output}"

rule bad:
    output: "bad.txt"
    resources: mem_mb=100
    shell: "echo to be seen; exit 3"

rule large:
    output: "large.txt"
    resources: mem_mb=100000000
    shell: "touch {output}"

rule slow:
    output: "slow.txt"
    resources: mem_mb=100
    shell: "touch slow.begun; sleep 1000"
"""

pytestmark = [
    pytest.mark.skipif(not PYTHON.exists(), reason="`make test-snakemake` makes the environment"),
    pytest.mark.timeout(300),
]


def start(folder: Path, text: str, launcher: Sequence[str] = (), *words: str, own: Sequence[str] = GPUS) -> Program:
    """Start a workflow of this text, with a home of its own for Snakemake's caches."""
    (folder / "Snakefile").write_text(text)
    own = ["-m", "snakemake", "--executor", "mpi-runtime", "--jobs", "8", *own, *words]
    env = {"HOME": str(folder), "MPI_RUNTIME_NUM_CPUS": "2"}
    return start_command([str(PYTHON), *launcher, *own], cwd=folder, env=env)


def run(folder: Path, text: str, launcher: Sequence[str] = (), *words: str, own: Sequence[str] = GPUS) -> Completed:
    """The same, to its end."""
    with start(folder, text, launcher, *words, own=own) as program:
        return program.finish()


@pytest.mark.parametrize("ranks", [1, 3])
def test_jobs_have_the_resources_of_their_rules(tmp_path: Path, ranks: int) -> None:
    launcher = ["-m", "mpi_runtime", "run", "-n", str(ranks), "-m", "mpi_runtime"]
    run(tmp_path, SUM, launcher if ranks > 1 else []).expect(0)
    *parts, last = (tmp_path / "sum.txt").read_text().splitlines()
    assert [line.split()[:2] for line in parts] == [[str(i), "1"] for i in range(3)]
    assert last == "threads 2 2 gpu 0"
    assert "Nothing to be done" in run(tmp_path, SUM).expect(0).stderr


def test_jobs_run_in_a_session_which_has_its_own_resources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state"
    with session(state, "--num-cpus", "2", "--num-gpus", "2"):
        monkeypatch.setenv("XDG_STATE_HOME", str(state))
        monkeypatch.setenv("MPI_RUNTIME_ADDRESS", "session:s")
        assert "num_gpus" in run(tmp_path, SUM).expect(1).stderr  # `start` states them
        run(tmp_path, SUM, own=[]).expect(0)
    *parts, last = (tmp_path / "sum.txt").read_text().splitlines()
    assert [line.split()[:2] for line in parts] == [[str(i), "1"] for i in range(3)]
    assert last == "threads 2 2 gpu 0"
    (tmp_path / "sum.txt").unlink()
    done = run(tmp_path, SUM, own=[]).expect(1)
    assert "mpi_runtime does not start: " in done.stderr
    assert "Traceback" not in done.stderr


def test_what_fails_is_reported_and_an_interrupt_ends_the_rest(tmp_path: Path) -> None:
    with start(tmp_path, WRONG, [], "--keep-going") as program:
        wait_until((tmp_path / "slow.begun").exists, 100, "the slow job")
        wait_until(lambda: program.stderr.count("Error in rule ") == 2, 100, "two errors")
        wait_until(
            (tmp_path / "good.txt").exists, 100, "the good job, which may be the last of those beside the slow one"
        )
        os.killpg(program.pid, signal.SIGINT)
        done = program.finish()
    assert done.returncode != 0
    assert "exit code 1 on " in done.stderr, "that of the Snakemake of the job"
    assert "large-3-1 asks for 1 CPU, " in done.stderr
    assert " of memory on one node, and no node owns that much" in done.stderr
    assert (tmp_path / "good.txt").read_text() == "{curly}\n"
    (output,) = (tmp_path / ".snakemake" / "mpi_runtime").glob("bad-*.out")
    assert "to be seen" in output.read_text()
    assert not (tmp_path / "slow.txt").exists()
