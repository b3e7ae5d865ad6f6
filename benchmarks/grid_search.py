"""What does the joblib backend cost a scikit-learn user, and what does stopping early save?

    python -m benchmarks.grid_search          # needs scikit-learn: .venv-tune has it

The same twelve candidates of `docs/tune.md` with five folds each: by joblib's own processes, by tasks, and as trials
that report after each fold. The ways take turns. CPU seconds are of the whole program, from its start to its end.
"""

import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.launching import ROOT

WAYS = ("one process", "joblib's processes", "tasks", "trials that may stop")
ROUNDS = 3


def programs() -> dict[str, str]:
    """The examples of the guide."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "tune.md").read_text(), re.DOTALL)
    (search,) = [block for block in blocks if "GridSearchCV" in block]
    (folds,) = [block for block in blocks if "cross_val_score" in block]
    backend = 'backend="mpi_runtime", n_jobs=-1'
    search += "print(f'{search.best_score_:.4f} {search.best_params_}')\n"
    folds += "best = results.get_best_result()\nprint(f\"{best.metrics['accuracy']:.4f} {best.config}\")\n"
    alone = search.replace("register_mpi_runtime()\n", "")
    return {
        "one process": alone.replace(backend, 'backend="sequential"'),
        "joblib's processes": alone.replace(backend, 'backend="loky", n_jobs=-1'),
        "tasks": search,
        "trials that may stop": folds.replace('storage_path="results"', "storage_path='.', verbose=0"),
    }


def used() -> float:
    """CPU seconds of all processes that have ended."""
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    return now.ru_utime + now.ru_stime


def main() -> None:
    """Run all ways, and print a table."""
    wall: dict[str, list[float]] = {way: [] for way in WAYS}
    cpu: dict[str, list[float]] = {way: [] for way in WAYS}
    said: dict[str, str] = {}
    for _ in range(ROUNDS):
        for way, program in programs().items():
            with tempfile.TemporaryDirectory() as folder:
                environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPI_RUNTIME_QUIET": "1"}
                began, before = time.monotonic(), used()
                done = subprocess.run(
                    [sys.executable, "-c", program],
                    cwd=folder,
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=True,
                )
                wall[way].append(time.monotonic() - began)
                cpu[way].append(used() - before)
                said[way] = done.stdout.splitlines()[-1]
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, medians of {ROUNDS}")
    for way in WAYS:
        print(f"| {way} | {statistics.median(wall[way]):.1f} | {statistics.median(cpu[way]):.1f} | {said[way]} |")


if __name__ == "__main__":
    main()
