"""Actors: state, order, handles, and how they end."""

import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime import ActorHandle, get, kill, put, remote, wait
from mpi_runtime.errors import ActorDiedError, TaskError
from tests.e2e.shared import hold, is_open
from tests.helpers import wait_until

pytestmark = pytest.mark.usefixtures("job")


@remote
class Counter:
    """Counts."""

    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, n: int = 1) -> int:
        self.value += n
        return self.value

    def slow_add(self, seconds: float) -> int:
        time.sleep(seconds)
        return self.add()

    def pid(self) -> int:
        return os.getpid()

    def fail(self) -> None:
        raise KeyError("inside")

    def die(self) -> None:
        os._exit(7)

    def leave(self) -> None:
        raise SystemExit(0)

    @mpi_runtime.method(num_returns=2)
    def both(self) -> Any:
        return self.value, -self.value

    @staticmethod
    def static(n: int) -> int:
        return n + 1

    @classmethod
    def name(cls) -> str:
        return cls.__name__

    @property
    def doubled(self) -> int:
        return 2 * self.value

    def __call__(self, n: int) -> int:
        return n * 10

    def __getitem__(self, n: int) -> int:
        return n * 100

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


@remote
def same(value: Any) -> Any:
    return value


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(pid: int) -> None:
    wait_until(lambda: not is_alive(pid), what=f"the end of process {pid}")


def forget_one() -> None:
    """An actor has ended with its last handle: so has by now any other that was to end before it."""
    counter = Counter.remote()
    pid = get(counter.pid.remote())
    del counter
    gc.collect()
    wait_until_gone(pid)


# State and order


def test_constructor_arguments() -> None:
    assert get(Counter.remote(start=put(3)).add.remote()) == 4
    assert get(Counter.remote(same.remote(4)).add.remote()) == 5


def test_calls_run_in_order() -> None:
    @remote
    class Log:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def note(self, n: int) -> None:
            self.seen.append(n)

        def all(self) -> list[int]:
            return self.seen

    log = Log.remote()
    for n in range(1000):
        log.note.remote(n)
    assert get(log.all.remote()) == list(range(1000))


def test_order_holds_though_arguments_are_late(gate: Path) -> None:
    @remote
    def late(value: int) -> int:
        is_open(gate)
        return value

    @remote
    def look(log: ActorHandle) -> Any:
        return get(log.look.remote())

    @remote
    class Log:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def note(self, n: int) -> list[int]:
            self.seen.append(n)
            return list(self.seen)

        def look(self) -> list[int]:
            return self.seen

    log = Log.remote()
    log.note.remote(late.remote(1))
    second = log.note.remote(2)
    assert get(look.remote(log)) == [], "the actor is there, and answers others"
    gate.touch()
    assert get(second) == [1, 2]
    assert get(look.remote(log)) == [1, 2]


def test_callers_do_not_hold_up_each_other(gate: Path) -> None:
    @remote
    def late() -> int:
        return 99 + is_open(gate)

    @remote
    def call(counter: ActorHandle) -> Any:
        return get(counter.add.remote(1))

    counter = Counter.remote()
    mine = counter.add.remote(late.remote())
    assert get(call.remote(counter)) == 1
    gate.touch()
    assert get(mine) == 101


def test_order_of_each_of_several_callers() -> None:
    @remote
    class Log:
        def __init__(self) -> None:
            self.seen: dict[int, list[int]] = {}

        def note(self, who: int, n: int) -> None:
            self.seen.setdefault(who, []).append(n)

        def all(self) -> Any:
            return self.seen

    @remote
    def write(log: ActorHandle, who: int) -> None:
        get([log.note.remote(who, n) for n in range(100)])

    log = Log.remote()
    get([write.remote(log, who) for who in range(4)])
    assert get(log.all.remote()) == {who: list(range(100)) for who in range(4)}


def test_calls_from_many_threads() -> None:
    counter = Counter.remote()
    threads = [threading.Thread(target=lambda: get([counter.add.remote() for _ in range(100)])) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert get(counter.add.remote(0)) == 500


def test_more_actors_than_cpus() -> None:
    counters = [Counter.remote(n) for n in range(20)]
    assert get([counter.add.remote() for counter in counters]) == list(range(1, 21))
    assert get(same.remote(1)) == 1


# Methods


def test_methods_of_all_kinds() -> None:
    counter = Counter.remote(1)
    assert get(counter.both.remote()) == [1, -1]
    assert get(counter.both.options(num_returns=1).remote()) == (1, -1)
    assert get(counter.static.remote(1)) == 2
    assert get(counter.name.remote()) == "Counter"
    assert get(counter.__call__.remote(2)) == 20
    assert get(counter.__getitem__.remote(2)) == 200
    assert counter != same, "a handle is compared as a handle"


def test_methods_of_base_classes() -> None:
    class Base:
        def who(self) -> str:
            return type(self).__name__

        def twice(self) -> str:
            return "base"

    @remote
    class Derived(Base):
        def twice(self) -> str:
            return "derived " + super().twice()

    derived = Derived.remote()
    assert get([derived.who.remote(), derived.twice.remote()]) == ["Derived", "derived base"]


def test_no_returns() -> None:
    counter = Counter.remote()
    assert counter.add.options(num_returns=0).remote(5) is None
    assert get(counter.add.remote()) == 6


def test_a_method_held_on_to_keeps_the_actor() -> None:
    add = Counter.remote(1).add
    gc.collect()
    forget_one()
    assert get(add.remote()) == 2
    for _ in range(20):
        assert get(Counter.remote(1).add.remote()) == 2


def test_what_is_refused() -> None:
    counter = Counter.remote()
    with pytest.raises(TypeError, match=r"use 'Counter\.remote\(\)'"):
        Counter()
    with pytest.raises(TypeError, match=r"try 'object\.add\.remote\(\)'"):
        counter.add()
    with pytest.raises(AttributeError, match="no method 'nonsense'"):
        counter.nonsense  # noqa: B018
    with pytest.raises(AttributeError, match="cannot be read through a handle"):
        counter.value  # noqa: B018
    with pytest.raises(AttributeError, match="cannot be read through a handle"):
        counter.doubled  # noqa: B018
    with pytest.raises(ValueError, match="num_returns"):
        Counter.options(num_returns=2)
    with pytest.raises(ValueError, match="num_returns"):
        counter.add.options(num_returns=-1)
    with pytest.raises(TypeError, match="remote already"):
        remote(Counter)
    with pytest.raises(TypeError, match="cannot be derived from"):

        class Derived(Counter):
            pass


def test_options_of_classes() -> None:
    @remote(num_cpus=2)
    class Wide:
        def free(self) -> Any:
            return mpi_runtime.available_resources().get("CPU", 0)

    wide = Wide.remote()
    assert get(wide.free.remote()) == 2
    none = Wide.options(num_cpus=0).remote()
    assert get(none.free.remote()) == 2
    held_back = [Wide.remote(), Wide.remote()]
    assert get(held_back[0].free.remote()) == 0
    assert wait([held_back[1].free.remote()], timeout=0.3)[0] == []
    kill(wide)
    del wide
    assert get(held_back[1].free.remote()) == 0


def test_an_actor_takes_no_cpu_once_it_is_made() -> None:
    counters = [Counter.remote() for _ in range(6)]
    get([counter.add.remote() for counter in counters])
    assert mpi_runtime.available_resources()["CPU"] == 4


# Handles


def test_handles_as_arguments() -> None:
    @remote
    def use(counter: ActorHandle, others: list[ActorHandle]) -> Any:
        return get([counter.add.remote(), others[0].add.remote(), others[0].add.remote()])

    counter, other = Counter.remote(), Counter.remote(10)
    assert get(use.remote(counter, [other])) == [1, 11, 12]
    assert get(counter.add.remote()) == 2


def test_handles_as_results_and_in_the_store() -> None:
    @remote
    def make() -> Any:
        return Counter.remote(7)

    counter = get(make.remote())
    assert get(counter.add.remote()) == 8
    again = get(put({"it": counter}))["it"]
    assert again == counter
    assert len({again, counter}) == 1
    del counter
    gc.collect()
    assert get(again.add.remote()) == 9


def test_a_handle_only_in_the_store_keeps_the_actor() -> None:
    counter = Counter.remote()
    get(counter.add.remote())
    ref = put([counter])
    del counter
    gc.collect()
    forget_one()
    assert get(get(ref)[0].add.remote()) == 2


def test_handles_in_closures_and_in_other_actors() -> None:
    @remote
    class Front:
        def __init__(self, back: ActorHandle) -> None:
            self.back = back

        def add(self) -> Any:
            return get(self.back.add.remote())

        def give(self) -> Any:
            return self.back

    front = Front.remote(Counter.remote())
    assert get([front.add.remote(), front.add.remote()]) == [1, 2]
    back = get(front.give.remote())
    del front
    gc.collect()
    assert get(back.add.remote()) == 3


def test_actors_made_by_actors_and_tasks() -> None:
    @remote
    class Parent:
        def __init__(self, depth: int) -> None:
            self.child = Parent.remote(depth - 1) if depth else None

        def depth(self) -> Any:
            return 0 if self.child is None else get(self.child.depth.remote()) + 1

    assert get(Parent.remote(6).depth.remote()) == 6

    @remote
    def task() -> Any:
        return get(Counter.remote(1).add.remote())

    assert get([task.remote() for _ in range(8)]) == [2] * 8


def test_an_actor_that_knows_itself() -> None:
    @remote
    class Node:
        def meet(self, handles: list[ActorHandle]) -> None:
            self.others = handles

        def ask(self) -> Any:
            return get(self.others[1].answer.remote())

        def answer(self) -> int:
            return 5

    nodes = [Node.remote() for _ in range(2)]
    get([node.meet.remote(nodes) for node in nodes])
    assert get(nodes[0].ask.remote()) == 5
    kill(nodes[0])  # they hold each other, and nobody collects cycles between processes
    kill(nodes[1])


# Ends


def test_it_ends_with_its_last_handle() -> None:
    counter = Counter.remote()
    pid = get(counter.pid.remote())
    assert is_alive(pid)
    del counter
    gc.collect()
    wait_until_gone(pid)


def test_it_ends_though_its_driver_says_nothing_more() -> None:
    counter = Counter.remote()
    pid = get(counter.pid.remote())
    get(same.remote(1))  # by now the driver has heard that it was created
    del counter
    wait_until_gone(pid)


def test_calls_that_were_made_still_run() -> None:
    counter = Counter.remote()
    refs = [counter.slow_add.remote(0.02) for _ in range(5)]
    del counter
    gc.collect()
    assert get(refs) == [1, 2, 3, 4, 5]


def test_handles_of_an_executor_that_was_killed_go(at_rest: Callable[[], None]) -> None:
    @remote(max_retries=0)
    def make_and_die() -> None:
        counter = Counter.remote()
        get(counter.add.remote())
        os.kill(os.getpid(), 9)

    with pytest.raises(mpi_runtime.errors.WorkerCrashedError):
        get(make_and_die.remote())
    at_rest()


def test_kill() -> None:
    counter = Counter.remote()
    pid = get(counter.pid.remote())
    running, waiting = counter.slow_add.remote(30), counter.add.remote()
    kill(counter)
    for ref in (running, waiting, counter.add.remote()):
        with pytest.raises(ActorDiedError, match=r"killed by kill\(\)"):
            get(ref, timeout=20)
    wait_until_gone(pid)
    with pytest.raises(ActorDiedError):
        get(counter.add.remote())
    kill(counter)


def test_kill_before_it_could_be_placed(gate: Path) -> None:
    busy = hold.options(num_cpus=4).remote(gate)
    counter = Counter.remote()
    ref = counter.add.remote()
    kill(counter)
    with pytest.raises(ActorDiedError, match="killed"):
        get(ref, timeout=20)
    gate.touch()
    get(busy)
    assert get(Counter.remote().add.remote()) == 1


def test_kill_while_it_is_made(tmp_path: Path, gate: Path) -> None:
    @remote
    class Slow:
        def __init__(self) -> None:
            (tmp_path / "begun").touch()
            is_open(gate)

        def work(self) -> None:
            pass

    slow = Slow.remote()
    ref = slow.work.remote()
    wait_until((tmp_path / "begun").exists)
    kill(slow)
    with pytest.raises(ActorDiedError, match="killed"):
        get(ref, timeout=20)


def test_kill_of_something_else() -> None:
    with pytest.raises(ValueError, match=r"is for actors, not for .*ObjectRef.*cancel"):
        kill(put(1))  # type: ignore[arg-type]


def test_errors_of_methods_leave_the_actor_alive() -> None:
    counter = Counter.remote(3)
    with pytest.raises(KeyError, match="inside") as caught:
        get(counter.fail.remote())
    assert isinstance(caught.value, TaskError)
    assert "Counter.fail" in str(caught.value)
    assert get(counter.add.remote()) == 4


def test_a_constructor_that_raises_tells_every_call() -> None:
    @remote
    class Broken:
        def __init__(self) -> None:
            time.sleep(0.1)
            raise RuntimeError("no way")

        def work(self) -> None:
            pass

    broken = Broken.remote()
    early = [broken.work.remote() for _ in range(5)]
    for ref in early:
        with pytest.raises(ActorDiedError, match="no way"):
            get(ref, timeout=20)
    with pytest.raises(ActorDiedError, match="RuntimeError: no way"):
        get(broken.work.remote(), timeout=20)


def test_wrong_constructor_arguments() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        Counter.remote(nonsense=1)
    with pytest.raises(TypeError, match="too many"):
        Counter.remote(1, 2)


def test_wrong_arguments_of_methods() -> None:
    counter = Counter.remote()
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        get(counter.add.remote(nonsense=1))


def test_a_constructor_argument_that_failed() -> None:
    @remote
    def fail() -> None:
        raise ValueError("root")

    counter = Counter.remote(fail.remote())
    with pytest.raises((ActorDiedError, ValueError), match="root"):
        get(counter.add.remote(), timeout=20)


def test_a_class_that_cannot_be_placed() -> None:
    @remote(num_cpus=100)
    class Large:
        def work(self) -> None:
            pass

    large = Large.remote()
    with pytest.raises(mpi_runtime.errors.MpiRuntimeError, match=r"100 CPU.*Largest.*4 CPU"):
        get(large.work.remote(), timeout=20)


@pytest.mark.parametrize(
    ("method", "text"), [("die", "exited with code 7"), ("leave", r"ended itself with exit_actor\(\) or sys.exit\(\)")]
)
def test_an_actor_that_ends_its_process(method: str, text: str) -> None:
    counter = Counter.remote()
    before = counter.add.remote()
    fatal = getattr(counter, method).remote()
    after = counter.add.remote()
    assert get(before) == 1
    for ref in (fatal, after, counter.add.remote()):
        with pytest.raises(ActorDiedError, match=text) as caught:
            get(ref, timeout=20)
        assert "Counter" in str(caught.value)
    with pytest.raises(ActorDiedError):
        get(counter.add.remote(), timeout=20)


def test_an_actor_that_is_killed_by_a_signal() -> None:
    counter = Counter.remote()
    os.kill(get(counter.pid.remote()), 9)
    with pytest.raises(ActorDiedError, match="SIGKILL"):
        get([counter.add.remote() for _ in range(3)][-1], timeout=20)


def test_calls_with_late_arguments_on_a_dead_actor(gate: Path) -> None:
    @remote
    def late() -> int:
        return int(is_open(gate))

    counter = Counter.remote()
    get(counter.add.remote())
    ref = counter.add.remote(late.remote())
    kill(counter)
    mpi_runtime.available_resources()  # the head has heard of it
    gate.touch()
    with pytest.raises(ActorDiedError):
        get(ref, timeout=20)
