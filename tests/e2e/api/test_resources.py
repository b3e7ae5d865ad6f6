"""Resources: what there is, who may run at the same time, which devices a call is given; and where code runs."""

import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime import (
    available_resources,
    cluster_resources,
    get,
    get_gpu_ids,
    get_runtime_context,
    kill,
    nodes,
    remote,
    wait,
)
from mpi_runtime.errors import InfeasibleResourceError, MpiRuntimeError
from tests.e2e.shared import hold
from tests.helpers import wait_until

pytestmark = pytest.mark.usefixtures("job")

GIB = 1 << 30
INIT = {"num_cpus": 4, "num_gpus": 3, "memory": 8 * GIB, "resources": {"camera": 2, "licence": 0.5}}


@remote(num_cpus=0)
def peak(folder: str, seconds: float = 0.15) -> int:
    """How many calls were in here at the same time as this one."""
    mine = Path(folder) / f"{os.getpid()}-{time.monotonic_ns()}"
    mine.touch()
    time.sleep(seconds)
    found = len(os.listdir(folder))
    time.sleep(seconds)
    mine.unlink()
    return found


def peak_of(folder: Path, count: int, **options: Any) -> int:
    found: list[int] = get([peak.options(**options).remote(str(folder)) for _ in range(count)])
    return max(found)


# Limits


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"num_cpus": 1}, 4),
        ({"num_cpus": 2}, 2),
        ({"num_cpus": 4}, 1),
        ({"num_cpus": 1.5}, 2),
        ({"num_cpus": 0, "resources": {"camera": 1}}, 2),
        ({"num_cpus": 0, "resources": {"camera": 2}}, 1),
        ({"num_cpus": 0, "resources": {"licence": 0.25}}, 2),
        ({"num_cpus": 0, "num_gpus": 1}, 3),
        ({"num_cpus": 0, "num_gpus": 2}, 1),
        ({"num_cpus": 0, "num_gpus": 0.6}, 3),
        ({"num_cpus": 0, "memory": 3 * GIB}, 2),
        ({"num_cpus": 2, "resources": {"camera": 1}, "num_gpus": 1}, 2),
    ],
    ids=str,
)
def test_no_more_at_once_than_there_is(options: Any, limit: int, tmp_path: Path) -> None:
    found = peak_of(tmp_path, 2 * limit + 1, **options)
    assert found <= limit
    assert found >= min(limit, 2) or limit == 1


def test_all_is_used_at_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    get([peak.options(num_cpus=1).remote(str(tmp_path / "a"), 0.01) for _ in range(8)])  # processes are there
    assert peak_of(tmp_path / "a", 4, num_cpus=1) == 4


def test_small_shares_add_up_exactly(tmp_path: Path) -> None:
    get([peak.options(num_cpus=0, resources={"licence": 0.1}).remote(str(tmp_path), 0.01) for _ in range(20)])
    assert available_resources()["licence"] == 0.5


def test_calls_without_cpu_are_not_limited(gate: Path) -> None:
    @remote(num_cpus=0)
    def wait_for(refs: list[Any]) -> None:
        get(refs[0])

    busy = hold.options(num_cpus=4).remote(gate)
    wait_until(lambda: not available_resources().get("CPU"))
    free = [wait_for.remote([mpi_runtime.put(n)]) for n in range(6)]
    assert len(wait(free, num_returns=6, timeout=20)[0]) == 6
    gate.touch()
    get(busy)


# What there is


def test_cluster_resources() -> None:
    found = cluster_resources()
    assert found.pop("object_store_memory") > 0
    host = socket.gethostname()
    assert found == {"CPU": 4, "GPU": 3, "camera": 2, "licence": 0.5, "memory": 8 * GIB, f"node:{host}": 1}


def test_available_resources_follow_use() -> None:
    @remote(num_cpus=3, num_gpus=3, resources={"camera": 1}, memory=2 * GIB)
    class Holder:
        def ready(self) -> None:
            pass

    holder = Holder.remote()
    get(holder.ready.remote())
    found = available_resources()
    assert found["CPU"] == 1
    assert "GPU" not in found
    assert found["camera"] == 1
    assert found["memory"] == 6 * GIB
    del holder


def test_nodes() -> None:
    (node,) = nodes()
    assert node["Alive"] is True
    assert node["NodeName"] == node["NodeManagerHostname"] == socket.gethostname()
    assert node["NodeID"] == get_runtime_context().get_node_id()
    assert node["Resources"]["CPU"] == 4
    assert node["Resources"]["camera"] == 2


# What cannot be


@pytest.mark.parametrize(
    ("options", "asked", "largest"),
    [
        ({"num_cpus": 5}, "5 CPU", "4 CPU"),
        ({"num_gpus": 4}, "4 GPU", "3 GPU"),
        ({"resources": {"camera": 3}}, "3 of 'camera'", "2 of 'camera'"),
        ({"resources": {"unheard": 1}}, "1 of 'unheard'", "2 of 'camera'"),
        ({"memory": 9 * GIB}, "9.0 GiB of memory", "GiB of memory"),
        ({"num_cpus": 4, "num_gpus": 4}, "4 CPU, 4 GPU", "4 CPU, 3 GPU"),
    ],
    ids=str,
)
def test_requests_that_no_node_can_serve_fail_at_once(options: Any, asked: str, largest: str) -> None:
    @remote(**options)  # type: ignore[untyped-decorator]
    def never() -> None:
        pass

    with pytest.raises(InfeasibleResourceError) as caught:
        get(never.remote(), timeout=10)
    first, _, second = str(caught.value).partition("Largest of 1 node(s)")
    assert asked in first
    assert "never" in first
    assert largest in second
    assert socket.gethostname() in second
    assert isinstance(caught.value, ValueError)

    @remote(**options)
    class Never:
        def work(self) -> None:
            pass

    with pytest.raises(MpiRuntimeError, match="no node owns that much"):
        get(Never.remote().work.remote(), timeout=10)


def test_a_request_that_has_to_wait_is_explained(gate: Path) -> None:
    @remote(num_cpus=2)
    def later() -> None:
        pass

    busy = hold.options(num_cpus=3).remote(gate)
    ref = later.remote()
    assert "needs 2 CPU" in mpi_runtime.explain(ref)
    assert "It runs in executor" in mpi_runtime.explain(busy)
    gate.touch()
    get(ref)


def test_a_large_request_gets_its_turn(tmp_path: Path) -> None:
    @remote
    def small(n: int) -> None:
        time.sleep(0.02)

    @remote(num_cpus=4)
    def large() -> float:
        return time.monotonic()

    refs = [small.remote(n) for n in range(50)]
    ref = large.remote()
    more = [small.remote(n) for n in range(400)]
    assert len(wait([ref], timeout=30)[0]) == 1
    assert len(wait(more, num_returns=400, timeout=0)[1]) > 0, "it had to wait for all that came after it"
    get(refs + more)


# Devices


@remote(num_cpus=0, num_gpus=1)
def devices(seconds: float = 0.2) -> tuple[list[int], str | None]:
    time.sleep(seconds)
    return get_gpu_ids(), os.environ.get("CUDA_VISIBLE_DEVICES")


def test_calls_at_the_same_time_have_different_devices() -> None:
    for _ in range(3):
        found = get([devices.remote() for _ in range(3)])
        assert sorted(ids for ids, _ in found) == [[0], [1], [2]]
        assert all(variable == ",".join(map(str, ids)) for ids, variable in found)


def test_several_devices() -> None:
    ids, variable = get(devices.options(num_gpus=2).remote(0))
    assert len(set(ids)) == 2
    assert variable == ",".join(map(str, ids))


def test_shares_lie_on_one_device() -> None:
    found = get([devices.options(num_gpus=0.5).remote() for _ in range(2)])
    assert found[0] == found[1]
    many = [tuple(ids) for ids, _ in get([devices.options(num_gpus=0.5).remote() for _ in range(6)])]
    assert sorted(many) == sorted([(n,) for n in range(3)] * 2)


def test_calls_without_gpus_have_none() -> None:
    assert get(devices.options(num_gpus=0).remote(0))[0] == []
    assert get_gpu_ids() == []


def test_an_actor_keeps_its_device() -> None:
    @remote(num_gpus=1)
    class Model:
        def ids(self) -> Any:
            return get_gpu_ids(), get_runtime_context().get_accelerator_ids()

    models = [Model.remote() for _ in range(2)]
    found = get([model.ids.remote() for model in models])
    assert sorted(ids for ids, _ in found) in ([[0], [1]], [[0], [2]], [[1], [2]])
    assert all(named == {"GPU": [str(id) for id in ids]} for ids, named in found)
    third = devices.remote(0)
    assert get(third)[0] not in [ids for ids, _ in found]
    assert get([model.ids.remote() for model in models]) == found
    kill(models[0])
    del models


def test_a_task_that_waits_keeps_its_device() -> None:
    @remote(num_cpus=1, num_gpus=3)
    def parent() -> Any:
        return mpi_runtime.wait([devices.remote(0)], timeout=0.3)[0] == []

    assert get(parent.remote())


# Where code runs


def test_the_context_of_the_driver() -> None:
    context = get_runtime_context()
    assert context.get_task_id() is None
    assert context.get_actor_id() is None
    assert context.get_task_name() is None
    assert context.get_rank() == 0
    assert context.pid == os.getpid()
    assert isinstance(context.get_job_id(), str)


def test_the_context_of_a_task() -> None:
    @remote
    def where() -> Any:
        context = get_runtime_context()
        return {
            "task": context.get_task_id(),
            "name": context.get_task_name(),
            "actor": context.get_actor_id(),
            "node": context.get_node_id(),
            "worker": context.get_worker_id(),
            "job": context.get_job_id(),
        }

    ref = where.remote()
    found = get(ref)
    assert found["task"] == ref.hex()
    assert found["name"].endswith("where")
    assert found["actor"] is None
    assert found["node"] == nodes()[0]["NodeID"]
    assert found["worker"] != get_runtime_context().get_worker_id()
    assert found["job"] == get_runtime_context().get_job_id()


def test_the_context_of_an_actor() -> None:
    @remote
    class Here:
        def __init__(self) -> None:
            self.id = get_runtime_context().get_actor_id()

        def where(self) -> Any:
            context = get_runtime_context()
            return self.id, context.get_actor_id(), context.get_task_id(), context.get_task_name()

    here, other = Here.remote(), Here.remote()
    ref = here.where.remote()
    at_first, now, task, name = get(ref)
    assert at_first == now is not None
    assert task == ref.hex()
    assert name == "Here.where"
    assert get(other.where.remote())[1] != now


def test_threads_follow_the_request() -> None:
    @remote
    def threads() -> tuple[str | None, int]:
        import threadpoolctl

        pools = [one["num_threads"] for one in threadpoolctl.threadpool_info()]
        return os.environ.get("OMP_NUM_THREADS"), max(pools, default=0)

    assert get(threads.remote())[0] == "1"
    variable, pool = get(threads.options(num_cpus=2).remote())
    assert variable == "2"
    assert pool in (0, 2)


def test_threads_that_the_environment_states() -> None:
    environment = {"env_vars": {"OMP_NUM_THREADS": "3", "COPY": "${OMP_NUM_THREADS}"}}

    @remote(runtime_env=environment)
    def threads() -> tuple[str | None, str | None, int]:
        import threadpoolctl

        pools = [one["num_threads"] for one in threadpoolctl.threadpool_info()]
        return os.environ.get("OMP_NUM_THREADS"), os.environ.get("COPY"), max(pools, default=3)

    @remote(runtime_env=environment, num_cpus=2)
    class Solver:
        def threads(self) -> str | None:
            return os.environ.get("OMP_NUM_THREADS")

    for cpus in (1, 2):
        variable, copy, pool = get(threads.options(num_cpus=cpus).remote())
        assert (variable, copy, pool) == ("3", str(cpus), 3)
    solver = Solver.remote()
    assert get(solver.threads.remote()) == "3"


def test_short_tasks_that_ask_the_scheduler() -> None:
    """Their answers must not come behind calls that wait for them to end."""

    @remote(num_cpus=4)
    def ask() -> float:
        return cluster_resources()["CPU"]

    assert get([ask.remote() for _ in range(300)], timeout=60) == [4.0] * 300
