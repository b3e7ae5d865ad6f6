"""HyperBand for BOHB, with brackets as the searcher `TuneBOHB` needs them."""

from __future__ import annotations

from mpi_runtime.tune.schedulers.hyperband import HyperBandScheduler


class HyperBandForBOHB(HyperBandScheduler):
    """HyperBand for `TuneBOHB`: trials pause while the largest bracket fills. Every HyperBand does so here."""
