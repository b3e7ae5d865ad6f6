"""An Optuna study over all ranks, without a database: `study.optimize` with tasks instead of threads.

    import optuna
    from mpi_runtime.util.optuna import optimize

    def objective(trial):  # as it is
        x = trial.suggest_float("x", -10, 10)
        for step in range(100):
            trial.report(x * x / (step + 1), step)
            if trial.should_prune():
                raise optuna.TrialPruned()
        return x * x

    study = optuna.create_study(pruner=optuna.pruners.MedianPruner())
    optimize(study, objective, n_trials=1000, num_gpus=0.25)

A copy of the study lives in an actor, in which samplers and pruners run; trials send it their questions. Each trial
that has ended is added to the study of the driver, with any storage: only the driver writes there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import mpi_runtime
from mpi_runtime import ActorHandle, ObjectRef

try:
    import optuna
except ImportError as error:
    raise ImportError("mpi_runtime.util.optuna needs optuna: pip install optuna") from error

__all__ = ["optimize"]


class Trial:
    """The trial of an objective: an Optuna trial with its study in another process."""

    def __init__(self, keeper: ActorHandle, number: int) -> None:
        self._keeper: Any = keeper
        self.number = number
        """As in Optuna."""
        self.params: dict[str, object] = {}
        """The suggested values."""

    def __getattr__(self, name: str) -> Any:
        known = None if name.startswith("_") else getattr(optuna.trial.Trial, name, None)
        if known is None:
            raise AttributeError(f"a trial has no {name!r} here: its study is in another process", name=name)
        if not callable(known):
            return mpi_runtime.get(self._keeper.call.remote(self.number, name, (), {}))

        def call(*args: object, **kwargs: object) -> object:
            value = mpi_runtime.get(self._keeper.call.remote(self.number, name, args, kwargs))
            if name.startswith("suggest_"):
                self.params[str(args[0] if args else kwargs["name"])] = value
            return value

        return call


class _Keeper:
    """The copy of the study."""

    def __init__(self, parts: dict[str, Any]) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(
            directions=parts["directions"], sampler=parts["sampler"], pruner=parts["pruner"]
        )
        self._study.add_trials(parts["trials"])
        self._trials: dict[int, optuna.trial.Trial] = {}

    def ask(self) -> int:
        trial = self._study.ask()
        self._trials[trial.number] = trial
        return int(trial.number)

    def call(self, number: int, name: str, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        found = getattr(self._trials[number], name)
        return found(*args, **kwargs) if callable(found) else found

    def tell(self, number: int, values: Any, state: optuna.trial.TrialState | None = None) -> optuna.trial.FrozenTrial:
        self._study.tell(self._trials.pop(number), values, state)
        return self._study.get_trials(deepcopy=False)[number]


def _run(keeper: ActorHandle, number: int, objective: Callable[[Trial], object]) -> object:
    """Run one trial, in a task, and return Optuna's record of it."""
    trial = Trial(keeper, number)
    try:
        values = objective(trial)
    except optuna.TrialPruned:
        return mpi_runtime.get(keeper.tell.remote(number, None, optuna.trial.TrialState.PRUNED))
    finally:
        trial._keeper = None  # so that an objective that keeps the trial does not keep the actor
    return mpi_runtime.get(keeper.tell.remote(number, values))


def optimize(
    study: optuna.Study,
    objective: Callable[[Any], Any],
    n_trials: int,
    *,
    timeout: float | None = None,
    n_jobs: int | None = None,
    catch: Iterable[type[Exception]] = (),
    callbacks: Iterable[Callable[[optuna.Study, Any], None]] = (),
    **options: Any,
) -> None:
    """Run trials of an Optuna objective as tasks, and add them to the study.

    Args:
        study: any study of Optuna. Its sampler, pruner and trials are copied.
        objective: the unchanged objective. `trial` has all attributes of an Optuna trial except `study`.
        n_trials: the number of trials.
        timeout: seconds after which no trial begins.
        n_jobs: the number of trials at a time; None: as many as have CPUs.
        catch: errors of an objective that do not end the search: the trial counts as failed.
        callbacks: called with the study and each trial that has ended.
        **options: of the tasks, such as `num_cpus` and `num_gpus`.

    Raises:
        TaskError: the objective has raised an error that is not in `catch`. It is also an instance of its class.
        ValueError: `n_trials` or `n_jobs` is below 1, or the study has enqueued trials that have not run.
    """
    if n_trials < 1 or (n_jobs is not None and n_jobs < 1):
        raise ValueError(f"n_trials={n_trials}, n_jobs={n_jobs}: at least 1 is needed")
    if not mpi_runtime.is_initialized():
        mpi_runtime.init()
    known = study.get_trials(deepcopy=False)
    if waiting := sum(one.state == optuna.trial.TrialState.WAITING for one in known):
        raise ValueError(
            f"The study has {waiting} enqueued trials, and trials that run elsewhere cannot take their place. Run them "
            f"first: study.optimize(objective, n_trials={waiting})."
        )
    parts = {
        "directions": list(study.directions), "sampler": study.sampler, "pruner": study.pruner,
        "trials": [one for one in known if one.state.is_finished()],
    }  # fmt: skip
    keeper = mpi_runtime.remote(num_cpus=0)(_Keeper).remote(parts)
    task = mpi_runtime.remote(_run).options(**{"max_retries": 0, **options})
    cpus = options.get("num_cpus", 1) or 1
    most = n_jobs or max(1, int(mpi_runtime.cluster_resources().get("CPU", 1) / cpus))
    end = None if timeout is None else time.monotonic() + timeout
    running: dict[ObjectRef[object], int] = {}
    begun = 0
    try:
        while running or begun < n_trials:
            while begun < n_trials and len(running) < most and (end is None or time.monotonic() < end):
                number = mpi_runtime.get(keeper.ask.remote())
                running[task.remote(keeper, number, objective)] = number
                begun += 1
            if not running:
                return
            for ref in mpi_runtime.wait(list(running), num_returns=1)[0]:
                _add(study, keeper, ref, running.pop(ref), tuple(catch), callbacks)
    finally:
        for ref in running:
            mpi_runtime.cancel(ref)
        mpi_runtime.kill(keeper)


def _add(
    study: optuna.Study,
    keeper: ActorHandle,
    ref: ObjectRef[Any],
    number: int,
    catch: tuple[type[Exception], ...],
    callbacks: Iterable[Callable[[optuna.Study, optuna.trial.FrozenTrial], None]],
) -> None:
    """Add a trial that has ended to the driver's study."""
    try:
        found = mpi_runtime.get(ref)
    except Exception as error:
        found = mpi_runtime.get(keeper.tell.remote(number, None, optuna.trial.TrialState.FAIL))
        study.add_trial(found)
        if not isinstance(error, catch):
            raise
    else:
        study.add_trial(found)
    for callback in callbacks:
        callback(study, study.get_trials(deepcopy=False)[-1])
