"""One trial: its id, its state, and the moves that are allowed."""

from __future__ import annotations

import contextlib
import math
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

from mpi_runtime.core import published
from mpi_runtime.tune.unsupported import BadSettingError, WrongKindError

Config = dict[str, Any]
"""The configuration of a trial, by name."""
Report = dict[str, Any]
"""The values of a report, by name."""
Values = Mapping[str, Any]
"""Either of them, to be read."""
Point = Any
"""From where a trial continues: a `Saved`, or in virtual time what its steps yield. A study never looks into it."""

DEFAULT_METRIC = "_metric"
"""The name of the value that a function returns or yields as a bare number."""

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
DECIMAL_BITS = 10_000
"""Python refuses to make decimal text of much larger integers."""
COUNT_MAX = 2.0**63
"""The journal and TensorBoard have no larger counts."""


def trial_id_of(prefix: str, index: int) -> str:
    """The id of the trial with this number."""
    return f"{prefix}{index:05d}"


@published("mpi_runtime.tune")
class TuneError(Exception):
    """An experiment cannot run or has failed, or a trial with an error of which only the text is known."""


@published("mpi_runtime.tune")
class ReportError(ValueError):
    """A report that cannot be judged, for example because its metric is not a number: its trial fails."""


NOT_ANALYSED = frozenset(("config", "date", "hostname", "node_ip", "pid", "time_s", "timestamp", "trial_id"))
"""Values of a report that `Trial.metric_analysis` leaves out."""


class Progress(NamedTuple):
    """How far a trial has got."""

    iteration: int = 0
    time_total_s: float = 0.0
    timesteps: float = 0
    """The sum of `timesteps_this_iter`."""
    episodes: float = 0
    """The sum of `episodes_this_iter`."""


BEGIN = Progress()


@published("mpi_runtime.tune")
@dataclass(slots=True, eq=False)
class Trial:
    """One configuration and its progress. `moved` changes its state."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    TERMINATED = "TERMINATED"
    ERROR = "ERROR"

    trial_id: str
    index: int
    config: Config
    status: str = PENDING
    last_result: Report = field(default_factory=dict)
    reported: Report = field(default_factory=dict)
    """The same as it was reported: without the values that each report has."""
    best_result: Report = field(default_factory=dict)
    """The report with the best value of the metric; empty if there is no metric."""
    best_score: float = float("-inf")
    point: Point = None
    """From where it continues: at its last checkpoint; None: at its beginning."""
    checkpoint_at: Progress = BEGIN
    """Its progress at its checkpoint, from which it continues."""
    iteration: int = 0
    time_total_s: float = 0.0
    last_event_at: float = 0.0
    last_time: float | None = None
    """The scheduler's `time_attr` in its last report."""
    timesteps: float = 0
    episodes: float = 0
    since_restore: Progress = BEGIN
    """Its progress since it was started last."""
    failures: int = 0
    crashes: int = 0
    error: object = None
    lost_at: int = 0
    """The number of its reports when it last paused without a checkpoint, so that it started from scratch."""
    losses: int = 0
    """How often in a row it came no further than that."""
    is_halted: bool = False
    """Whether the experiment has ended it, and not its own code."""
    folder: str = ""
    """The name of that directory below the directory of the experiment; empty: the same, in a training."""
    local_path: str = ""
    """The directory of its files."""
    name: str = ""
    """The name that `trial_name_creator` has made; empty: it has none, or has not started."""
    trainable_name: str = ""
    """The name of the function or class."""
    placement_group_factory: object = None
    """The resources with which it was started last."""
    experiment_tag: str = ""
    """Its number and the values that were drawn for it, such as `3_x=0.5000`."""
    evaluated_params: Config = field(default_factory=dict)
    """The values that were drawn or suggested for it, with names such as `a/b`."""
    beside: object = None
    """What came with its last report for the callbacks of a trainer."""
    told: Any = None
    """Where all its reports can be read, once there are results."""

    def moved(self, status: str) -> None:
        """Change the state. A move that is not allowed: the study got an event that does not fit the trial's status."""
        if status not in MOVES[self.status]:
            raise RuntimeError(f"trial {self.trial_id} cannot become {status}: it is {self.status}")
        self.status = status

    def __str__(self) -> str:
        return self.name or "_".join(filter(None, (self.trainable_name, self.trial_id)))

    @property
    def num_failures(self) -> int:
        """How often it has failed since it was begun or revived, with deaths of its process."""
        return self.failures + self.crashes

    @property
    def error_file(self) -> str | None:
        """The file with the text of its errors; None: it has not failed."""
        return f"{self.local_path}/error.txt" if self.num_failures else None

    @property
    def path(self) -> str:
        """The same as `local_path`: there is one place for files."""
        return self.local_path

    @property
    def local_experiment_path(self) -> str:
        """The directory of the experiment."""
        return self.local_path.removesuffix(f"/{self.folder}")

    @property
    def metric_analysis(self) -> dict[str, dict[str, float]]:
        """For each reported number "max", "min", "avg", "last", "last-5-avg" and "last-10-avg", after the run."""
        found: dict[str, dict[str, float]] = {}
        for name, values in self._numbers().items():
            means = {"avg": values, "last-5-avg": values[-5:], "last-10-avg": values[-10:]}
            found[name] = {"max": max(values), "min": min(values), "last": values[-1]}
            found[name] |= {scope: math.fsum(some) / len(some) for scope, some in means.items()}
        return found

    @property
    def metric_n_steps(self) -> dict[str, dict[str, deque[float]]]:
        """For each reported number the last 5 and the last 10 values, by "5" and "10", after the run."""
        return {
            name: {str(count): deque(values, maxlen=count) for count in (5, 10)}
            for name, values in self._numbers().items()
        }

    def _numbers(self) -> dict[str, list[float]]:
        """All values of each reported number, without those that say where and when."""
        told = self.told.of(self.trial_id) if self.told is not None else []
        reports = [flat({name: one[name] for name in one if name not in NOT_ANALYSED}) for one in told]
        found: dict[str, list[float]] = {}
        for name in dict.fromkeys(name for one in reports for name in one):
            values = [one[name] for one in reports if is_number(one.get(name))]
            if values and not isinstance(values[-1], bool):
                found[name] = values
        return found

    def has_checkpoint(self) -> bool:
        """Whether it has reported a checkpoint."""
        return self.point is not None

    @property
    def checkpoint(self) -> Any:
        """Its last checkpoint; None: it has reported none."""
        opened = getattr(self.point, "opened", None)
        return self.point if opened is None else opened(self.local_experiment_path)

    @property
    def progress(self) -> Progress:
        """How far it has got, as `checkpoint_at` has it."""
        return Progress(self.iteration, self.time_total_s, self.timesteps, self.episodes)

    def is_finished(self) -> bool:
        """Whether it will not run again."""
        return self.status in (Trial.TERMINATED, Trial.ERROR)


MOVES: dict[str, tuple[str, ...]] = {
    Trial.PENDING: (Trial.RUNNING, Trial.TERMINATED),
    Trial.RUNNING: (Trial.PENDING, Trial.PAUSED, Trial.TERMINATED, Trial.ERROR),
    Trial.PAUSED: (Trial.PENDING, Trial.TERMINATED),
    Trial.TERMINATED: (Trial.PENDING,),
    Trial.ERROR: (Trial.PENDING,),
}
"""The allowed moves. RUNNING to PENDING: after an error, or to continue from another checkpoint. PENDING to
TERMINATED: a later run of the experiment leaves it out. ERROR or TERMINATED to
PENDING: a later run of the experiment tries once more, or continues."""


def number_of(trial_id: str) -> int:
    """The number of a trial in its experiment, from its id: 3 for `b6eb5_00003`."""
    return int(trial_id.rpartition("_")[2])


def sign_of(mode: str) -> float:
    """The factor that makes the largest value the best. `mode` must be "min" or "max"."""
    if mode not in ("min", "max"):
        raise BadSettingError(f'mode must be "min" or "max", not {mode!r}')
    return -1.0 if mode == "min" else 1.0


def check_goal(metric: str | None, mode: str | None) -> None:
    """Check a metric and a mode; each may be None."""
    if metric is not None and not isinstance(metric, str):
        raise WrongKindError(f"metric must be the name of one reported value, not {metric!r}: report a sum of several")
    if metric is not None and metric != metric.encode(errors="replace").decode():
        raise ValueError(f"metric must be text that can be written as UTF-8, which {metric!r} cannot")
    if mode is not None:
        sign_of(mode)


def flat(values: Values, prefix: str = "", around: tuple[object, ...] = ()) -> Config:
    """Nested dictionaries as one, with names like `a/b`. `around`: those that it is in; one may be in itself."""
    found: Config = {}
    for name, value in values.items():
        is_dict = issubclass(type(value), dict)  # `isinstance` may run code of its class
        if is_dict and not any(value is one for one in around):
            found.update(flat(value, f"{prefix}{name}/", (*around, value)))
        else:
            found[f"{prefix}{name}"] = value
    return found


def value_in(result: Mapping[str, object], name: str) -> object:
    """A reported value. As in Ray Tune, `a/b` is the value `b` of the dictionary `a`. KeyError: it was not reported."""
    if name in result:
        return result[name]
    value: object = result
    for part in name.split("/"):
        if not isinstance(value, Mapping) or part not in value:
            raise KeyError(name)
        value = value[part]
    return value


def score_in(result: Mapping[str, object], name: str, mode: str) -> float:
    """A reported value for comparisons: higher is better. Minus infinity: it was not reported, or is not a number."""
    value = number_in(result, name)
    return -math.inf if value is None else sign_of(mode) * value


def required(result: Mapping[str, object], name: str, what: str, where: str) -> object:
    """A reported value, or a ReportError that explains `what` it is, and `where` it was looked for."""
    try:
        return value_in(result, name)
    except KeyError:
        raise ReportError(
            f"The {what} is not in {where}, which has {sorted(map(str, result))}. Correct the name, or report it."
        ) from None


def has_value(result: Mapping[str, object], name: str) -> bool:
    """Whether a value was reported, as `value_in` finds it."""
    try:
        value_in(result, name)
    except KeyError:
        return False
    return True


def named_in(result: Report, name: str | None) -> Report:
    """The report, with a value of a nested dictionary (`a/b`) also under its full name. Text of a number is one."""
    if name is None or not has_value(result, name):
        return result
    value = value_in(result, name)
    if not is_number(value):
        with contextlib.suppress(Exception):  # code of its class
            value = as_number(value)
    return result if name in result and result[name] is value else {**result, name: value}


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number of Python. Unlike `isinstance` this runs no code of its class."""
    return issubclass(type(value), int | float)


def as_number(value: Any) -> float:
    """A reported value as a number. Raises TypeError, ValueError, OverflowError or an error of its class."""
    found = float(value)
    if isinstance(value, str) and math.isinf(found) and value.strip("+-").isdigit():
        raise OverflowError(f"{value:.20}... is too large")  # an integer that was kept as text
    return found


def number_in(report: Mapping[str, object], name: str | None) -> float | None:
    """Return the number with this name in a report; None if the report has none, or NaN."""
    value = value_in(report, name) if name is not None and has_value(report, name) else None
    return float(value) if is_number(value) and not math.isnan(value) else None


def count_in(report: Mapping[str, object], name: str) -> float | None:
    """Return the count with this name in a report; None if the report has none that can be written."""
    value = report.get(name)
    try:
        count = as_number(value)
    except Exception:  # code of its class
        return None
    if not abs(count) < COUNT_MAX:  # NaN is not
        return None
    return value if is_number(value) else count


def text(value: object) -> str:
    """A value as text in UTF-8: text as it is, the `repr` of others without addresses. Never raises."""
    try:
        if type(value) is str:
            shown = value
        elif isinstance(value, int) and value.bit_length() > DECIMAL_BITS:
            shown = hex(value)
        else:
            shown = ADDRESS.sub("", repr(value))
        return shown if shown.isascii() else shown.encode(errors="backslashreplace").decode()
    except Exception:  # code of its class
        return f"<{name_of(type(value))}>"


def name_of(kind: type) -> str:
    """The name of a class, whatever its metaclass has by that name."""
    return text(vars(type)["__name__"].__get__(kind))
