"""What functions and classes bring along when they are sent, and which version of them runs."""

import functools
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from mpi_runtime import get, put, remote

pytestmark = pytest.mark.usefixtures("job")

LARGE = 11_000_000


# How large it is


def test_a_large_function_is_warned_of_once_and_where_it_is_called() -> None:
    table = bytes(LARGE)

    @remote
    def look_up(index: int) -> int:
        return table[index]

    with pytest.warns(UserWarning, match=r"look_up takes 11 MB.*put\(\) that once") as caught:
        refs = [look_up.remote(n) for n in range(3)]
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert get(refs) == [0, 0, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert get(look_up.options(num_cpus=2).remote(1)) == 0


def test_a_large_function_in_map() -> None:
    table = bytes(LARGE)
    with pytest.warns(UserWarning, match="11 MB") as caught:
        assert remote(lambda index: table[index]).map(range(20)).get() == [0] * 20
    assert {one.filename for one in caught} == {__file__}


def test_a_large_class() -> None:
    class Table:
        data = bytes(LARGE)

        def look_up(self, index: int) -> int:
            return self.data[index]

    with pytest.warns(UserWarning, match="Table takes 11 MB") as caught:
        actor = remote(Table).remote()
    assert caught[0].filename == __file__
    assert get(actor.look_up.remote(5)) == 0


def test_far_too_large_is_refused() -> None:
    table = bytes(101_000_000)
    with pytest.raises(ValueError, match=r"takes 101 MB.*pass the reference.*The limit is 100 MB"):
        remote(lambda: len(table)).remote()


def test_what_the_warning_says_helps() -> None:
    table = put(bytes(LARGE))

    @remote
    def look_up(table: bytes, index: int) -> int:
        return table[index]

    assert get(look_up.remote(table, 3)) == 0


def test_what_cannot_be_carried_is_explained() -> None:
    lock = threading.Lock()

    def use() -> None:
        lock.acquire()

    with pytest.raises(TypeError, match=r"inspect_serializability\(use\) shows what"):
        remote(use).remote()


# What can be remote


class Scale:
    """A plain object with a method."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def times(self, x: int) -> int:
        return self.factor * x

    @classmethod
    def twice(cls, x: int) -> int:
        return cls(2).times(x)

    @staticmethod
    def thrice(x: int) -> int:
        return 3 * x

    def __call__(self, x: int) -> int:
        return self.times(x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: 6 * x,
        functools.partial(lambda a, x: a * x, 6),
        functools.partial(lambda x, a: a * x, a=6),
        Scale(6).times,
        Scale.twice,
        Scale.thrice,
        Scale(6),
        (6).__mul__,
    ],
    ids=["lambda", "partial", "named partial", "bound", "class method", "static method", "callable", "C"],
)
def test_everything_that_can_be_called(function: Callable[[int], int]) -> None:
    expected = function(7)
    assert get(remote(function).remote(7)) == expected
    assert remote(function).map([7] * 10, chunk=5).get() == [expected] * 10


def test_an_object_goes_as_it_was_at_the_first_call() -> None:
    scale = Scale(2)
    times = remote(scale.times)
    assert get(times.remote(5)) == 10
    scale.factor = 3
    assert get(times.remote(5)) == 10
    assert get(remote(scale.times).remote(5)) == 15


def test_wrapped_functions() -> None:
    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return "logged", function(*args, **kwargs)

        return call

    @remote
    @logged
    def add(a: int, b: int = 1) -> int:
        return a + b

    assert get(add.remote(1)) == ("logged", 2)
    with pytest.raises(TypeError, match=r"add\.remote\(\)"):
        add.remote()


def test_closures_are_told_apart() -> None:
    def make(n: int) -> Any:
        return remote(lambda: n)

    assert get([make(n).remote() for n in range(20)]) == list(range(20))


# Which version runs


def test_both_functions_of_one_name_keep_their_meaning() -> None:
    @remote
    def version() -> Any:
        return 1

    first = version

    @remote  # type: ignore[no-redef]
    def version() -> Any:
        return 2

    assert get([first.remote(), version.remote(), first.remote(), version.remote()]) == [1, 2, 1, 2]
    assert first.options(num_cpus=2) is not first
    assert get([first.options(num_cpus=2).remote(), version.options(num_cpus=2).remote()]) == [1, 2]


def test_both_classes_of_one_name_keep_their_meaning() -> None:
    def make(n: int) -> Any:
        @remote
        class Version:
            def number(self) -> int:
                return n

        return Version

    one, two = make(1), make(2)
    actors = [one.remote(), two.remote(), one.remote()]
    assert get([actor.number.remote() for actor in actors]) == [1, 2, 1]


def test_what_is_called_through_a_global_is_what_it_was_at_the_first_call() -> None:
    scope: dict[str, Any] = {"__name__": "__main__", "remote": remote, "get": get}
    exec("@remote\ndef inner(): return 1\n@remote\ndef outer(): return get(inner.remote())\n", scope)
    assert get(scope["outer"].remote()) == 1
    exec("@remote\ndef inner(): return 2\n", scope)
    assert get(scope["outer"].remote()) == 1
    assert get(scope["inner"].remote()) == 2
    exec("@remote\ndef outer(): return get(inner.remote())\n", scope)
    assert get(scope["outer"].remote()) == 2


# Functions that refer to themselves and to each other


def test_recursion_sends_the_code_once(counts: Callable[[], dict[str, int]]) -> None:
    from mpi_runtime.scheduler.protocol.ids import digest

    @remote
    def down(n: int, seen: list[bytes]) -> Any:
        seen = [*seen, digest(down._code.pickled(), 8)]
        return seen if n == 0 else get(down.remote(n - 1, seen))

    seen = get(down.remote(6, []))
    assert len(seen) == 7
    assert len(set(seen)) == 1, "or each depth would be another function"


def test_two_that_call_each_other_through_globals() -> None:
    scope: dict[str, Any] = {"__name__": "__main__", "remote": remote, "get": get}
    exec(
        "@remote\ndef even(n): return n == 0 or get(odd.remote(n - 1))\n"
        "@remote\ndef odd(n): return n != 0 and get(even.remote(n - 1))\n",
        scope,
    )
    assert get([scope["even"].remote(6), scope["odd"].remote(6), scope["even"].remote(5)]) == [True, False, False]


def test_two_of_an_enclosing_function() -> None:
    @remote
    def ping(n: int) -> Any:
        return ["ping", *get(pong.remote(n - 1))] if n else []

    @remote
    def pong(n: int) -> Any:
        return ["pong", *get(ping.remote(n - 1))] if n else []

    assert get(ping.remote(3)) == ["ping", "pong", "ping"]


def test_a_function_and_an_actor_that_use_each_other() -> None:
    @remote
    class Tree:
        def size(self, depth: int) -> Any:
            return 1 + sum(get([grow.remote(depth - 1) for _ in range(2)])) if depth else 1

    @remote
    def grow(depth: int) -> Any:
        return get(Tree.remote().size.remote(depth))

    assert get(grow.remote(2)) == 7
