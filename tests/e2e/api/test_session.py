"""Jobs one after another in one program: what carries over, what must not, and forks of the driver."""

import gc
import multiprocessing
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

import mpi_runtime
from mpi_runtime import get, init, is_initialized, kill, put, remote, shutdown, wait
from mpi_runtime.errors import ActorDiedError, ObjectLostError, ObjectStoreFullError, RuntimeNotInitializedError
from tests.e2e.shared import Counter
from tests.helpers import wait_until_in_client


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    shutdown()


@remote
def add(a: Any, b: Any) -> Any:
    return a + b


# Starting and ending


def test_init_and_shutdown() -> None:
    assert not is_initialized()
    context = init(num_cpus=2)
    assert is_initialized()
    assert context["address"] == "local"
    assert set(context) == set(context.address_info)
    shutdown()
    assert not is_initialized()
    shutdown()


def test_init_as_a_context() -> None:
    with init(num_cpus=1):
        assert get(add.remote(1, 2)) == 3
    assert not is_initialized()


def test_init_in_a_task_tells_of_the_running_job() -> None:
    @remote
    def told() -> dict[str, Any]:
        return dict(init(ignore_reinit_error=True))

    here = dict(init(num_cpus=1))
    assert here["ranks"] == 1
    assert get(told.remote()) == here


def test_a_second_init_is_refused_or_ignored() -> None:
    init(num_cpus=2)
    with pytest.raises(RuntimeError, match="running already"):
        init(num_cpus=3)
    init(num_cpus=3, ignore_reinit_error=True)
    assert mpi_runtime.cluster_resources()["CPU"] == 2


def test_arguments_of_a_second_init_that_are_ignored_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    init(num_cpus=2, resources={"sky": 1}, quiet=True)
    init(ignore_reinit_error=True)
    init(num_cpus=2, resources={"sky": 1}, include_dashboard=False, ignore_reinit_error=True)
    assert "ignored" not in caplog.text
    init(num_cpus=2, namespace="mine", runtime_env={"env_vars": {"A": "b"}}, ignore_reinit_error=True)
    lines = [line for line in caplog.messages if "ignored" in line]
    assert len(lines) == 1
    assert "namespace='mine'" in lines[0]
    assert "runtime_env=" in lines[0]
    assert "num_cpus" not in lines[0]


def test_the_context_starts_a_job() -> None:
    assert mpi_runtime.get_runtime_context().get_task_id() is None
    assert is_initialized()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"num_cpu": 1}, TypeError, "did you mean 'num_cpus'"),
        ({"num_cpus": -1}, ValueError, "num_cpus"),
        ({"num_cpus": "2"}, TypeError, "num_cpus"),
        ({"resources": {"CPU": 1}}, ValueError, "num_cpus"),
        ({"object_store_memory": 1.5}, TypeError, "object_store_memory"),
        ({"address": "ray://host:10001"}, ValueError, "session:NAME"),
        ({"logging_level": "loud"}, ValueError, "DEBUG, INFO, WARNING, ERROR, CRITICAL or a number, not 'loud'"),
    ],
    ids=str,
)
def test_arguments_of_init_are_checked(arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        init(**arguments)
    assert not is_initialized()


def test_ray_s_arguments_without_meaning_here_are_accepted() -> None:
    init(num_cpus=1, include_dashboard=False, dashboard_port=8265, configure_logging=False, logging_level="error")
    assert mpi_runtime.cluster_resources()["CPU"] == 1


def test_the_first_use_starts_a_job() -> None:
    assert get(put(1)) == 1
    assert is_initialized()
    shutdown()
    assert get(add.remote(1, 1)) == 2
    shutdown()
    assert get(Counter.remote().add.remote()) == 1
    shutdown()
    assert mpi_runtime.cluster_resources()["CPU"] >= 1


def test_store_memory() -> None:
    init(num_cpus=1, object_store_memory=8 << 20)
    with pytest.raises(ObjectStoreFullError, match=r"8\.0 MiB"):
        put(bytes(9 << 20))
    shutdown()
    init(num_cpus=1, object_store_memory=16 << 20)
    assert len(get(put(bytes(9 << 20)))) == 9 << 20


# One job after another


def test_decorated_things_work_in_each_job() -> None:
    two = add.options(num_returns=1)
    for number in range(3):
        init(num_cpus=2)
        counter = Counter.remote()
        assert get([add.remote(number, 1), two.remote(number, 2), counter.add.remote()]) == [number + 1, number + 2, 1]
        shutdown()


def test_ids_of_one_job_are_not_those_of_the_next() -> None:
    ids = set()
    for _ in range(3):
        init(num_cpus=1)
        refs = [put(1), add.remote(1, 2)]
        ids |= {ref.hex() for ref in refs}
        shutdown()
    assert len(ids) == 6


def use_what_is_stale(stale: list[Any], counter: Any, method: Any, fresh: Any) -> None:
    """Everything that can be done with references and handles of an earlier job is refused."""
    uses: list[Callable[[Any], Any]] = [
        lambda ref: get(ref, timeout=10),
        lambda ref: get([fresh, ref], timeout=10),
        lambda ref: wait([ref], timeout=10),
        lambda ref: add.remote(ref, 1),
        lambda ref: put([ref]),
        lambda ref: add.remote([ref], []),
    ]
    for ref in stale:
        for use in uses:
            with pytest.raises(ObjectLostError, match="a job that has ended"):
                use(ref)
    for call in (counter.add.remote, method.remote, lambda: kill(counter), lambda: put(counter)):
        with pytest.raises(ActorDiedError, match="a job that has ended"):
            call()


def test_refs_of_an_earlier_job_raise_and_disturb_nothing() -> None:
    init(num_cpus=2)
    stale = [put(b"x" * 200_000), add.remote(1, 2), add.remote(put(1), 2)]
    counter = Counter.remote()
    get(counter.add.remote())
    actors = [counter, counter.add]
    del counter
    shutdown()
    init(num_cpus=2)
    mine = [put(n) for n in range(20)]
    use_what_is_stale(stale, actors[0], actors[1], mine[0])
    stale.clear()
    actors.clear()
    gc.collect()
    assert get(add.remote(mine[1], 1)) == 2  # the head has heard by now whatever was said of the stale ones
    assert get(mine) == list(range(20))
    assert get(remote(lambda refs: sum(get(refs))).remote(mine)) == sum(range(20)), "others find them too"


def test_views_of_an_earlier_job_stay_valid() -> None:
    init(num_cpus=1)
    array = get(put(numpy.arange(200_000)))
    shutdown()
    init(num_cpus=1)
    others = [put(numpy.zeros(200_000)) for _ in range(5)]
    assert numpy.array_equal(array, numpy.arange(200_000))
    del array
    gc.collect()
    assert get(others[4])[0] == 0


def test_use_after_shutdown_of_what_is_waited_for() -> None:
    init(num_cpus=1)

    @remote
    def slow() -> None:
        time.sleep(60)

    ref = slow.remote()
    said: list[BaseException] = []

    def wait_for() -> None:
        try:
            get(ref)
        except BaseException as error:
            said.append(error)

    thread = threading.Thread(target=wait_for)
    thread.start()
    wait_until_in_client(thread)
    shutdown()
    thread.join(20)
    assert not thread.is_alive()
    assert isinstance(said[0], ObjectLostError)
    assert "shut down" in str(said[0])


def test_threads_that_need_a_job_start_one_between_them() -> None:
    together, found = threading.Barrier(6), []

    def call() -> None:
        together.wait()
        found.append((get(add.remote(1, 1)), mpi_runtime.get_runtime_context().get_node_id()))

    threads = [threading.Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 6
    assert set(found) == {(2, mpi_runtime.get_runtime_context().get_node_id())}


def test_one_of_two_threads_that_init_is_refused() -> None:
    together, said = threading.Barrier(2), []

    def start() -> None:
        together.wait()
        try:
            said.append(init(num_cpus=1)["ranks"])
        except RuntimeError as error:
            said.append(str(error)[:17])

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(said, key=str) == [1, "init() was called"]


def test_many_jobs() -> None:
    for number in range(8):
        init(num_cpus=1)
        assert get(add.remote(number, 1)) == number + 1
        shutdown()


def test_a_ref_that_was_pickled_elsewhere_keeps_its_value() -> None:
    init(num_cpus=1)
    data = pickle.dumps(put("kept"))
    gc.collect()
    assert get(add.remote(1, 1)) == 2  # the head would have heard by now that nobody needs it
    assert get(pickle.loads(data)) == "kept"


def test_a_ref_in_a_closure_keeps_its_value() -> None:
    init(num_cpus=1)

    def make_use() -> Any:
        ref = put([5])
        return remote(lambda: get(ref))

    use = make_use()
    first = use.remote()
    gc.collect()
    assert get(first) == [5]
    assert get(use.remote()) == [5]


# Forks of the driver


def test_forks_of_the_driver_do_not_disturb() -> None:
    init(num_cpus=2)
    refs = [add.remote(n, 0) for n in range(50)]
    array = get(put(numpy.ones(100_000)))
    for _ in range(3):
        child = os.fork()
        if not child:
            try:
                del array, refs
                gc.collect()
                os._exit(0 if not is_initialized() else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
    assert get(refs) == list(range(50))
    assert array.sum() == 100_000


def test_multiprocessing_beside_a_job() -> None:
    init(num_cpus=2)
    refs = [add.remote(n, 0) for n in range(50)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, range(-20, 0)) == list(range(20, 0, -1))
    assert get(refs) == list(range(50))
    assert get(add.remote(1, 2)) == 3


def test_a_forked_child_is_told() -> None:
    init(num_cpus=1)
    ref = put(1)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            for use in (lambda: get(ref), lambda: add.remote(1, 2), lambda: put(1)):
                with pytest.raises(RuntimeNotInitializedError, match="forked"):
                    use()
                os.write(write, b"refused ")
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as pipe:
        assert pipe.read() == "refused " * 3
    os.waitpid(child, 0)
    assert get(ref) == 1


def test_a_forked_child_may_have_a_job_of_its_own() -> None:
    init(num_cpus=1)
    child = os.fork()
    if not child:
        code = 1
        try:
            init(num_cpus=1)
            code = 0 if get(add.remote(1, 2)) == 3 else 2
            shutdown()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert get(add.remote(1, 2)) == 3


# One CPU


def test_recursion_on_one_cpu() -> None:
    init(num_cpus=1)

    @remote
    def down(n: int) -> Any:
        return 0 if n == 0 else 1 + get(down.remote(n - 1))

    assert get(down.remote(20)) == 20
    assert get([down.remote(5) for _ in range(4)]) == [5] * 4


def test_trees_on_one_cpu() -> None:
    init(num_cpus=1)

    @remote
    def tree(depth: int) -> Any:
        return 1 if depth == 0 else sum(get([tree.remote(depth - 1) for _ in range(3)]))

    assert get(tree.remote(3)) == 27


def test_actors_and_tasks_on_one_cpu() -> None:
    init(num_cpus=1)

    @remote
    class Boss:
        def __init__(self, depth: int) -> None:
            self.child = Boss.remote(depth - 1) if depth else None
            self.value = get(add.remote(depth, 0))

        def total(self) -> Any:
            return self.value + (get(self.child.total.remote()) if self.child is not None else 0)

    assert get(Boss.remote(4).total.remote()) == 10


def test_fractions_of_one_cpu() -> None:
    init(num_cpus=0.5)
    assert get(add.options(num_cpus=0.5).remote(1, 2)) == 3
    with pytest.raises(mpi_runtime.errors.InfeasibleResourceError, match=r"0\.5 CPU"):
        get(add.remote(1, 2), timeout=10)
