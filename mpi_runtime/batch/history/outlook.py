"""What a run will do with each command, and why: before it does, so that a user can prevent it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence

import msgspec

from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.file.selection import Selection
from mpi_runtime.batch.history.batch_history import Capacity, History, Planning
from mpi_runtime.batch.history.graph import DONE, WAITING, Graph
from mpi_runtime.batch.history.keys import Keys, Known, by_words
from mpi_runtime.batch.history.results import shortened
from mpi_runtime.show.numbers import plural

LEFT_OUT, STAYS_FAILED, CANCELLED, RUNS = "left out", "stays failed", "cancelled", "runs"
NAMES_SHOWN = 3
LETTERS_SHOWN = 200
_ALL = Selection()
MOVED = (
    "{} of them are done under another name: a line or row without a name is called after its number. Add new ones at "
    "the end, or give names"
)


def plan_of(
    history: History,
    groups: Sequence[Group],
    nodes: Sequence[Capacity] = (),
    source: str = "",
    selection: Selection = _ALL,
    life: tuple[str, int] = ("", 0),
    continues: bool = False,
) -> Planning:
    """What the next run is to do. It continues a batch that was not finished, and begins any other.

    `continues`: it does what the last run was to do, in its place or in the next life of its job.
    """
    since = history.since if continues else history.number
    failed_since = history.failed_since
    if failed_since is None or not (continues or (history.is_open and not selection.is_retry)):
        failed_since = since
    return Planning(groups, nodes, True, source, selection, since, failed_since, life)


def fate_of(name: str, known: Known, history: History, selection: Selection) -> str:
    """What becomes of a command that may start: `DONE` if it is, or one of the other words here."""
    ended = known.ended if name not in selection.again or _is_of_this_run(known, history) else None
    if ended is not None and ended.result.is_success:
        return DONE
    if selection.only is not None and name not in selection.only:
        return LEFT_OUT
    if ended is not None and history.stays_failed(ended):
        return STAYS_FAILED
    return CANCELLED if history.controls.get(name) == "cancel" else RUNS


def _is_of_this_run(known: Known, history: History) -> bool:
    return known.ended is not None and known.ended.number > history.since


class Outlook(msgspec.Struct):
    """What a run will do with the commands that it has to do with."""

    done: int = 0
    """Commands that are done, and stay so."""
    changed: list[Command] = []
    """Commands that were done, and run again because they have changed since."""
    after_changed: int = 0
    """Commands that were done, and run again because something before them does."""
    named: int = 0
    """Commands that were done, and run again because the user has named them."""
    failed: int = 0
    """Commands that have failed, and run again."""
    stay_failed: int = 0
    """Commands that have failed, and do not run again before the batch is finished."""
    cancelled: int = 0
    """Commands that the user has cancelled, and that stay so."""
    skipped: int = 0
    """Commands that do not run, because of these."""
    new: int = 0
    """Commands that have never run to their end."""
    moved: list[str] = []
    """Changed commands that were done under another name: those of lines and arrays are numbers."""

    def in_words(self) -> str:
        """Its numbers in a line."""
        counts = (
            (self.done, "done"), (len(self.changed), "done and changed since"),
            (self.after_changed, "done, after others that run"), (self.named, "done, named on the command line"),
            (self.failed, "failed"), (self.stay_failed, "failed, and not run again yet"),
            (self.cancelled, "cancelled"), (self.skipped, "skipped"), (self.new, "new"),
        )  # fmt: skip
        return ", ".join(f"{count} {what}" for count, what in counts if count)


def outlook_of(groups: Sequence[Group], history: History, selection: Selection) -> Outlook:
    """Say what a run of these commands would do. It is assumed that all that run succeed."""
    history = begun(history, groups, selection)
    found = Outlook()
    keys = Keys(history.ends)
    keys.keeps_done = selection.keeps_done
    graph = Graph(keys.settle_array)
    graph.add(groups)
    known_keys = {ended.key for ended in history.ends.values() if ended.result.is_success}
    while ready := graph.take_ready():
        for command in ready:
            name, known = command.name, keys.find(command)
            fate = fate_of(name, known, history, selection)
            if fate == DONE and known.is_kept:
                _note_changed(found, command, known, known_keys)
            found.done += fate == DONE and not known.is_kept
            if fate == RUNS:
                keys.settle(name, known.key, math.inf)
                _note_run(found, command, known, history, selection, known_keys)
            else:
                ended = known.ended
                keys.settle(name, *((ended.key, ended.number) if ended is not None else (known.key, known.after)))
            found.stay_failed += fate == STAYS_FAILED
            found.cancelled += fate == CANCELLED
            if fate == CANCELLED:
                graph.cancelled(name)
            else:
                graph.end(name, fate != STAYS_FAILED)
    found.skipped = len(graph.skipped()) - found.cancelled
    return found


class Left(msgspec.Struct):
    """What is left of a batch."""

    ready: list[Command] = []
    """Commands that may start, and were not seen running."""
    running: list[Command] = []
    waiting: int = 0
    """How many others may run when something before them has ended, or a user resumes them."""


def left_of(history: History, is_gone: Callable[[str], bool] = lambda process: False) -> Left:
    """Say what is left of the last run, which is not finished.

    `is_gone`: whether a process, in words, has ended: the commands that it had begun may start again.
    """
    gone = {process for process in {*history.began_by.values()} if is_gone(process)}
    found = Left()
    keys = Keys(history.ends)
    keys.keeps_done = history.selection.keeps_done
    graph = Graph(keys.settle_array)
    graph.add(history.plan.values())
    while taken := graph.take_ready():
        for command in taken:
            name, known = command.name, keys.find(command)
            fate, began = fate_of(name, known, history, history.selection), history.began.get(name)
            if fate == CANCELLED:
                graph.cancelled(name)
            elif fate != RUNS:
                ended = known.ended
                keys.settle(name, *((ended.key, ended.number) if ended is not None else (known.key, known.after)))
                graph.end(name, fate != STAYS_FAILED)
            elif began is not None and began.host and history.began_by.get(name) not in gone:
                found.running.append(command)
            elif history.controls.get(name) == "pause":
                found.waiting += 1
            else:
                found.ready.append(command)
    found.waiting += graph.counts[WAITING]
    return found


def begun(history: History, groups: Sequence[Group], selection: Selection) -> History:
    """The history as it will be when a run of these commands has begun."""
    history = copy.copy(history)
    history.new_run()
    history.note_plan(plan_of(history, groups, selection=selection))
    return history


def _note_run(
    found: Outlook, command: Command, known: Known, history: History, selection: Selection, known_keys: set[bytes]
) -> None:
    """Count a command that will run."""
    ended = history.ends.get(command.name)
    if ended is None:
        found.new += 1
    elif not ended.result.is_success:
        found.failed += 1
    elif known.after == math.inf:
        found.after_changed += 1
    elif command.name in selection.again:
        found.named += 1
    else:
        _note_changed(found, command, known, known_keys)


def _note_changed(found: Outlook, command: Command, known: Known, known_keys: set[bytes]) -> None:
    found.changed.append(command)
    if known.key in known_keys:
        found.moved.append(command.name)


def skipped_in(history: History) -> set[str]:
    """The commands of the last run that do not run, because of a failure, a cancel or a stop."""
    ends = {name: ended for name, ended in history.ends.items() if name not in history.began}
    if history.finished is not None:
        return {command.name for command in history.commands() if command.name not in ends}
    if "cancel" not in history.controls.values() and all(ended.result.is_success for ended in ends.values()):
        return set()
    graph = Graph()
    graph.add(history.plan.values())
    while ready := graph.take_ready():
        for command in ready:
            ended = ends.get(command.name)
            if ended is not None:
                graph.end(command.name, ended.result.is_success)
            elif history.controls.get(command.name) == "cancel":
                graph.cancelled(command.name)
    return graph.skipped()


def done_in_words(number: int, by: str) -> str:
    """How many commands were done by a job or run."""
    return f"{'1 command was' if number == 1 else f'{number} commands were'} done by {by}"


def names_in_words(names: Sequence[str]) -> str:
    """The first of these names."""
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def changes_in_words(found: Outlook, history: History, keeps_done: bool) -> list[str]:
    """Lines about commands that were done and have changed since; none if there are none."""
    if not found.changed:
        return []
    first = found.changed[0]
    names = names_in_words([one.name for one in found.changed])
    does = "stay done, though they have" if keeps_done else "run again, because they have"
    after = f"; {plural(found.after_changed, 'command')} after these, too" if found.after_changed else ""
    lines = [f"of the commands that are done, {len(found.changed)} {does} changed since: {names}{after}"]
    was, now = history.ends[first.name].result.command, first.shown()
    if by_words(was) != by_words(now):
        lines += [f"    {first.name} was  {_cut(was)}", f"    {first.name} is   {_cut(now)}"]
    else:
        lines.append(f"    {first.name} has another cwd, env, shell, output, standard input or `after`")
    if found.moved:
        lines.append(f"    {MOVED.format(len(found.moved))}")
    if not keeps_done:
        lines.append("    --keep-done keeps what is done; --check shows this, and starts nothing")
    return lines


def _cut(text: str) -> str:
    text = shortened(text)
    return text if len(text) <= LETTERS_SHOWN else f"{text[:LETTERS_SHOWN]} ..."
