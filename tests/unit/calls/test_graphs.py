"""Graphs of bound calls, with functions that only note what is submitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mpi_runtime.calls.graphs import ActorNode, Node


class Noted:
    """Notes calls in their order. The result of each is its name with its arguments."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __call__(self, name: str) -> Callable[..., Any]:
        def make(*args: Any, **kwargs: Any) -> str:
            self.calls.append(name)
            return f"{name}({', '.join(map(str, (*args, *kwargs.values())))})"

        return make


class Method:
    """A method of an actor."""

    def __init__(self, name: str, submitted: list[str]) -> None:
        self.name, self.submitted = name, submitted

    def remote(self, *args: Any) -> str:
        """Note the call."""
        self.submitted.append(f"{self.name}{args}")
        return f"{self.name}{args}"


class Actor:
    """An actor that notes its calls."""

    def __init__(self, submitted: list[str]) -> None:
        self.inc, self.get = Method("inc", submitted), Method("get", submitted)


def actor_node() -> tuple[Any, list[str]]:
    submitted: list[str] = []
    return ActorNode(lambda: Actor(submitted), (), {}, {"inc", "get"}), submitted


def test_each_node_is_submitted_once() -> None:
    noted = Noted()
    shared = Node(noted("f"), (1,), {})
    top = Node(noted("h"), (Node(noted("g"), (shared,), {}), shared), {"x": shared})
    assert top.execute() == "h(g(f(1)), f(1), f(1))"
    assert noted.calls == ["f", "g", "h"]


def test_nodes_in_containers() -> None:
    noted = Noted()
    inner = Node(noted("f"), (), {})
    assert Node(noted("g"), ([inner, (inner,)],), {"x": {"a": inner}}).execute() == "g(['f()', ('f()',)], {'a': 'f()'})"
    assert noted.calls == ["f", "g"]


def test_calls_of_an_actor_run_in_the_order_of_bind() -> None:
    actor, submitted = actor_node()
    actor.inc.bind(2)
    actor.inc.bind(4)
    assert actor.get.bind().execute() == "get()"
    assert submitted == ["inc(2,)", "inc(4,)", "get()"]


def test_the_order_holds_for_arguments_and_not_for_later_calls() -> None:
    actor, submitted = actor_node()
    first = actor.inc.bind(1)
    second = actor.inc.bind(10)
    actor.inc.bind(100)
    assert Node(Noted()("f"), (second, first), {}).execute() == "f(inc(10,), inc(1,))"
    assert submitted == ["inc(1,)", "inc(10,)"]


def test_a_call_with_an_earlier_one_as_its_argument() -> None:
    actor, submitted = actor_node()
    assert actor.get.bind(actor.inc.bind(1)).execute() == "get('inc(1,)',)"
    assert submitted == ["inc(1,)", "get('inc(1,)',)"]


def test_many_calls_of_one_actor() -> None:
    actor, submitted = actor_node()
    for number in range(5000):
        actor.inc.bind(number)
    actor.get.bind().execute()
    assert len(submitted) == 5001


def test_a_method_that_does_not_exist() -> None:
    with pytest.raises(AttributeError, match="no method 'nothing'"):
        _ = actor_node()[0].nothing
