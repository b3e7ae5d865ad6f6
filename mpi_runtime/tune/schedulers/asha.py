"""Asynchronous successive halving.

Source: Li, Jamieson, Rostamizadeh, Gonina, Ben-tzur, Hardt, Recht, Talwalkar, "A System for Massively Parallel
Hyperparameter Tuning", MLSys 2020 (arXiv:1810.05934), algorithm 2, for `type="promotion"`. The form that stops instead
of pausing is Ray Tune's; each rung's cutoff is a quantile of what other trials had there.
"""

from __future__ import annotations

import heapq
import math

from mpi_runtime.core import published
from mpi_runtime.tune import state_files
from mpi_runtime.tune.schedulers.base import CONTINUE, PAUSE, STOP, TIME_MAX, TrialScheduler, Verdicts, either, rungs
from mpi_runtime.tune.space.variants import rng_of
from mpi_runtime.tune.trial import Trial
from mpi_runtime.tune.unsupported import BadSettingError

BRACKETS = 1
"""Marks the numbers that are drawn to choose brackets."""


@published("mpi_runtime.tune.schedulers")
class _Cut:
    """Numbers in ascending order, cut in two: the first few, and the rest. Only the numbers at the cut are known.

    A sorted list would move half of itself for each new number; two heaps cost a logarithm.
    """

    def __init__(self) -> None:
        self._first: list[tuple[float, int]] = []
        """Negated, so that the last one is on top."""
        self._rest: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._first) + len(self._rest)

    @property
    def last(self) -> tuple[float, int]:
        """The last one of the first part. Of equal numbers the earlier one is first."""
        number, place = self._first[0]
        return -number, -place

    @property
    def following(self) -> float:
        """The lowest of the rest."""
        return self._rest[0][0]

    def add(self, number: float, count: int) -> tuple[float, int]:
        """Add a number, resize the first part to `count`, and return the number with its place in time."""
        entry = number, len(self)
        if self._first and entry < self.last:
            heapq.heappush(self._first, (-number, -entry[1]))
        else:
            heapq.heappush(self._rest, entry)
        while len(self._first) < count:
            moved = heapq.heappop(self._rest)
            heapq.heappush(self._first, (-moved[0], -moved[1]))
        while len(self._first) > count:
            heapq.heappush(self._rest, self.last)
            heapq.heappop(self._first)
        return entry


@published("mpi_runtime.tune.schedulers")
class _Rung:
    """The scores of trials at a milestone."""

    def __init__(self, milestone: float, factor: float) -> None:
        self.milestone = milestone
        self._factor = factor
        self.seen: set[str] = set()
        self._cut = _Cut()
        """Scores, cut at the quantile. With promotion negated scores, cut behind the best."""
        self.held: list[tuple[float, int, str]] = []
        """A heap of trials that wait for promotion, best first; of equal ones the earlier."""

    def record(self, trial_id: str, score: float) -> None:
        """Note a score to compare later ones with."""
        self.seen.add(trial_id)
        self._cut.add(score, math.floor((1 - 1 / self._factor) * len(self._cut)) + 1)

    def hold(self, trial_id: str, score: float) -> None:
        """Note a trial that pauses until it is among the best."""
        self.seen.add(trial_id)
        entry = self._cut.add(-score, int((len(self._cut) + 1) / self._factor))
        heapq.heappush(self.held, (*entry, trial_id))

    def is_worse(self, score: float) -> bool:
        """Whether this score is below the quantile of the others, interpolated linearly."""
        if not len(self._cut):
            return False
        place = (1 - 1 / self._factor) * (len(self._cut) - 1)
        below = math.floor(place)
        cutoff = self._cut.last[0]
        if place != below and not math.isinf(cutoff):
            cutoff += (self._cut.following - cutoff) * (place - below)
        return score < cutoff or score == -math.inf

    def promotable(self) -> str | None:
        """The best trial that waits, if it belongs to the best 1/factor."""
        if not self.held or len(self._cut) < self._factor:
            return None
        return self.held[0][2] if self.held[0][:2] <= self._cut.last else None


@published("mpi_runtime.tune.schedulers")
class AsyncHyperBandScheduler(TrialScheduler):
    """Gives each trial little time at first, and more to the best 1/`reduction_factor`, without waiting for the rest.

    With `type="stopping"` a trial that reaches a rung stops if it is worse than the best of the earlier ones. With
    `type="promotion"`, the form of the paper, it pauses there, and continues when it belongs to the best. That needs a
    checkpoint with each report that reaches a rung, and trials end at the highest rung. Rungs are at `grace_period`
    times the powers of `reduction_factor`. A value that is not a number is worse than any number.
    """

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 4,
        brackets: int = 1,
        stop_last_trials: bool = True,
        type: str = "stopping",
    ) -> None:
        """Compare trials by `metric` at rungs of `time_attr`.

        Args:
            time_attr: the reported value that measures the progress of a trial; it must not decrease.
            metric: the reported value to compare; None: that of `TuneConfig`.
            mode: whether it is to be "min" or "max"; None: that of `TuneConfig`.
            max_t: the time at which a trial ends.
            grace_period: the time of the lowest rung.
            reduction_factor: one in `reduction_factor` trials continues at each rung.
            brackets: how many groups of trials there are. The lowest rungs are missing in the later ones.
            stop_last_trials: whether trials end at `max_t`. Trials that pause always do.
            type: "stopping" or "promotion".
        """
        super().__init__(time_attr, metric, mode)
        if not 0 < grace_period <= max_t <= TIME_MAX:
            raise BadSettingError(
                f"grace_period={grace_period}, max_t={max_t}: choose 0 < grace_period <= max_t < infinity"
            )
        if not reduction_factor > 1:
            raise BadSettingError(f"reduction_factor={reduction_factor} would stop no trial: it must be above 1")
        if type not in ("stopping", "promotion"):
            raise BadSettingError(f'type={type!r} is unknown: choose "stopping" or "promotion"')
        self._milestones = rungs(grace_period, max_t, reduction_factor)
        if not 1 <= brackets <= len(self._milestones):
            raise BadSettingError(
                f"brackets={brackets}, but there are {len(self._milestones)} rungs ({self._milestones}), and each "
                "further bracket has one less: choose at most as many brackets as rungs"
            )
        self._max_t = max_t
        self._factor = reduction_factor
        self._number = brackets
        self._stops_last = stop_last_trials
        self.needs_checkpoints = type == "promotion"  # then trials pause
        self.begin(0)

    def begin(self, seed: int) -> None:
        self._seed = seed
        self._brackets = [
            [_Rung(at, self._factor) for at in self._milestones[skipped:]] for skipped in range(self._number)
        ]
        self._bracket_of: dict[str, list[_Rung]] = {}
        self._next_rung: dict[str, int] = {}

    @either
    def on_trial_add(self, trial: Trial) -> None:
        """Choose its bracket; one with more rungs is more likely."""
        chosen = 0
        if self._number > 1:
            weights = [math.exp(len(bracket)) for bracket in self._brackets]
            chances = [weight / sum(weights) for weight in weights]
            chosen = int(rng_of(self._seed, trial.index, BRACKETS).choice(self._number, p=chances))
        self._bracket_of[trial.trial_id] = self._brackets[chosen]
        # After a failure it may be in rungs already.
        bracket = self._brackets[chosen]
        free = (number for number, rung in enumerate(bracket) if trial.trial_id not in rung.seen)
        self._next_rung[trial.trial_id] = next(free, len(bracket) - 1)

    @either
    def on_trial_result(self, trial: Trial, time: float, score: float) -> Verdicts:
        judge = self._promoted if self.needs_checkpoints else self._stopped
        return {trial.trial_id: judge(trial.trial_id, time, score)}

    def on_trial_end(self, trial: Trial) -> Verdicts:
        """Forget its bracket. Its scores at rungs still count."""
        del self._bracket_of[trial.trial_id], self._next_rung[trial.trial_id]
        return {}

    def choose_paused(self) -> str | None:
        """Promote the best trial of the highest rung that has one to promote: the paper's `get_job`."""
        for bracket in self._brackets:
            for number in reversed(range(len(bracket) - 1)):
                trial_id = bracket[number].promotable()
                if trial_id is not None:
                    heapq.heappop(bracket[number].held)
                    self._next_rung[trial_id] = number + 1
                    return trial_id
        return None

    def save(self, checkpoint_path: str) -> None:
        """Write its settings and its rungs to a file."""
        state_files.write(checkpoint_path, self.__dict__)

    def restore(self, checkpoint_path: str) -> None:
        """Take the settings and the rungs from a file that `save` has written. That may run code, as with `pickle`."""
        self.__dict__.update(state_files.read(checkpoint_path))

    def _stopped(self, trial_id: str, time: float, score: float) -> str:
        """Judge by the highest rung that it has reached; skipped rungs do not count."""
        reached = [rung for rung in self._bracket_of[trial_id] if rung.milestone <= time]
        is_worse = False
        if reached and trial_id not in reached[-1].seen:
            is_worse = reached[-1].is_worse(score)
            reached[-1].record(trial_id, score)
        return STOP if is_worse or (self._stops_last and time >= self._max_t) else CONTINUE

    def _promoted(self, trial_id: str, time: float, score: float) -> str:
        bracket = self._bracket_of[trial_id]
        rung = bracket[self._next_rung[trial_id]]
        if time < rung.milestone:
            return CONTINUE
        if rung is bracket[-1]:
            return STOP
        rung.hold(trial_id, score)
        return PAUSE


ASHAScheduler = AsyncHyperBandScheduler
