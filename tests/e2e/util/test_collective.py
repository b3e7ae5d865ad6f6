"""Operations of several processes on arrays."""

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mpi_runtime
from mpi_runtime.util import collective
from mpi_runtime.util.collective import ReduceOp
from tests.e2e.shared import is_open
from tests.helpers import run_program, wait_until

pytestmark = pytest.mark.usefixtures("job")

SIZE = 3
LONG_S = 60.0
"""More than anything here takes, unless it hangs."""


class OnDevice:
    """As far as is needed an array of cupy: known by what it has, read with `get` and written with `set`."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self._values: np.ndarray[Any, Any] = values.copy()
        self.__cuda_array_interface__: dict[str, Any] = {}

    def get(self) -> np.ndarray[Any, Any]:
        copied: np.ndarray[Any, Any] = self._values.copy()
        return copied

    def set(self, values: np.ndarray[Any, Any]) -> None:
        self._values[...] = values


class OfTorch:
    """As far as is needed a tensor of torch, for environments without it."""

    is_cuda = False
    dtype = "bfloat16"

    def __init__(self, values: Any) -> None:
        self._values = values

    def detach(self) -> "OfTorch":
        return self

    cpu = detach

    def numpy(self) -> np.ndarray[Any, Any]:
        if self._values is None:
            raise TypeError("Got unsupported ScalarType BFloat16")
        array: np.ndarray[Any, Any] = self._values
        return array


class Special(np.ndarray[Any, Any]):
    """An array of a class of the program."""


@mpi_runtime.remote
class Member:
    def join(self, rank: int, size: int = SIZE, **options: Any) -> None:
        collective.init_collective_group(size, rank, **options)

    def do(self, act: Callable[..., Any], *args: Any) -> Any:
        return act(*args)


def together(members: list[Any], act: Callable[..., Any], *args: Any) -> list[Any]:
    """What each member makes of it, with its rank as the first argument."""
    calls = [member.do.remote(act, rank, *args) for rank, member in enumerate(members)]
    found: list[Any] = mpi_runtime.get(calls, timeout=LONG_S)
    return found


def leave(_: int, name: str = "default") -> None:
    collective.destroy_collective_group(name)


@pytest.fixture
def members() -> Iterator[list[Any]]:
    made = [Member.remote() for _ in range(SIZE)]
    mpi_runtime.get([member.join.remote(rank, timeout_s=LONG_S) for rank, member in enumerate(made)])
    yield made
    together(made, leave)
    made.clear()  # the test's own list: the job is asked what is left before that goes


def ramp(rank: int, dtype: str = "f8", shape: tuple[int, ...] = (4,)) -> np.ndarray[Any, Any]:
    first = 10 * rank + 1
    return np.arange(first, first + np.prod(shape)).astype(dtype).reshape(shape)


# Operations


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1", "c16"])
@pytest.mark.parametrize("shape", [(4,), (2, 3), (), (0,), (100_000,)], ids=str)
def test_allreduce(members: list[Any], dtype: str, shape: tuple[int, ...]) -> None:
    def act(rank: int) -> np.ndarray[Any, Any]:
        array = ramp(rank, dtype, shape)
        collective.allreduce(array)
        return array

    expected = ramp(0, dtype, shape) + ramp(1, dtype, shape) + ramp(2, dtype, shape)
    for array in together(members, act):
        assert array.dtype == expected.dtype
        assert np.array_equal(array, expected)


@pytest.mark.parametrize(
    ("op", "combine"),
    [(ReduceOp.SUM, np.sum), (ReduceOp.PRODUCT, np.prod), (ReduceOp.MIN, np.min), (ReduceOp.MAX, np.max)],
)
def test_ways_to_reduce(members: list[Any], op: ReduceOp, combine: Callable[..., Any]) -> None:
    def act(rank: int) -> list[np.ndarray[Any, Any]]:
        arrays = [ramp(rank), ramp(rank), np.zeros(4)]
        collective.allreduce(arrays[0], op=op)
        collective.reduce(arrays[1], dst_rank=2, op=op)
        collective.reducescatter(arrays[2], [ramp(rank) * place for place in range(SIZE)], op=op)
        return arrays

    all_arrays = np.array([ramp(rank) for rank in range(SIZE)])
    expected = combine(all_arrays, axis=0)
    for rank, (everywhere, at_one, scattered) in enumerate(together(members, act)):
        assert np.array_equal(everywhere, expected)
        assert np.array_equal(at_one, expected if rank == 2 else ramp(rank))
        assert np.array_equal(scattered, combine(all_arrays * rank, axis=0))


def test_broadcast_and_allgather(members: list[Any]) -> None:
    def act(rank: int) -> tuple[np.ndarray[Any, Any], list[np.ndarray[Any, Any]]]:
        array, gathered = ramp(rank), [np.zeros(4) for _ in range(SIZE)]
        collective.allgather(gathered, array)
        collective.broadcast(array, src_rank=1)
        return array, gathered

    for array, gathered in together(members, act):
        assert np.array_equal(array, ramp(1))
        assert np.array_equal(gathered, [ramp(0), ramp(1), ramp(2)])


def test_send_and_recv_in_order(members: list[Any]) -> None:
    def act(rank: int) -> list[float]:
        if rank == 0:
            for number in range(5):
                for other in (1, 2):
                    collective.send(np.full(3, 10.0 * other + number), other)
            return []
        array, found = np.zeros(3), []
        for _ in range(5):
            collective.recv(array, 0)
            found.append(float(array[0]))
        return found

    assert together(members, act) == [[], [10, 11, 12, 13, 14], [20, 21, 22, 23, 24]]


def test_what_is_sent_is_what_it_was(members: list[Any], gate: Path) -> None:
    def act(rank: int) -> float:
        array = np.full(200_000, float(rank))
        if rank == 0:
            collective.send(array, 1)
            array[:] = 9.0
            gate.touch()
        elif rank == 1:
            is_open(gate)
            collective.recv(array, 0)
        return float(array.sum())

    assert together(members, act) == [1_800_000, 0, 400_000]


def test_barrier(members: list[Any]) -> None:
    def act(rank: int) -> tuple[float, float]:
        time.sleep(0.2 * rank)
        before = time.monotonic()
        collective.barrier()
        return before, time.monotonic()

    times = together(members, act)
    assert max(before for before, _ in times) <= min(after for _, after in times)


def test_many_in_a_row(members: list[Any], counts: Callable[[], dict[str, int]]) -> None:
    def act(rank: int) -> float:
        array = np.full(10, float(rank))
        for root in itertools.islice(itertools.cycle(range(SIZE)), 20):
            collective.allreduce(array, op=ReduceOp.MAX)
            collective.broadcast(array, root)
            collective.reduce(array, root, op=ReduceOp.MIN)
            collective.barrier()
        return float(array.sum())

    assert together(members, act) == [20.0] * SIZE
    # Nothing is kept of operations that are over.
    wait_until(lambda: counts()["objects"] < 10)


def test_arrays_on_a_device_go_through_the_host(members: list[Any]) -> None:
    def act(rank: int) -> list[np.ndarray[Any, Any]]:
        arrays: list[Any] = [OnDevice(ramp(rank)) for _ in range(3)]
        collective.allreduce(arrays[0])
        collective.broadcast(arrays[1], 2)
        gathered: list[Any] = [OnDevice(np.zeros(4)) for _ in range(SIZE)]
        collective.allgather(gathered, arrays[2])
        return [array.get() for array in [*arrays[:2], *gathered]]

    for total, given, *gathered in together(members, act):
        assert np.array_equal(total, ramp(0) + ramp(1) + ramp(2))
        assert np.array_equal(given, ramp(2))
        assert np.array_equal(gathered, [ramp(0), ramp(1), ramp(2)])


def test_tensors_of_torch(members: list[Any]) -> None:
    def act(rank: int) -> Any:
        try:
            import torch

            tensor, short = torch.full((3,), float(rank)), torch.zeros(2, dtype=torch.bfloat16)
        except ImportError:
            sys.modules["torch"] = SimpleNamespace(Tensor=OfTorch)  # type: ignore[assignment]
            tensor, short = OfTorch(np.full(3, float(rank))), OfTorch(None)
        collective.allreduce(tensor)
        try:
            collective.allreduce(short)
        except TypeError as error:
            return tensor.numpy().tolist(), str(error)

    for values, error in together(members, act):
        assert values == [3.0, 3.0, 3.0]
        assert "bfloat16" in error


def test_every_operation_on_real_tensors_of_torch(members: list[Any]) -> None:
    pytest.importorskip("torch")

    def act(rank: int) -> list[Any]:
        import torch

        whole = torch.arange(12.0).reshape(3, 4) * (rank + 1)
        collective.allreduce(whole.T[1:3])  # a view that is not in one piece
        learned = torch.full((2,), float(rank), requires_grad=True)
        collective.broadcast(learned, 1)
        largest = torch.tensor(rank, dtype=torch.int64)
        collective.allreduce(largest, op=collective.ReduceOp.MAX)
        half = torch.ones(3, dtype=torch.float16)
        collective.reduce(half, 2)
        gathered = [torch.zeros(2, dtype=torch.int32) for _ in range(SIZE)]
        collective.allgather(gathered, torch.tensor([rank, -rank], dtype=torch.int32))
        own = torch.zeros(2)
        collective.reducescatter(own, [torch.full((2,), float(rank + part)) for part in range(SIZE)])
        passed = torch.full((70_000,), float(rank))  # larger than a message
        if rank == 0:
            collective.send(passed, 2)
        elif rank == 2:
            collective.recv(passed, 0)
        found = [whole, learned, largest, half, gathered, own]
        return [learned.requires_grad, float(passed.sum()), *(one.tolist() if one is not gathered else
                [part.tolist() for part in gathered] for one in found)]  # fmt: skip

    for rank, (learns, passed, whole, learned, largest, half, gathered, own) in enumerate(together(members, act)):
        assert (learns, passed) == (True, 70_000.0 if rank == 1 else 0.0)
        alone = np.arange(12.0).reshape(3, 4)
        expected = alone * (rank + 1)
        expected[:, 1:3] = alone[:, 1:3] * 6
        assert np.array_equal(whole, expected)
        assert (learned, largest) == ([1.0, 1.0], 2)
        assert half == ([3.0] * 3 if rank == 2 else [1.0] * 3)
        assert gathered == [[0, 0], [1, -1], [2, -2]]
        assert own == [3.0 + 3 * rank] * 2


def test_an_array_that_is_not_in_one_piece(members: list[Any]) -> None:
    def act(rank: int) -> np.ndarray[Any, Any]:
        array = np.zeros((4, 6))
        array[::2, 1::3] = rank + 1
        collective.allreduce(array[::2, 1::3])
        return array

    for array in together(members, act):
        assert array.sum() == 4 * 6
        assert (array[::2, 1::3] == 6).all()


# What is wrong


def message(act: Callable[..., Any], kind: type[Exception], *args: Any) -> str:
    try:
        act(*args)
    except kind as error:
        return str(error)
    return "nothing raised"


def test_ranks_that_do_not_agree(members: list[Any]) -> None:
    def act(rank: int) -> list[str]:
        sizes = message(collective.allreduce, ValueError, np.zeros(3 + rank // 2))
        kinds = message(collective.allreduce, ValueError, np.zeros(3, "f4" if rank == 1 else "f8"))
        if rank == 0:
            other = message(collective.barrier, ValueError)
        else:
            other = message(collective.broadcast, ValueError, np.zeros(3), 1 if rank == 2 else 2)
        array = np.ones(2)
        collective.allreduce(array)
        return [sizes, kinds, other, str(array.sum())]

    for sizes, kinds, _, total in together(members, act):
        assert "'default' do not agree" in sizes
        assert "rank 2 calls allreduce (SUM) of float64 (4,)" in sizes
        assert "rank 1 calls allreduce (SUM) of float32 (3,)" in kinds
        assert total == "6.0"


def test_an_array_that_is_not_what_the_receiver_expects(members: list[Any]) -> None:
    def act(rank: int) -> str:
        if rank == 0:
            collective.send(np.zeros(3), 1)
            return ""
        return message(collective.recv, ValueError, np.zeros(4), 0) if rank == 1 else ""

    assert "rank 0 has sent float64 (3,); rank 1 receives float64 (4,)" in together(members, act)[1]


def test_bad_arguments(members: list[Any]) -> None:
    def act(rank: int) -> list[str]:
        fixed = np.zeros(3).view(Special)
        fixed.flags.writeable = False
        array = np.zeros(3)
        return [
            message(collective.allreduce, TypeError, [1.0, 2.0]),
            message(collective.allreduce, TypeError, np.array([object()])),
            message(collective.allreduce, ValueError, fixed),
            message(collective.broadcast, ValueError, array, SIZE),
            message(collective.send, RuntimeError, array, rank),
            message(collective.allgather, RuntimeError, [array], array),
            message(collective.allgather, ValueError, [np.zeros(4)] * SIZE, array),
            message(collective.init_collective_group, RuntimeError, SIZE, rank),
            message(collective.allreduce, RuntimeError, array, "other"),
        ]

    words = ["not list", "not of Python objects", "read-only", "no rank 3", "itself", "one array for each", "alike"]
    words += ["already", "init_collective_group"]
    for said in together(members, act):
        assert [word for word, text in zip(words, said, strict=True) if word not in text] == []


@pytest.mark.parametrize(("size", "rank"), [(0, 0), (2, 2), (2, -1)])
def test_ranks_out_of_bounds(size: int, rank: int) -> None:
    with pytest.raises(ValueError, match=r"rank must be|world_size must be"):
        collective.init_collective_group(size, rank)


def test_a_name_in_the_place_of_the_backend() -> None:
    with pytest.raises(ValueError, match="group_name="):
        collective.init_collective_group(1, 0, "mine")


def test_a_group_has_a_name() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        collective.init_collective_group(2, 0, group_name="")


def test_who_is_missing_is_named() -> None:
    first, second = Member.remote(), Member.remote()
    mpi_runtime.get([first.join.remote(0, 3, timeout_s=0.3), second.join.remote(2, 3, timeout_s=LONG_S)])
    with pytest.raises(TimeoutError, match=r"Rank 0 .* waited 0.3 s in barrier for rank\(s\) 1, 2 of 3"):
        mpi_runtime.get(first.do.remote(collective.barrier))
    with pytest.raises(TimeoutError, match=r"in float64 \(2,\) for rank\(s\) 1 of 3"):
        mpi_runtime.get(first.do.remote(lambda: collective.recv(np.zeros(2), 1)))
    collective.destroy_collective_group()


def test_a_rank_that_is_taken_and_a_size_that_differs() -> None:
    first, second = Member.remote(), Member.remote()
    mpi_runtime.get(first.join.remote(0, 2))
    with pytest.raises(ValueError, match="rank 0 is taken"):
        mpi_runtime.get(second.join.remote(0, 2))
    with pytest.raises(ValueError, match="its world_size is 2 for others, and 3 for rank 1"):
        mpi_runtime.get(second.join.remote(1, 3))
    collective.destroy_collective_group()


# Groups


def test_the_driver_can_be_in_a_group_and_a_process_in_several() -> None:
    member = Member.remote()
    joined = [member.join.remote(1, 2, group_name="pair"), member.join.remote(0, 1, group_name="alone")]
    collective.init_collective_group(2, 0, backend="nccl", group_name="pair")
    mpi_runtime.get(joined)

    def act(rank: int) -> list[float]:
        array = np.ones(2)
        collective.allreduce(array, "pair")
        mine = np.ones(2)
        if rank:
            collective.allreduce(mine, "alone")
        return [float(array.sum()), float(mine.sum())]

    other = member.do.remote(act, 1)
    assert act(0) == [4.0, 2.0]
    assert mpi_runtime.get(other) == [4.0, 2.0]
    assert (collective.get_rank("pair"), collective.get_collective_group_size("pair")) == (0, 2)
    assert (collective.get_rank("alone"), collective.get_collective_group_size("alone")) == (-1, -1)
    assert collective.is_group_initialized("pair")
    assert not collective.is_group_initialized()
    left = [member.do.remote(leave, 1, name) for name in ("pair", "alone")]
    collective.destroy_collective_group("pair")
    mpi_runtime.get(left)
    with pytest.warns(UserWarning, match="no collective group 'pair'"):
        collective.destroy_collective_group("pair")


def test_a_group_that_is_made_from_outside() -> None:
    members = [Member.remote() for _ in range(SIZE)]

    def act(number: int) -> list[Any]:
        array = np.full(2, 1.0 + number)
        collective.allreduce(array)
        return [float(array.sum()), collective.get_rank(), collective.get_collective_group_size()]

    for ranks in ([0, 1, 2], [2, 0, 1]):
        collective.create_collective_group(members, SIZE, ranks)
        with pytest.raises(ValueError, match="already"):
            collective.create_collective_group(members, SIZE, ranks)
        assert together(members, act) == [[12.0, rank, SIZE] for rank in ranks]
        assert collective.get_rank() == -1
        collective.destroy_collective_group()
    assert together(members, lambda _: collective.get_rank()) == [-1] * SIZE


@pytest.mark.parametrize(("count", "size", "ranks"), [(2, 3, [0, 1]), (2, 2, [0, 0]), (2, 2, [1, 2]), (1, 2, [0, 1])])
def test_actors_and_ranks_that_do_not_fit(count: int, size: int, ranks: list[int]) -> None:
    members = [Member.remote() for _ in range(count)]
    with pytest.raises(ValueError, match="different actors"):
        collective.create_collective_group(members, size, ranks)
    with pytest.raises(ValueError, match="different actors"):
        collective.create_collective_group([members[0]] * 2, 2, [0, 1])


def test_a_name_can_be_used_again_by_those_who_are_quick() -> None:
    members = [Member.remote() for _ in range(SIZE)]

    def act(rank: int) -> list[float]:
        found = []
        for turn in range(4):
            collective.init_collective_group(SIZE, (rank + turn) % SIZE)
            array = np.full(1, float(turn))
            collective.allreduce(array)
            found.append(float(array[0]))
            collective.destroy_collective_group()
        return found

    assert together(members, act) == [[0.0, 3.0, 6.0, 9.0]] * SIZE


def total(rank: int) -> float:
    array = np.full(1, rank + 1.0)
    collective.allreduce(array)
    return float(array[0])


def test_a_name_can_be_used_again_when_its_actors_have_ended_or_go_on() -> None:
    def made() -> list[Any]:
        members = [Member.remote() for _ in range(2)]
        mpi_runtime.get([member.join.remote(rank, 2, timeout_s=LONG_S) for rank, member in enumerate(members)])
        return members

    assert together(made(), total) == [3.0, 3.0]  # their handles are gone then
    first, second = made(), made()
    assert together(second, total) == together(first, total) == together(second, total) == [3.0, 3.0]
    together(first, leave)
    assert together(second, total) == [3.0, 3.0]
    together(second, leave)
    with pytest.warns(UserWarning, match="no collective group"):
        collective.destroy_collective_group()


def test_an_actor_that_has_ended_before_all_have_joined_is_replaced() -> None:
    lost, other = Member.remote(), Member.remote()
    mpi_runtime.get(lost.join.remote(0, 2, timeout_s=LONG_S))
    mpi_runtime.get(lost.do.remote(lambda: collective.send(np.ones(1), 1)))
    mpi_runtime.kill(lost)
    members = [Member.remote(), other]
    mpi_runtime.get(other.join.remote(1, 2, timeout_s=LONG_S))
    mpi_runtime.get(members[0].join.remote(0, 2, timeout_s=LONG_S))

    def act(rank: int) -> float:
        array = np.full(1, 5.0)
        (collective.recv if rank else collective.send)(array, 1 - rank)
        return float(array[0]) + total(rank)

    assert together(members, act) == [8.0, 8.0]
    together(members, leave)


def test_what_one_has_sent_that_has_left_is_received() -> None:
    members = [Member.remote() for _ in range(2)]
    mpi_runtime.get(members[0].join.remote(0, 2, timeout_s=LONG_S))
    mpi_runtime.get(members[0].do.remote(lambda: collective.send(np.full(1, 7.0), 1)))
    mpi_runtime.get(members[0].do.remote(leave, 0))
    mpi_runtime.get(members[1].join.remote(1, 2, timeout_s=LONG_S))

    def act() -> float:
        array = np.zeros(1)
        collective.recv(array, 0)
        leave(1)
        return float(array[0])

    assert mpi_runtime.get(members[1].do.remote(act)) == 7.0


@pytest.mark.parametrize("size", [3, 1 << 17])
def test_read_only_arrays_get_memory_of_their_own(members: list[Any], size: int) -> None:
    ref = mpi_runtime.put(np.ones(size))

    def act(rank: int, given: list[Any]) -> list[float]:
        array = mpi_runtime.get(given[0])
        part, own = array[1:], np.ones(2)
        own.flags.writeable = False
        collective.allreduce(array)
        collective.allreduce(own)
        kept = mpi_runtime.get(given[0])
        return [float(array.min()), float(array.max()), float(part.min()), float(kept.max()), float(own.max())]

    assert together(members, act, [ref]) == [[3.0, 3.0, 1.0, 1.0, 3.0]] * SIZE
    assert mpi_runtime.get(ref).max() == 1.0


def test_tasks_that_wait_for_each_other_give_up_their_cpus() -> None:
    @mpi_runtime.remote
    def act(rank: int) -> float:
        collective.init_collective_group(6, rank, timeout_s=LONG_S)
        array = np.ones(1)
        collective.allreduce(array)
        collective.destroy_collective_group()
        return float(array[0])

    assert mpi_runtime.get([act.remote(rank) for rank in range(6)], timeout=LONG_S) == [6.0] * 6


def test_who_waits_for_a_process_that_has_ended_is_told(tmp_path: Path) -> None:
    members = [Member.remote() for _ in range(3)]
    mpi_runtime.get([member.join.remote(rank, 3, timeout_s=LONG_S) for rank, member in enumerate(members)])
    waiting = [member.do.remote(collective.barrier) for member in members[:2]]
    waiting[1] = members[1].do.remote(lambda: collective.recv(np.zeros(1), 2))
    mpi_runtime.kill(members[2])
    for ref in waiting:
        with pytest.raises(RuntimeError, match=r"for rank\(s\) 2 of 3, whose processes have ended"):
            mpi_runtime.get(ref, timeout=LONG_S / 2)
    collective.destroy_collective_group()


def test_a_group_made_from_outside_whose_actor_has_ended() -> None:
    members = [Member.remote() for _ in range(2)]
    collective.create_collective_group(members, 2, [0, 1], timeout_s=LONG_S)
    waiting = members[0].do.remote(collective.barrier)
    mpi_runtime.kill(members[1])
    with pytest.raises(RuntimeError, match=r"for rank\(s\) 1 of 2"):
        mpi_runtime.get(waiting, timeout=LONG_S / 2)
    collective.destroy_collective_group()


@pytest.mark.parametrize("is_killed", [False, True])
def test_tasks_that_run_again_form_their_group_again(is_killed: bool, tmp_path: Path) -> None:
    @mpi_runtime.remote(max_retries=5, retry_exceptions=[RuntimeError])
    def act(rank: int) -> float:
        collective.init_collective_group(2, rank, timeout_s=LONG_S)
        collective.barrier()
        mark = tmp_path / str(rank)
        if rank and not mark.exists():
            mark.touch()
            if is_killed:
                os._exit(1)
            raise RuntimeError("again")
        found = total(rank)
        collective.destroy_collective_group()
        return found

    assert mpi_runtime.get([act.remote(rank) for rank in range(2)], timeout=LONG_S / 2) == [3.0, 3.0]


def test_a_later_task_of_a_process_joins_a_group_that_an_earlier_one_has_left_open() -> None:
    @mpi_runtime.remote(num_cpus=4)
    def act(number: int) -> int:
        collective.init_collective_group(1, 0, group_name="left open", timeout_s=LONG_S)
        with pytest.raises(ValueError, match="already"):
            collective.init_collective_group(1, 0, group_name="left open")
        collective.barrier(group_name="left open")
        if number == 2:
            collective.destroy_collective_group("left open")
        return number

    assert [mpi_runtime.get(act.remote(number)) for number in range(3)] == [0, 1, 2]


RANKS = """
import numpy
import mpi_runtime
from mpi_runtime.util import collective

mpi_runtime.init(num_cpus=2)


@mpi_runtime.remote(num_cpus=1)
class Worker:
    def __init__(self, rank):
        collective.init_collective_group(2, rank)
        self.rank = rank

    def total(self):
        array = numpy.full(100_000, 1.0 + self.rank)
        collective.allreduce(array)
        collective.destroy_collective_group()
        return array.sum()


workers = [Worker.remote(rank) for rank in range(2)]
print(mpi_runtime.get([worker.total.remote() for worker in workers]) == [300_000.0] * 2)
"""


@pytest.mark.mpi
def test_on_ranks() -> None:
    assert run_program(RANKS, ranks=3).expect(0).stdout == "True\n"
