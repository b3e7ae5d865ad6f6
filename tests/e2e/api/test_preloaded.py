"""What executors find loaded: numpy if their functions use it, loaded once and without a thread of its own."""

import os
from pathlib import Path

import pytest

from tests.helpers import ROOT, run_program

BEGIN = """
import os, sys, time
import mpi_runtime as ray
ray.init(num_cpus=2)

def forkserver_threads():
    return len(os.listdir(f"/proc/{os.getppid()}/task"))
"""
USES = {
    "a function that imports it": """
@ray.remote
class Actor:
    def __init__(self):
        self.found = "numpy" in sys.modules
        import numpy
        self.sum = numpy.ones(10).sum()
    def ask(self):
        return self.found, self.sum, forkserver_threads(), "cupy" in sys.modules or "torch" in sys.modules
assert "numpy" not in sys.modules, "nobody has told that it is needed but the code"
""",
    "a function that imports a part of it": """
@ray.remote
class Actor:
    def __init__(self):
        self.found = "numpy" in sys.modules
        from numpy.linalg import norm
        self.sum = norm([6, 8])
    def ask(self):
        return self.found, self.sum, forkserver_threads(), "cupy" in sys.modules or "torch" in sys.modules
assert "numpy" not in sys.modules
""",
    "a driver that imports it after init()": """
import numpy
@ray.remote
class Actor:
    def __init__(self):
        self.sum = numpy.ones(10).sum()
    def ask(self):
        return True, self.sum, forkserver_threads(), "cupy" in sys.modules or "torch" in sys.modules
""",
}
ASK = """
for answer in ray.get([actor.ask.remote() for actor in [Actor.remote() for _ in range(4)]]):
    assert answer == (True, 10.0, 1, False), answer
"""


@pytest.mark.parametrize("use", USES)
def test_numpy_is_loaded_before_the_executors_that_use_it(use: str) -> None:
    run_program(BEGIN + USES[use] + ASK).expect(0)


def test_executors_draw_different_numbers() -> None:
    """Also with a numpy that loads its global generator by itself, so before the fork: that was copied."""
    source = """
import random
import numpy
@ray.remote
class Actor:
    def draw(self):
        return random.random(), float(numpy.random.random())
actors = [Actor.remote() for _ in range(4)]
drawn = ray.get([actor.draw.remote() for actor in actors])
assert len({one for pair in drawn for one in pair}) == 8, drawn
"""
    run_program(BEGIN + source).expect(0)


def test_numpys_generator_is_seeded_after_the_fork_if_it_was_loaded_before() -> None:
    source = """
import numpy.random
from mpi_runtime.core.executor import forkserver
numpy.random.seed(7)
first = numpy.random.random()
numpy.random.seed(7)
forkserver._seed_numpy()
assert numpy.random.random() != first
"""
    run_program(source).expect(0)


def test_a_program_without_numpy_has_none() -> None:
    """Also if its text mentions it."""
    source = """
@ray.remote
def without():
    "As numpy does; see numpy.ones."
    with open(f"/proc/{os.getppid()}/maps") as file:
        return "NUMPY".lower() in sys.modules, "_multiarray_" in file.read()
assert ray.get(without.remote()) == (False, False)
"""
    run_program(BEGIN + source).expect(0)


def test_what_runs_trials_is_loaded_before_the_executors_that_run_them() -> None:
    """And what searches is not: that happens in the driver."""
    source = """
from mpi_runtime import tune
tune.Tuner
@ray.remote
def loaded():
    found = [f"mpi_runtime.tune.{name}" in sys.modules for name in ("trials.runner", "experiment.tuner", "space")]
    return found, forkserver_threads()
assert ray.get(loaded.remote()) == ([True, False, False], 1)
"""
    run_program(BEGIN + source).expect(0)


def test_what_runs_commands_is_loaded_before_the_executors_that_run_them() -> None:
    """Once on each host, and not once in each executor."""
    source = """
from mpi_runtime import batch
batch.command
@ray.remote
def loaded():
    return "mpi_runtime.batch.run.attempts" in sys.modules, forkserver_threads()
assert ray.get(loaded.remote()) == (True, 1)
"""
    run_program(BEGIN + source).expect(0)


def test_what_the_user_states_of_threads_is_so_in_a_library_that_was_loaded_before() -> None:
    source = """
import numpy
@ray.remote(runtime_env={"env_vars": {"OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}})
def threads():
    import threadpoolctl
    numpy.ones((4, 4)) @ numpy.ones((4, 4))
    return {one["num_threads"] for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"}
assert ray.get(threads.remote()) == {2}
"""
    run_program(BEGIN + source).expect(0)


def test_what_cannot_be_imported_is_the_error_of_the_call_that_imports_it(tmp_path: Path) -> None:
    broken = tmp_path / "numpy"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('numpy is broken here')\n")
    source = """
@ray.remote
def uses():
    import numpy
@ray.remote
def works():
    return 7
try:
    ray.get(uses.remote())
except ImportError as error:
    assert "numpy is broken here" in str(error), error
else:
    raise AssertionError
assert ray.get(works.remote()) == 7
"""
    run_program(BEGIN + source, env={"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}).expect(0)
