"""Jobs that share a batch are killed, stopped and started again: a short run of `batch_strikes`."""

import pytest

from tests.chaos import batch_strikes


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("jobs", [1, 3])
def test_no_command_runs_twice_without_a_reason_and_limits_hold(jobs: int) -> None:
    counts = batch_strikes.run(seed=jobs, strikes=60, sides=[jobs], folders=1, pause_s=0.2, commands=40)
    print(dict(counts))
    assert counts["batches"]
    assert counts["kill"] > 2
    assert counts["stop"] > 10
