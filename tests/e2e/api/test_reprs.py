"""What things say they are: in a terminal, and in a notebook."""

import json
import pickle
import textwrap
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime import get, nodes, remote
from mpi_runtime.util import state
from mpi_runtime.util.scheduling_strategies import DoesNotExist, Exists, In, NotIn
from tests.helpers import run_program

pytestmark = pytest.mark.usefixtures("job")


@remote
def square(x: int, *, power: float = 2) -> float:
    return float(x**power)


@remote(num_cpus=0)
class Counter:
    def __init__(self, start: int = 0) -> None:
        self.start = start

    def add(self, by: int) -> int:
        self.start += by
        return self.start

    def _hidden(self) -> None: ...


def test_functions_classes_handles_and_methods() -> None:
    assert repr(square) == "<remote function square: submit a call with square.remote(x, *, power=2)>"
    assert repr(square.options(num_cpus=3, name="s")) == (
        "<remote function square with num_cpus=3, name='s': submit a call with square.remote(x, *, power=2)>"
    )
    assert repr(Counter) == "<actor class Counter with num_cpus=0: create an actor with Counter.remote(start=0)>"
    counter = Counter.remote()
    id = counter._mpi_runtime_ref.hex()
    assert repr(counter) == f"Actor(Counter, {id}: call a method with .add.remote(...); methods: add)"
    assert repr(counter.add) == f"<method Counter.add of actor {id}: submit a call with .add.remote(...)>"
    assert get(counter.add.remote(2)) == 2
    assert [name for name in dir(counter) if name == "add"] == ["add"]


def test_what_has_no_signature() -> None:
    assert repr(remote(dict.fromkeys)).startswith("<remote function fromkeys: submit a call with fromkeys.remote(")
    assert repr(remote(print)).startswith("<remote function print: ")
    assert "getattr.remote(...)" in repr(remote(getattr))


def test_labels_and_the_context() -> None:
    assert repr([In("a", "b"), NotIn("c"), Exists(), DoesNotExist()]) == (
        "[In('a', 'b'), NotIn('c'), Exists(), DoesNotExist()]"
    )
    context = mpi_runtime.init(ignore_reinit_error=True)
    assert repr(context) == "<job of 1 rank: it ends with shutdown(), with the block of `with`, or with the program>"
    address = nodes()[0]["NodeManagerAddress"]
    assert dict(context) == {"address": "local", "ranks": 1, "node_id": "0" * 32, "node_ip_address": address}
    found = context._repr_html_()
    assert "<th>NodeName</th>" in found
    assert "`with`" in found
    runtime = mpi_runtime.get_runtime_context()
    assert "rank=0, task=None, actor=None" in repr(runtime)
    assert "<td>rank</td><td>0</td>" in runtime._repr_html_()


@pytest.mark.parametrize(
    "make", [mpi_runtime.nodes, state.list_tasks, state.list_actors, state.list_objects, state.list_workers]
)
def test_lists_are_tables_in_a_notebook(make: Any) -> None:
    counter = Counter.remote()
    get(counter.add.remote(1))
    slow = remote(__import__("time").sleep).remote(0.5)
    ref = mpi_runtime.put(1)
    found = make()
    assert isinstance(found, list)
    assert found
    assert found == list(found)
    assert json.loads(json.dumps(found)) == found
    assert pickle.loads(pickle.dumps(found)) == found
    html = found._repr_html_()
    assert html.count("<tr>") == 1 + len(found)
    assert all(f"<th>{name}</th>" in html for name in found[0])
    assert found[:1] == [found[0]]
    get([slow, ref])


def test_an_empty_list_and_odd_texts() -> None:
    assert state.list_placement_groups()._repr_html_() == "<p>none</p>"
    from mpi_runtime.show.tables import Table

    table: Table[dict[str, Any]] = Table([{"a": "<b>&", "n": {"x": 1}}, {"other": "y" * 1000, "n": [1, 2]}])
    html = table._repr_html_()
    assert "&lt;b&gt;&amp;" in html
    assert "x: 1" in html
    assert "1, 2" in html
    assert "y" * 201 not in html
    assert "and 400 more" in Table([{"a": 1}] * 500)._repr_html_()


def test_a_reference_in_a_notebook_whose_call_has_not_begun_waits() -> None:
    """The word of the scheduler is "ready": it has its arguments."""
    source = """
    import time
    import mpi_runtime as ray
    ray.init(num_cpus=1)
    sleeps = ray.remote(time.sleep)
    refs = [sleeps.remote(100), sleeps.remote(0)]
    while "runs" not in ray.explain(refs[0]):
        time.sleep(0.01)
    print(refs[1]._repr_html_())
    """
    assert "<td>state</td><td>waits</td>" in run_program(textwrap.dedent(source)).expect(0).stdout


def test_references_and_handles_in_a_notebook() -> None:
    counter = Counter.options(name="<shown>").remote()
    get(counter.add.remote(1))
    html = counter._repr_html_()
    assert "<th>actor Counter</th>" in html
    assert "<td>&lt;shown&gt;</td>" in html
    assert "<td>ALIVE</td>" in html
    assert "<td>add</td>" in html
    ref = square.remote(1)
    get(ref)
    assert f"<th>ObjectRef({ref.hex()})</th>" in ref._repr_html_()
    assert "The value is there" in ref._repr_html_()
