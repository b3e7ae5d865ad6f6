"""Each library runs in a session, beside others."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.sessions.started import driver, session
from tests.helpers import start_command


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("state")
    with session(place, "--num-cpus", "4"):
        yield place


PROGRAMS = {
    "tune": """
from mpi_runtime import tune

def objective(config):
    tune.report({"score": config["x"] ** 2})

found = tune.Tuner(objective, param_space={"x": tune.grid_search([-3, 1, 2])},
                   tune_config=tune.TuneConfig(metric="score", mode="min"),
                   run_config=tune.RunConfig(name="t", storage_path=DIRECTORY, verbose=0)).fit()
print(found.get_best_result().config["x"])
""",
    "train": """
from mpi_runtime import train

def loop(config):
    train.report({"rank": train.get_context().get_world_rank() + config["one"]})

print(train.DataParallelTrainer(loop, train_loop_config={"one": 1},
      scaling_config=train.ScalingConfig(num_workers=2),
      run_config=train.RunConfig(name="r", storage_path=DIRECTORY)).fit().metrics["rank"])
""",
    "rl": """
from mpi_runtime.rl import PPOConfig
algorithm = (PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=1)
             .training(n_steps=128)).build_algo()
algorithm.train()
algorithm.stop()
print(1)
""",
    "gang": """
@ray.remote(num_ranks=2)
def gang(comm):
    return comm.allreduce(comm.Get_rank())

print(ray.get(gang.remote()))
""",
    "executor": """
from mpi_runtime.util.futures import Executor
with Executor() as pool:
    print(sum(pool.map(abs, [-1, 0])))
""",
    "pool": """
from mpi_runtime.util.multiprocessing import Pool
with Pool(2) as pool:
    print(sum(pool.map(abs, [-1, 0])))
""",
    "joblib": """
import joblib
from mpi_runtime.util.joblib import register_mpi_runtime
register_mpi_runtime()
with joblib.parallel_backend("mpi_runtime"):
    print(sum(joblib.Parallel()(joblib.delayed(abs)(x) for x in (-1, 0))))
""",
    "data": """
from mpi_runtime import data
print(data.from_items([{"x": -1}, {"x": 0}]).map(lambda row: {"x": abs(row["x"])}).sum("x"))
""",
    "dask": """
import dask
from mpi_runtime.util.dask import enable_dask_on_mpi_runtime
enable_dask_on_mpi_runtime()
print(dask.delayed(sum)([dask.delayed(abs)(x) for x in (-1, 0)]).compute())
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_library_runs_in_a_session(state: Path, tmp_path: Path, name: str) -> None:
    """It needs an answer of 1."""
    for needed in {"rl": ("torch", "gymnasium"), "data": ("pyarrow",)}.get(name, ()):
        pytest.importorskip(needed)
    source = f"DIRECTORY = {str(tmp_path)!r}\n" + PROGRAMS[name]
    with driver(state, source) as program:
        assert program.finish().expect(0).stdout.splitlines()[-1] == "1"


@pytest.mark.parametrize("by", ["option", "variable"])
def test_a_batch_runs_in_a_session(state: Path, tmp_path: Path, by: str) -> None:
    (tmp_path / "list.txt").write_text("echo one > first.txt\necho two > second.txt\n")
    words = ["--session", "s"] if by == "option" else []
    env: dict[str, str | None] = {"XDG_STATE_HOME": str(state)}
    if by == "variable":
        env["MPI_RUNTIME_ADDRESS"] = "session:s"
    command = [sys.executable, "-m", "mpi_runtime", "batch", *words, "list.txt"]
    with start_command(command, env=env, cwd=tmp_path) as program:
        program.finish().expect(0)
    assert (tmp_path / "first.txt").read_text() == "one\n"
    refused = [sys.executable, "-m", "mpi_runtime", "batch", "--session", "s", "-n", "2", "list.txt"]
    with start_command(refused, env=env, cwd=tmp_path) as program:
        assert "omit --ranks" in program.finish().expect(2).stderr
