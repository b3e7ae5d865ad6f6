"""Who gives way if a stream waits for what it keeps itself."""

import pytest

pytest.importorskip("pyarrow")
from mpi_runtime.data.streams.making_way import Found

GPU = frozenset({"GPU"})
CPU = frozenset({"CPU"})


def found(**given: object) -> Found:
    return Found(idle=[((1, 0), GPU), ((1, 1), CPU)], resting=[((2, 0), GPU), ((3, 0), CPU)], **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, []),
        ({"waiting": [GPU]}, [(1, 0)]),
        ({"waiting": [GPU, GPU, GPU]}, [(1, 0), (2, 0)]),
        ({"waiting": [frozenset({"memory"})]}, []),
        ({"waiting": [CPU, CPU]}, [(1, 1), (3, 0)]),
        ({"waiting": [GPU, GPU], "works": True}, []),
        ({"waiting": [GPU, GPU], "works": True, "waiting_actors": 2}, [(1, 0)]),
    ],
)
def test_as_many_give_way_as_wait_for_what_they_keep(given: dict[str, object], wanted: list[tuple[int, int]]) -> None:
    """Those that rest do so only if nothing works, since they lose what they have made."""
    assert found(**given).giving() == wanted
