"""The overview of a batch: commands by state, running ones, load, estimated end; its graph in lines."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import msgspec

from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.history.batch_history import Began, Ended, History
from mpi_runtime.batch.history.outlook import skipped_in
from mpi_runtime.batch.history.results import shortened
from mpi_runtime.show.estimates import rest_s
from mpi_runtime.show.numbers import seconds

FAILURES_SHOWN = 5
RUNNING_SHOWN = 10
AFTER_SHOWN_MAX = 20
"""How many names of `after` the option `--check` shows for a command."""


class Overview(msgspec.Struct, kw_only=True):
    """The state of a batch."""

    total: int
    done: int
    failed: list[Ended]
    running: list[Began]
    """Submitted and not ended: first those with a host, which were seen running, the oldest first. Others may wait for
    resources."""
    waiting: int
    """Neither started nor ended nor skipped."""
    skipped: int = 0
    """Do not run, because of a failure, a cancel or a stop."""
    begin_s: float
    """When the last run began, in seconds since 1970."""
    end_s: float
    """The last end of a command in that run; now, if it still runs."""
    cpu_use: float
    gpu_use: float
    """The fractions of the CPUs and GPUs of the last run that were assigned to commands; 0 without any."""
    left_s: float | None = None
    """How long the rest will take at the same pace; None: not known."""
    is_finished: bool | None = None
    """Whether nothing is left of the batch, so that the same line begins it again; None: not known."""


def overview(history: History, now: float, is_running: bool, skipped: set[str] | None = None) -> Overview:
    """Summarise a batch; `now` in seconds since 1970. `skipped`: the commands that are; None: to be found out.

    Each command counts once: as running while a skipped one still ends, as skipped if it was submitted alone.
    """
    skipped = skipped_in(history) if skipped is None else skipped
    names = [command.name for command in history.commands()]
    known = set(names)
    ends = [ended for name, ended in history.ends.items() if name in known]
    began = [one for name, one in history.began.items() if name in known and (one.host or name not in skipped)]
    began.sort(key=lambda one: (not one.host, one.time_s))
    failed = [ended for ended in ends if not ended.result.is_success and ended.result.name not in history.began]
    done = sum(ended.result.is_success and ended.result.name not in history.began for ended in ends)
    session = history.session()
    begin_s = session[0].begin_s if session else now
    running = began if is_running else []
    skipped = skipped.difference(one.name for one in running)
    own = [ended for ended in history.all_ends if ended.result.end >= begin_s]
    end_s = now if is_running else max((ended.result.end for ended in own), default=begin_s)
    nodes = history.nodes()
    found = Overview(
        total=len(names),
        done=done,
        failed=failed,
        running=running,
        waiting=len(names) - done - len(failed) - len(skipped) - len(running),
        skipped=len(skipped),
        begin_s=begin_s,
        end_s=end_s,
        cpu_use=_use([(ended, ended.cpus) for ended in own], sum(node.cpus for node in nodes), end_s - begin_s),
        gpu_use=_use([(ended, ended.gpus) for ended in own], sum(node.gpus for node in nodes), end_s - begin_s),
        is_finished=None if history.failed_since is None else not history.is_open,
    )
    missing = found.waiting + len(found.running)
    if is_running and own and missing:
        took_s = [ended.result.end - ended.result.start for ended in own]
        ran_s = [max(0.0, now - one.time_s) for one in began if one.host]
        found.left_s = _left_s(took_s, ran_s, missing, end_s - begin_s)
    return found


def _left_s(took_s: Sequence[float], ran_s: Sequence[float], missing: int, time_s: float) -> float:
    """How long the missing commands take, each as long as the mean of those that have ended.

    Those that run count for what they have run: when the first of many at a time has ended, the others are nearly done.
    Short ones are not seen while they run, so the time that all have taken says how many run at a time.
    """
    at_a_time = min(missing, max(1, len(ran_s), round((sum(took_s) + sum(ran_s)) / max(time_s, 1e-9))))
    running_s = [*ran_s, *[0.0] * (at_a_time - len(ran_s))]
    return rest_s(statistics.fmean(took_s), running_s, missing - at_a_time) or time_s / len(took_s) * missing


def _use(had: Sequence[tuple[Ended, float]], whole: float, time_s: float) -> float:
    used = sum((ended.result.end - ended.result.start) * amount for ended, amount in had)
    return min(1.0, used / (whole * time_s)) if whole and time_s > 0 else 0.0


def in_lines(name: str, found: Overview, job: str, now: float, jobs: Sequence[tuple[str, int]] = ()) -> list[str]:
    """A batch in lines for people; `job`, in words, runs it; empty: none does. `now`: in seconds since 1970.

    `jobs` are those of an elastic batch, in words, with the number of commands that each has ended.
    """
    begin = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found.begin_s))
    state = "not running, and not finished" if found.is_finished is False else "not running"
    idle = f"{state}; last started {begin}" if found.total else "no job has started it yet"
    lines = [f"{name}: {f'run by {job} since {begin}' if job else idle}"]
    seen = sum(bool(began.host) for began in found.running)
    words = (
        (len(found.failed), "failed"), (seen, "running"), (len(found.running) - seen, "running or ready"),
        (found.waiting, "waiting" if job else "not run"), (found.skipped, "skipped"),
    )  # fmt: skip
    parts = [f"{found.done} of {found.total} done", *(f"{count} {word}" for count, word in words if count)]
    lines.append(", ".join(parts))
    used = f"CPUs used: {found.cpu_use:.0%}" + (f", GPUs used: {found.gpu_use:.0%}" if found.gpu_use else "")
    if found.left_s is not None:
        used += f"; at this pace it ends in {seconds(found.left_s)}"
    lines.append(used)
    lines += [f"  job     {one}: {count} ended" for one, count in jobs]
    lines += [
        f"  runs    {began.name} for {seconds(now - began.time_s)} on {began.host}"
        for began in found.running[: min(seen, RUNNING_SHOWN)]
    ]
    lines += [f"  failed  {ended.result.name}: {ended.result.ending()}" for ended in found.failed[-FAILURES_SHOWN:]]
    hidden = seen - RUNNING_SHOWN, len(found.failed[:-FAILURES_SHOWN])
    lines += [f"  and {hidden[0]} more run"] if hidden[0] > 0 else []
    return [*lines, *([f"  and {hidden[1]} more have failed"] if hidden[1] else [])]


def described(groups: Sequence[Group]) -> list[str]:
    """The graph in lines: each command or array with its request and the names in its `after`."""
    lines = []
    for group in groups:
        if not group.commands:
            lines.append(f"{group.name} (0)")
            continue
        first = group.commands[0]
        count = f" ({len(group.commands)})" if group.is_array else ""
        by = f" by {first.launcher}" if first.launcher else ""
        ranks = f"{first.ranks} ranks{by}, each " if first.ranks > 1 or by else ""
        asked = [" or ".join(one.in_words() for one in first.demands())]
        asked += [f"{first.time_limit:g} s"] if first.time_limit is not None else []
        asked += [f"{first.expect:g} s expected"] if first.expect is not None else []
        more = len(group.after) - AFTER_SHOWN_MAX
        names = [*group.after[:AFTER_SHOWN_MAX], *([f"{more} more"] if more > 0 else [])]
        after = f", after {', '.join(names)}" if names else ""
        lines.append(f"{group.name}{count}: {ranks}{', '.join(asked)}{after}: {shortened(first.shown())}")
    total = sum(len(group.commands) for group in groups)
    return [*lines, f"{total} command{'' if total == 1 else 's'}"]
