"""Members of gangs as plain processes: both MPI libraries, on one node and on several."""

from collections.abc import Iterator

import pytest

from tests.gang_driver import Driver

pytestmark = pytest.mark.timeout(120)
SUM = "print(comm.rank, comm.size, comm.allreduce(comm.rank), comm.Split_type(MPI.COMM_TYPE_SHARED).size)"


@pytest.fixture(scope="module", params=["openmpi", "mpich"])
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    driver = Driver(request.param, 3)
    driver.run([0, 1, 2], "")  # the helpers belong to the module: no test has started them
    yield driver
    driver.close()


@pytest.mark.parametrize("hosts", [[0], [0, 0], [0, 0, 1], [0, 1, 1, 2]])
def test_members_form_a_world(driver: Driver, hosts: list[int]) -> None:
    gang, ended = driver.run(hosts, SUM)
    size, total = len(hosts), sum(range(len(hosts)))
    assert ended == {rank: (0, f"{rank} {size} {total} {hosts.count(host)}\n", "") for rank, host in enumerate(hosts)}
    assert gang.initialised == gang.finalized == set(range(size))
