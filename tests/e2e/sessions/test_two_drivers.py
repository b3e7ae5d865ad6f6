"""What Ray's documentation says about several drivers holds here as it does in Ray 2.60: see `two_drivers.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.sessions import two_drivers
from tests.e2e.sessions.started import driver, session


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("state")
    with session(place, "--num-cpus", "2"):
        yield place


@pytest.mark.parametrize("name", two_drivers.PROGRAMS)
def test_it_prints_what_ray_prints(state: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPI_RUNTIME_ADDRESS", "session:s")
    recorded = json.loads(two_drivers.RECORDED.read_text())
    with driver(state, two_drivers.source(name), connects=False) as program:
        assert program.finish().expect(0).stdout.splitlines() == recorded[name]


def test_all_are_recorded() -> None:
    assert sorted(json.loads(two_drivers.RECORDED.read_text())) == sorted(two_drivers.PROGRAMS)
