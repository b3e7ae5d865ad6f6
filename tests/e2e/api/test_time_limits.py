"""Time limits that are enforced: tasks, methods and coroutines that take too long are ended."""

import asyncio
import contextlib
import os
import time
from pathlib import Path

import pytest

from mpi_runtime import get, method, remote
from mpi_runtime.errors import ActorDiedError, TaskTimeoutError

pytestmark = pytest.mark.usefixtures("job")
INIT = {"num_cpus": 2}
LONG_S = 60.0


@remote(time_limit=0.5, enforce_time_limit=True)
def sleeps() -> None:
    time.sleep(LONG_S)


def test_a_task_that_takes_too_long() -> None:
    with pytest.raises(TimeoutError) as caught:
        get(sleeps.remote(), timeout=20)
    assert type(caught.value) is TaskTimeoutError
    assert "sleeps had run for 0.5" in str(caught.value)
    assert "its time_limit is 0.5 s" in str(caught.value)
    assert f"rank 0, {os.uname().nodename}" in str(caught.value)


def test_a_task_that_ignores_the_interrupt() -> None:
    @remote(time_limit=0.2, enforce_time_limit=True)
    def stubborn() -> None:
        while True:
            with contextlib.suppress(KeyboardInterrupt):
                time.sleep(LONG_S)

    with pytest.raises(TaskTimeoutError, match="so its process was killed"):
        get(stubborn.remote(), timeout=30)


def test_what_it_returns_when_it_is_interrupted_is_its_value() -> None:
    @remote(time_limit=0.2, enforce_time_limit=True)
    def best_so_far() -> str:
        with contextlib.suppress(KeyboardInterrupt):
            time.sleep(LONG_S)
        return "best"

    assert get(best_so_far.remote(), timeout=20) == "best"


def test_waiting_in_a_queue_does_not_count() -> None:
    @remote(num_cpus=2, time_limit=0.6, enforce_time_limit=True)
    def short(number: int) -> int:
        time.sleep(0.2)
        return number

    assert get([short.remote(number) for number in range(6)], timeout=30) == list(range(6))


@pytest.mark.parametrize("named", [[TimeoutError], True])
def test_it_is_run_again_only_if_the_error_is_named(named: object, tmp_path: Path) -> None:
    @remote(time_limit=0.4, enforce_time_limit=True, max_retries=2, retry_exceptions=named)
    def second_time_quick() -> int:
        runs = len(list(tmp_path.iterdir()))
        (tmp_path / str(runs)).touch()
        time.sleep(0.0 if runs else LONG_S)
        return runs

    if named is True:
        with pytest.raises(TaskTimeoutError):
            get(second_time_quick.remote(), timeout=20)
    else:
        assert get(second_time_quick.remote(), timeout=20) == 1


@remote
class Sync:
    @method(time_limit=0.3, enforce_time_limit=True)
    def sleeps(self) -> None:
        time.sleep(LONG_S)

    def pid(self) -> int:
        return os.getpid()


def test_a_method_that_takes_too_long_ends_its_actors_process() -> None:
    actor = Sync.options(max_restarts=1).remote()
    before = get(actor.pid.remote())
    with pytest.raises(TaskTimeoutError, match="the process of its actor was killed"):
        get(actor.sleeps.remote(), timeout=20)
    assert get(actor.pid.remote(), timeout=20) != before
    with pytest.raises(TaskTimeoutError):
        get(actor.sleeps.remote(), timeout=20)
    with pytest.raises(ActorDiedError, match="ran longer than its time_limit"):
        get(actor.pid.remote(), timeout=20)


@remote
class Async:
    @method(time_limit=0.3, enforce_time_limit=True)
    async def sleeps(self) -> None:
        await asyncio.sleep(LONG_S)

    async def pid(self) -> int:
        return os.getpid()


def test_a_coroutine_that_takes_too_long_is_cancelled_and_its_actor_lives_on() -> None:
    actor = Async.remote()
    before = get(actor.pid.remote())
    with pytest.raises(TaskTimeoutError):
        get(actor.sleeps.remote(), timeout=20)
    assert get(actor.pid.remote()) == before


def test_a_limit_has_to_be_said() -> None:
    with pytest.raises(ValueError, match="enforce_time_limit=True and no time_limit"):
        remote(enforce_time_limit=True)(lambda: None).remote()
    with pytest.raises(TypeError, match="enforce_time_limit must be True or False"):
        remote(time_limit=1, enforce_time_limit=1)(lambda: None)
