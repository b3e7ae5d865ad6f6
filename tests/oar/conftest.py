"""One cluster for all tests of this folder; started by the first that asks for it, in some seconds."""

from collections.abc import Iterator

import pytest

from tests.oar.cluster import Cluster, cluster


@pytest.fixture(scope="session")
def oar() -> Iterator[Cluster]:
    """A running cluster."""
    with cluster() as running:
        yield running
