"""get, put, wait, and references: where they may be, and when the values behind them go."""

import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime import ObjectRef, get, put, remote, wait
from mpi_runtime.errors import GetTimeoutError, ObjectLostError
from tests.e2e.shared import is_open
from tests.helpers import wait_until, wait_until_in_client

pytestmark = pytest.mark.usefixtures("job")


@remote
def same(value: Any) -> Any:
    return value


@remote
def sleep(seconds: float, value: Any = None) -> Any:
    time.sleep(seconds)
    return value


@remote
def fail(text: str) -> None:
    raise ValueError(text)


class Gate:
    """Holds a task up until it is opened: a pipe with a name, from which the task reads."""

    def __init__(self, path: Any) -> None:
        self.path = str(path)
        os.mkfifo(self.path)

    def open(self) -> None:
        with open(self.path, "w") as pipe:
            pipe.write("x")


@pytest.fixture
def gate(tmp_path: Any) -> Gate:
    return Gate(tmp_path / "gate")


@remote
def behind(path: str, value: Any = None) -> Any:
    with open(path) as pipe:
        pipe.read(1)
    return value


# get


def test_get_of_one() -> None:
    assert get(put(7)) == 7
    assert get(same.remote("x")) == "x"


def test_get_of_a_list_keeps_the_order() -> None:
    refs = [sleep.remote(0.05 * (3 - n), n) for n in range(4)]
    assert get(refs) == [0, 1, 2, 3]


def test_get_of_an_empty_list() -> None:
    assert get([]) == []


def test_get_of_the_same_ref_twice() -> None:
    ref = same.remote([1])
    first, second = get([ref, ref])
    assert first == second == [1]
    assert get(ref) == [1]


@pytest.mark.parametrize("wrong", [1, "abc", None, {"a": 1}, {1, 2}])
def test_get_of_something_else(wrong: Any) -> None:
    with pytest.raises(ValueError, match="Invalid type of object refs"):
        get(wrong)


def test_get_of_a_list_with_something_else() -> None:
    with pytest.raises(TypeError, match="Each element must be an ObjectRef"):
        get([put(1), 2])  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [0, -1, 0.05])
def test_get_gives_up_in_time(timeout: float, gate: Gate) -> None:
    ref = behind.remote(gate.path, 5)
    waited = r"does not wait with timeout=-1 \(with None it does\)" if timeout < 0 else f"waited {timeout} s"
    with pytest.raises(GetTimeoutError, match=rf"get\(\) {waited}, and 1 of 1 values") as raised:
        get(ref, timeout=timeout)
    name = "behind" if timeout > 0 else f"object {ref.hex()}"
    assert f"The first that is missing: {name}. " in str(raised.value)
    with pytest.raises(TimeoutError):
        get([put(1), ref], timeout=timeout)
    gate.open()
    assert get(ref, timeout=30) == 5


def test_a_timeout_is_a_number() -> None:
    function: Any
    for function in (get, wait):
        with pytest.raises(TypeError, match="timeout must be a number of seconds or None, not '1'"):
            function([put(1)], timeout="1")


def test_get_of_what_is_there_with_timeout_zero() -> None:
    ref = same.remote(3)
    wait([ref])
    assert get(ref, timeout=0) == 3
    assert get(put(4), timeout=0) == 4


def test_an_error_is_raised_though_another_value_is_missing(gate: Gate) -> None:
    never = behind.remote(gate.path)
    bad = fail.remote("early")
    with pytest.raises(ValueError, match="early"):
        get([never, bad], timeout=30)
    with pytest.raises(ValueError, match="early"):  # now known beforehand
        get([never, bad], timeout=30)
    gate.open()


def test_errors_are_raised_each_time_and_afresh() -> None:
    ref = fail.remote("again")
    errors = []
    for _ in range(3):
        with pytest.raises(ValueError, match="again") as caught:
            get(ref)
        errors.append(caught.value)
    assert len({id(error) for error in errors}) == 3


def test_get_in_many_threads() -> None:
    refs = [sleep.remote(0.002, n) for n in range(200)]
    found: list[Any] = [None] * 8
    threads = [threading.Thread(target=lambda k=k: found.__setitem__(k, get(refs[k::8]))) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [sorted(part) for part in found] == [list(range(k, 200, 8)) for k in range(8)]


def test_an_error_reaches_the_thread_that_waits_for_it(gate: Gate, tmp_path: Path) -> None:
    begin = tmp_path / "begin"
    never = behind.remote(gate.path)
    caught: list[str] = []

    def wait_for(ref: Any) -> None:
        try:
            get([never, ref], timeout=20)
        except ValueError as error:
            caught.append(error.args[0])

    @remote
    def fail_later(text: str) -> None:
        is_open(begin)
        raise ValueError(text)

    threads = [threading.Thread(target=wait_for, args=(fail_later.remote(f"for {n}"),)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        wait_until_in_client(thread)
    begin.touch()
    for thread in threads:
        thread.join(30)
    assert sorted(caught) == ["for 0", "for 1", "for 2"]
    gate.open()


# put


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -(2**70), 1.5, float("inf"), 1j, "", "ü" * 10, b"", b"\0" * 100, (), (1, (2,)), [], [[]], {},
        {"a": [1]},
        set(), {1, 2}, frozenset({3}), range(5), slice(1, 2), bytearray(b"x" * 10), b"y" * 1_000_000, "z" * 1_000_000,
        list(range(100_000)), {n: str(n) for n in range(10_000)}, bytearray(1_000_000),
        int, len, ValueError("x"), Ellipsis,
    ],
    ids=lambda value: f"{type(value).__name__}",
)  # fmt: skip
def test_values_come_back_equal(value: Any) -> None:
    for found in (get(put(value)), get(same.remote(value)), get(same.remote(put(value)))):
        assert type(found) is type(value)
        assert found == value or (isinstance(value, ValueError) and found.args == value.args)


def test_a_value_is_a_copy() -> None:
    value = [1]
    ref = put(value)
    value.append(2)
    first = get(ref)
    first.append(3)
    assert get(ref) == [1]


def test_cycles_and_shared_parts() -> None:
    inner = [1]
    value: list[Any] = [inner, inner]
    value.append(value)
    found = get(same.remote(put(value)))
    assert found[0] is found[1]
    assert found[2] is found


def test_classes_and_functions_of_this_program() -> None:
    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

    offset = 10
    assert get(put(Point(3))).x == 3
    assert isinstance(get(same.remote(Point(4))), Point)
    assert get(same.remote(lambda x: x + offset))(1) == 11


def test_put_of_a_ref_is_refused() -> None:
    with pytest.raises(TypeError, match="not allowed"):
        put(put(1))


def test_put_of_what_cannot_be_serialised() -> None:
    with pytest.raises(TypeError, match="cannot serialise the value of type lock"):
        put(threading.Lock())
    with pytest.raises(TypeError, match="cannot serialise an argument of same"):
        same.remote(threading.Lock())


def test_puts_in_many_threads() -> None:
    found: list[list[Any]] = [[] for _ in range(8)]

    def work(k: int) -> None:
        refs = [put((k, n)) for n in range(200)]
        found[k] = get(refs)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [[(k, n) for n in range(200)] for k in range(8)]


# wait


def test_wait_for_one(gate: Gate) -> None:
    slow = behind.remote(gate.path)
    quick = same.remote(1)
    assert wait([slow, quick]) == ([quick], [slow])
    gate.open()
    ready, rest = wait([slow, quick], num_returns=2)
    assert (ready, rest) == ([slow, quick], [])


def test_wait_returns_no_more_than_asked_for() -> None:
    refs = [put(n) for n in range(5)]
    ready, rest = wait(refs, num_returns=2)
    assert ready == refs[:2]
    assert rest == refs[2:]


def test_wait_gives_up_in_time(gate: Gate) -> None:
    slow = behind.remote(gate.path)
    done = put(1)
    assert wait([slow], timeout=0) == ([], [slow])
    assert wait([slow], timeout=0.05) == ([], [slow])
    assert wait([slow, done], num_returns=2, timeout=0.05) == ([done], [slow])
    gate.open()
    assert wait([slow], timeout=30, fetch_local=False) == ([slow], [])


def test_wait_counts_errors_as_ready() -> None:
    bad = fail.remote("x")
    assert wait([bad]) == ([bad], [])
    assert wait([bad], timeout=0) == ([bad], [])


def test_wait_loop() -> None:
    rest = [sleep.remote(0.001 * (n % 7), n) for n in range(200)]
    seen = []
    while rest:
        ready, rest = wait(rest)
        seen += get(ready)
    assert sorted(seen) == list(range(200))


def test_wait_refuses_what_makes_no_sense() -> None:
    ref = put(1)
    with pytest.raises(TypeError, match="expected a list of ObjectRef, got a single"):
        wait(ref)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a list"):
        wait({ref})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="contains"):
        wait([ref, 1])  # type: ignore[type-var]
    with pytest.raises(ValueError, match="unique"):
        wait([ref, ref])
    with pytest.raises(ValueError, match="Invalid number"):
        wait([ref], num_returns=0)
    with pytest.raises(ValueError, match="greater than"):
        wait([ref], num_returns=2)
    with pytest.raises(ValueError, match="nonnegative"):
        wait([ref], timeout=-1)
    assert wait([]) == ([], [])


def test_wait_in_a_task_for_refs_of_others() -> None:
    @remote
    def count(refs: list[ObjectRef[Any]]) -> tuple[int, int]:
        ready, rest = wait(refs, num_returns=len(refs), timeout=20)
        return len(ready), len(rest)

    assert get(count.remote([sleep.remote(0.05), put(1), fail.remote("x")])) == (3, 0)


# Refs as arguments and inside values


def test_refs_at_the_top_level_stand_for_values() -> None:
    @remote
    def kinds(*args: Any, **kwargs: Any) -> list[str]:
        return [type(value).__name__ for value in (*args, *kwargs.values())]

    ref = put(1)
    assert get(kinds.remote(ref, [ref], (ref,), {"a": ref}, last=ref, inside=[ref])) == [
        "int", "list", "tuple", "dict", "int", "list",
    ]  # fmt: skip


def test_refs_inside_stay_refs() -> None:
    @remote
    def inside(values: Any) -> Any:
        assert type(values["deep"][0]) is ObjectRef
        return get(values["deep"][0]) + 1

    assert get(inside.remote({"deep": [sleep.remote(0.05, 4)]})) == 5


def test_the_same_ref_twice() -> None:
    @remote
    def add(a: Any, b: Any, c: Any) -> Any:
        return a + b + get(c[0])

    ref = sleep.remote(0.02, 2)
    assert get(add.remote(ref, ref, [ref])) == 6


def test_a_ref_whose_large_value_is_an_argument_too() -> None:
    @remote
    def both(value: bytes, refs: list[Any]) -> bool:
        return bool(value == get(refs[0], timeout=20))

    ref = put(b"x" * 1_000_000)
    assert get(both.remote(ref, [ref]), timeout=40)


def test_a_ref_whose_large_value_was_kept_from_an_earlier_call() -> None:
    import numpy

    @remote
    class Keeper:
        def keep(self, value: Any) -> None:
            self.value = value

        def get(self, refs: list[Any]) -> float:
            return float(get(refs[0], timeout=20).sum() + self.value.sum())

    keeper = Keeper.remote()
    ref = put(numpy.ones(200_000))
    keeper.keep.remote(ref)
    assert get(keeper.get.remote([ref]), timeout=40) == 400_000


def test_refs_of_refs() -> None:
    inner = put("deep")
    middle = put([inner])
    outer = put({"ref": middle})
    del inner, middle
    assert get(get(get(outer)["ref"])[0]) == "deep"


def test_a_task_returns_a_ref() -> None:
    @remote
    def outer() -> Any:
        return sleep.remote(0.05, 9)

    ref = get(outer.remote())
    assert type(ref) is ObjectRef
    assert get(ref) == 9


def test_a_task_returns_refs_inside_a_container() -> None:
    @remote
    def split(n: int) -> dict[int, Any]:
        return {k: put([k] * 10) for k in range(n)}

    refs = get(split.remote(20))
    gc.collect()
    assert get(same.remote(1)) == 1  # the head has heard what had to be said
    assert get([refs[k] for k in range(20)]) == [[k] * 10 for k in range(20)]


def test_a_ref_is_passed_on_and_on() -> None:
    @remote
    def pass_on(refs: list[Any], depth: int) -> Any:
        return pass_on.remote(refs, depth - 1) if depth else refs

    found = get(pass_on.remote([put("end")], 5))
    while type(found) is ObjectRef:
        found = get(found)
    assert get(found[0]) == "end"


def test_an_argument_that_failed_is_the_error_of_the_call() -> None:
    with pytest.raises(ValueError, match="root"):
        get(same.remote(same.remote(fail.remote("root"))))


def test_large_arguments_travel_as_an_object() -> None:
    @remote
    def length(*parts: bytes, last: bytes = b"") -> int:
        return sum(map(len, parts)) + len(last)

    assert get(length.remote(b"a" * 60_000, b"b" * 60_000, last=b"c" * 1_000_000)) == 1_120_000
    assert get(length.remote(b"a" * 1_000_000, put(b"b" * 5), last=put(b"c" * 7))) == 1_000_012


def test_large_arguments_with_refs_inside() -> None:
    @remote
    def use(data: bytes, refs: list[Any]) -> int:
        return len(data) + int(get(refs[0]))

    assert get(use.remote(b"a" * 1_000_000, [put(5)])) == 1_000_005


def test_refs_are_values_of_their_own() -> None:
    ref = put(1)
    assert ref == ref
    assert ref != put(1)
    assert len({ref, ref}) == 1
    assert ref.hex() == ref.binary().hex()
    assert ref.hex() in repr(ref)


def test_copies_of_refs_are_counted_like_refs(at_rest: Callable[[], None]) -> None:
    import copy

    ref = put([1, 2])
    others = [copy.copy(ref), copy.deepcopy(ref), copy.deepcopy([ref])[0]]
    del ref
    gc.collect()
    assert get(others) == [[1, 2]] * 3
    del others
    at_rest()


# Freeing


def test_values_go_with_their_last_ref(at_rest: Callable[[], None], counts: Callable[[], dict[str, int]]) -> None:
    refs = [put(n) for n in range(100)] + [same.remote(n) for n in range(100)]
    refs += [put(bytes(1_000_000)) for _ in range(5)]
    get(refs)
    assert counts()["objects"] == 205
    assert counts()["stored_extents"] == 5
    del refs
    at_rest()


def test_what_a_value_holds_goes_with_it(at_rest: Callable[[], None], counts: Callable[[], dict[str, int]]) -> None:
    ref: Any = put(bytes(1_000_000))
    for _ in range(50):
        ref = put([ref])
    assert counts()["objects"] == 51
    del ref
    at_rest()


def test_results_that_nobody_wants_go(at_rest: Callable[[], None], counts: Callable[[], dict[str, int]]) -> None:
    kept = [same.remote(bytes(100_000) if n % 2 else n) for n in range(50)]
    get(kept)
    assert counts()["objects"] == 50
    finished = counts()["finished"]
    del kept
    for n in range(50):
        same.remote(bytes(100_000) if n % 2 else n)
    wait_until(lambda: counts()["finished"] == finished + 50)
    at_rest()


def test_arguments_live_as_long_as_the_call(gate: Gate) -> None:
    @remote
    def use(path: str, refs: list[Any]) -> int:
        with open(path) as pipe:
            pipe.read(1)
        return len(get(refs[0]))

    ref = use.remote(gate.path, [put(bytes(500_000))])
    gc.collect()
    assert get(same.remote(1)) == 1
    gate.open()
    assert get(ref) == 500_000


def test_refs_of_an_executor_that_was_killed_go(tmp_path: Any, at_rest: Callable[[], None]) -> None:
    @remote(max_retries=0)
    def hold_and_die(refs: list[Any]) -> None:
        held = [*refs, *(put(bytes(200_000)) for _ in range(5)), put([put(1)])]
        get(held[0])
        time.sleep(0.05)
        os.kill(os.getpid(), 9)

    ref = hold_and_die.remote([put(bytes(300_000)), same.remote(1)])
    with pytest.raises(mpi_runtime.errors.WorkerCrashedError):
        get(ref)
    del ref
    at_rest()


def test_refs_dropped_by_other_threads_and_by_the_collector(at_rest: Callable[[], None]) -> None:
    class Node:
        def __init__(self, ref: Any) -> None:
            self.ref = ref
            self.itself = self

    def work() -> None:
        for n in range(300):
            Node(put(bytes(n)))
            Node(same.remote(n))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    gc.collect()
    at_rest()


def test_a_ref_that_cannot_be_counted_is_lost_clearly() -> None:
    from mpi_runtime.core.client.object_ref import adopt

    with pytest.raises(ObjectLostError, match="no longer exists"):
        get(adopt(bytes(16)), timeout=20)
