"""Writes an experiment and a training with one of each thing of `tune` and `train`.

Prints the modules that their files name. Its argument is the directory of experiments.
"""

import inspect
import pickletools
import sys
from pathlib import Path

import cloudpickle

import mpi_runtime as ray
from mpi_runtime import train, tune
from mpi_runtime.tune import schedulers, search

FOLDER = Path(sys.argv[1])


class Model(tune.Trainable):
    def step(self):
        return {"loss": 0.0, "done": True}


def loop(config):
    train.report({"loss": 0.0}, checkpoint=train.Checkpoint.from_dict({"config": config}))


def offered_by(*faces):
    """All classes and functions that these modules offer."""
    values = [getattr(face, name) for face in faces for name in face.__all__]
    return [value for value in values if not inspect.ismodule(value)]


def settings(name):
    return tune.RunConfig(
        stop=tune.CombinedStopper(tune.MaximumIterationStopper(3), tune.TimeoutStopper(600)),
        failure_config=tune.FailureConfig(max_failures=1),
        name=name,
        storage_path=FOLDER,
        checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
        callbacks=[tune.JsonLoggerCallback(), tune.CSVLoggerCallback(), tune.Callback()],
        verbose=0,
    )


GOAL = {"metric": "loss", "mode": "min"}
DOMAINS = [
    *(tune.uniform(0, 1), tune.quniform(0, 1, 0.5), tune.loguniform(1, 2), tune.qloguniform(1, 2, 1)),
    *(tune.randint(0, 3), tune.qrandint(0, 4, 2), tune.lograndint(1, 3), tune.qlograndint(2, 4, 2)),
    *(tune.randn(), tune.qrandn(0, 1, 0.5), tune.choice([1, 2]), tune.sample_from(len)),
]
STOPPERS = [
    tune.TrialPlateauStopper("loss"),
    tune.ExperimentPlateauStopper("loss"),
    tune.FunctionStopper(max),
    tune.NoopStopper(),
]
SCHEDULERS = [
    schedulers.FIFOScheduler(),
    schedulers.HyperBandScheduler(**GOAL),
    schedulers.HyperBandForBOHB(**GOAL),
    schedulers.MedianStoppingRule(**GOAL),
    schedulers.PopulationBasedTraining(**GOAL, hyperparam_mutations={"a": [1, 2], "b": tune.uniform(0, 1)}),
    schedulers.PB2(**GOAL, hyperparam_bounds={"a": [0, 1]}),
    schedulers.PopulationBasedTrainingReplay([(0, {"a": 1})]),
]
SEARCHERS = [search.BasicVariantGenerator(), search.Repeater(search.TuneBOHB(**GOAL), 2)]
REST = [tune.PlacementGroupFactory([{"CPU": 1}]), tune.Checkpoint("/"), tune.TuneError("late"), train.ScalingConfig(2)]

ray.init(num_cpus=2, quiet=True)
tune.Tuner(
    Model,
    param_space={"domains": DOMAINS, "things": [*STOPPERS, *SCHEDULERS, *SEARCHERS, *REST]},
    tune_config=tune.TuneConfig(
        scheduler=schedulers.ASHAScheduler(**GOAL),
        search_alg=search.ConcurrencyLimiter(search.TuneBOHB({"choice": tune.choice([1, 2])}, **GOAL), 2),
    ),
    run_config=settings("experiment"),
).fit()
OFFERED = offered_by(tune, schedulers, search, train, train.torch)
train.DataParallelTrainer(loop, train_loop_config={"offered": OFFERED}, run_config=settings("training")).fit()
ray.shutdown()


def texts_in(data):
    return {argument for _, argument, _ in pickletools.genops(data) if isinstance(argument, str)}


for path in sorted(FOLDER.glob("*/tuner.pickle")):
    print(path.parent.name, *sorted(one for one in texts_in(path.read_bytes()) if one.startswith("mpi_runtime")))
print(
    "by value",
    *[one for one in OFFERED if texts_in(cloudpickle.dumps(one)) & {"_make_skeleton_class", "_make_function"}],
)
