"""When work may be done: open calls divided by the rate of the last minutes, with a range; the rest of equal parts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

ENDS_MIN = 20
"""Fewer ends give no estimate."""


class Estimate(msgspec.Struct, frozen=True):
    """The estimated end of some calls, in seconds since 1970."""

    end_s: float
    low_s: float
    high_s: float
    rate: float
    """Ends a second."""
    open_calls: int

    def open_at(self, time_s: float, now_s: float) -> int:
        """How many of the calls will not have ended at a time."""
        return max(0, round(self.open_calls - self.rate * max(0.0, time_s - now_s)))


def estimate(samples: Sequence[tuple[float, float]], open_calls: int) -> Estimate | None:
    """Estimate the end of open calls from samples of (time, calls ended so far); None: there is no basis.

    The range is that of the rates of the whole time and of its last third, each with two standard deviations of a
    Poisson process.
    """
    if not open_calls or len(samples) < 2:
        return None
    (begin_s, first), (now_s, last) = samples[0], samples[-1]
    if last - first < ENDS_MIN or now_s <= begin_s:
        return None
    rates = []
    third = next(one for one in samples if one[0] >= now_s - (now_s - begin_s) / 3)
    for since_s, ended in ((begin_s, first), third):
        ends = last - ended
        if ends and now_s > since_s:
            error = 2 / math.sqrt(ends)
            rates += [ends * (1 - min(0.9, error)) / (now_s - since_s), ends * (1 + error) / (now_s - since_s)]
    rate = (last - first) / (now_s - begin_s)
    slow, fast = min(rates), max(rates)
    return Estimate(now_s + open_calls / rate, now_s + open_calls / fast, now_s + open_calls / slow, rate, open_calls)


def whole(together: Estimate, parts: Sequence[Estimate]) -> Estimate:
    """The estimate of all calls: not before the last of their functions is done."""
    return msgspec.structs.replace(
        together,
        end_s=max(one.end_s for one in (together, *parts)),
        low_s=max(one.low_s for one in (together, *parts)),
        high_s=max(one.high_s for one in (together, *parts)),
    )


def rest_s(each_s: float, running_s: Sequence[float], waiting: int) -> float:
    """How long the rest takes, if each part takes `each_s`, and as many run at a time as now.

    A part that has outlasted this by some time is given as much again: how long it takes is not known.
    `running_s`: how long each of those that run has run; at least one. `waiting` parts have not begun.
    """
    left_s = sorted(abs(each_s - ran_s) for ran_s in running_s)
    rounds, more = divmod(waiting, len(left_s))
    return rounds * each_s + (left_s[more - 1] + each_s if more else left_s[-1])
