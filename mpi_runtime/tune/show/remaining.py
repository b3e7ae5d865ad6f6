"""How long an experiment still takes: the trials that are left, the time of those that have ended, how many run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import NamedTuple

from mpi_runtime.show.estimates import rest_s
from mpi_runtime.show.numbers import seconds
from mpi_runtime.tune.study.study import Study
from mpi_runtime.tune.trial import Trial


class Remaining(NamedTuple):
    """An estimate of the time until an experiment ends."""

    seconds: float
    how: str
    """"about" or "at most"."""
    basis: str

    def __str__(self) -> str:
        return f"{self.how} {seconds(self.seconds)} left"


def remaining(
    trials: Iterable[tuple[str, float]], most: int | None, stops_early: bool, limit_s: float = math.inf
) -> Remaining | None:
    """Estimate the time until an experiment ends; None: nothing is known, as before the first end.

    `trials` has the status of each, and for how many seconds it has run; `most` is their number, None: unlimited.
    `stops_early`: the scheduler may stop trials. Those that have ended are then the short ones, so each of the rest
    counts as the longest so far. In any case the experiment ends after `limit_s`.
    """
    known = list(trials)
    took_s = [time_s for status, time_s in known if status == Trial.TERMINATED and time_s > 0]
    running_s = [time_s for status, time_s in known if status == Trial.RUNNING]
    if not running_s:
        return None
    ended = sum(status in (Trial.TERMINATED, Trial.ERROR) for status, _ in known)
    left_s = math.inf
    if most is not None and took_s:
        each_s = max(*took_s, *running_s) if stops_early else statistics.median(took_s)
        left_s = rest_s(each_s, running_s, max(0, most - ended - len(running_s))) or math.inf
    if left_s == limit_s == math.inf:
        return None
    if limit_s <= left_s:
        return Remaining(max(0.0, limit_s), "at most", "then its time ends")
    if stops_early:
        return Remaining(left_s, "at most", "if no trial takes longer than the longest so far")
    return Remaining(left_s, "about", "if the rest takes as long as the trials that have ended")


def remaining_of(study: Study, now: float) -> Remaining | None:
    """Estimate the time until a study that runs in this process ends; None: nothing is known."""
    trials = (
        (one.status, one.time_total_s + (now - one.last_event_at if one.status == Trial.RUNNING else 0.0))
        for one in study.trials.values()
    )
    return remaining(trials, study.most, not study.scheduler.is_passive, study.deadline - now)
