"""The verb `rl`: trains an algorithm, and runs episodes of its checkpoints. The options are those of RLlib 1.x."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import mpi_runtime
from mpi_runtime.config import environment
from mpi_runtime.errors import LaunchError
from mpi_runtime.rl import results as files
from mpi_runtime.rl.algorithm import Algorithm
from mpi_runtime.rl.checkpoints import CheckpointError
from mpi_runtime.rl.config import ALGORITHMS, algorithm_named, load
from mpi_runtime.rl.envs import EnvError
from mpi_runtime.rl.evaluation import evaluate
from mpi_runtime.rl.parameters import ALIASES, Given
from mpi_runtime.rl.presets import RLLIB, preset
from mpi_runtime.rl.samplers import SamplerError
from mpi_runtime.show.ctrl_c import at_first_ctrl_c
from mpi_runtime.slurm.walltime import can_requeue

DEFAULT_FOLDER = "~/ray_results"
NEAR_END_S = 60.0
"""How long before the end of a job's time the last checkpoint is written."""


def run(words: Sequence[str]) -> int:
    """Run a verb of `mpi-runtime rl`."""
    chosen = rl_parser().parse_args(words)
    try:
        return train(chosen) if chosen.verb == "train" else rollout(chosen)
    except ImportError as error:
        raise LaunchError(f"{error}. The extra `rl` has what this verb needs: torch and gymnasium") from error
    except (CheckpointError, EnvError, SamplerError) as error:
        raise LaunchError(str(error)) from error


def rl_parser() -> argparse.ArgumentParser:
    """The arguments of `mpi-runtime rl`."""
    parser = argparse.ArgumentParser(
        prog="mpi-runtime rl", description="Train an algorithm of reinforcement learning, and run its episodes."
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    _add_train(verbs.add_parser("train", help="train an algorithm", description="Train an algorithm."))
    what = "run episodes of a checkpoint, and print their returns"
    _add_rollout(verbs.add_parser("rollout", help=what, description=f"{what.capitalize()}."))
    _add_rollout(verbs.add_parser("evaluate", help="the same as rollout", description=f"{what.capitalize()}."))
    return parser


def _add_train(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--run", "--algo", metavar="NAME", help=f"the algorithm: {', '.join(ALGORITHMS)}")
    add("--env", metavar="ENV", help="an id of gymnasium, or MODULE:NAME of a class or a function")
    add(
        "--stop",
        type=_mapping,
        default={},
        metavar="JSON",
        help="when to end, by key of the results: any of them is enough",
    )
    add("--config", type=_mapping, default={}, metavar="JSON", help="hyper-parameters, and env_config")
    add("--preset", choices=("rllib", "zoo", "none"), help="default: rllib for PPO (the articles' run), zoo for others")
    add("--seed", type=int, help="default: 0")
    add("--num-samplers", type=int, metavar="N", help="how many actors sample")
    add("--checkpoint-freq", type=int, default=0, metavar="N", help="iterations between checkpoints; 0: none")
    add("--checkpoint-at-end", action="store_true", help="write a checkpoint at the end")
    add("--restore", metavar="CHECKPOINT", help="continue a training")
    add(
        "--requeue",
        action="store_true",
        help="before the time of a job of Slurm or Grid Engine ends, write a checkpoint and requeue it: it continues",
    )
    add("--report", default="", metavar="FILE", help="write an HTML page at the end, with a video of an episode")
    add(
        "--local-dir",
        default=DEFAULT_FOLDER,
        metavar="DIR",
        help=f"where results are written; default: {DEFAULT_FOLDER}",
    )
    add("--experiment-name", default="default", metavar="NAME", help="a folder there; default: default")


def _add_rollout(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("checkpoint", help="a file that train has written, or its folder")
    add("--run", "--algo", metavar="NAME", help="the algorithm; default: that of the checkpoint")
    add("--env", metavar="ENV", help="default: that of the checkpoint")
    add("--episodes", type=int, default=10, metavar="N", help="default: 10")
    add("--steps", type=int, metavar="N", help="no further episode begins after this number of steps")
    add("--seed", type=int, default=10_000, help="of the first episode; default: 10000")
    add("--explore", action="store_true", help="draw actions; default: take the most probable ones")
    add("--render", action="store_true", help="show the episodes in a window")
    add("--video", default="", metavar="FILE", help="write them to a file: .gif, or .mp4 with imageio-ffmpeg")


def train(chosen: Any) -> int:
    """Train until a stop, and print the status after each iteration. Return the exit code."""
    if not chosen.restore and not (chosen.run and chosen.env):
        raise LaunchError("train needs --run and --env, such as --run PPO --env CartPole-v1, or --restore CHECKPOINT")
    folder, job = Path(chosen.local_dir).expanduser() / chosen.experiment_name, ""
    if chosen.requeue:
        job = _job()
        chosen.restore = files.latest_checkpoint(folder, job) or chosen.restore
    if not mpi_runtime.is_initialized():
        mpi_runtime.init()
    try:
        _check_stop(chosen.stop)
        algorithm = _algorithm(chosen)
    except (ValueError, TypeError) as error:
        raise LaunchError(str(error)) from error
    algorithm.goal = int(chosen.stop.get("timesteps_total", algorithm.goal))  # schedules end there
    results = files.Results(folder, f"{algorithm.name}_{algorithm.maker.name}", job)
    ending, saved = threading.Event(), threading.Event()

    def save_first() -> None:
        ending.set()
        saved.wait(NEAR_END_S)  # the process ends when this returns after SIGTERM

    mpi_runtime.slurm.before_walltime(NEAR_END_S, save_first)
    with algorithm, _ending_at_ctrl_c(ending) as interrupts:
        results.start(algorithm)
        print(files.status(results, algorithm, "RUNNING", None), flush=True)
        is_last = False
        while not is_last:
            result = algorithm.train()
            results.add(result)
            ended = any(result[key] >= limit for key, limit in chosen.stop.items())
            is_last = ended or ending.is_set()
            print(files.status(results, algorithm, "TERMINATED" if ended else "RUNNING", result), flush=True)
            due = chosen.checkpoint_freq and algorithm.iteration % chosen.checkpoint_freq == 0
            if due or (ended and chosen.checkpoint_at_end) or ending.is_set():
                print(f"checkpoint: {results.checkpoint(algorithm)}", flush=True)
        results.close()
        if chosen.report and ended:
            results.report(algorithm, chosen.report, "Ended")
    try:
        if interrupts and not ended:
            print("continue with --restore and this checkpoint", flush=True)
        elif not ended:
            _leave(chosen.requeue)
    finally:
        saved.set()
    return 130 if interrupts and not ended else 0


@contextmanager
def _ending_at_ctrl_c(ending: threading.Event) -> Iterator[list[int]]:
    """Have the first Ctrl-C end the training after its iteration, and the second one at once. Yields those so far."""
    interrupts = list[int]()

    def first() -> None:
        interrupts.append(signal.SIGINT)
        ending.set()
        text = b"Ctrl-C: the training ends after this iteration, with a checkpoint. Press it again to end at once"
        os.write(2, b"mpi-runtime rl: " + text + b"\n")

    with at_first_ctrl_c(first):
        yield interrupts


def _job() -> str:
    """Return the id of this batch job, which all its lives share."""
    if not can_requeue():
        raise LaunchError(
            "--requeue: this is not a job of Slurm or Grid Engine. Submit it with mpi-runtime submit, or omit it"
        )
    return mpi_runtime.slurm.allocation().job


def _leave(requeue: bool) -> None:
    """Requeue the job at the end of its time, or print how to continue."""
    if not requeue:
        print("the job's time ends: continue with --restore and the last checkpoint", flush=True)
        return
    print("the job's time ends: it is requeued, and continues from the last checkpoint", flush=True)
    try:
        mpi_runtime.slurm.requeue()
    except mpi_runtime.slurm.SlurmError as error:
        print(f"mpi-runtime rl: the job is not requeued: {error}", file=sys.stderr)


def _algorithm(chosen: Any) -> Algorithm:
    """Make the algorithm, from a preset with changes or from a checkpoint."""
    config = dict(chosen.config)
    env_config = config.pop("env_config", None)
    more = {"seed": chosen.seed, "num_samplers": chosen.num_samplers}
    config.update({key: value for key, value in more.items() if value is not None})
    if chosen.restore:
        return load(chosen.restore, _environment(chosen.env), **config)
    cls = algorithm_named(chosen.run)
    own = _preset(cls.name, chosen.env, chosen.preset)
    wanted = own.get("num_samplers", 0)
    has = int(mpi_runtime.cluster_resources().get("CPU", 1)) or 1
    if wanted > has and "num_samplers" not in config:
        own = {**own, "num_samplers": has, "n_steps": own["n_steps"] * wanted // has}  # as many steps in an iteration
    return cls(_environment(chosen.env), env_config=env_config, **_merged(own, config))


def rollout(chosen: Any) -> int:
    """Run episodes of a checkpoint, and print a line for each. Return the exit code."""
    if chosen.render and not {"DISPLAY", "WAYLAND_DISPLAY"} & environment().keys():
        raise LaunchError(
            "--render needs a display, but neither DISPLAY nor WAYLAND_DISPLAY is set: --video FILE writes the "
            "episodes to a file"
        )
    algorithm = load(chosen.checkpoint, _environment(chosen.env), num_samplers=0, sample_timeout_s=None)
    with algorithm:
        if chosen.run and chosen.run.lower() != algorithm.name.lower():
            raise LaunchError(f"{chosen.checkpoint} is a checkpoint of {algorithm.name}, not of {chosen.run}")
        found = evaluate(
            algorithm,
            episodes=chosen.episodes,
            deterministic=not chosen.explore,
            seed=chosen.seed,
            each=lambda number, total: print(f"Episode #{number}: reward: {total}", flush=True),
            video=chosen.video,
            render=chosen.render,
            steps=chosen.steps,
        )
    print(found)
    return 0


def _preset(algorithm: str, env: str, wanted: str | None) -> Given:
    wanted = wanted or ("rllib" if algorithm in RLLIB else "zoo")
    if wanted == "rllib":
        if algorithm not in RLLIB:
            raise ValueError(f"--preset rllib is for {', '.join(RLLIB)}; {algorithm} has --preset zoo or none")
        return dict(RLLIB[algorithm])
    return preset(algorithm, env) if wanted == "zoo" else {}


def _merged(own: Given, config: Given) -> Given:
    """Return the preset with changes, which may have names of other libraries."""
    changed = {ALIASES.get(key, key) for key in config}
    if "train_batch_size" in config:
        changed.add("n_steps")
    return {**{key: value for key, value in own.items() if key not in changed}, **config}


def _environment(name: str | None) -> Any:
    """Return an id of gymnasium as it is, and MODULE:NAME as what it names, if the module has it."""
    if name is None or ":" not in name:
        return name
    module, _, attribute = name.partition(":")
    sys.path.insert(0, os.getcwd())  # as with `python -m`
    try:
        found = import_module(module)
    finally:
        sys.path.remove(os.getcwd())
    return getattr(found, attribute, name)  # gymnasium has MODULE:ID too


def _check_stop(stop: Given) -> None:
    rewards = ("episode_reward_mean", "episode_reward_min", "episode_reward_max")
    known = ("training_iteration", "timesteps_total", "episodes_total", *rewards, "episode_len_mean", "time_total_s")
    for key, value in stop.items():
        if key not in known:
            raise ValueError(f"--stop has no key {key!r}; there are: {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"--stop: {key} must be a number, not {value!r}")


def _mapping(text: str) -> Given:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not JSON ({error}), such as '{{\"training_iteration\": 20}}'"
        ) from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is not a JSON object, such as '{{\"training_iteration\": 20}}'")
    return found
