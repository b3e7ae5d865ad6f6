"""What there is in a job, as lists; and what a call can ask about itself."""

import os
from pathlib import Path
from typing import Any

import numpy
import pytest

import mpi_runtime
from mpi_runtime import get, get_runtime_context, kill, remote
from mpi_runtime.util import state
from tests.e2e.shared import hold
from tests.helpers import run_program, wait_until

pytestmark = pytest.mark.usefixtures("job")
INIT = {"num_cpus": 2, "num_gpus": 2, "resources": {"disk": 4}, "labels": {"zone": "a"}}


@remote
def add(first: Any, second: Any = 0) -> Any:
    return 1


@remote
class Member:
    def about(self) -> dict[str, Any]:
        context = get_runtime_context()
        return {
            "id": context.get_actor_id(),
            "name": context.get_actor_name(),
            "task": context.get_task_function_name(),
            "restarted": context.was_current_actor_reconstructed,
            "held": context.get_assigned_resources(),
            "self": context.current_actor,
        }


def test_calls(tmp_path: Path) -> None:
    running = [hold.remote(tmp_path / "go") for _ in range(2)]
    queued = hold.remote(tmp_path / "go")
    waiting = add.remote(queued)
    wait_until(lambda: len(state.list_tasks(filters=[("state", "=", "RUNNING")])) == 2)
    found = {task.task_id: task for task in state.list_tasks()}
    assert list(found) == [ref.hex() for ref in (*running, queued, waiting)]
    assert found[running[0].hex()]["name"] == "hold"
    assert found[running[0].hex()].required_resources == {"CPU": 1.0}
    assert found[queued.hex()].state == "PENDING_NODE_ASSIGNMENT"
    assert found[waiting.hex()].state == "PENDING_ARGS_AVAIL"
    assert state.get_task(waiting.hex()) == found[waiting.hex()]
    assert state.summarize_tasks()["summary"]["hold"] == {"RUNNING": 2, "PENDING_NODE_ASSIGNMENT": 1}
    assert len(state.list_tasks(limit=1)) == 1
    workers = {worker.task_id: worker for worker in state.list_workers()}
    assert workers[running[0].hex()].pid == found[running[0].hex()].worker_pid
    assert workers[running[0].hex()].assigned_resources == {"CPU": 1.0}
    (tmp_path / "go").touch()
    get(waiting)
    ended = state.get_task(waiting.hex())
    assert ended is not None
    assert (ended.state, ended.error_type, ended.parent_task_id) == ("FINISHED", None, None)
    wait_until(lambda: not state.list_tasks(filters=[("state", "!=", "FINISHED")]))
    assert len(state.list_tasks(filters=[("STATE", "=", "finished"), ("name", "=", "hold")])) == 3


def test_actors() -> None:
    member = Member.options(name="member", num_gpus=1).remote()
    get(member.about.remote())
    (found,) = state.list_actors(filters=[("state", "=", "ALIVE")])
    assert (found.class_name, found.name, found.num_restarts) == ("Member", "member", 0)
    assert found.actor_id == get(member.about.remote())["id"]
    assert state.summarize_actors() == {"Member": {"ALIVE": 1}}
    kill(member)
    wait_until(lambda: state.get_actor(found.actor_id).state == "DEAD")  # type: ignore[union-attr]
    assert "kill" in state.get_actor(found.actor_id).death_cause  # type: ignore[union-attr]


def test_objects() -> None:
    refs = [mpi_runtime.put(numpy.ones(100_000)), mpi_runtime.put(1)]
    large, small = (found for found in state.list_objects())
    assert (large.state, small.state) == ("stored", "inline")
    assert large.object_size >= 800_000 > 1000 > small.object_size
    assert large.node_ids == [node.node_id for node in state.list_nodes()]
    assert state.summarize_objects()["total_objects"] == 2
    assert len(refs) == 2


def test_nodes_and_groups() -> None:
    (node,) = state.list_nodes()
    assert (node.state, node.is_head_node, node.resources_total["disk"], node.labels["zone"]) == ("ALIVE", True, 4, "a")
    assert state.get_node(node.node_id) == node
    assert mpi_runtime.available_resources_per_node()[node.node_id]["CPU"] == 2
    group = mpi_runtime.util.placement_group([{"CPU": 1}], name="pair")
    assert group.wait(20)
    (entry,) = state.list_placement_groups()
    assert (entry.name, entry.state) == ("pair", "CREATED")
    mpi_runtime.util.remove_placement_group(group)
    assert mpi_runtime.available_resources_per_node()[node.node_id]["CPU"] == 2


def test_filters_that_are_wrong() -> None:
    mpi_runtime_ref = mpi_runtime.put(1)
    with pytest.raises(ValueError, match="a filter is"):
        state.list_objects(filters=[("state", "<", 3)])
    with pytest.raises(ValueError, match=r"no key 'colour'.*object_id"):
        state.list_objects(filters=[("colour", "=", "red")])
    (found,) = state.list_objects(filters=[("state", "!=", "stored")])
    with pytest.raises(AttributeError, match="there is no 'colour'"):
        found.colour  # noqa: B018
    for id in ("", "01000000", b"\0" * 16, "x" * 32):
        with pytest.raises(ValueError, match="an id is a string of 32"):
            state.get_actor(id)  # type: ignore[arg-type]
    assert state.get_actor("f" * 32) is state.get_node("f" * 32) is None
    del mpi_runtime_ref


def test_what_an_actor_knows_of_itself(tmp_path: Path) -> None:
    member = Member.options(name="me", max_restarts=1, resources={"disk": 0.5}, num_cpus=1).remote()
    about = get(member.about.remote())
    assert (about["name"], about["restarted"]) == ("me", False)
    assert about["task"].endswith("test_state.Member.about")
    assert about["held"] == {"CPU": 1.0, "disk": 0.5}
    assert get(about["self"].about.remote())["id"] == about["id"]
    kill(member, no_restart=False)
    assert get(member.about.remote())["restarted"] is True
    assert get(Member.remote().about.remote())["name"] == ""


def test_what_a_task_and_the_driver_know() -> None:
    @remote(num_gpus=1, resources={"disk": 1})
    def about() -> Any:
        context = get_runtime_context()
        return context.get_assigned_resources(), context.get_task_function_name(), context.get_actor_name()

    resources, name, actor = get(about.remote())
    assert (resources, actor) == ({"CPU": 1.0, "GPU": 1.0, "disk": 1.0}, None)
    assert name.endswith(".about")
    context = get_runtime_context()
    assert context.get_assigned_resources() == {}
    assert context.get_task_function_name() is None
    assert context.get_placement_group_id() is None
    assert context.get_node_labels()["zone"] == "a"
    assert context.pid == os.getpid()
    assert not context.was_current_actor_reconstructed
    assert not context.should_capture_child_tasks_in_placement_group
    assert (context.runtime_env, context.get_runtime_env_string()) == ({}, "{}")
    with pytest.raises(RuntimeError, match="inside actors"):
        context.current_actor  # noqa: B018


PROGRAM = """
import mpi_runtime
from mpi_runtime.util import state

@mpi_runtime.remote
def rank():
    return mpi_runtime.get_runtime_context().get_rank()

mpi_runtime.init(num_cpus=2)
assert mpi_runtime.get(rank.remote()) > 0
workers = state.list_workers()
assert workers and all(worker.rank > 0 and worker.pid for worker in workers), workers
print(len(state.list_nodes()))
"""


@pytest.mark.mpi
def test_on_several_ranks() -> None:
    assert run_program(PROGRAM, ranks=3).expect().stdout == "1\n"
