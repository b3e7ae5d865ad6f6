"""Actors whose processes die: started again, their calls run again, or an error that says which of the two it is."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime import get, kill, remote
from mpi_runtime.core.calls.actor_class import exit_actor
from mpi_runtime.errors import ActorDiedError, ActorUnavailableError, TaskError
from tests.helpers import run_program, wait_until

pytestmark = pytest.mark.usefixtures("job")


@remote
class Fragile:
    """Counts, and can be made to die."""

    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, number: int = 1) -> int:
        self.value += number
        return self.value

    def pid(self) -> int:
        return os.getpid()

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def die_once(self, directory: str) -> int:
        mark = Path(directory, "died")
        if not mark.exists():
            mark.touch()
            os._exit(1)
        return self.value

    def wait_for(self, value: Any, seconds: float = 0.0) -> Any:
        time.sleep(seconds)
        return value

    def leave(self) -> None:
        exit_actor()


@pytest.mark.dies("executor")
def test_without_restarts_it_is_dead() -> None:
    actor = Fragile.remote()
    with pytest.raises(ActorDiedError, match=r"Fragile.die was called, but .*killed by signal 9"):
        get(actor.die.remote())
    with pytest.raises(ActorDiedError, match="SIGKILL"):
        get(actor.add.remote())


@pytest.mark.dies("executor")
def test_it_is_created_again_with_the_same_arguments() -> None:
    actor = Fragile.options(max_restarts=1).remote(mpi_runtime.put(10))
    assert get(actor.add.remote()) == 11
    pid = get(actor.pid.remote())
    with pytest.raises(ActorUnavailableError, match=r"Fragile.die may have been running when .* started again"):
        get(actor.die.remote())
    assert get(actor.add.remote()) == 11  # what it was is gone
    assert get(actor.pid.remote()) != pid
    with pytest.raises(ActorDiedError, match=r"after it had been started again once"):
        get(actor.die.remote())
    with pytest.raises(ActorDiedError):
        get(actor.add.remote())


def test_calls_that_had_not_started_are_not_lost() -> None:
    actor = Fragile.options(max_restarts=-1).remote()
    get(actor.add.remote())
    refs = [actor.die.remote(), *[actor.add.remote() for _ in range(300)]]
    with pytest.raises(ActorUnavailableError):
        get(refs[0])
    assert get(refs[1:]) == list(range(1, 301))


def test_a_call_with_retries_is_run_again(tmp_path: Path) -> None:
    actor = Fragile.options(max_restarts=1, max_task_retries=1).remote(5)
    after = [actor.die_once.remote(str(tmp_path)), actor.add.remote()]
    assert get(after) == [5, 6]


def test_a_method_has_retries_of_its_own(tmp_path: Path) -> None:
    actor = Fragile.options(max_restarts=1).remote(5)
    assert get(actor.die_once.options(max_task_retries=-1).remote(str(tmp_path))) == 5


def test_a_later_call_may_need_the_result_of_one_that_is_run_again(tmp_path: Path) -> None:
    actor = Fragile.options(max_restarts=1, max_task_retries=-1).remote(5)
    first = actor.die_once.remote(str(tmp_path))
    second = actor.wait_for.remote(first)
    assert get([second, actor.add.remote()]) == [5, 6]


def test_a_method_is_run_again_for_some_exceptions_only() -> None:
    @remote
    class Moody:
        def __init__(self) -> None:
            self.calls = 0

        @mpi_runtime.method(max_task_retries=5, retry_exceptions=[KeyError])
        def third(self, kind: type[Exception]) -> int:
            self.calls += 1
            if self.calls % 3:
                raise kind("not yet")
            return self.calls

    moody = Moody.remote()
    assert get(moody.third.remote(KeyError)) == 3
    with pytest.raises(ValueError, match="not yet"):
        get(moody.third.remote(ValueError))
    assert get(moody.third.remote(KeyError)) == 6
    with pytest.raises(KeyError):
        get(moody.third.options(max_task_retries=1).remote(KeyError))


def test_a_task_is_run_again_for_some_exceptions_only(tmp_path: Path) -> None:
    @remote(retry_exceptions=[ConnectionError], max_retries=3)
    def flaky(kind: type[Exception], name: str) -> int:
        path = Path(tmp_path, name)
        runs = len(path.read_text()) + 1 if path.exists() else 1
        path.write_text("x" * runs)
        if runs < 3:
            raise kind("again")
        return runs

    assert get(flaky.remote(ConnectionResetError, "a")) == 3
    with pytest.raises(TaskError, match="again"):
        get(flaky.remote(ValueError, "b"))
    assert Path(tmp_path, "b").read_text() == "x"


def test_killed_with_restart() -> None:
    actor = Fragile.options(max_restarts=1).remote(1)
    pid = get(actor.pid.remote())
    kill(actor, no_restart=False)
    assert get(actor.add.remote()) == 2
    assert get(actor.pid.remote()) != pid
    kill(actor, no_restart=False)
    with pytest.raises(ActorDiedError, match="kill"):
        get(actor.add.remote())


def test_killed_for_good() -> None:
    actor = Fragile.options(max_restarts=-1).remote()
    get(actor.add.remote())
    kill(actor)
    with pytest.raises(ActorDiedError, match="kill"):
        get(actor.add.remote())


def test_it_can_end_itself() -> None:
    actor = Fragile.options(max_restarts=-1, name="leaver").remote()
    refs = [actor.add.remote(), actor.leave.remote(), actor.add.remote()]
    assert get(refs[0]) == 1
    for ref in refs[1:]:
        with pytest.raises(ActorDiedError, match="exit_actor"):
            get(ref)
    with pytest.raises(ActorDiedError, match="exit_actor"):
        get(actor.add.remote())
    with pytest.raises(ValueError, match="no actor"):
        mpi_runtime.get_actor("leaver")


def test_only_an_actor_can_end_itself() -> None:
    with pytest.raises(TypeError, match="outside of an actor"):
        exit_actor()
    with pytest.raises(TypeError, match="outside of an actor"):
        get(remote(exit_actor).remote())


def test_at_its_end_its_exit_handlers_run(tmp_path: Path) -> None:
    @remote
    class Tidy:
        def __init__(self, path: str) -> None:
            import atexit

            atexit.register(Path(path).touch)

        def leave(self) -> None:
            exit_actor()

    pids = []
    for name in ("left", "forgotten", "terminated", "killed"):
        tidy = Tidy.remote(str(tmp_path / name))
        pids.append(get(tidy.__ray_call__.remote(lambda self: os.getpid())))
        if name == "left":
            tidy.leave.remote()
        elif name == "terminated":
            tidy.__ray_terminate__.remote()
        elif name == "killed":
            kill(tidy)
        del tidy
    wait_until(lambda: {path.name for path in tmp_path.iterdir()} == {"left", "forgotten", "terminated"})
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    assert not (tmp_path / "killed").exists()


def test_what_every_actor_answers_to() -> None:
    actor = Fragile.remote(3)
    assert get(actor.__ray_ready__.remote()) is True
    assert get(actor.__ray_call__.remote(lambda self, more: self.value + more, 4)) == 7
    refs = [actor.add.remote(), actor.__ray_terminate__.remote()]
    assert get(refs[0]) == 4
    with pytest.raises(ActorDiedError):
        get(refs[1])


def test_a_constructor_that_dies_is_tried_again(tmp_path: Path) -> None:
    @remote
    class Late:
        def __init__(self) -> None:
            if len(list(tmp_path.iterdir())) < 2:
                (tmp_path / str(os.getpid())).touch()
                os._exit(1)

        def there(self) -> bool:
            return True

    assert get(Late.options(max_restarts=2).remote().there.remote())


def test_a_constructor_that_raises_is_not() -> None:
    @remote(max_restarts=-1)
    class Never:
        def __init__(self) -> None:
            raise ValueError("never")

        def there(self) -> bool:
            return True

    with pytest.raises(ActorDiedError, match="never"):
        get(Never.remote().there.remote())


def test_refused_options() -> None:
    with pytest.raises(ValueError, match="max_restarts"):
        Fragile.options(max_restarts=-2)
    with pytest.raises(TypeError, match="max_task_retries"):
        Fragile.options(max_task_retries=1.5)
    with pytest.raises(TypeError, match="exception classes"):
        mpi_runtime.method(retry_exceptions=["KeyError"])
    with pytest.raises(ValueError, match="max_task_retries"):
        mpi_runtime.method(max_tasks_retries=1)


PROGRAM = """
import os
import mpi_runtime
from mpi_runtime.errors import ActorUnavailableError

@mpi_runtime.remote(max_restarts=3, num_cpus=1)
class Fragile:
    def where(self):
        return mpi_runtime.get_runtime_context().get_rank()
    def die(self):
        os._exit(7)

mpi_runtime.init()
actors = [Fragile.remote() for _ in range(2)]
for _ in range(3):
    for actor in actors:
        try:
            mpi_runtime.get(actor.die.remote())
        except ActorUnavailableError as error:
            assert "exited with code 7" in str(error), error
assert all(rank > 0 for rank in mpi_runtime.get([actor.where.remote() for actor in actors]))
print("restarted", flush=True)
"""


@pytest.mark.mpi
def test_on_several_ranks() -> None:
    assert run_program(PROGRAM, ranks=3).expect().stdout == "restarted\n"
