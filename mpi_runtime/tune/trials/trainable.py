"""Trainables: the functions and classes that trials run, with their parameters and resources."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import mpi_runtime
import mpi_runtime.tune.trials.reporting as reporting
from mpi_runtime.core import published
from mpi_runtime.tune.counting import completed
from mpi_runtime.tune.trial import Config, Report, Trial, TuneError
from mpi_runtime.tune.trials.bundles import PlacementGroupFactory, Resources, as_bundles
from mpi_runtime.tune.trials.checkpoint import Checkpoint, Content
from mpi_runtime.tune.unsupported import advised

if TYPE_CHECKING:
    from mpi_runtime.tune.trials.reporting import References


@published("mpi_runtime.tune")
class Trainable:
    """A trial as a class: `setup` once, then `step` again and again. Each result of `step` is a report."""

    def __init__(self, config: Config | None = None, **parameters: Any) -> None:
        """Call `setup`. `parameters` are those of `with_parameters`."""
        self.config = config or {}
        self.iteration = 0
        """The number of steps so far."""
        self.setup(copy.deepcopy(self.config), **parameters)

    @property
    def training_iteration(self) -> int:
        """The number of steps so far."""
        return self.iteration

    @property
    def trial_id(self) -> str:
        """The number of the trial as text; "default" by hand."""
        return reporting.get_context().get_trial_id() if reporting.trial_run_or_none() else "default"

    @property
    def trial_name(self) -> str:
        """The name of the trial; "default" by hand."""
        return reporting.get_context().get_trial_name() if reporting.trial_run_or_none() else "default"

    @property
    def trial_resources(self) -> PlacementGroupFactory:
        """The resources of the trial."""
        return reporting.get_context().get_trial_resources()

    @property
    def logdir(self) -> str:
        """The directory of the trial's files."""
        return reporting.get_context().get_trial_dir()

    def setup(self, config: Config, **parameters: Any) -> None:
        """Prepare the first step. Called once."""

    def step(self) -> Report:
        """Do some training, and return the values to report.

        `"done": True` ends the trial, `"should_checkpoint": True` makes a checkpoint.
        """
        raise NotImplementedError

    def save_checkpoint(self, checkpoint_dir: str) -> Content | str | None:
        """Write files into the directory, or return a dictionary instead."""
        raise NotImplementedError

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Restore the dictionary that `save_checkpoint` has returned, or the directory that it has written."""
        raise NotImplementedError

    def reset_config(self, new_config: Config) -> bool:
        """Become another trial, and return whether that was possible. Called with `reuse_actors=True`."""
        return False

    def cleanup(self) -> None:
        """Release what `setup` has acquired. Called at the end."""

    def get_config(self) -> Config:
        """The configuration of the trial."""
        return self.config

    def train(self) -> Report:
        """Make a step by hand, and return its values with those that every report has."""
        if self._by_hand is None:
            self._by_hand = Trial("", 0, self.config)
        self._by_hand.iteration, self._by_hand.last_event_at = self.iteration, time.monotonic()
        result = completed(self._by_hand, self.step(), time.monotonic())
        self.iteration += 1
        return {**result, **reporting.of_process(*reporting.process())}

    _by_hand: Trial | None = None
    """How far it has got by `train`."""

    def save(self, checkpoint_dir: str | None = None) -> Checkpoint:
        """Save the state by hand.

        Args:
            checkpoint_dir: the directory for its files; None: a new temporary one, which stays.

        Raises:
            ValueError: `save_checkpoint` has returned another path.
        """
        import tempfile  # not at the top: trials need it only here

        folder = checkpoint_dir or tempfile.mkdtemp(prefix="checkpoint-")
        os.makedirs(folder, exist_ok=True)
        saved = saved_in(folder, self)
        if saved.is_in_memory and checkpoint_dir is not None:
            saved.to_directory(folder)  # so that `restore` takes the path too
        return saved

    def restore(self, checkpoint: Checkpoint | str | os.PathLike[str]) -> None:
        """Restore a state that `save` has returned, or the directory of one."""
        given = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
        self._by_hand = None
        self.iteration = self.iteration if given._saved_at is None else given._saved_at
        try:
            values = given.to_dict()
        except ValueError:
            with given.as_directory() as folder:
                self.load_checkpoint(folder)
        else:
            self.load_checkpoint(copy.deepcopy(values))

    def reset(self, new_config: Config) -> bool:
        """Become another trial by hand, and return whether that was possible."""
        if not self.reset_config(new_config):
            return False
        self.config, self.iteration, self._by_hand = new_config, 0, None
        return True

    def stop(self) -> None:
        """End it by hand."""
        self.cleanup()

    @classmethod
    def default_resource_request(cls, config: Config) -> PlacementGroupFactory | None:
        """The resources of a trial with this configuration; None: a CPU."""
        return None


def saved_in(folder: str, trainable: Trainable) -> Checkpoint:
    """The state of a class: a dictionary, or the files that it has written into a directory."""
    made = trainable.save_checkpoint(folder)
    if isinstance(made, Mapping):  # later steps may change what it refers to
        saved = Checkpoint.from_dict(copy.deepcopy(dict(made)))
    elif made is None or os.path.abspath(made) == os.path.abspath(folder):
        saved = Checkpoint.from_directory(folder)
    else:
        raise ValueError(f"save_checkpoint({folder!r}) may return this directory or a dictionary, not {made!r}")
    saved._saved_at = trainable.iteration
    return saved


@published("mpi_runtime.tune")
class NotTrainableError(TuneError, TypeError, ValueError):
    """The trainable cannot run. Ray raises one of these classes, depending on the function."""


@published("mpi_runtime.tune")
@dataclass(frozen=True)
class Prepared:
    """A trainable with its parameters and resources, made by `with_parameters` and `with_resources`."""

    target: Callable[..., object] | None
    parameters: References = field(default_factory=dict)
    """References to values, by name."""
    resources: Resources | Callable[[Config], Resources] | None = None
    name: str = ""

    @property
    def as_class(self) -> type[Trainable] | None:
        """Its class, if it is a subclass of `Trainable`."""
        return self.target if inspect.isclass(self.target) and issubclass(self.target, Trainable) else None

    def request(self, config: Config) -> PlacementGroupFactory:
        """The resources of a trial with this configuration."""
        wanted = self.resources
        if wanted is None and self.as_class is not None:
            wanted = self.as_class.default_resource_request(config)
        if callable(wanted) and not isinstance(wanted, PlacementGroupFactory):
            wanted = wanted(config)
        return as_bundles(wanted)


_registered: dict[str, Prepared] = {}


@published("mpi_runtime.tune")
@advised
def register_trainable(name: str, trainable: object, warn: bool = True) -> None:
    """Register a function or a class under a name for `run` and `Tuner`. `warn` has no effect: it replaces silently.

    Raises:
        TypeError: it is neither, or the name is not a string.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a trainable must be a string, not {name!r}")
    _registered[name] = dataclasses.replace(prepared(trainable), name=name)


@published("mpi_runtime.tune")
def register_env(name: str, env_creator: Callable[..., object]) -> None:
    """Register an environment under a name: `mpi_runtime.rl.register_env`, where programs written for Ray have it."""
    from mpi_runtime.rl import register_env  # not at the top: few experiments have environments

    register_env(name, env_creator)


def prepared(trainable: object) -> Prepared:
    """The first argument of `Tuner` as a `Prepared`. NotTrainableError explains what a trainable is."""
    if isinstance(trainable, Prepared):
        return trainable
    own: Prepared | None = getattr(trainable, "__dict__", {}).get(PREPARED)
    if own is not None:
        return own
    if isinstance(trainable, str):
        if trainable not in _registered:
            from mpi_runtime.rl.extend import config  # not at the top: few trials are algorithms
            from mpi_runtime.rl.extend import trainable as algorithms

            if trainable in config.ALGORITHMS:
                return prepared(algorithms.trainable(trainable))
            known = sorted(_registered)
            raise NotTrainableError(
                f"no trainable is called {trainable!r}; registered are {known}: call register_trainable"
            )
        return _registered[trainable]
    if inspect.isclass(trainable):
        if not issubclass(trainable, Trainable):
            raise NotTrainableError(f"{trainable!r} is not a trainable: a class must be a subclass of tune.Trainable")
        return Prepared(trainable, name=trainable.__name__)
    if not callable(trainable):
        raise NotTrainableError(
            f"{trainable!r} is not a trainable: pass a function of a config, or a subclass of tune.Trainable"
        )
    if positional(trainable) == 0:
        raise NotTrainableError(f"{trainable!r} takes no argument: a function of a trial takes its config")
    return Prepared(trainable, name=getattr(trainable, "__name__", type(trainable).__name__))


def positional(function: Callable[..., object]) -> int:
    """The number of positional arguments without a default, at most 2; 1 if it is unknown."""
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


def wrap_function(train_func: Callable[..., object], name: str | None = None) -> type[Trainable]:
    """A class that stands for a function, as Ray makes them: for `run` and `Tuner`, not for use by hand.

    Raises:
        NotTrainableError: it is not a function of a config.
    """
    known = prepared(train_func)
    if known.as_class is not None:
        raise NotTrainableError(f"{train_func!r} is a class already: wrap_function() takes a function")

    class ImplicitFunc(Trainable):
        """Stands for a function."""

        def step(self) -> Report:
            raise RuntimeError(f"{known.name} is a function: a Tuner runs it, and it makes no steps by hand")

    setattr(ImplicitFunc, PREPARED, dataclasses.replace(known, name=name or known.name))
    return ImplicitFunc


PREPARED = "_prepared"
"""The attribute of the functions and classes that `with_parameters` and `with_resources` make."""


@published("mpi_runtime.tune")
def with_parameters(trainable: object, **parameters: object) -> Any:
    """A trainable with large values, by name. Each is stored once, not sent with each trial.

    Functions get them as further arguments, classes as arguments of `setup`. A value may be a reference to one. The
    result can be called, or made remote, like the trainable itself.
    """
    known = prepared(trainable)
    refs = {
        name: value if isinstance(value, mpi_runtime.ObjectRef) else mpi_runtime.put(value)
        for name, value in parameters.items()
    }
    return _callable(dataclasses.replace(known, parameters={**known.parameters, **refs}))


@published("mpi_runtime.tune")
def with_resources(trainable: object, resources: Resources | Callable[[Config], Resources]) -> Any:
    """A trainable with the resources of its trials. It can be called, or made remote, like the trainable itself.

    Args:
        trainable: a function or a class.
        resources: amounts by name (`{"cpu": 2, "gpu": 0.25}`), a `PlacementGroupFactory` for trials that start tasks
            or actors, or a function of the config that returns one of these.
    """
    if not callable(resources):
        as_bundles(resources)
    return _callable(dataclasses.replace(prepared(trainable), resources=resources))


def with_resources_of_run(trainable: Prepared, resources: Resources) -> Prepared:
    """As `with_resources`, but TuneError for a class that says itself what its trials need."""
    kind = trainable.as_class
    own = () if kind is None else kind.__mro__[: kind.__mro__.index(Trainable)]
    if kind is not None and any("default_resource_request" in vars(one) for one in own):
        raise TuneError(
            f"Resources of {kind.__name__} are those of its default_resource_request(): leave out resources_per_trial, "
            "or pass with_resources(), which replaces them."
        )
    return prepared(with_resources(trainable, resources))


def _callable(known: Prepared) -> Any:
    """A function or a class like its target, but with its parameters. `prepared` returns `known` for it."""
    target, parameters = known.target, known.parameters
    made: Any
    if target is None:
        raise TypeError(f"{known.name} was made by with_parameters, and its values ended with the job: pass it again")
    if known.as_class is not None:

        class WithParameters(target):  # type: ignore[misc, valid-type]
            def setup(self, config: Config, **more: object) -> None:
                super().setup(config, **_values(parameters), **more)

        made = functools.update_wrapper(WithParameters, target, updated=())
    else:

        @functools.wraps(target)
        def made(*args: object, **more: object) -> object:
            return target(*args, **_values(parameters), **more)

        with contextlib.suppress(TypeError, ValueError):  # not every callable has a signature
            own = inspect.signature(target)
            rest = [one for name, one in own.parameters.items() if name not in parameters]
            made.__signature__ = own.replace(parameters=rest)

    setattr(made, PREPARED, known)
    return made


def _values(references: References) -> dict[str, object]:
    return {name: mpi_runtime.get(ref) for name, ref in references.items()}
