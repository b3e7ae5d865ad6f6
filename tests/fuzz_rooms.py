"""The public functions of tune, train, rl, mpi, batch and slurm for `tests.fuzz_api`, and right arguments."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpi_runtime import batch, mpi, rl, slurm, train, tune
from mpi_runtime.batch.file.options import OPTIONS as BATCH_OPTIONS

LEFT_OUT = {
    "tune.run": "it runs experiments of any length: `Tuner` and the settings take its arguments",
    "tune.run_experiments": "as run",
    "tune.simulate": "as run",
    "tune.Simulated": "nobody makes one: `simulate` returns it",
    "tune.Result": "as Simulated",
    "tune.ResultGrid": "as Simulated",
    "tune.Context": "as Simulated",
    "tune.TuneContext": "as Simulated",
    "tune.TuneError": "an error",
    "batch.CommandError": "an error",
    "batch.CommandResult": "as Simulated",
    "slurm.SlurmError": "an error",
    "slurm.Allocation": "as Simulated",
    "slurm.Status": "as Simulated",
    "slurm.requeue": "it has no arguments",
    **dict.fromkeys(("train.Result", "train.Context", "train.TrainContext", "rl.Evaluation"), "as Simulated"),
    **dict.fromkeys(("train.TrainingFailedError", "rl.CheckpointError", "rl.EnvError", "rl.SamplerError"), "an error"),
    **dict.fromkeys(("rl.A2C", "rl.A3C", "rl.ApeX", "rl.DQN", "rl.PPO", "rl.SAC"), "it needs torch: as `rl.ES`"),
    "mpi.comm": "it has no arguments",
    "train.TorchTrainer": "it needs torch: as `train.DataParallelTrainer`",
}
"""Public names that are not called, and why."""
ROOMS = {
    "tune": tune,
    "tune.schedulers": tune.schedulers,
    "tune.search": tune.search,
    "train": train,
    "rl": rl,
    "mpi": mpi,
    "batch": batch,
    "slurm": slurm,
}
SLURM_COMMANDS = ("sacct", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun")


def targets() -> dict[str, Callable[..., Any]]:
    """What is called, by name."""
    found: dict[str, Callable[..., Any]] = {}
    for room, module in ROOMS.items():
        for name in module.__all__:
            if f"{room}.{name}" not in LEFT_OUT and callable(value := getattr(module, name)):
                found[f"{room}.{name}"] = value
    domains = (tune.uniform(1, 2), tune.qrandint(2, 9, 2), tune.choice([1, 2]), tune.randn(0, 1))
    for domain in domains:
        for name in ("sample", "quantized", "is_valid", "loguniform", "normal"):
            if hasattr(domain, name):
                found[f"tune.{type(domain).__name__}.{name}"] = getattr(domain, name)
    found["tune.Checkpoint.from_dict"] = tune.Checkpoint.from_dict
    found["tune.Checkpoint.from_directory"] = tune.Checkpoint.from_directory
    found["tune.Tuner.fit of TuneConfig"] = lambda **options: _fit(tune.TuneConfig, options)
    found["tune.Tuner.fit of RunConfig"] = lambda **options: _fit(tune.RunConfig, options)
    found["train.DataParallelTrainer.fit"] = _train
    for name in ("environment", "env_runners", "training", "resources", "framework", "fault_tolerance", "debugging"):
        found[f"rl.PPOConfig.{name}"] = getattr(rl.PPOConfig(), name)
    found["tune.Tuner.restore"] = tune.Tuner.restore
    found["tune.Tuner.can_restore"] = tune.Tuner.can_restore
    return found


OPTIONS = {
    "batch.command": tuple(BATCH_OPTIONS),
    "batch.array": tuple(BATCH_OPTIONS),
    "tune.Tuner.fit of TuneConfig": tuple(
        name for name in tune.TuneConfig.__dataclass_fields__ if name != "num_samples"
    ),
    "tune.Tuner.fit of RunConfig": tuple(
        name for name in tune.RunConfig.__dataclass_fields__ if name not in ("name", "storage_path")
    ),
    "train.DataParallelTrainer.fit": tuple(train.ScalingConfig.__dataclass_fields__),
    "rl.ES": ("seed", "num_samplers", "gamma", "hidden", "population", "noise_size"),
    "rl.PPOConfig.training": ("lr", "gamma", "train_batch_size", "num_epochs", "hidden"),
    "slurm.submit": tuple(slurm.Request.__dataclass_fields__),
}
"""The keyword arguments of functions that take `**options`."""


def trainable(config: dict[str, Any]) -> dict[str, float]:
    return {"score": 1.0}


def _fit(kind: Any, options: dict[str, Any]) -> None:
    """Run an experiment of one trial with these settings."""
    settings = kind(**({"verbose": 0} | options if kind is tune.RunConfig else options))
    tuning = settings if kind is tune.TuneConfig else tune.TuneConfig()
    running = settings if kind is tune.RunConfig else tune.RunConfig(verbose=0)
    name = f"e{os.getpid()}-{time.monotonic_ns()}"
    running = dataclasses.replace(running, name=name, storage_path=os.getcwd())
    tune.Tuner(trainable, tune_config=tuning, run_config=running).fit()


def _train(**options: Any) -> None:
    """Train with one worker, or what these settings ask for."""
    scaling = train.ScalingConfig(**options)
    running = train.RunConfig(verbose=0, name=f"t{os.getpid()}-{time.monotonic_ns()}", storage_path=os.getcwd())
    train.DataParallelTrainer(trainable, train_loop_config={}, scaling_config=scaling, run_config=running).fit()


def right() -> dict[str, Callable[[], Any]]:
    """Right arguments, by name."""
    return {
        **dict.fromkeys(("lower", "start"), lambda: 1),
        **dict.fromkeys(("upper", "end"), lambda: 9),
        **dict.fromkeys(("q", "size"), lambda: 2),
        "metric": lambda: "score",
        "mode": lambda: "max",
        "time_attr": lambda: "training_iteration",
        "categories": lambda: [1, 2],
        "trainable": lambda: trainable,
        "run": lambda: trainable,
        "param_space": lambda: {"x": tune.uniform(0, 1)},
        "space": lambda: {"x": tune.uniform(0, 1)},
        "tune_config": tune.TuneConfig,
        "run_config": tune.RunConfig,
        "searcher": tune.search.BasicVariantGenerator,
        "search_alg": lambda: "random",
        "scheduler": lambda: "fifo",
        "resources": lambda: {"cpu": 1},
        "hyperparam_mutations": lambda: {"x": tune.uniform(0, 1)},
        "hyperparam_bounds": lambda: {"x": [0, 1]},
        "text": lambda: "true",
        "directory": lambda: "out",
        "rows": lambda: [{"i": "1"}],
        "program": lambda: ["app.py"],
        "job": lambda: 7,
        "path": lambda: "nowhere",
    }


def without_slurm(folder: Path) -> None:
    """Have commands of Slurm fail at once: a machine may have them, and no controller that answers."""
    folder.mkdir()
    for name in SLURM_COMMANDS:
        (folder / name).write_text("#!/bin/sh\necho no controller >&2\nexit 1\n")
        (folder / name).chmod(0o700)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
