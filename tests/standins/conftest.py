"""A queue for each test: it is a small process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.standins.farm import SYSTEMS, Farm, farm


@pytest.fixture(params=SYSTEMS)
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Farm]:
    """A login node of each system in turn."""
    with farm(tmp_path, request.param) as running:
        yield running


@pytest.fixture
def pbs(tmp_path: Path) -> Iterator[Farm]:
    """A login node of PBS."""
    with farm(tmp_path, "pbs") as running:
        yield running
