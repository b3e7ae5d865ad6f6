"""Searchers, by the names that Ray Tune gives them."""

from mpi_runtime.tune.limiters import ConcurrencyLimiter, Repeater
from mpi_runtime.tune.searcher import BasicVariantGenerator, Searcher

__all__ = ["BasicVariantGenerator", "ConcurrencyLimiter", "Repeater", "Searcher"]
