"""joblib's `Parallel` on tasks."""

import importlib
import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from joblib import Parallel, delayed, parallel_backend, parallel_config

import mpi_runtime
from mpi_runtime.errors import MpiRuntimeError
from mpi_runtime.util.joblib import register_mpi_runtime
from tests.e2e.shared import OwnError, fail, is_open
from tests.helpers import run_program

pytestmark = pytest.mark.usefixtures("job")

register_mpi_runtime()


def square(n: int) -> int:
    return n * n


def fail_at(n: int, bad: int) -> int:
    if n == bad:
        fail(n)
    return n


def task(_: object) -> str | None:
    return mpi_runtime.get_runtime_context().get_task_id()


def test_parallel() -> None:
    with parallel_config(backend="mpi_runtime"):
        assert Parallel()(delayed(square)(n) for n in range(200)) == [n * n for n in range(200)]
        assert Parallel()(delayed(square)(n) for n in range(0)) == []
        assert Parallel()(delayed(dict)(a=n) for n in range(2)) == [{"a": 0}, {"a": 1}]
    with parallel_backend("mpi_runtime"):
        assert Parallel()(delayed(square)(n) for n in range(20)) == [n * n for n in range(20)]
    assert Parallel(n_jobs=2, backend="mpi_runtime")(delayed(square)(n) for n in range(5)) == [0, 1, 4, 9, 16]


def test_calls_are_tasks() -> None:
    with parallel_config(backend="mpi_runtime"):
        pids = Parallel()(delayed(os.getpid)() for _ in range(50))
        assert os.getpid() not in pids
        assert None not in Parallel()(delayed(task)(n) for n in range(10))


def test_the_number_of_jobs_is_that_of_the_cpus_of_the_job() -> None:
    with parallel_config(backend="mpi_runtime"):
        assert joblib.effective_n_jobs() == 4
        assert [joblib.effective_n_jobs(n) for n in (-1, -2, -4, -9, 1, 3, 50)] == [4, 3, 1, 1, 1, 3, 50]
        with pytest.raises(ValueError, match="n_jobs"):
            Parallel(n_jobs=0)(delayed(square)(n) for n in range(2))


def test_one_job_computes_here() -> None:
    with parallel_config(backend="mpi_runtime", n_jobs=1):
        assert set(Parallel()(delayed(os.getpid)() for _ in range(5))) == {os.getpid()}


def test_a_batch_is_one_task() -> None:
    with parallel_config(backend="mpi_runtime"):
        tasks = Parallel(batch_size=5, pre_dispatch="all")(delayed(task)(n) for n in range(20))
    assert [tasks[n] == tasks[n + 1] for n in range(19)] == [n % 5 != 4 for n in range(19)]


def test_what_is_raised_is_of_the_user_s_class() -> None:
    with parallel_config(backend="mpi_runtime"):
        with pytest.raises(OwnError, match=r"^mine$") as caught:
            Parallel()(delayed(fail_at)(n, 7) for n in range(30))
        assert caught.value.code == 7
        assert isinstance(caught.value.__cause__, MpiRuntimeError)
        assert "in fail_at" in str(caught.value.__cause__)


def test_after_an_error_the_backend_goes_on() -> None:
    with parallel_config(backend="mpi_runtime"):
        for _ in range(3):
            with pytest.raises(OwnError):
                Parallel()(delayed(fail_at)(n, 7) for n in range(30))
            assert Parallel()(delayed(square)(n) for n in range(30)) == [n * n for n in range(30)]


def test_one_parallel_for_several_loops() -> None:
    with parallel_config(backend="mpi_runtime"), Parallel() as parallel:
        for count in (10, 0, 30):
            assert parallel(delayed(square)(n) for n in range(count)) == [n * n for n in range(count)]


def test_after_an_error_no_more_is_begun(tmp_path: Path) -> None:
    def note(n: int) -> None:
        fail_at(n, 0)
        (tmp_path / str(n)).touch()
        time.sleep(0.05)

    with parallel_config(backend="mpi_runtime", n_jobs=2), pytest.raises(OwnError):
        Parallel(batch_size=1, pre_dispatch="all")(delayed(note)(n) for n in range(200))
    assert len(list(tmp_path.iterdir())) < 100


def test_results_one_by_one() -> None:
    with parallel_config(backend="mpi_runtime"):
        results = Parallel(return_as="generator")(delayed(square)(n) for n in range(50))
        assert [next(results), next(results)] == [0, 1]
        assert list(results) == [n * n for n in range(2, 50)]
        unordered = Parallel(return_as="generator_unordered")(delayed(square)(n) for n in range(50))
        assert sorted(unordered) == [n * n for n in range(50)]


def test_a_time_limit(gate: Path) -> None:
    with parallel_config(backend="mpi_runtime"), pytest.raises(multiprocessing.TimeoutError):
        Parallel(timeout=0.1)(delayed(is_open)(gate) for _ in range(3))


def nested(n: int) -> list[Any]:
    return [mpi_runtime.get_runtime_context().get_task_id(), *Parallel(n_jobs=3)(delayed(task)(m) for m in range(n))]


def test_a_parallel_inside_of_a_task_runs_as_tasks_and_finds_cpus() -> None:
    with parallel_config(backend="mpi_runtime"):
        rows = Parallel(batch_size=1)(delayed(nested)(4) for _ in range(8))
    assert all(None not in row and row[0] not in row[1:] for row in rows)


def test_it_computes_where_it_is_unless_it_says_for_how_many_jobs() -> None:
    def inner() -> bool:
        return {os.getpid()} == set(Parallel()(delayed(os.getpid)() for _ in range(4)))

    with parallel_config(backend="mpi_runtime"):
        assert all(Parallel()(delayed(inner)() for _ in range(3)))


def test_options_are_those_of_the_tasks() -> None:
    with parallel_config(backend="mpi_runtime", ray_remote_args={"num_cpus": 4}):
        free = Parallel(batch_size=1)(delayed(mpi_runtime.available_resources)() for _ in range(4))
    assert all("CPU" not in found for found in free)
    with pytest.raises(ValueError, match="num_cpu"), parallel_config("mpi_runtime", ray_remote_args={"num_cpu": 1}):
        Parallel()(delayed(square)(n) for n in range(2))


def test_arrays_are_not_changed_on_their_way() -> None:
    array = np.arange(300_000.0)
    with parallel_config(backend="mpi_runtime"):
        sums = Parallel()(delayed(np.sum)(array[start : start + 1000]) for start in range(0, 300_000, 100_000))
        (same,) = Parallel()([delayed(np.copy)(array)])
    assert sums == [array[start : start + 1000].sum() for start in range(0, 300_000, 100_000)]
    assert (same == array).all()


def test_without_joblib_the_import_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joblib.parallel", None)
    monkeypatch.delitem(sys.modules, "mpi_runtime.util.joblib")
    with pytest.raises(ModuleNotFoundError, match=r"pip install joblib"):
        importlib.import_module("mpi_runtime.util.joblib")


def test_scikit_learn_computes_on_tasks() -> None:
    ensemble = pytest.importorskip("sklearn.ensemble")
    samples = np.arange(60.0).reshape(30, 2)
    labels = np.arange(30) % 2
    forest = ensemble.RandomForestClassifier(n_estimators=8, random_state=0)
    with parallel_config(backend="mpi_runtime"):
        remote = forest.fit(samples, labels).predict_proba(samples)
    assert (forest.fit(samples, labels).predict_proba(samples) == remote).all()


RANKS = """
from joblib import Parallel, delayed, parallel_config
import mpi_runtime
from mpi_runtime.util.joblib import register_mpi_runtime

mpi_runtime.init(num_cpus=4)
register_mpi_runtime()


def work(n):
    return n * n, mpi_runtime.get_runtime_context().get_rank()


with parallel_config(backend="mpi_runtime"):
    results = Parallel()(delayed(work)(n) for n in range(100))
assert [square for square, _ in results] == [n * n for n in range(100)]
assert {rank for _, rank in results} <= {1, 2}
print("done")
"""


@pytest.mark.mpi
def test_on_ranks() -> None:
    assert run_program(RANKS, ranks=3).expect(0).stdout == "done\n"
