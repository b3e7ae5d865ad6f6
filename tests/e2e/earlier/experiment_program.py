"""A program with an experiment: its argument is the directory of experiments. Its first run ends amid the third trial.

`experiment/` was recorded by it when files named modules inside `mpi_runtime.tune`; it must continue.
"""

import os
import signal
import sys
from pathlib import Path

import mpi_runtime as ray
from mpi_runtime import tune
from mpi_runtime.tune.schedulers import ASHAScheduler
from mpi_runtime.tune.search import ConcurrencyLimiter, TuneBOHB

FOLDER = Path(sys.argv[1])
EPOCHS = 9


def train(config, driver):
    checkpoint = tune.get_checkpoint()
    first = checkpoint.to_dict()["epoch"] if checkpoint else 0
    for epoch in range(first, EPOCHS):
        if tune.get_context().get_trial_id().endswith("_00002") and epoch == 1 and not is_resumed:
            os.kill(driver, signal.SIGKILL)  # its report before this is in the journal
        loss = abs(config["x"]) + config["layer"]["units"] / 100 + config["known"] / (epoch + 1)
        tune.report({"loss": loss}, checkpoint=tune.Checkpoint.from_dict({"epoch": epoch + 1}))


is_resumed = tune.Tuner.can_restore(FOLDER / "experiment")
ray.init(num_cpus=1, quiet=True)
trainable = tune.with_parameters(train, driver=os.getpid())  # so the file of the experiment has no bytecode
if is_resumed:
    tuner = tune.Tuner.restore(FOLDER / "experiment", trainable)
else:
    tuner = tune.Tuner(
        trainable,
        param_space={
            "x": tune.quniform(-1, 1, 0.125),
            "lr": tune.loguniform(1e-4, 1e-1),
            "layer": {"units": tune.randint(1, 100), "kind": tune.choice(["relu", "tanh"])},
            "noise": tune.randn(),
            "known": tune.sample_from(len),
        },
        tune_config=tune.TuneConfig(
            "loss",
            "min",
            search_alg=ConcurrencyLimiter(TuneBOHB(), 2),
            scheduler=ASHAScheduler(max_t=EPOCHS, reduction_factor=3, type="promotion"),
            num_samples=6,
        ),
        run_config=tune.RunConfig(
            stop=tune.CombinedStopper(
                tune.MaximumIterationStopper(EPOCHS),
                tune.TrialPlateauStopper("loss", std=1e-9),
                tune.TimeoutStopper(600),
            ),
            failure_config=tune.FailureConfig(max_failures=1),
            name="experiment",
            storage_path=FOLDER,
            verbose=0,
            checkpoint_config=tune.CheckpointConfig(num_to_keep=1, persist_s=0.0),
            callbacks=[tune.JsonLoggerCallback(), tune.CSVLoggerCallback()],
        ),
    )
results = tuner.fit()
for result in results:
    print(result.status, result.metrics["training_iteration"], round(result.metrics["loss"], 6), len(result.history))
print(results.get_best_result().trial_id.rpartition("_")[2])
ray.shutdown()
