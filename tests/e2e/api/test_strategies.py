"""Strategies: where tasks and actors run, on one host and on two."""

from pathlib import Path
from typing import Any

import pytest

from mpi_runtime import explain, get, get_runtime_context, nodes, remote
from mpi_runtime.errors import InfeasibleResourceError, MpiRuntimeError
from mpi_runtime.util.scheduling_strategies import (
    DoesNotExist,
    Exists,
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
)
from tests.e2e.shared import hold
from tests.helpers import run_program, stable_id
from tests.hosts.lab import Lab

pytestmark = pytest.mark.usefixtures("job")
INIT = {"num_cpus": 2, "labels": {"zone": "a", "disk": "ssd"}}


@remote
def where() -> str:
    return get_runtime_context().get_node_id()


@remote
class Actor:
    """An actor."""

    def where(self) -> str:
        return get_runtime_context().get_node_id()


def this_node() -> str:
    node_id: str = nodes()[0]["NodeID"]
    return node_id


def test_nodes_tell_their_labels() -> None:
    (node,) = nodes()
    own = {"ray.io/node-id": node["NodeID"], "hostname": node["NodeName"]}
    assert node["Labels"] == {**own, "zone": "a", "disk": "ssd"}


def good() -> list[dict[str, Any]]:
    return [
        {"scheduling_strategy": "DEFAULT"},
        {"scheduling_strategy": "SPREAD"},
        {"scheduling_strategy": NodeAffinitySchedulingStrategy("ab" * 28, soft=True)},
        {"scheduling_strategy": NodeLabelSchedulingStrategy({"zone": In("b", "a"), "disk": Exists()})},
        {"scheduling_strategy": NodeLabelSchedulingStrategy({"zone": NotIn("b")}, soft={"disk": In("none")})},
        {"scheduling_strategy": NodeLabelSchedulingStrategy({"color": DoesNotExist()})},
        {"label_selector": {"zone": "a", "disk": "in(ssd, nvme)", "color": "!red"}},
        {"label_selector": {"zone": "!in(b,c)"}, "scheduling_strategy": "SPREAD"},
    ]


@pytest.mark.parametrize("options", good(), ids=stable_id)
def test_strategies_that_this_node_meets(options: dict[str, Any]) -> None:
    assert get(where.options(**options).remote()) == this_node()
    assert get(Actor.options(**options).remote().where.remote()) == this_node()


def test_affinity_to_this_node() -> None:
    strategy = NodeAffinitySchedulingStrategy(this_node(), soft=False)
    assert get(where.options(scheduling_strategy=strategy).remote()) == this_node()
    assert get(Actor.options(scheduling_strategy=strategy).remote().where.remote()) == this_node()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"scheduling_strategy": NodeAffinitySchedulingStrategy("beef", soft=False)},
            "node-id' = 'beef', but no node",
        ),
        (
            {"scheduling_strategy": NodeLabelSchedulingStrategy({"zone": In("b", "c")})},
            "'zone' = 'b' or 'c', but no",
        ),
        (
            {"scheduling_strategy": NodeLabelSchedulingStrategy({"zone": DoesNotExist()})},
            "no 'zone', but no node matches",
        ),
        ({"label_selector": {"disk": "!ssd"}}, "'disk' != 'ssd', but no node matches"),
        ({"label_selector": {"disk": "ssd"}, "num_cpus": 3}, "3 CPU on a node with 'disk' = 'ssd', and none of these"),
    ],
    ids=["affinity", "in", "absent", "selector", "too small"],
)
def test_what_no_node_meets_fails_at_once(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InfeasibleResourceError) as caught:
        get(where.options(**options).remote(), timeout=10)
    assert says in str(caught.value)
    with pytest.raises(MpiRuntimeError, match="could not be created"):
        get(Actor.options(**options).remote().where.remote(), timeout=10)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"scheduling_strategy": "NICE"}, ValueError, "must be 'DEFAULT', 'SPREAD', or one of Placement"),
        ({"scheduling_strategy": 3}, ValueError, "must be 'DEFAULT'"),
        ({"label_selector": "zone=a"}, TypeError, "must be a dictionary"),
        ({"label_selector": {"zone": "in(a"}}, ValueError, "must be like"),
        ({"label_selector": {"zone": "in()"}}, ValueError, "must be like"),
        ({"label_selector": {"zone": ""}}, ValueError, "must be like"),
        ({"label_selector": {"zone": 3}}, TypeError, "must have strings"),
        ({"label_selector": {3: "a"}}, TypeError, "must have strings"),
    ],
    ids=str,
)
def test_options_that_are_refused(options: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        where.options(**options)
    with pytest.raises(error, match=says):
        Actor.options(**options)


def test_strategies_that_are_refused() -> None:
    wrong: Any
    for wrong in (None, 3, ""):
        with pytest.raises(TypeError, match="NodeID"):
            NodeAffinitySchedulingStrategy(wrong, soft=True)
    with pytest.raises(TypeError, match="soft must be"):
        NodeAffinitySchedulingStrategy("a", soft=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs a condition"):
        NodeLabelSchedulingStrategy()
    with pytest.raises(ValueError, match="at least one value"):
        In()
    with pytest.raises(TypeError, match="strings"):
        NotIn(3)  # type: ignore[arg-type]
    for wrong in ({"zone": "a"}, {3: Exists()}, "zone"):
        with pytest.raises(TypeError, match="hard"):
            NodeLabelSchedulingStrategy(hard=wrong)


def test_why_it_waits(gate: Path) -> None:
    busy = hold.options(num_cpus=2).remote(gate)
    waiting = where.options(label_selector={"zone": "a"}).remote()
    assert "It needs 1 CPU on a node with 'zone' = 'a'." in explain(waiting)
    gate.touch()
    get([busy, waiting])


def test_labels_that_are_refused() -> None:
    source = """
import os
import mpi_runtime as ray
for labels, variable in (({"hostname": "a"}, ""), ({}, "zone"), ({}, "hostname=a"), ({}, "zone=")):
    os.environ["MPI_RUNTIME_LABELS"] = variable
    try:
        ray.init(labels=labels)
    except ValueError as error:
        print(error)
os.environ["MPI_RUNTIME_LABELS"] = "zone=b, rack=7,"
ray.init(labels={"zone": "a", "disk": "ssd"})
labels = ray.nodes()[0]["Labels"]
print(labels["zone"], labels["rack"], labels["disk"])
"""
    lines = run_program(source).expect().stdout.splitlines()
    assert "every node has it already" in lines[0]
    assert ["must be like zone=a,disk=ssd" in line for line in lines[1:4]] == [True] * 3
    assert lines[4:] == ["b 7 ssd"]


# Two hosts


@pytest.mark.mpi
@pytest.mark.hosts
def test_between_hosts(two_hosts: Lab) -> None:
    source = """
import os
import mpi_runtime as ray
from mpi_runtime.util import placement_group, placement_group_table, remove_placement_group
from mpi_runtime.util.scheduling_strategies import *

if os.uname().nodename == "host2":
    os.environ["MPI_RUNTIME_RESOURCES"] = "ssd=2"
ray.init(num_cpus=2)

@ray.remote
def where():
    return os.uname().nodename

@ray.remote
class Actor:
    def where(self):
        return os.uname().nodename

def run(count=1, **options):
    return ray.get([where.options(**options).remote() for _ in range(count)])

ids = {node["NodeName"]: node["NodeID"] for node in ray.nodes()}
print(sorted(ids))
print(run(6, scheduling_strategy=NodeAffinitySchedulingStrategy(ids["host2"], False)) == ["host2"] * 6)
there = NodeAffinitySchedulingStrategy(ids["host2"], True, _spill_on_unavailable=True)
print(run(1, scheduling_strategy=there))
full = Actor.options(num_cpus=2, scheduling_strategy=NodeAffinitySchedulingStrategy(ids["host2"], False)).remote()
print(ray.get(full.where.remote()), run(1, scheduling_strategy=there))
del full
print(run(6, resources={"ssd": 1}) == ["host2"] * 6, ray.cluster_resources()["ssd"])
print(run(6, label_selector={"hostname": "host1"}) == ["host1"] * 6)
print(run(6, scheduling_strategy=NodeLabelSchedulingStrategy({"hostname": NotIn("host1")})) == ["host2"] * 6)
actors = [Actor.options(scheduling_strategy="SPREAD").remote() for _ in range(4)]
print(sorted(ray.get([actor.where.remote() for actor in actors])))
del actors
for strategy, hosts in (("STRICT_SPREAD", 2), ("SPREAD", 2), ("STRICT_PACK", 1), ("PACK", 1)):
    group = placement_group([{"CPU": 1}] * 2, strategy=strategy)
    ray.get(group.ready())
    ran = [run(3, scheduling_strategy=PlacementGroupSchedulingStrategy(group, index)) for index in range(2)]
    node_ids = placement_group_table(group)["bundles_to_node_id"]
    as_said = all({ids[host] for host in ran[index]} == {node_ids[index]} for index in range(2))
    print(strategy, len({host for hosts in ran for host in hosts}) == hosts, as_said)
    remove_placement_group(group)
group = placement_group([{"CPU": 1}] * 2, bundle_label_selector=[{"hostname": "host2"}, {"hostname": "!host2"}])
print([run(1, scheduling_strategy=PlacementGroupSchedulingStrategy(group, index)) for index in range(2)])
remove_placement_group(group)
group = placement_group([{"CPU": 1}] * 3, strategy="STRICT_SPREAD")
print(group.wait(0.1), placement_group_table(group)["stats"])
"""
    with two_hosts.mpirun(source, ranks={"host1": 2, "host2": 1}) as program:
        lines = program.finish().expect().stdout.splitlines()
    assert lines == [
        "['host1', 'host2']",
        "True",
        "['host2']",
        "host2 ['host1']",
        "True 2.0",
        "True",
        "True",
        "['host1', 'host1', 'host2', 'host2']",
        "STRICT_SPREAD True True",
        "SPREAD True True",
        "STRICT_PACK True True",
        "PACK True True",
        "[['host2'], ['host1']]",
        "False {'scheduling_state': 'INFEASIBLE'}",
    ]
