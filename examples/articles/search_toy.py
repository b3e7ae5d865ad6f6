"""The toy of `run_experiments`: six trials report until their accuracy is 100.

    python search_toy.py          # ends at timestep 3000 at the latest
    python search_toy.py 100      # at timestep 100

An accuracy of 100 needs `100 ** (1 / alpha)` timesteps: 2,155 with alpha 0.6, 100,000 with 0.4, and 10 ** 10 with 0.2.
With the stop of the article alone, which is the accuracy, the program needs years. So this one has a second stop.
"""

import sys
import tempfile
import time
from typing import Any

import mpi_runtime
from mpi_runtime.tune import grid_search, register_trainable, run_experiments

LAST = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
PAUSE_S = 0.01


def my_func(config: dict[str, Any], reporter: Any) -> None:
    i = 0
    while True:
        reporter(timesteps_total=i, mean_accuracy=i ** config["alpha"])
        i += config["beta"]
        time.sleep(PAUSE_S)


def main() -> None:
    mpi_runtime.init(num_cpus=6)
    register_trainable("my_func", my_func)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        experiment = {
            "run": "my_func",
            "resources": {"cpu": 1, "gpu": 0},
            "stop": {"mean_accuracy": 100, "timesteps_total": LAST},
            "config": {"alpha": grid_search([0.2, 0.4, 0.6]), "beta": grid_search([1, 2])},
            "storage_path": folder,
        }
        trials = run_experiments({"my_experiment": experiment}, verbose=0)
    seconds = time.perf_counter() - started
    for trial in trials:
        result, config = trial.last_result, trial.config
        print(
            f"alpha {config['alpha']}, beta {config['beta']}: {result['training_iteration']:5} reports, "
            f"accuracy {result['mean_accuracy']:.2f} at timestep {result['timesteps_total']}"
        )
    longest = max(trial.last_result["training_iteration"] for trial in trials)
    print(f"6 trials at once took {seconds:.1f} s; the pauses of the longest are {longest * PAUSE_S:.1f} s")


if __name__ == "__main__":
    main()
