"""HyperBand for BOHB, with brackets as the searcher `TuneBOHB` needs them."""

from __future__ import annotations

from mpi_runtime.tune.schedulers.hyperband import HyperBandScheduler


class HyperBandForBOHB(HyperBandScheduler):
    """HyperBand for `TuneBOHB`: the largest bracket is filled first, and trials pause while it fills.

    Here every HyperBand does so, hence this is the same under the name that programs use.
    """
