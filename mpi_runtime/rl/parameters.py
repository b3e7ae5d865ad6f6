"""Hyper-parameters: those of every algorithm, names of other libraries, and errors that name the nearest."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Integral
from typing import Any, TypeVar

from mpi_runtime.rl.parts.schedules import Rate


@dataclass(frozen=True)
class Common:
    """Parameters of every algorithm."""

    seed: int = 0
    """Of weights, actions and environments. The same seed is the same run, with the same samplers."""
    num_samplers: int = 0
    """The number of actors that sample, a CPU each; 0: this process samples."""
    num_envs: int = 1
    """The number of environments of each sampler."""
    gamma: float = 0.99
    """The discount, in [0, 1]."""
    learning_rate: Rate = 3e-4
    """A number, a function of the remaining part of the training, or "lin_0.001"."""
    hidden: tuple[int, ...] = (64, 64)
    """The widths of the hidden layers."""
    activation: str = "tanh"
    """"tanh" or "relu"."""
    network: Callable[..., object] | None = None
    """A function of (observations, outputs) that makes a torch module of your own."""
    device: str = "auto"
    """Of the learner: "auto", "cpu", "gpu", or its name in torch, "cuda" (NVIDIA, AMD) or "xpu" (Intel)."""
    threads: int = 1
    """Of torch in this process, on a CPU."""
    normalize_obs: bool = False
    """Whether observations are scaled to mean 0 and deviation 1, by running moments."""
    normalize_reward: bool = False
    """Whether rewards are divided by the running deviation of discounted returns."""
    reward_clip: float | None = None
    """The largest absolute reward that the algorithm sees."""
    restart_failed_envs: bool | int = False
    """Whether environments that raise are replaced, and how many in each sampler; True: 100."""
    sample_timeout_s: float | None = None
    """After how many seconds without a fragment a sampler is killed and replaced. Needs num_samplers of 1 or more."""
    sample_ahead: bool = False
    """Whether samplers make the next fragment while the learner learns, with weights that are one update old."""
    vectorize: bool = False
    """Whether to use the environment's own vector version, if gymnasium has one."""


ALIASES = {
    "lr": "learning_rate",
    "num_env_runners": "num_samplers",
    "num_rollout_workers": "num_samplers",
    "num_workers": "num_samplers",
    "num_envs_per_env_runner": "num_envs",
    "num_envs_per_worker": "num_envs",
    "n_envs": "num_envs",
    "lambda": "gae_lambda",
    "lambda_": "gae_lambda",
    "minibatch_size": "batch_size",
    "sgd_minibatch_size": "batch_size",
    "num_epochs": "n_epochs",
    "num_sgd_iter": "n_epochs",
    "clip_param": "clip_range",
    "entropy_coeff": "ent_coef",
    "vf_loss_coeff": "vf_coef",
    "grad_clip": "max_grad_norm",
    "fcnet_hiddens": "hidden",
    "net_arch": "hidden",
    "fcnet_activation": "activation",
    "dueling": "duelling",
    "double_q": "double",
    "n_step": "n",
}
"""Names of RLlib and Stable-Baselines3, and ours."""
ASYNCHRONOUS = {"A3C": "A2C", "ApeX": "DQN"}
"""Algorithms whose samplers and learner do not wait for each other, and the ones that are most like them."""
P = TypeVar("P", bound=Common)
T = TypeVar("T")
Given = dict[str, Any]
"""Hyper-parameters, by name."""


def given_as(parameters: Mapping[str, T], name: str, default: T) -> T:
    """Return the value of a hyper-parameter that was given under any of its names."""
    return next((value for key, value in parameters.items() if ALIASES.get(key, key) == name), default)


def checked(cls: type[P], given: Mapping[str, object], name: str) -> P:
    """Return the parameters of an algorithm, with the nearest name in the error for one that does not exist."""
    known = {one.name for one in dataclasses.fields(cls)}
    values: Given = {}
    for key, value in given.items():
        own = key if key in known else ALIASES.get(key, key)
        if own not in known:
            near = get_close_matches(key, [*known, *(a for a, b in ALIASES.items() if b in known)], n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(known))}"
            raise TypeError(f"{name} has no hyper-parameter {key!r}; {hint}")
        if own in values:
            raise TypeError(f"{name}: {key!r} is another name of {own!r}, which is given too")
        values[own] = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value  # of numpy
    if "hidden" in values:
        values["hidden"] = _widths(values["hidden"], name)
    found = cls(**values)
    _check(found, name)
    return found


def _widths(value: Any, name: str) -> tuple[int, ...]:
    try:
        widths = tuple(operator.index(width) for width in value)  # not int(), which takes "64" for (6, 4)
    except TypeError:
        widths = (0,)
    if min(widths, default=1) < 1:
        raise ValueError(f"{name}: hidden must be the widths of layers, such as (64, 64), not {value!r}")
    return widths


def _check(found: Common, name: str) -> None:
    least = {"num_samplers": 0, "num_envs": 1, "n_steps": 1, "batch_size": 1, "n_epochs": 1, "n": 1, "threads": 1}
    least |= {"buffer_size": 1, "train_freq": 1, "population": 2, "steps_per_iteration": 1, "seed": 0}
    least |= {"learning_starts": 0, "gradient_steps": -1, "target_update": 0}
    for key, low in least.items():
        value = getattr(found, key, low)
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise ValueError(f"{name}: {key} must be a whole number, {low} or more, not {value!r}")
    if found.seed >= 2**63:
        raise ValueError(f"{name}: seed must be below 2**63, not {found.seed}")
    for key in ("gamma", "gae_lambda", "tau", "exploration_final", "exploration_fraction", "alpha", "beta"):
        value = getattr(found, key, 0.5)
        if not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise ValueError(f"{name}: {key} must be between 0 and 1, not {value!r}")
    for key in ("reward_clip", "sample_timeout_s"):
        value = getattr(found, key)
        if value is not None and not (isinstance(value, (int, float)) and value > 0):
            raise ValueError(f"{name}: {key} must be a number above 0, or None, not {value!r}")
    if found.activation not in ("tanh", "relu"):
        raise ValueError(f"{name}: activation must be 'tanh' or 'relu', not {found.activation!r}")
    if name in ASYNCHRONOUS and not found.num_samplers:
        other = ASYNCHRONOUS[name]
        raise ValueError(f"{name} is asynchronous and needs num_samplers=1 or more; {other} samples in one process")
    if found.sample_ahead and (not found.num_samplers or name in ("A3C", "ApeX", "ES")):
        raise ValueError(f"{name}: sample_ahead is for PPO, A2C, DQN and SAC, and needs num_samplers=1 or more")
    if found.sample_timeout_s is not None and not found.num_samplers:
        raise ValueError(f"{name}: sample_timeout_s needs num_samplers=1 or more: only an actor can be killed")
