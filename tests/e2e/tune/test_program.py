"""The program of the articles that this project began with, with its import changed: how often each trial reports."""

import sys
from pathlib import Path

from tests.helpers import run_program

APP = """
import time
time.sleep = lambda seconds: None
import sys
import mpi_runtime
from mpi_runtime.tune import register_trainable, grid_search, run_experiments

def my_func(config, reporter):
    import time, numpy as np
    time.sleep = lambda seconds: None
    i = 0
    while True:
        reporter(timesteps_total=i, mean_accuracy=i ** config['alpha'])
        i += config['beta']
        time.sleep(.01)

register_trainable('my_func', my_func)
mpi_runtime.init(num_cpus=2)
trials = run_experiments({
    'my_experiment': {
        'run': 'my_func',
        'resources': {'cpu': 1, 'gpu': 0},
        'stop': STOP,
        'config': {'alpha': grid_search(ALPHAS), 'beta': grid_search([1, 2])},
        'storage_path': sys.argv[1],
    }
}, verbose=0)
for trial in trials:
    print(trial.config['alpha'], trial.config['beta'], trial.last_result['training_iteration'])
"""


def counted(folder: Path, stop: str, alphas: str) -> dict[tuple[float, int], int]:
    app = APP.replace("STOP", stop).replace("ALPHAS", alphas)
    completed = run_program(app, str(folder)).expect(0)
    rows = [line.split() for line in completed.stdout.splitlines() if not line.startswith("(")]
    return {(float(alpha), int(beta)): int(reports) for alpha, beta, reports in rows}


def test_trials_stop_at_the_report_that_can_be_computed(tmp_path: Path) -> None:
    """i ** 0.6 is 100 at i = 2154.4: the 2 156th report, or with steps of two the 1 079th."""
    assert counted(tmp_path, "{'mean_accuracy': 100}", "[0.6]") == {(0.6, 1): 2156, (0.6, 2): 1079}


def test_all_six_trials_end_with_a_limit_of_steps(tmp_path: Path) -> None:
    """Without one the trials with alpha 0.2 would make 10 000 000 001 and 5 000 000 001 reports."""
    assert sys.maxsize > 10**10
    found = counted(tmp_path, "{'mean_accuracy': 100, 'timesteps_total': 300}", "[0.2, 0.4, 0.6]")
    assert found == {(alpha, beta): 300 // beta + 1 for alpha in (0.2, 0.4, 0.6) for beta in (1, 2)}
