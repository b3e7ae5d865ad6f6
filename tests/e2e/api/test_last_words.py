"""Calls that are not run again, and whose process dies a moment after they have ended: their results are not lost."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from mpi_runtime import get, put, remote
from mpi_runtime.core.client import current
from mpi_runtime.errors import ActorDiedError, WorkerCrashedError
from tests.helpers import run_program

pytestmark = [pytest.mark.usefixtures("job"), pytest.mark.dies("executor")]


class Plain:
    """Answers, and dies in the midst of a burst."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def answer(self, value: Any) -> Any:
        return value

    def count(self, numbers: range) -> Iterator[int]:
        yield from numbers

    def keep(self, boxed: list[Any]) -> Any:
        self.kept.append(boxed[0])
        return get(boxed[0])

    def die(self, how: str) -> None:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(1)

    def say_nothing(self) -> None:
        """As if a call that lets no other thread run went on from here: what has ended waits to be sent."""
        outbox = current.client().outbox
        outbox._last_s = float("inf")
        outbox.ticking = True


class Asynchronous(Plain):
    """The same in a loop."""

    async def answer(self, value: Any) -> Any:
        return value


Actor = remote(Plain)
HOW = ["kill", "exit"]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kind", [Plain, Asynchronous])
def test_what_had_ended_is_heard(kind: type, how: str) -> None:
    actor: Any = remote(kind).remote()
    get(actor.answer.remote(0))
    refs = [actor.answer.remote(number) for number in range(50)]
    died = actor.die.remote(how)
    assert get(refs) == list(range(50))
    with pytest.raises(ActorDiedError, match=r"die was called, but"):
        get(died)


@pytest.mark.parametrize("how", HOW)
def test_also_where_it_had_no_chance_to_be_sent(how: str) -> None:
    actor = Actor.remote()
    first = put(1)
    refs = [actor.say_nothing.remote(), *(actor.answer.remote(number) for number in range(30))]
    refs += [actor.keep.remote([first]), actor.answer.remote(b"x" * 10_000), actor.answer.remote(b"x" * 40_000)]
    refs += [actor.answer.remote(number) for number in range(30)]
    died = actor.die.remote(how)
    expected = [None, *range(30), 1, b"x" * 10_000, b"x" * 40_000, *range(30)]
    assert get(refs) == expected
    with pytest.raises(ActorDiedError):
        get(died)


def test_large_values_and_items() -> None:
    actor = Actor.remote()
    quiet = actor.say_nothing.remote()
    large = actor.answer.remote(numpy.arange(200_000))
    items = actor.count.options(num_returns="streaming").remote(range(20))
    last = actor.answer.remote(1)
    died = actor.die.remote("kill")
    assert get(quiet) is None
    assert get(large).sum() == numpy.arange(200_000).sum()
    assert [get(item) for item in items] == list(range(20))
    assert get(last) == 1
    with pytest.raises(ActorDiedError):
        get(died)


def test_a_call_that_is_not_run_again_has_its_result() -> None:
    """Of tasks too: with `max_retries=0` each runs once, and what it has returned is not lost with the next."""

    @remote(max_retries=0)
    def answer(number: int) -> int:
        if number == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    refs = [answer.remote(number) for number in range(80)]
    with pytest.raises(WorkerCrashedError):
        get(refs.pop(40))
    assert get(refs) == [number for number in range(80) if number != 40]


def test_a_forked_child_says_nothing_for_its_parent() -> None:
    @remote
    class Forking:
        def __init__(self) -> None:
            self.children: list[int] = []

        def fork(self, number: int) -> int:
            child = os.fork()
            if not child:
                try:
                    outbox = current.client().outbox
                    assert outbox.draft is None
                    outbox.entrust("a message of the child")
                finally:
                    os._exit(0)
            _, status = os.waitpid(child, 0)
            assert status == 0
            return number

        def die(self) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

    actor = Forking.remote()
    refs = [actor.fork.remote(number) for number in range(10)]
    died = actor.die.remote()
    assert get(refs) == list(range(10))
    with pytest.raises(ActorDiedError):
        get(died)


WITH_ITS_FORKSERVER = """
import os, signal
import mpi_runtime as ray

@ray.remote
class Actor:
    def answer(self, n): return n
    def say_nothing(self):
        from mpi_runtime.core.client import current
        outbox = current.client().outbox
        outbox._last_s, outbox.ticking = float("inf"), True
    def die(self): os.kill(os.getppid(), signal.SIGKILL); signal.pause()

ray.init(num_cpus=1)
actor = Actor.remote()
refs = [actor.say_nothing.remote(), *(actor.answer.remote(n) for n in range(50))]
died = actor.die.remote()
assert ray.get(refs) == [None, *range(50)]
try:
    ray.get(died)
except ray.exceptions.ActorDiedError:
    print("heard")
"""


@pytest.mark.parametrize("ranks", [None, pytest.param(3, marks=pytest.mark.mpi)])
def test_the_forkserver_is_killed_and_its_executors_with_it(ranks: int | None) -> None:
    completed = run_program(WITH_ITS_FORKSERVER, ranks=ranks)
    assert completed.expect(0).stdout == "heard\n"


def test_also_of_an_executor_that_has_fetched_its_files_first(tmp_path: Path) -> None:
    """What it sends meanwhile counts too, or its agent takes what was sealed for a frame that has arrived."""
    options = f"runtime_env={{'working_dir': {str(tmp_path)!r}}}"
    completed = run_program(WITH_ITS_FORKSERVER.replace("Actor.remote()", f"Actor.options({options}).remote()"))
    assert completed.expect(0).stdout == "heard\n"


LINGERING = """
import atexit, threading, time
import mpi_runtime as ray

ray.init(num_cpus=1)

@ray.remote(max_calls=1)
def pumps():
    threading.Thread(target=time.sleep, args=(6,), name="pump").start()

@ray.remote(max_calls=1)
def saves():
    atexit.register(time.sleep, 6)

@ray.remote
def after():
    return 1

ray.get(pumps.remote())
ray.get(saves.remote())
assert ray.get(after.remote()) == 1
"""


def test_a_process_that_cannot_end_after_its_last_call_reports_what_it_waits_for() -> None:
    stderr = run_program(LINGERING).expect(0).stderr
    assert "it waits for threads that are not daemons: pump" in stderr
    assert "it waits for functions registered with atexit" in stderr
