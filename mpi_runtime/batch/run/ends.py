"""How the commands of a batch end: by themselves, in another job, on request, or with the batch."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Container

import mpi_runtime
from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.history.batch_history import Ended
from mpi_runtime.batch.history.outputs import Archive
from mpi_runtime.batch.history.results import CommandResult
from mpi_runtime.batch.run.events import LOOK_S, Setting, is_doubtful
from mpi_runtime.batch.run.starts import Starts
from mpi_runtime.errors import TaskCancelledError
from mpi_runtime.extend import Outcome, ask
from mpi_runtime.scheduler.protocol.questions import RunningCalls

IDLE_S = 60.0
"""How long nothing runs in any job until a coordinator gives up, though commands wait for room."""


class Ends(Starts):
    """The commands of a batch until they have ended."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.is_interrupted = self.is_late = False
        """Whether Ctrl-C ended it, or the end of the job's time."""
        self.is_hopeless = False
        """Whether another job of the same length could start none of the remaining commands."""
        self._archive = Archive(setting.directory) if setting.is_packed else None
        self._to_remove: list[str] = []
        """Outputs in the archive that the journal has not recorded yet."""
        self._busy_s = time.monotonic()
        self._ends_s = math.inf
        """When commands that still run are ended."""
        self._cpu_time = 0.0

    def _end(self, number: int, outcome: Outcome[bytes]) -> None:
        is_in_doubt = is_doubtful(outcome)
        if is_in_doubt and self._is_held_back(number, outcome):
            return
        one = self._running.pop(number)
        name, is_current = one.name, self._given.get(one.name) == number
        del self._names[one.ref.binary()]
        error = outcome.exception()
        command = self.graph.commands[name]
        is_empty = error is None and not outcome.result()
        was_ended = self.is_late and is_in_doubt  # by a signal to all of this job
        if isinstance(error, TaskCancelledError) or is_empty or was_ended:
            self._journal.history.began.pop(name, None)
            is_unwanted = self.graph.is_stopped or self._journal.history.controls.get(name) == "cancel"
            if is_current and one.is_withdrawn and not is_unwanted:
                del self._given[name]
                self._sharing.ended(number)
                self._submit(command, one.key)
            elif is_current and is_empty and self._sharing.is_on and not is_unwanted:
                self._sharing.not_begun(number)
            elif is_current and one.is_returned and not is_unwanted:
                self._sharing.returned(number)
            else:
                self._sharing.ended(number)
                if is_current:
                    del self._given[name]
                    self.graph.cancelled(name)
            return
        result = self._result(command, one, outcome)
        self._journal.ended(command, one.key, result, number, self._packed(command, result))
        self._sharing.ended(number)
        if is_current:  # else another job has ended it too
            del self._given[name]
            self._settle(name, result)

    def _ended_elsewhere(self, ended: Ended) -> None:
        name = ended.result.name
        self._journal.history.note(ended)
        if self._given.get(name) != ended.number:
            return  # it was run twice
        del self._given[name]
        if ended.number in self._running:
            mpi_runtime.cancel(self._running[ended.number].ref)
        self._journal.settled(name, ended.key, ended.number)
        self._settle(name, ended.result)

    def _settle(self, name: str, result: CommandResult) -> None:
        """A command has ended, in this job or in another."""
        self._cpu_time += result.cpu_time
        if result.is_success:
            self._paths.measured(name, result.end - result.start)
            self.graph.end(name, True)
        else:
            self._turn()
            self._note_failure(result)
            self._end_failed(name)

    def _end_failed(self, name: str) -> None:
        """A command has failed, now or before: this may stop the batch."""
        was_stopped = self.graph.is_stopped
        self.graph.end(name, False)
        if self.graph.is_stopped and not was_stopped:
            self._say(f"stopped: {name} failed, and its on_failure is stop")
            self._stop()
        elif not was_stopped and len(self.failures) > self._setting.failures_max:
            self._say(f"stopped: {len(self.failures)} have failed, which is more than --max-failures")
            self._stop()

    def _turn(self) -> None:
        """Write the journal, then remove the outputs that it has recorded as archived."""
        if time.monotonic() > self._ends_s:
            self._ends_s = math.inf
            self._stop()
        self._journal.turn()
        if self._sharing.must_begin():
            self._say("another job has joined: the commands are shared")
            self._share()
        for ended in self._sharing.turn(time.time()):
            self._ended_elsewhere(ended)
        self._trouble.note(self._sharing.problem, time.monotonic())
        if self._sharing.is_on:
            self._return_expired()
        self._end_if_nothing_fits()
        for path in self._to_remove:
            with contextlib.suppress(OSError):
                os.unlink(path)
        self._to_remove.clear()

    def _packed(self, command: Command, result: CommandResult) -> tuple[int, int] | None:
        """Append the output of a command to the archive, unless it names a file of its own."""
        if self._archive is None or command.stdout or not result.stdout:
            return None
        place = self._archive.take(result.stdout)
        if place is not None:
            self._to_remove.append(result.stdout)
        return place

    def _end_if_nothing_fits(self) -> None:
        """End this job's part if for long no job had anything to do, though commands wait."""
        why, is_for_time = self._sharing.stuck()
        patience_s = IDLE_S if self._setting.idle_s is None else self._setting.idle_s
        if is_for_time and not self._sharing.others():
            patience_s = LOOK_S  # waiting makes it worse
        if not why or self.is_late or self.graph.is_stopped:
            self._busy_s = time.monotonic()
        elif time.monotonic() - self._busy_s > patience_s:
            self._say(f"no job can run what is left: {why}; the same line continues where there is room")
            self.is_late = True
            self.is_hopeless = not is_for_time
            self._stop()

    def _stop(self, but: Container[bytes] = ()) -> None:
        """Start no further command, and end those that run, except these."""
        self.graph.stop()
        while self._ready:
            self.graph.cancelled(self._ready.popleft().name)
        while self._held:
            self.graph.cancelled(self._held.popitem()[0])
        for one in self._running.values():
            if one.ref.binary() not in but:
                mpi_runtime.cancel(one.ref)
        elsewhere = {name: number for name, number in self._given.items() if number not in self._running}
        if elsewhere and not (self.is_late or self.is_interrupted):  # then others continue
            self._sharing.stop(tuple(elsewhere.values()))
        for name in elsewhere:
            del self._given[name]
            self.graph.cancelled(name)

    def cancel(self, names: list[str]) -> None:
        """End commands, or never start them."""
        self._journal.controlled(names, "cancel")
        self._journal.history.controls |= dict.fromkeys(names, "cancel")
        elsewhere = []
        for name in names:
            self._held.pop(name, None)
            number = self._given.get(name, 0)
            if number in self._running:
                mpi_runtime.cancel(self._running[number].ref)
                continue
            if number:
                del self._given[name]
                elsewhere.append(number)
                self._sharing.ended(number)
            self.graph.cancelled(name)
        if elsewhere:
            self._sharing.stop(tuple(elsewhere))

    def withdraw(self, names: list[str]) -> None:
        """Take back commands that have not begun, so that they are submitted as they are now, or held."""
        self._journal.controlled([name for name in names if name in self.paused], "pause")
        running = {one.id for one in ask(RunningCalls())}
        for name in names:
            number = self._given.get(name, 0)
            one = self._running.get(number)
            if one is not None and one.ref.binary() not in running:
                one.is_withdrawn = True
                mpi_runtime.cancel(one.ref)
            elif one is None and number and self._sharing.withdraw(number):
                del self._given[name]
                self._submit(self.graph.commands[name], self._journal.key_of(self.graph.commands[name])[0])

    def resume(self, names: list[str]) -> None:
        """Let paused commands start."""
        self._journal.controlled(names, "resume")
        for name in names:
            if name in self._held:
                self._submit(self.graph.commands[name], self._held.pop(name))
