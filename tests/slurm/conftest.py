"""One cluster for all tests of this folder; started by the first that asks for it, in about a second."""

from collections.abc import Iterator

import pytest

from tests.slurm.cluster import Cluster, cluster


@pytest.fixture(scope="session")
def slurm() -> Iterator[Cluster]:
    """A running cluster."""
    with cluster() as running:
        yield running
