"""Remote functions: how they are made and called, what they return, and calls within calls."""

import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime import ObjectRef, get, get_runtime_context, put, remote, wait
from mpi_runtime.errors import GetTimeoutError
from tests.e2e.shared import hold, note
from tests.helpers import wait_until

pytestmark = pytest.mark.usefixtures("job")


@remote
def add(a: Any, b: Any = 10) -> Any:
    return a + b


@remote
def where() -> int:
    return os.getpid()


# Calling


def test_arguments_by_position_and_by_name() -> None:
    assert get([add.remote(1, 2), add.remote(1), add.remote(b=1, a=2), add.remote(1, b=5)]) == [3, 11, 3, 6]


def test_arguments_with_any_name() -> None:
    @remote
    def names(**kwargs: Any) -> list[str]:
        return sorted(kwargs)

    assert get(names.remote(self=1, args=2, kwargs=3, name=4)) == ["args", "kwargs", "name", "self"]


def test_star_arguments() -> None:
    @remote
    def gather(first: Any, *rest: Any, key: Any = None, **others: Any) -> Any:
        return first, rest, key, others

    assert get(gather.remote(1, 2, 3, key=4, other=5)) == (1, (2, 3), 4, {"other": 5})


def test_it_runs_elsewhere() -> None:
    assert get(where.remote()) != os.getpid()


def test_wrong_arguments_are_refused_at_once() -> None:
    @remote
    def strict(a: int, /, b: int = 0, *, c: int) -> int:
        return a + b + c

    @remote
    def loose(*args: int, **kwargs: int) -> int:
        return len(args) + len(kwargs)

    assert get([strict.remote(1, c=2), strict.remote(1, 2, c=3), strict.remote(1, b=2, c=3)]) == [3, 6, 6]
    assert get([loose.remote(), loose.remote(1, 2, x=3)]) == [0, 3]
    with pytest.raises(TypeError, match=r"add\.remote\(\): missing a required argument: 'a'"):
        add.remote()  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="too many positional"):
        add.remote(1, 2, 3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="unexpected keyword argument 'd'"):
        add.remote(1, d=1)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="'c'"):
        strict.remote(1)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="'a'"):
        strict.remote(a=1, c=2)  # type: ignore[call-overload]


def test_direct_calls_are_refused() -> None:
    with pytest.raises(TypeError, match=r"cannot be called directly.*add\.remote\(\)"):
        add(1, 2)


def test_it_looks_like_the_function() -> None:
    @remote
    def documented() -> None:
        """Say what it does."""

    assert documented.__name__ == "documented"
    assert documented.__doc__ == "Say what it does."


def test_remote_as_a_function() -> None:
    double = remote(lambda x: 2 * x)
    triple = remote(num_cpus=2)(lambda x: 3 * x)
    assert get([double.remote(2), triple.remote(2)]) == [4, 6]


@pytest.mark.parametrize("wrong", [1, "f", None, [len]])
def test_remote_of_something_else(wrong: Any) -> None:
    with pytest.raises(TypeError, match="@remote"):
        remote(wrong)
    with pytest.raises(TypeError, match="@remote"):
        remote(num_cpus=1)(wrong)


def test_remote_with_empty_parentheses() -> None:
    with pytest.raises(TypeError, match="no arguments and no parentheses"):
        remote()


def test_remote_of_what_is_remote() -> None:
    with pytest.raises(TypeError, match="remote already"):
        remote(add)


def test_coroutine_functions_are_refused() -> None:
    async def later() -> None:
        pass

    with pytest.raises(ValueError, match="'async def' should not be used"):
        remote(later)


def test_builtins_and_partials() -> None:
    import functools
    import math

    assert get(remote(math.sqrt).remote(4.0)) == 2.0
    assert get(remote(functools.partial(pow, 2)).remote(5)) == 32


def test_functions_that_call_each_other() -> None:
    def even(n: int) -> bool:
        return n == 0 or odd(n - 1)

    def odd(n: int) -> bool:
        return n != 0 and even(n - 1)

    assert get(remote(even).remote(10))


def test_remote_functions_that_call_each_other() -> None:
    @remote
    def even(n: int) -> Any:
        return True if n == 0 else get(odd.remote(n - 1))

    @remote
    def odd(n: int) -> Any:
        return False if n == 0 else get(even.remote(n - 1))

    assert get([even.remote(5), odd.remote(5)]) == [False, True]


def test_a_closure_that_cannot_be_carried() -> None:
    lock = threading.Lock()

    @remote
    def use() -> None:
        lock.acquire()

    with pytest.raises(TypeError, match="cannot serialise use"):
        use.remote()


def test_a_large_closure() -> None:
    table = bytes(20_000_000)

    @remote
    def length() -> int:
        return len(table)

    with pytest.warns(UserWarning, match="length takes 20 MB"):
        refs = [length.remote() for _ in range(8)]
    assert get(refs) == [20_000_000] * 8


def test_init_in_a_task() -> None:
    @remote
    def work() -> Any:
        with pytest.raises(RuntimeError, match="running already"):
            mpi_runtime.init()
        mpi_runtime.init(ignore_reinit_error=True)
        mpi_runtime.shutdown()  # only the driver ends the job
        return mpi_runtime.is_initialized(), get(add.remote(1, 2))

    assert get(work.remote()) == (True, 3)


def test_remote_functions_as_values() -> None:
    @remote
    def call(function: Any, *args: Any) -> Any:
        return get(function.remote(*args))

    assert get(call.remote(add, 1, 2)) == 3
    assert get(pickle.loads(pickle.dumps(mpi_runtime.RemoteFunction(os.path.join, {}))).remote("a", "b")) == "a/b"


def test_calls_of_one_function_in_many_threads() -> None:
    @remote(num_returns=2)
    def pair(n: Any) -> Any:
        return n, -n

    found: dict[int, Any] = {}

    def work(k: int) -> None:
        several = [pair.remote((k, n)[1]) for n in range(100)]
        single = [add.remote(k, n) for n in range(100)]
        found[k] = (get([ref for refs in several for ref in refs]), get(single))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    for k in range(6):
        assert found[k] == ([x for n in range(100) for x in (n, -n)], [k + n for n in range(100)])


# What is returned


def test_num_returns() -> None:
    @remote(num_returns=3)
    def three() -> Any:
        return 1, [2], "3"

    refs = three.remote()
    assert isinstance(refs, list)
    assert get(refs) == [1, [2], "3"]
    one = three.options(num_returns=1).remote()
    assert get(one) == (1, [2], "3")
    assert get(refs[1]) == [2]


def test_num_returns_of_large_values_and_refs() -> None:
    @remote(num_returns=3)
    def three() -> Any:
        return b"x" * 200_000, put(7), [put(8)]

    large, ref, refs = three.remote()
    assert len(get(large)) == 200_000
    assert get(get(ref)) == 7
    assert get(get(refs)[0]) == 8


def test_some_of_several_returns_dropped() -> None:
    @remote(num_returns=4)
    def four() -> Any:
        time.sleep(0.05)
        return [bytes(100_000 * n) for n in range(4)]

    _, second, *_ = four.remote()
    del _
    assert len(get(second)) == 100_000


def test_no_returns(tmp_path: Any) -> None:
    @remote(num_returns=0)
    def nothing(path: str) -> None:
        with open(path, "w") as file:
            file.write("done")

    assert nothing.remote(str(tmp_path / "file")) is None
    wait_until((tmp_path / "file").exists)
    wait_until((tmp_path / "file").read_text)


@pytest.mark.parametrize("result", [(1, 2), (1, 2, 3, 4), [], 5, None])
def test_a_wrong_number_of_returns(result: Any) -> None:
    @remote(num_returns=3)
    def wrong() -> Any:
        return result

    for ref in wrong.remote():
        with pytest.raises(ValueError if isinstance(result, (tuple, list)) else TypeError, match="3"):
            get(ref)


def test_a_generator_fills_several_returns() -> None:
    @remote(num_returns=3)
    def three() -> Any:
        yield from range(3)

    assert get(three.remote()) == [0, 1, 2]


def test_a_result_that_cannot_be_serialised() -> None:
    @remote
    def bad() -> Any:
        return threading.Lock()

    with pytest.raises(TypeError, match="cannot serialise the result of"):
        get(bad.remote())


# Options


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"num_cpu": 1}, ValueError, "did you mean 'num_cpus'"),
        ({"nonsense": 1}, ValueError, "nonsense"),
        ({"num_cpus": -1}, ValueError, "num_cpus"),
        ({"num_cpus": "1"}, TypeError, "num_cpus"),
        ({"num_gpus": 1.5}, ValueError, "num_gpus"),
        ({"num_returns": -1}, ValueError, "num_returns"),
        ({"num_returns": 1.5}, TypeError, "num_returns"),
        ({"max_retries": -2}, ValueError, "max_retries"),
        ({"resources": {"CPU": 1}}, ValueError, "num_cpus"),
        ({"resources": {"a": -1}}, ValueError, "resources"),
        ({"resources": ["a"]}, TypeError, "resources"),
        ({"memory": -1}, ValueError, "memory"),
        ({"runtime_env": {"pip": []}}, ValueError, "install it"),
    ],
    ids=str,
)
def test_options_are_checked(options: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        remote(**options)(lambda: None)
    with pytest.raises(error, match=text):
        add.options(**options)


def test_name_option() -> None:
    @remote
    def name() -> Any:
        return get_runtime_context().get_task_name()

    assert get(name.options(name="special").remote()) == "special"
    assert get(name.remote()).endswith("name")


def test_environment_variables() -> None:
    @remote
    def read() -> tuple[str | None, int]:
        return os.environ.get("TEST_OF_TASKS"), os.getpid()

    one = read.options(runtime_env={"env_vars": {"TEST_OF_TASKS": "1"}})
    two = read.options(runtime_env={"env_vars": {"TEST_OF_TASKS": "2"}})
    found = get([one.remote(), two.remote(), read.remote(), one.remote()])
    assert [value for value, _ in found] == ["1", "2", None, "1"]
    processes: dict[Any, set[int]] = {}
    for value, pid in found:
        processes.setdefault(value, set()).add(pid)
    assert not processes["1"] & processes["2"]
    assert not processes[None] & (processes["1"] | processes["2"])


# Calls within calls


def test_nested_calls() -> None:
    @remote
    def outer(n: int) -> Any:
        return sum(get([add.remote(k, 0) for k in range(n)]))

    assert get([outer.remote(n) for n in range(10)]) == [sum(range(n)) for n in range(10)]


def test_more_waiting_parents_than_cpus() -> None:
    @remote
    def parent(n: int) -> Any:
        return get(add.remote(n, 1))

    assert get([parent.remote(n) for n in range(30)]) == [n + 1 for n in range(30)]


def test_a_parent_that_ends_before_its_children() -> None:
    @remote
    def child(n: int) -> int:
        time.sleep(0.05)
        return n

    @remote
    def parent() -> Any:
        return [child.remote(n) for n in range(4)]

    assert get(get(parent.remote())) == list(range(4))


def test_put_wait_and_timeouts_in_tasks(gate: Path) -> None:
    @remote
    def work() -> Any:
        ref = put(1)
        ready, rest = wait([hold.remote(gate), ref], timeout=10)
        try:
            get(rest[0], timeout=0.01)
        except GetTimeoutError:
            return ready == [ref], len(rest)
        return None

    assert get(work.remote()) == (True, 1)


def test_threads_in_a_task_use_the_job() -> None:
    @remote
    def work() -> Any:
        found: list[Any] = []
        threads = [threading.Thread(target=lambda n=n: found.append(get(add.remote(n, 1)))) for n in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sorted(found)

    assert get(work.remote()) == list(range(1, 11))


def test_a_thread_that_waits_after_its_task_has_ended() -> None:
    @remote
    def slow() -> None:
        time.sleep(0.2)

    @remote
    def leave_a_thread() -> int:
        ref = slow.remote()
        threading.Thread(target=lambda: get(ref), daemon=True).start()
        time.sleep(0.05)
        return os.getpid()

    for _ in range(5):
        get([leave_a_thread.remote() for _ in range(4)])
    time.sleep(0.4)
    get([where.remote() for _ in range(20)])


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.1])
def test_a_thread_that_begins_to_wait_after_its_task_has_ended(delay: float) -> None:
    @remote(num_cpus=0)
    def slow() -> bytes:
        time.sleep(0.5)
        return bytes(1_000_000)  # of small ones an idle process does not tell that they are gone, until it ends

    @remote
    def leave_a_thread() -> None:
        ref = slow.remote()

        def work() -> None:
            time.sleep(delay)
            get(ref)

        threading.Thread(target=work, daemon=True).start()

    get([leave_a_thread.remote() for _ in range(4)])
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        get([where.remote() for _ in range(20)], timeout=20)


def test_processes_in_a_task() -> None:
    @remote
    def with_fork() -> Any:
        import multiprocessing

        with multiprocessing.get_context("fork").Pool(2) as pool:
            squares = pool.map(abs, [-1, -2, -3])
        shell = subprocess.check_output([sys.executable, "-c", "print(6 * 7)"], text=True)
        return squares, shell.strip(), get(add.remote(1, 1))

    assert get([with_fork.remote() for _ in range(2)]) == [([1, 2, 3], "42", 2)] * 2


def test_a_child_that_comes_back_from_a_fork_ends() -> None:
    @remote
    def fork() -> int:
        pid = os.fork()
        return pid  # noqa: RET504

    # The child returns from the function too; it must not answer, nor run what is queued behind.
    refs = [fork.remote() for _ in range(20)]
    others = [add.remote(n, 0) for n in range(50)]
    assert all(get(refs, timeout=30))
    assert get(others, timeout=30) == list(range(50))


def test_explain(gate: Path) -> None:
    first = hold.remote(gate)
    second = add.remote(first, 1)
    assert "waits for 1 argument" in mpi_runtime.explain(second)
    gate.touch()
    wait([first])
    assert "value is there" in mpi_runtime.explain(first)
    assert isinstance(first, ObjectRef)


def test_a_process_ends_after_so_many_calls() -> None:
    @remote(max_calls=2)
    def pid(seconds: float = 0.0) -> int:
        time.sleep(seconds)
        return os.getpid()

    pids = [get(pid.remote()) for _ in range(6)]
    assert len(set(pids)) >= 3
    assert all(pids.count(one) <= 2 for one in pids)
    many = get([pid.remote(0.001) for _ in range(40)])  # what was sent ahead is run by others
    assert len(many) == 40
    assert all(many.count(one) <= 2 for one in many)


@remote
def fill(most: int, size: int) -> int:
    """Have this process end after so many functions, or bytes of their code."""
    from mpi_runtime.core.executor import executor

    executor.FUNCTIONS_MAX, executor.CODE_BYTES_MAX = most, size
    return os.getpid()


@pytest.mark.parametrize(("most", "size"), [(5, 1 << 29), (10_000, 5_000)])
def test_a_process_that_has_loaded_many_functions_is_replaced(most: int, size: int) -> None:
    """A program that makes a function for each call would fill the memory of each process with them."""
    first = get(fill.remote(most, size))
    pids = [get(remote(lambda number=number: (number, os.getpid(), bytes(1000))).remote())[1] for number in range(20)]
    assert pids[0] == first
    assert pids[-1] != first
    assert pids == sorted(pids, key=pids.index), "none is used again"


def test_calls_with_a_higher_priority_go_first(tmp_path: Path, gate: Path) -> None:
    @remote(num_cpus=4)
    def write(name: str) -> None:
        note(tmp_path / "order", name)

    held = hold.options(num_cpus=4).remote(gate)
    refs = [write.options(priority=priority).remote(name) for name, priority in (("c", -1), ("b", 0), ("a", 7))]
    gate.touch()
    get([held, *refs])
    assert (tmp_path / "order").read_text().split() == ["a", "b", "c"]
    with pytest.raises(TypeError, match="priority must be a whole number"):
        write.options(priority="high")
