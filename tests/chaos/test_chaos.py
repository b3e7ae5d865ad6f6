"""Real programs are right though their processes are killed and stopped at random: three hundred times in all."""

import pytest

from tests.chaos import judge

PAUSE_S = 0.12
SIZE = 1


HOSTS = pytest.mark.hosts


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("mode", "kills"),
    [
        ("plain", 40), ("openmpi", 25), ("mpich", 25), ("ulfm", 40),
        pytest.param("hosts", 30, marks=HOSTS), pytest.param("hosts-mpich", 20, marks=HOSTS),
    ],
)  # fmt: skip
@pytest.mark.dies("executor", "forkserver", "rank with ulfm")
def test_programs_are_right_whatever_is_killed(mode: str, kills: int) -> None:
    record = judge.run(mode, 1, kills, SIZE, PAUSE_S)
    print(f"{mode}: {record.rounds} rounds, {record.calls} calls; {dict(record.kills)}")
    assert record.rounds
    assert record.kills.total() > kills / 2
