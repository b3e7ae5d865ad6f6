"""The calls of trials: the function of each, and one run of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import mpi_runtime
from mpi_runtime.tune.trial import Progress
from mpi_runtime.tune.trials.bundles import GangRequest, PlacementGroupFactory, amounts
from mpi_runtime.tune.trials.runner import RunSettings, runner_of
from mpi_runtime.tune.trials.trainable import Prepared
from mpi_runtime.util.scheduling_strategies import PlacementGroupSchedulingStrategy

if TYPE_CHECKING:
    from mpi_runtime import ObjectRefGenerator
    from mpi_runtime.tune.trials.reporting import Told, TrialStart
    from mpi_runtime.util.placement_group import PlacementGroup

RETURNS: str = "streaming"
"""A `str` to type checkers, or they would look for a generator function."""
AHEAD = 64
"""The most reports on their way from a trial that does not wait for decisions."""


@dataclass
class Run:
    """One run of a trial."""

    trial_id: str
    stream: ObjectRefGenerator[Told]
    group: PlacementGroup | None = None
    """The placement group of its bundles."""
    asks: bool = False
    """It has reported, and waits for the decision."""
    paused_at: Progress | None = None
    """How far it was, if it continues later from the checkpoint of its end."""
    is_from_memory: bool = False
    """Its first checkpoint is not on disk."""

    def drop(self) -> None:
        """Drop its stream: the trial ends at the report that waits for its decision."""
        self.__dict__.pop("stream", None)


class TrialFunction(Protocol):
    """The function of trials, with options."""

    def remote(self, start: TrialStart) -> ObjectRefGenerator[Told]:
        """Start a trial."""


class TrialFunctions:
    """The function of the trials of an experiment, with the options of each."""

    def __init__(self, prepared: Prepared, settings: RunSettings, *, is_passive: bool, reuse: bool) -> None:
        """Prepare the function.

        `is_passive`: trials need not wait for decisions. `reuse`: one process may run several trials.
        """
        self._function = mpi_runtime.remote(runner_of(prepared, settings))
        self._is_passive, self._reuse = is_passive, reuse
        self._made: dict[tuple[object, ...], TrialFunction] = {}
        """By reserved amounts."""

    def of(self, request: PlacementGroupFactory, group: PlacementGroup | None) -> TrialFunction:
        """The function with reserved amounts. Trials with the same amounts share one: each is sent to the head once."""
        bundle = request.head
        gang = request.options if isinstance(request, GangRequest) else {}
        asked = None if group is not None else (*sorted(bundle.items()), repr(gang))
        if asked in self._made:
            return self._made[asked]
        options: dict[str, object] = {
            "max_retries": 0,
            "_generator_backpressure_num_objects": AHEAD if self._is_passive else 1,
            **amounts(bundle),
            **gang,
        }
        if not self._reuse:
            options |= {"reuse": False} if gang else {"max_calls": 1}
        if group is not None:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(group, 0, True)
        made: TrialFunction = self._function.options(num_returns=RETURNS, **options)
        if asked is not None:
            self._made[asked] = made
        return made
