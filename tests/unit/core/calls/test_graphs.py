"""Graphs of bound calls, with functions that only note what is submitted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mpi_runtime.core.calls.graphs import ClassNode, InputNode, MultiOutputNode, Node, bound
from mpi_runtime.errors.ray import RayChannelError


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

    def options(self, **options: Any) -> Method:
        """Note the options as a part of the name."""
        return Method(self.name + "".join(f" {name}={value}" for name, value in options.items()), self.submitted)

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
    return ClassNode(lambda: Actor(submitted), (), {}, {"inc", "get"}), submitted


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


def test_options_of_a_bound_method() -> None:
    actor, submitted = actor_node()
    actor.inc.options(name="first").options(num_returns=2).bind(1)
    actor.get.bind().execute()
    assert submitted == ["inc name=first num_returns=2(1,)", "get()"]


def test_an_input_stands_for_the_argument_of_execute() -> None:
    with InputNode() as given:
        graph = Node(Noted()("f"), (given, [given]), {"x": given})
    assert graph.execute(3) == "f(3, [3], 3)"
    assert graph.execute(None) == "f(None, [None], None)"


def test_parts_of_the_input() -> None:
    with InputNode() as given:
        graph = Node(Noted()("f"), (given[0], given[1]), {})
        named = Node(Noted()("g"), (given[0], given.by, given["by"]), {})
        attribute = Node(Noted()("h"), (given.real,), {})
    assert graph.execute(1, 2) == graph.execute([1, 2]) == "f(1, 2)"
    assert named.execute(1, by=2) == "g(1, 2, 2)"
    assert attribute.execute(1.5) == attribute.execute(real=1.5) == "h(1.5)"


def test_inputs_that_do_not_fit() -> None:
    with InputNode() as given:
        whole = Node(Noted()("f"), (given,), {})
        part = Node(Noted()("f"), (given.by,), {})
    with pytest.raises(TypeError, match=r"one argument, and execute.* none"):
        whole.execute()
    with pytest.raises(TypeError, match=r"one argument, and execute.* \[0, 1\]"):
        whole.execute(1, 2)
    with pytest.raises(KeyError, match=r"an argument 'by', and execute.* \['x'\]"):
        part.execute(x=1)
    with pytest.raises(AttributeError, match="a part of a part"):
        given.by.name  # noqa: B018
    with pytest.raises(TypeError, match="int index or str"):
        given[None]  # type: ignore[index]


def test_several_outputs_share_what_they_need() -> None:
    noted = Noted()
    shared = Node(noted("f"), (1,), {})
    graph = MultiOutputNode([Node(noted("g"), (shared,), {}), shared, Node(noted("h"), (shared,), {})])
    assert graph.execute() == ["g(f(1))", "f(1)", "h(f(1))"]
    assert noted.calls == ["f", "g", "h"]


def test_a_compiled_graph_submits_its_calls_in_the_order_of_bind() -> None:
    noted = Noted()
    with InputNode() as given:
        first = Node(noted("f"), (given,), {})
        second = Node(noted("g"), (given,), {})
        compiled = MultiOutputNode([second, first]).experimental_compile()
    assert compiled.execute(1) == ["g(1)", "f(1)"]
    assert asyncio.run(compiled.execute_async(2)) == ["g(2)", "f(2)"]
    assert noted.calls == ["f", "g", "f", "g"]
    compiled.teardown()
    with pytest.raises(RayChannelError, match="teardown"):
        compiled.execute(1)


def test_graphs_that_cannot_be_compiled() -> None:
    noted = Noted()
    with pytest.raises(ValueError, match="No InputNode"):
        Node(noted("f"), (1,), {}).experimental_compile()
    with InputNode() as given:
        inside, named = Node(noted("f"), ([given],), {}), Node(noted("f"), (), {"x": given})
        beside = MultiOutputNode([Node(noted("f"), (given,), {}), Node(noted("g"), (1,), {})])
    with pytest.raises(ValueError, match="Found 1 DAGNodes"):
        inside.experimental_compile()
    with pytest.raises(ValueError, match="by position"):
        named.experimental_compile()
    with pytest.raises(ValueError, match="at least one other DAGNode"):
        beside.experimental_compile()
    with InputNode() as given:
        whole = Node(noted("f"), (given, Node(noted("g"), (given[0],), {})), {})
    with pytest.raises(ValueError, match="directly, or they must index to specific args"):
        whole.experimental_compile()


def test_calls_that_the_output_of_a_compiled_graph_does_not_need() -> None:
    noted = Noted()
    with InputNode() as given:
        first = Node(noted("f"), (given,), {})
        Node(noted("g"), (first,), {})
        Node(noted("h"), (given,), {})
        output = MultiOutputNode([first])
        MultiOutputNode([first])  # another graph, of which nothing is lost
    with pytest.raises(ValueError, match="There are 2 leaf nodes"):
        output.experimental_compile()
    copy = output.apply_recursive(lambda node: node)
    assert isinstance(copy, Node)
    assert copy.experimental_compile().execute(1) == ["f(1)"]


def test_the_end_of_a_compiled_graph_ends_its_actors_if_that_is_wanted() -> None:
    noted, ended = Noted(), list[str]()
    for kill in (False, True):
        with InputNode() as given:
            node = bound(noted("f"), (given,), {}, 1, lambda: ended.append("f"))
        node.experimental_compile().teardown(kill_actors=kill)
    assert ended == ["f"]


def test_arguments_of_a_compiled_graph() -> None:
    with InputNode() as given:
        compiled = Node(Noted()("f"), (given[1], given.by), {}).experimental_compile()
    with pytest.raises(ValueError, match=r"execute_async\(\) must be called with 2 positional args, got 1"):
        compiled.execute(1, by=1)
    with pytest.raises(ValueError, match="must be called with kwarg `by`"):
        compiled.execute(0, 1)


def test_hints_of_transports_have_no_effect() -> None:
    with InputNode() as given:
        node = Node(Noted()("f"), (given.with_tensor_transport(),), {})
        assert node.with_tensor_transport(transport="nccl") is node
    assert node.execute(1) == "f(1)"


def test_each_named_part_of_the_input_of_a_compiled_graph_is_used() -> None:
    with InputNode() as given:
        _ = given[1]
        node = Node(Noted()("f"), (given[0], given[2]), {})
    with pytest.raises(ValueError, match="parts 0, 1, 2 of the input were named, but 1 is unused"):
        node.experimental_compile()


def test_a_part_of_the_input_of_a_compiled_graph_is_an_argument() -> None:
    with InputNode() as given:
        compiled = Node(Noted()("f"), (given[0],), {}).experimental_compile()
    assert compiled.execute([1, 2]) == "f([1, 2])"
