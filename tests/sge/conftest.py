"""One cluster for all tests of this folder; started by the first that asks for it, in a few seconds."""

from collections.abc import Iterator

import pytest

from tests.sge.cluster import Cluster, cluster


@pytest.fixture(scope="session")
def sge() -> Iterator[Cluster]:
    """A running cluster."""
    with cluster() as running:
        yield running
