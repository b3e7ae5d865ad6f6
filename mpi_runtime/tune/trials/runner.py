"""Runs one trial in its process: the function of a task."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import numbers
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import mpi_runtime
import mpi_runtime.tune.trials.reporting as reporting
from mpi_runtime.tune.trial import DEFAULT_METRIC, Report
from mpi_runtime.tune.trials.checkpoint import Checkpoint
from mpi_runtime.tune.trials.output import copied
from mpi_runtime.tune.trials.reporting import StopTrial, TrialRun, TrialStart
from mpi_runtime.tune.trials.trainable import Prepared, Trainable, positional, saved_in
from mpi_runtime.util.streams import emits


@dataclass(frozen=True)
class RunSettings:
    """Settings of all trials of an experiment."""

    seed: int
    reuse: bool
    """Whether an object of a class serves one trial after another."""
    persist_s: float
    """How often a checkpoint in memory is written to disk."""
    frequency: int
    """The number of steps between checkpoints of a class; 0: none."""
    at_end: bool
    """Whether a class makes a checkpoint at its end."""
    in_directory: bool = False
    """Whether the working directory of a trial is that of its files."""
    output: tuple[str, str] | None = None
    """The names of files that get a copy of what it prints, and of its errors."""
    restores: int = 0
    """How often a class that cannot load its checkpoint tries again."""


_idle: dict[str, Trainable] = {}
"""By experiment: an object in this process that can serve another trial."""


def runner_of(prepared: Prepared, settings: RunSettings) -> Callable[[TrialStart], tuple[()]]:
    """The function of the task that runs a trial."""
    target = dataclasses.replace(prepared, parameters={})  # or the job would hold them for ever with the function

    @emits
    def run(*given: Any) -> None:
        run_trial(target, settings, given[-1])  # the start; on a gang a communicator is before it

    run.__name__ = run.__qualname__ = prepared.name or "trial"
    return run


def run_trial(prepared: Prepared, settings: RunSettings, start: TrialStart) -> None:
    """Run a trial until it ends, or must end."""
    seed((settings.seed * 1_000_003 + start.index) % 2**32)
    run = TrialRun(start, settings.persist_s)
    reporting.enter_trial(run)
    folder = os.getcwd()
    try:
        if settings.in_directory:
            os.makedirs(start.directory, exist_ok=True)
            os.environ["TUNE_ORIG_WORKING_DIR"] = folder  # read by programs, as in Ray
            os.chdir(start.directory)
        parameters = {name: mpi_runtime.get(ref) for name, ref in start.parameters.items()}
        with copied(settings.output, start.directory):
            if prepared.as_class is not None:
                _run_class(prepared.as_class, settings, run, parameters)
            elif prepared.target is not None:
                _run_function(prepared.target, run, parameters)
    except StopTrial:
        pass
    except SystemExit as error:
        # Its process would die, and a trial whose process has died runs again: nobody asked for that.
        failed = RuntimeError(f"the trial called sys.exit({error.code!r}): return from it, or raise an error")
        vars(failed).update(vars(error))  # the rank of a worker
        raise failed from error
    finally:
        reporting.enter_trial(None)
        with contextlib.suppress(OSError):
            os.chdir(folder)


def _run_function(function: Callable[..., object], run: TrialRun, parameters: Mapping[str, object]) -> None:
    config = run.start.config
    if positional(function) == 2 and not parameters:
        result = function(config, _reporter)  # as in old programs
    else:
        result = function(config, **parameters)
    if inspect.isgenerator(result):
        with contextlib.closing(result):
            for each in result:
                run.report(_as_report(each), None)
    elif isinstance(result, Mapping | numbers.Number) and not isinstance(result, bool):
        run.report(_as_report(result), None)


def _as_report(result: Any) -> Report:
    return {DEFAULT_METRIC: result} if isinstance(result, numbers.Number) else result


def _reporter(_metrics: Mapping[str, object] | None = None, **metrics: object) -> None:
    reporting.report({**(_metrics or {}), **metrics})


def _run_class(cls: type[Trainable], settings: RunSettings, run: TrialRun, parameters: Mapping[str, object]) -> None:
    start = run.start
    trainable = _reused(settings, start) or cls(dict(start.config), **parameters)
    is_reusable = False
    try:
        if start.checkpoint is not None:
            trainable.iteration = start.iteration
            _restore(trainable, start.checkpoint.opened(start.experiment), settings.restores)
        else:
            trainable.iteration = 0
        _steps(trainable, settings, run)
        is_reusable = True
    except StopTrial:
        is_reusable = True
    finally:
        if is_reusable and settings.at_end and run.saved_step != trainable.iteration:
            _save_at_end(trainable, run)
        if is_reusable and settings.reuse:
            _idle[start.experiment] = trainable
        else:
            trainable.cleanup()


def _restore(trainable: Trainable, checkpoint: Checkpoint, more: int) -> None:
    while True:
        try:
            trainable.restore(checkpoint)
        except Exception:  # noqa: PERF203 - code of its class
            if more <= 0:
                raise
            more -= 1
        else:
            return


def _steps(trainable: Trainable, settings: RunSettings, run: TrialRun) -> None:
    while True:
        result = trainable.step()
        trainable.iteration += 1
        is_due = settings.frequency and trainable.iteration % settings.frequency == 0
        saves = is_due or (isinstance(result, Mapping) and result.get("should_checkpoint"))
        with _saved(trainable) if saves else contextlib.nullcontext() as checkpoint:
            run.saved_step = trainable.iteration if saves else None  # before: the report may end the trial
            run.report(result, checkpoint)


@contextlib.contextmanager
def _saved(trainable: Trainable) -> Iterator[Checkpoint]:
    """The state of a class: a dictionary, or files that exist within the block."""
    import tempfile  # not at the top: functions need none

    with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
        yield saved_in(folder, trainable)


def _save_at_end(trainable: Trainable, run: TrialRun) -> None:
    """Save once more, on disk: it is not reported, so nothing would keep it in memory."""
    with _saved(trainable) as made, made.as_directory() as folder:
        run.save(Checkpoint(folder))


def _reused(settings: RunSettings, start: TrialStart) -> Trainable | None:
    trainable = _idle.pop(start.experiment, None) if settings.reuse else None
    if trainable is None:
        return None
    if not trainable.reset_config(dict(start.config)):
        trainable.cleanup()
        return None
    trainable.config = dict(start.config)
    return trainable


def seed(number: int) -> None:
    """Seed the global generators, so that earlier trials in this process have no influence."""
    random.seed(number)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(number)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(number)
