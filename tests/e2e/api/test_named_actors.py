"""Names of actors: found by them, taken by one at a time, free again when it ends."""

from collections.abc import Iterator
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime import get, get_actor, kill, remote
from mpi_runtime.errors import ActorDiedError
from mpi_runtime.util import list_named_actors
from tests.e2e.shared import Counter
from tests.helpers import run_program, wait_until

pytestmark = pytest.mark.usefixtures("job")
INIT = {"num_cpus": 4, "namespace": "ours"}


@pytest.fixture(autouse=True)
def no_names_left() -> Iterator[None]:
    yield
    wait_until(lambda: not list_named_actors(all_namespaces=True), what="all names to be free")


def test_an_actor_is_found_by_its_name() -> None:
    counter = Counter.options(name="counter").remote(5)
    found = get_actor("counter")
    assert found == counter
    assert get(found.add.remote()) == 6
    assert get(counter.add.remote()) == 7
    assert get(found.both.remote()) == [7, -7]  # its options come with it
    with pytest.raises(AttributeError, match="no method 'nonsense'"):
        found.nonsense  # noqa: B018


def test_it_can_be_called_before_it_is_made() -> None:
    counter = Counter.options(name="counter").remote()
    assert get([get_actor("counter").add.remote() for _ in range(3)]) == [1, 2, 3]
    del counter


def test_tasks_and_actors_find_it_too() -> None:
    counter = Counter.options(name="counter").remote()

    @remote
    def find() -> Any:
        return get(get_actor("counter").add.remote())

    @remote
    class Finder:
        def find(self, found: Any) -> Any:
            return get([get_actor("counter").add.remote(), found.add.remote()])

    assert get(find.remote()) == 1
    assert get(Finder.remote().find.remote(get_actor("counter"))) == [2, 3]
    assert get(counter.add.remote()) == 4


def test_a_name_is_taken_once() -> None:
    counter = Counter.options(name="counter").remote()
    with pytest.raises(ValueError, match=r"'counter' is taken.*get_actor\(\).*get_if_exists"):
        Counter.options(name="counter").remote()
    assert get(counter.add.remote()) == 1


def test_get_if_exists() -> None:
    options = {"name": "counter", "get_if_exists": True}
    first = Counter.options(**options).remote(10)
    second = Counter.options(**options).remote(20)
    assert first == second
    assert get([first.add.remote(), second.add.remote()]) == [11, 12]


def test_many_want_the_same_at_once() -> None:
    @remote
    class Wanting:
        def take(self) -> Any:
            self.counter = Counter.options(name="counter", get_if_exists=True).remote()
            return get(self.counter.add.remote())

    wanting = [Wanting.remote() for _ in range(4)]
    assert sorted(get([one.take.remote() for one in wanting])) == [1, 2, 3, 4]


def test_a_handle_that_was_looked_up_does_not_keep_it() -> None:
    counter = Counter.options(name="counter").remote()
    found = get_actor("counter")
    assert get(found.add.remote()) == 1
    del counter
    wait_until(lambda: not list_named_actors(), what="the end of the actor")
    with pytest.raises(ActorDiedError):
        get(found.add.remote())
    with pytest.raises(ValueError, match="no actor with the name 'counter' in the namespace 'ours'"):
        get_actor("counter")


def test_the_name_is_free_when_the_actor_ends() -> None:
    first = Counter.options(name="counter").remote(1)
    get(first.add.remote())
    kill(first)
    wait_until(lambda: not list_named_actors(), what="the end of the actor")
    second = Counter.options(name="counter").remote(10)
    assert get(get_actor("counter").add.remote()) == 11
    with pytest.raises(ActorDiedError):
        get(first.add.remote())
    del second


def test_a_constructor_that_raises_frees_the_name() -> None:
    @remote
    class Broken:
        def __init__(self) -> None:
            raise KeyError("broken")

        def call(self) -> None: ...

    broken = Broken.options(name="counter").remote()
    with pytest.raises(ActorDiedError):
        get(broken.call.remote())
    wait_until(lambda: not list_named_actors(), what="the name to be free")
    assert get(Counter.options(name="counter").remote().add.remote()) == 1


def test_detached_actors_live_without_handles() -> None:
    Counter.options(name="counter", lifetime="detached").remote(3)
    assert get(get_actor("counter").add.remote()) == 4

    @remote
    def make() -> None:
        Counter.options(name="other", lifetime="detached").remote(7)

    get(make.remote())
    assert get(get_actor("other").add.remote()) == 8
    assert sorted(list_named_actors()) == ["counter", "other"]
    for name in ("counter", "other"):
        kill(get_actor(name))


def test_namespaces() -> None:
    here = Counter.options(name="counter").remote(1)
    there = Counter.options(name="counter", namespace="theirs").remote(2)
    assert get([get_actor("counter").add.remote(), get_actor("counter", "theirs").add.remote()]) == [2, 3]
    assert get_actor("counter", namespace="ours") == here
    assert list_named_actors() == ["counter"]
    everywhere = [{"name": "counter", "namespace": "ours"}, {"name": "counter", "namespace": "theirs"}]
    assert sorted(list_named_actors(all_namespaces=True), key=str) == everywhere
    assert mpi_runtime.get_runtime_context().namespace == "ours"
    with pytest.raises(ValueError, match="namespace 'nowhere'"):
        get_actor("counter", "nowhere")
    del there


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": ""}, "name must not be empty"),
        ({"name": "a", "namespace": ""}, "namespace must not be empty"),
        ({"get_if_exists": True}, "needs a name"),
        ({"name": "a", "lifetime": "for ever"}, "'detached'"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Counter.options(**options)


def test_names_that_are_refused() -> None:
    for wrong in ("", None, 3):
        with pytest.raises(ValueError, match="needs a name"):
            get_actor(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="name must be a string"):
        Counter.options(name=3)


@pytest.mark.mpi
def test_under_mpirun() -> None:
    source = """
import mpi_runtime as ray
ray.init(num_cpus=2)

@ray.remote
class Counter:
    value = 0
    def add(self):
        self.value += 1
        return self.value

@ray.remote
def use():
    return ray.get(Counter.options(name="counter", get_if_exists=True, lifetime="detached").remote().add.remote())

print(sorted(ray.get([use.remote() for _ in range(20)])) == list(range(1, 21)))
"""
    assert run_program(source, ranks=3).expect().stdout == "True\n"
