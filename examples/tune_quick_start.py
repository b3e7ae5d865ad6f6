"""A sweep in two minutes: 24 trainings, bad ones stopped early, shares of GPUs where there are some, and a page of it.

python examples/tune_quick_start.py
"""

import math
import tempfile
from typing import Any

import mpi_runtime
from mpi_runtime import tune
from mpi_runtime.tune.schedulers import ASHAScheduler

EPOCHS = 27


def train(config: dict[str, Any]) -> None:
    """Stands for a training: a good learning rate ends low, more units end lower and learn more slowly."""
    end = abs(math.log10(config["lr"]) + 2) / 3 + 8 / config["net"]["units"]
    for epoch in range(EPOCHS):
        tune.report({"loss": end + math.exp(-epoch * 24 / config["net"]["units"])})


def main() -> None:
    mpi_runtime.init()
    has_gpus = mpi_runtime.cluster_resources().get("GPU", 0) > 0
    tuner = tune.Tuner(
        tune.with_resources(train, {"cpu": 1, "gpu": 0.25} if has_gpus else {"cpu": 1}),  # four trials share a GPU
        param_space={"lr": tune.loguniform(1e-4, 1.0), "net": {"units": tune.choice([32, 64, 128])}},
        tune_config=tune.TuneConfig("loss", "min", num_samples=24, scheduler=ASHAScheduler(max_t=EPOCHS), seed=1),
        run_config=tune.RunConfig(name="first", storage_path=tempfile.mkdtemp(), verbose=0),
    )
    results = tuner.fit()
    best = results.get_best_result()
    reports = sum(len(result.history) for result in results)
    print(f"{len(results)} trials made {reports} of {len(results) * EPOCHS} epochs")
    units = best.config["net"]["units"]
    print(f"the best: loss {best.metrics['loss']:.3f} with lr {best.config['lr']:.4f}, {units} units")
    print(f"curves, rungs and a table to sort: {results.write_html()}")


if __name__ == "__main__":
    main()
