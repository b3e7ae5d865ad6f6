"""Trainables: the functions and classes that trials run, with their parameters and resources."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import mpi_runtime
import mpi_runtime.tune.trials.reporting as reporting
from mpi_runtime.tune.trials.bundles import PlacementGroupFactory, Resources, as_bundles


class Trainable:
    """A trial as a class: `setup` once, then `step` again and again. Each result of `step` is a report."""

    def __init__(self, config: dict[str, Any] | None = None, **parameters: Any) -> None:
        """Set it up. `parameters` are those of `with_parameters`."""
        self.config = config or {}
        self.iteration = 0
        """How many steps it has made."""
        self.setup(copy.deepcopy(self.config), **parameters)

    @property
    def training_iteration(self) -> int:
        """How many steps it has made."""
        return self.iteration

    @property
    def trial_id(self) -> str:
        """The number of the trial as text."""
        return reporting.get_context().get_trial_id()

    @property
    def trial_name(self) -> str:
        """What the trial is called."""
        return reporting.get_context().get_trial_name()

    @property
    def trial_resources(self) -> PlacementGroupFactory:
        """What the trial was granted."""
        return reporting.get_context().get_trial_resources()

    @property
    def logdir(self) -> str:
        """The directory of the trial's files."""
        return reporting.get_context().get_trial_dir()

    def setup(self, config: dict[str, Any], **parameters: Any) -> None:
        """Make what is needed. Called once, before the first step."""

    def step(self) -> dict[str, Any]:
        """Do some training, and return what is to be reported.

        With `"done": True` in it the trial ends, with `"should_checkpoint": True` it makes a checkpoint.
        """
        raise NotImplementedError

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | str | None:
        """Write files into the directory, or return a dictionary instead."""
        raise NotImplementedError

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Go on from what `save_checkpoint` has returned, or from the directory that it has written."""
        raise NotImplementedError

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Become another trial, if that is possible: whether it was. Asked with `reuse_actors=True`."""
        return False

    def cleanup(self) -> None:
        """Give back what `setup` has taken. Called at the end."""

    def get_config(self) -> dict[str, Any]:
        """The configuration of the trial."""
        return self.config

    def train(self) -> dict[str, Any]:
        """Make a step by hand; what it returns, with the number of the step."""
        result = self.step()
        self.iteration += 1
        return {"training_iteration": self.iteration, **result}

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory | None:
        """What a trial with this configuration needs, if the class knows; None: a CPU."""
        return None


@dataclass(frozen=True)
class Prepared:
    """A trainable with what it is given and what it needs. `with_parameters` and `with_resources` make it."""

    target: Any
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """References to values, by name."""
    resources: Resources | Callable[[dict[str, Any]], Resources] | None = None
    name: str = ""

    @property
    def is_class(self) -> bool:
        """Whether it is a subclass of `Trainable`."""
        return inspect.isclass(self.target) and issubclass(self.target, Trainable)

    def request(self, config: dict[str, Any]) -> PlacementGroupFactory:
        """What a trial with this configuration needs."""
        wanted = self.resources
        if wanted is None and self.is_class:
            wanted = self.target.default_resource_request(config)
        if callable(wanted) and not isinstance(wanted, PlacementGroupFactory):
            wanted = wanted(config)
        return as_bundles(wanted)


_registered: dict[str, Any] = {}


def register_trainable(name: str, trainable: Any) -> None:
    """Let a function or a class be named by text, in `run` and `Tuner`.

    Raises:
        TypeError: it is neither.
    """
    _registered[name] = dataclasses.replace(prepared(trainable), name=name)


def register_env(name: str, env_creator: Callable[..., Any]) -> None:
    """Let an environment be named by text: kept for libraries that ask for it by `registered_env`."""
    if not callable(env_creator):
        raise TypeError(f"register_env({name!r}): {env_creator!r} cannot be called")
    _registered[f"env:{name}"] = env_creator


def registered_env(name: str) -> Callable[..., Any]:
    """What `register_env` was given.

    Raises:
        ValueError: there is no such name.
    """
    if f"env:{name}" not in _registered:
        raise ValueError(f"no environment is registered as {name!r}: call register_env first")
    found: Callable[..., Any] = _registered[f"env:{name}"]
    return found


def prepared(trainable: Any) -> Prepared:
    """What `Tuner` was given, as what a trial runs.

    Raises:
        TypeError: it is nothing that can be run.
        ValueError: no trainable has this name.
    """
    if isinstance(trainable, Prepared):
        return trainable
    if isinstance(trainable, str):
        if trainable not in _registered:
            known = sorted(name for name in _registered if not name.startswith("env:"))
            raise ValueError(f"no trainable is called {trainable!r}; registered are {known}: call register_trainable")
        found: Prepared = _registered[trainable]
        return found
    if inspect.isclass(trainable):
        if not issubclass(trainable, Trainable):
            raise TypeError(f"{trainable!r} is not a trainable: a class has to be a subclass of tune.Trainable")
        return Prepared(trainable, name=trainable.__name__)
    if not callable(trainable):
        raise TypeError(
            f"{trainable!r} is not a trainable: pass a function of a config, or a subclass of tune.Trainable"
        )
    if positional(trainable) == 0:
        raise TypeError(f"{trainable!r} takes no argument: a function of a trial takes its config")
    return Prepared(trainable, name=getattr(trainable, "__name__", type(trainable).__name__))


def positional(function: Callable[..., Any]) -> int:
    """How many arguments without a default a function takes by position; 1 where nobody knows, and at most 2."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters):
        return 1
    plain = [one for one in parameters if one.kind in kinds]
    needed = sum(one.default is inspect.Parameter.empty for one in plain)
    return min(2, max(needed, min(1, len(plain))))


def with_parameters(trainable: Any, **parameters: Any) -> Prepared:
    """A trainable that is given large values, by name. Each is stored once, and not sent with each trial.

    Functions get them as further arguments, classes as arguments of `setup`.
    """
    known = prepared(trainable)
    refs = {name: mpi_runtime.put(value) for name, value in parameters.items()}
    return dataclasses.replace(known, parameters={**known.parameters, **refs})


def with_resources(trainable: Any, resources: Resources | Callable[[dict[str, Any]], Resources]) -> Prepared:
    """A trainable whose trials need this.

    Args:
        trainable: a function or a class.
        resources: amounts by name (`{"cpu": 2, "gpu": 0.25}`), a `PlacementGroupFactory` for trials that start tasks
            or actors, or a function of the config that returns one of both.

    Raises:
        TypeError, ValueError: an amount is none.
    """
    if not callable(resources):
        as_bundles(resources)
    return dataclasses.replace(prepared(trainable), resources=resources)
