"""Performs the orders of a study: starts trials as tasks, receives their reports, and writes the journal.

A trial is a task that streams. Each item of its stream is a report. The trial waits until the stream is resumed (it
continues) or dropped (it ends at this report). A trial that must end elsewhere is cancelled.

The order of each step: receive an event, let the study decide, write the journal, perform the orders.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import mpi_runtime
from mpi_runtime.errors import HeadDiedError, MpiRuntimeError, ObjectLostError, TaskError
from mpi_runtime.errors.frames import in_utf8
from mpi_runtime.errors.remote import to_bytes
from mpi_runtime.files.writing import is_full
from mpi_runtime.show import log
from mpi_runtime.tune.experiment import journal
from mpi_runtime.tune.experiment.kept_checkpoints import KeptCheckpoints
from mpi_runtime.tune.experiment.policies import PolicyFiles
from mpi_runtime.tune.experiment.results import ERROR_FILE
from mpi_runtime.tune.experiment.states import States
from mpi_runtime.tune.experiment.trial_calls import Run, TrialFunctions
from mpi_runtime.tune.study import events
from mpi_runtime.tune.study.callback import Callback, notify
from mpi_runtime.tune.study.events import Continue, Event, Fail, Halt, Order, Start
from mpi_runtime.tune.study.settings import TuneConfig
from mpi_runtime.tune.study.study import Study
from mpi_runtime.tune.trial import Progress, Trial, TuneError
from mpi_runtime.tune.trials.bundles import GangRequest
from mpi_runtime.tune.trials.checkpoint import Saved, keep
from mpi_runtime.tune.trials.reporting import TrialStart, of_process
from mpi_runtime.tune.trials.runner import RunSettings
from mpi_runtime.tune.trials.trainable import Prepared
from mpi_runtime.util import placement_group, remove_placement_group
from mpi_runtime.util.streams import together

if TYPE_CHECKING:
    from mpi_runtime import ObjectRef, ObjectRefGenerator
    from mpi_runtime.tune.trials.reporting import Told


TURN_S = 0.5
"""How often the driver looks at the clock while nothing happens."""
GRACE_S = 10.0
"""How long halted trials may take to end before their processes are killed."""


@dataclass
class Plan:
    """The trainable, the settings and the files of an experiment."""

    prepared: Prepared
    tune: TuneConfig
    settings: RunSettings
    directory: Path
    kept: KeptCheckpoints
    callbacks: Sequence[Callback]
    again: str
    """How its user continues the experiment, in words."""


class Driver:
    """Drives one study to its end."""

    def __init__(self, study: Study, plan: Plan, log: journal.Journal, started: float) -> None:
        """Drive a study. `started`: its seconds in earlier runs."""
        self.study = study
        self._plan = plan
        self._log = log
        self._policies = PolicyFiles(study, plan.directory)
        self._offset = time.monotonic() - started
        self._runs: dict[str, Run] = {}
        self._ending: dict[ObjectRef[object], Run] = {}
        """Halted runs, by the reference that is ready at their end."""
        self._held: dict[str, Start] = {}
        """Starts of trials whose halted run has not ended: two functions of a trial would write to one directory."""
        self._count = 0
        self._turns = 0
        self._is_leaving = False
        self._warned: set[str] = set()
        self._has_failed = False
        """The study raised, or Ctrl-C came: send it no further events."""
        self._functions = TrialFunctions(
            plan.prepared, plan.settings, is_passive=study.is_passive, reuse=plan.tune.reuse_actors is not False
        )
        self.states: States | None = None
        """What else it writes now and then."""
        self.where: dict[str, tuple[str, int, str]] = {}
        """The host and process of trials, and the address of the host."""

    def now(self) -> float:
        """The seconds that the experiment has run, with earlier runs."""
        return time.monotonic() - self._offset

    def leave(self) -> None:
        """Start no more trials, and stop each at its next report. A later run continues."""
        self._is_leaving = True

    def run(self, first: Sequence[Event]) -> None:
        """Run until all trials have ended, or until `leave` was called. `first`: the first events."""
        try:
            self._begin(first)
            if first and not self._runs:
                text = f"The experiment in {self._plan.directory} had ended, so nothing runs: its results are returned."
                log.say(log.line(log.WARNING, log.EXPERIMENT, text), quiet=False)
            while self._runs or self._held:
                if self._is_leaving and all(run.asks for run in self._runs.values()):
                    break
                self._turn()
        except BaseException as error:
            self._has_failed = True
            if isinstance(error, OSError) and is_full(error):
                raise OSError(
                    error.errno,
                    f"{error.strerror}, so the experiment ends. Make room for {self._plan.directory}, then "
                    f"{self._plan.again}",
                ) from error
            raise
        finally:
            self._end()

    def _begin(self, first: Sequence[Event]) -> None:
        if self.study.trials:
            for event in first:
                self._happened(event)
        else:
            now = self.now()
            self._decided(events.Sized(self.study.slots), self.study.begin(now), now)

    def _turn(self) -> None:
        self._turns += 1
        for callback in self._plan.callbacks:
            callback.on_step_begin(iteration=self._turns, trials=self.study.created)
        left = self.study.deadline - self.now()
        self._wait(max(0.0, min(TURN_S, left)))
        with together():  # or each message wakes another process, which costs more than the decision
            # No local name refers to a stream: an error's traceback would keep it alive, and its trial would not end.
            for run in [*self._runs.values()]:
                # Arrived items are known by now, without another look at the connection.
                while self._is_due(run) and run.stream.next_ready(look=False):
                    self._receive(run)
                if self._is_due(run) and run.stream.is_finished():
                    self._receive(run)
        if left <= 0:
            self._happened(events.Woken())
        self._log.turn()
        if self.states is not None:
            self.states.turn()
        for callback in self._plan.callbacks:
            callback.on_step_end(iteration=self._turns, trials=self.study.created)

    def _wait(self, seconds: float) -> None:
        """Wait until a trial has reported, or a halted one has ended."""
        streams = [run.stream for run in self._runs.values() if not run.asks]
        waited: list[ObjectRef[object] | ObjectRefGenerator[Told]] = [*streams, *self._ending]
        if waited:
            mpi_runtime.wait(waited, timeout=seconds)
        if self._ending:
            for one in mpi_runtime.wait([*self._ending], num_returns=len(self._ending), timeout=0)[0]:
                self._has_stopped(one)

    def _is_due(self, run: Run) -> bool:
        return self._runs.get(run.trial_id) is run and not run.asks

    def _receive(self, run: Run) -> None:
        """Receive the next event of a trial, and let the study decide about it."""
        ref = run.stream.next_ref(None, resume=False)
        if ref is None:
            self._gone(run)
            self._happened(events.Ended(run.trial_id))
            self._saved_at_end(run.trial_id)
            return
        try:
            told = mpi_runtime.get(ref)
        except HeadDiedError:
            raise
        except TaskError as error:
            self._gone(run)
            if run.is_from_memory and isinstance(error.cause, ObjectLostError):
                self._happened(self._plan.kept.back(run.trial_id))  # a host was lost with the checkpoint: not a failure
            else:
                self._broken(events.Failed(run.trial_id, in_utf8(str(error))), error)
            return
        except MpiRuntimeError as error:
            self._gone(run)
            self._broken(events.Crashed(run.trial_id, in_utf8(f"{type(error).__name__}: {error}")), error)
            return
        run.asks = True
        if told.where is not None:
            self.where[run.trial_id] = told.where
        if told.odd:
            self._warn_once(
                "text",
                f"Trial {run.trial_id} has reported what cannot be written in {told.odd}, so it is text in results, "
                "loggers and stoppers. Report numbers, text, lists and dictionaries; the rest belongs in a checkpoint.",
            )
        self.study.trials[run.trial_id].beside = told.beside
        values = told.metrics if self.study.is_training else {**told.metrics, **of_process(*self.where[run.trial_id])}
        self._happened(events.Reported(run.trial_id, values, told.saved, told.is_judged_later))

    def judged(self, event: events.Judged) -> None:
        """A checkpoint was judged by a function of the program."""
        self._happened(event)

    def _broken(self, event: events.Failed | events.Crashed, error: MpiRuntimeError | None = None) -> None:
        """A trial has failed. `error`: None if only the words of the event are known."""
        trial = self.study.trials[event.trial_id]
        path = Path(trial.local_path)
        with (path / "error.txt").open("a", encoding="utf-8") as file:
            file.write(in_utf8(f"{type(error or TuneError()).__name__}\n{error or event.error}\n"))
        if error is None:
            (path / ERROR_FILE).unlink(missing_ok=True)
        else:
            (path / ERROR_FILE).write_bytes(to_bytes(error))
        self._happened(event)

    def _happened(self, event: Event) -> None:
        now = self.now()
        self._count += 1
        self._decided(event, self.study.handle(event, now), now)

    def _decided(self, event: Event, orders: Sequence[Order], now: float) -> None:
        """Write the event and its effects to the journal, then perform the orders."""
        study, log = self.study, self._log
        changed, study.changed = study.changed, {}
        configs, study.configs = study.configs, {}
        named = {} if study.is_training else {one: study.trials[one].folder for one in configs}
        folders = {trial_id: folder for trial_id, folder in named.items() if folder != trial_id}
        log.add(now, event, {trial_id: trial.status for trial_id, trial in changed.items()}, configs, folders)
        self._policies.follow(study.scheduler.own)
        self.remove(self._plan.kept.follow(event, study.trials, changed.values()))
        for order in orders:
            if isinstance(order, Start):
                self._start(order)
            elif isinstance(order, Continue):
                if self._is_leaving:
                    continue
                run = self._runs[order.trial_id]
                run.asks = False
                run.stream.resume()
            else:
                self._halt(order.trial_id, order.paused_at if isinstance(order, Halt) else None)
        notify(self._plan.callbacks, self._count, study, event, changed.values())
        for trial in changed.values():
            if trial.is_finished():
                self._finish(trial)
            elif trial.status == Trial.PAUSED and trial.point is None and not self._plan.settings.at_end:
                self._warn_once(
                    "pause",
                    f"{type(study.scheduler.own).__name__} pauses trial {trial.trial_id} at its report "
                    f"{trial.iteration}, but it has reported no checkpoint, so it will start from scratch. Use "
                    "report(metrics, checkpoint=...), or a scheduler that only stops, such as ASHAScheduler().",
                )
        for order in orders:
            if isinstance(order, Fail):
                self._broken(events.Failed(order.trial_id, order.why))

    def _warn_once(self, about: str, words: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            warnings.warn(words, stacklevel=2)

    def remove(self, paths: Sequence[str]) -> None:
        """Remove checkpoints when the lines so far are on disk."""
        for path in paths:
            self._log.after_sync(partial(self._remove, path))

    def _remove(self, path: str) -> None:
        if not self._plan.kept.has(path):  # a later checkpoint may have the same name
            shutil.rmtree(self._plan.directory / path, ignore_errors=True)

    def _start(self, order: Start) -> None:
        if self._is_leaving:
            return
        if any(run.trial_id == order.trial_id for run in self._ending.values()):
            self._held[order.trial_id] = order
            return
        plan, trial = self._plan, self.study.trials[order.trial_id]
        request = plan.prepared.request(order.config)
        trial.placement_group_factory = request
        group = None
        if request.is_group and not isinstance(request, GangRequest):
            group = placement_group([dict(bundle) for bundle in request.bundles], request.strategy)
        with contextlib.suppress(FileExistsError):
            os.mkdir(trial.local_path)
        if plan.tune.trial_name_creator is not None:
            trial.name = str(plan.tune.trial_name_creator(trial))
        start = TrialStart(
            trial.trial_id,
            trial.index,
            order.config,
            order.checkpoint,
            plan.kept.count(trial.trial_id),
            trial.checkpoint_at.iteration,
            str(trial),
            os.fspath(plan.directory),
            request,
            plan.prepared.parameters,
            trial.folder,
        )
        stream = self._functions.of(request, group).remote(start)
        is_from_memory = order.checkpoint is not None and not order.checkpoint.path
        self._runs[trial.trial_id] = Run(trial.trial_id, stream, group, is_from_memory=is_from_memory)

    def _halt(self, trial_id: str, paused_at: Progress | None = None) -> None:
        if self._held.pop(trial_id, None) is not None:
            return
        if trial_id not in self._runs:  # it pauses, and continues from another trial
            for ending in self._ending.values():
                if ending.trial_id == trial_id:
                    ending.paused_at = None
            return
        run = self._runs.pop(trial_id)
        run.paused_at = paused_at
        self._ending[run.stream.completed()] = run
        ends_itself = self.study.trials[trial_id].reported.get("done")  # and may save a checkpoint meanwhile
        if not ends_itself and (not run.asks or self.study.is_passive):  # it waits for no decision
            run.stream.close()
        run.drop()

    def _gone(self, run: Run) -> None:
        del self._runs[run.trial_id]
        self._ended(run)

    def _has_stopped(self, ref: ObjectRef[object]) -> None:
        """A halted trial has ended. Its error comes too late to be that of the trial, so it is logged."""
        run = self._ending.pop(ref)
        try:
            mpi_runtime.get(ref)
        except TaskError as error:
            text = f"trial {run.trial_id} raised an error after its last report: {error.cause!r}"
            log.say(log.line(log.WARNING, log.EXPERIMENT, text), quiet=False)
        except MpiRuntimeError:
            pass  # it was cancelled, or its process has died
        order = self._held.pop(run.trial_id, None)
        if not self._ended(run) and order is not None:
            self._start(order)

    def _ended(self, run: Run) -> bool:
        """Release the resources of a run that has ended, and return whether it has made a checkpoint at its end."""
        run.drop()
        if run.group is not None:
            remove_placement_group(run.group)
        return self._saved_at_end(run.trial_id, run.paused_at)

    def _saved_at_end(self, trial_id: str, paused_at: Progress | None = None) -> bool:
        """Note the checkpoint that a trial has made at its end, without a report. Returns whether there is one."""
        trial = self.study.trials[trial_id]
        is_over = trial.status == Trial.TERMINATED or (paused_at is not None and not trial.is_finished())
        if not self._plan.settings.at_end or not is_over or self._has_failed:
            return False
        saved = self._plan.kept.found(trial)
        if saved is None or saved.path == getattr(trial.point, "path", ""):
            return False
        self._happened(events.Moved(trial_id, saved, paused_at or trial.progress))
        return True

    def _finish(self, trial: Trial) -> None:
        """A trial has ended for good: write its checkpoints in memory to disk for later jobs, the last one last."""
        kept, last, at = self._plan.kept, trial.point, trial.checkpoint_at
        own = kept.of(trial.trial_id)
        in_memory = [(one.saved, one.saved.number, one.at) for one in own if not one.saved.path]
        if isinstance(last, Saved) and not last.path and all(one.saved is not last for one in own):
            in_memory.append((last, kept.count(trial.trial_id), at))  # of another trial, from which it continued
        for saved, number, done in in_memory:
            relative = os.path.join(trial.folder, f"checkpoint_{number:06d}")
            with contextlib.suppress(MpiRuntimeError):
                keep(saved.opened(""), os.fspath(self._plan.directory), relative)
                self._happened(events.Moved(trial.trial_id, Saved(number, relative), done))
        if in_memory and isinstance(last, Saved) and last.path:
            self._happened(events.Moved(trial.trial_id, last, at))

    def _end(self) -> None:
        self._held.clear()
        for run in [*self._runs.values()]:
            self._halt(run.trial_id)
        deadline = time.monotonic() + GRACE_S
        while self._ending and mpi_runtime.is_initialized():
            refs = [*self._ending]
            left = deadline - time.monotonic()
            for ref in mpi_runtime.wait(refs, num_returns=len(refs), timeout=max(0.0, left))[0]:
                self._has_stopped(ref)
            if left <= 0 and self._ending:
                for ref in self._ending:
                    mpi_runtime.cancel(ref, force=True)
                deadline = time.monotonic() + GRACE_S
