"""How a trial ends in its process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mpi_runtime.tune import PlacementGroupFactory
from mpi_runtime.tune.trials.reporting import TrialStart
from mpi_runtime.tune.trials.runner import RunSettings, run_trial
from mpi_runtime.tune.trials.trainable import Prepared


@pytest.mark.parametrize("code", [0, 3, "no data"])
def test_a_trial_that_exits_has_failed(code: object, tmp_path: Path) -> None:
    """Its process would die, and the trial would run again."""

    def trial(config: object) -> None:
        sys.exit(code)  # type: ignore[arg-type]

    start = TrialStart("t1", 0, {}, None, 0, 0, "t1", str(tmp_path), PlacementGroupFactory([{"CPU": 1}]))
    settings = RunSettings(seed=0, reuse=False, persist_s=10, frequency=0, at_end=False)
    with pytest.raises(RuntimeError, match=r"called sys\.exit"):
        run_trial(Prepared(trial), settings, start)
