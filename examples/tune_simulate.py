"""Which scheduler is worth its while? 300 trainings of 81 epochs on 16 GPUs, in virtual time.

python examples/tune_simulate.py
"""

import math
from collections.abc import Iterator
from typing import Any

from mpi_runtime import tune
from mpi_runtime.tune.schedulers import ASHAScheduler, HyperBandScheduler, MedianStoppingRule, TrialScheduler

EPOCHS = 81
SCHEDULERS: dict[str, TrialScheduler | None] = {
    "every trial to its end": None,
    "median stopping": MedianStoppingRule("training_iteration", grace_period=5),
    "ASHA, stopping": ASHAScheduler(max_t=EPOCHS, reduction_factor=3),
    "ASHA, promotion": ASHAScheduler(max_t=EPOCHS, reduction_factor=3, type="promotion"),
    "HyperBand": HyperBandScheduler(max_t=EPOCHS),
}


def train(config: dict[str, Any], checkpoint: int | None) -> Iterator[tuple[float, dict[str, Any], int]]:
    """A learning curve: a good learning rate ends low, a large batch makes epochs short and the end a little worse."""
    end = abs(math.log10(config["lr"]) + 2.5) / 4 + config["batch"] / 4096
    for epoch in range(checkpoint or 0, EPOCHS):
        yield 600 / math.sqrt(config["batch"]), {"loss": end + math.exp(-epoch / 12)}, epoch + 1


def main() -> None:
    space = {"lr": tune.loguniform(1e-5, 1.0), "batch": tune.choice([32, 64, 128, 256])}
    for name, scheduler in SCHEDULERS.items():
        config = tune.TuneConfig("loss", "min", scheduler=scheduler, num_samples=300, seed=4)
        done = tune.simulate(train, param_space=space, tune_config=config, slots=16)
        best = min(trial.best_result["loss"] for trial in done.trials)
        print(f"{name:24} {done.reports:6} epochs {done.seconds / 3600:6.2f} h  best loss {best:.4f}")


if __name__ == "__main__":
    main()
