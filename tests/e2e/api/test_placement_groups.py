"""Placement groups: reserved together, used by those who run in them, gone with all that ran in them."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime import available_resources, explain, get, get_gpu_ids, get_runtime_context, nodes, remote, wait
from mpi_runtime.errors import ActorDiedError, GetTimeoutError, InfeasibleResourceError, PlacementGroupRemovedError
from mpi_runtime.util import (
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from mpi_runtime.util.placement_group import PlacementGroup
from mpi_runtime.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from tests.helpers import run_program, wait_until

pytestmark = pytest.mark.usefixtures("job")
INIT = {"num_cpus": 4, "num_gpus": 3, "resources": {"camera": 2}}


@pytest.fixture(autouse=True)
def no_groups_left() -> Iterator[None]:
    yield
    for entry in placement_group_table().values():
        pytest.fail(f"left: {entry}")


def inside(group: PlacementGroup | None, bundle: int = -1, capture: bool = False) -> dict[str, Any]:
    return {"scheduling_strategy": PlacementGroupSchedulingStrategy(group, bundle, capture)}


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@remote
def here() -> PlacementGroup | None:
    return get_current_placement_group()


@remote
def touch_and_sleep(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(100)


@remote
class Member:
    """An actor."""

    def pid(self) -> int:
        return os.getpid()

    def group(self) -> PlacementGroup | None:
        return get_current_placement_group()

    def sleep(self) -> None:
        time.sleep(100)


# Reserving


def test_a_group_is_ready_when_all_is_reserved() -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1, "GPU": 1, "camera": 0.5}])
    assert get(group.ready()) == group
    assert group.wait(5)
    assert group.bundle_count == 2
    assert group.bundle_specs == [{"CPU": 1}, {"CPU": 1, "GPU": 1, "camera": 0.5}]
    free = available_resources()
    assert (free["CPU"], free["GPU"], free["camera"]) == (2, 2, 1.5)
    assert nodes()[0]["Available"]["CPU"] == 2
    assert nodes()[0]["Resources"]["CPU"] == 4
    remove_placement_group(group)
    wait_until(lambda: available_resources()["CPU"] == 4, what="the CPUs to come back")


def test_a_group_waits_until_there_is_room() -> None:
    first, second = placement_group([{"CPU": 3}]), placement_group([{"CPU": 3}])
    assert get(first.ready(), timeout=10) == first
    assert not second.wait(0.05)
    assert wait([first.ready(), second.ready()], num_returns=2, timeout=0.05)[0] == [first.ready()]
    with pytest.raises(GetTimeoutError):
        get(second.ready(), timeout=0.05)
    assert "asks for 1 bundle(s) (3 CPU) with strategy PACK. Free now:" in explain(second.ready())
    assert placement_group_table(second)["state"] == "PENDING"
    assert placement_group_table(second)["stats"]["scheduling_state"] == "NO_RESOURCES"
    queued = here.options(**inside(second)).remote()
    assert "waits for placement group" in explain(queued)
    remove_placement_group(first)
    assert get(queued) == second
    remove_placement_group(second)


def test_the_group_is_an_argument_like_any_other() -> None:
    @remote
    def use(group: PlacementGroup, inner: list[PlacementGroup]) -> bool:
        child = get(here.options(**inside(group)).remote())
        return bool(child == group == inner[0])

    group = placement_group([{"CPU": 1}])
    assert get(use.remote(group.ready(), [group]))
    remove_placement_group(group)


def test_a_task_may_make_a_group_and_another_end_it() -> None:
    @remote
    def make() -> PlacementGroup:
        group = placement_group([{"CPU": 1}])
        group.wait()
        return group

    group = get(make.remote())
    assert placement_group_table(group)["state"] == "CREATED"

    @remote
    def end(group: PlacementGroup) -> None:
        remove_placement_group(group)

    get(end.remote(group))
    wait_until(lambda: placement_group_table(group)["state"] == "REMOVED")


@pytest.mark.parametrize(
    ("bundles", "strategy"), [([{"CPU": 5}], "PACK"), ([{"CPU": 1}] * 2, "STRICT_SPREAD"), ([{"sky": 1}], "SPREAD")]
)
def test_a_group_that_can_never_be_says_so(bundles: Any, strategy: str) -> None:
    group = placement_group(bundles, strategy=strategy)
    assert not group.wait(0.05)
    with pytest.raises(InfeasibleResourceError, match="It is infeasible"):
        get(group.ready(), timeout=20)
    facts = placement_group_table(group)
    assert (facts["state"], facts["stats"]["scheduling_state"]) == ("PENDING", "INFEASIBLE")
    assert facts["bundles_to_node_id"] == dict.fromkeys(range(len(bundles)), "")
    remove_placement_group(group)
    with pytest.raises(PlacementGroupRemovedError, match="removed before it was placed"):
        get(group.ready())
    with pytest.raises(PlacementGroupRemovedError):
        group.wait(5)


def test_labels_of_bundles() -> None:
    (node,) = nodes()
    near = {"hostname": f"in({node['NodeName']},elsewhere)"}
    group = placement_group([{"CPU": 1}, {"CPU": 1}], None, bundle_label_selector=[near, {}])
    assert get(get(here.options(**inside(group, 0)).remote()).ready()) == group
    remove_placement_group(group)
    group = placement_group([{"CPU": 1}], bundle_label_selector=[{"hostname": "elsewhere"}])
    with pytest.raises(InfeasibleResourceError, match=r"on a node with 'hostname' = 'elsewhere'.*Labels of nodes: "):
        get(group.ready(), timeout=20)
    remove_placement_group(group)


def test_names() -> None:
    group = placement_group([{"CPU": 1}], name="mine", lifetime="detached")
    assert get_placement_group("mine") == group

    @remote
    def find() -> PlacementGroup:
        return get_placement_group("mine")

    assert get(find.remote()) == group
    with pytest.raises(ValueError, match="'mine' is taken"):
        placement_group([{"CPU": 1}], name="mine")
    remove_placement_group(group)
    with pytest.raises(ValueError, match="no placement group with the name 'mine'"):
        get_placement_group("mine")


def test_the_table() -> None:
    group = placement_group([{"CPU": 1}, {"GPU": 2}], name="table", strategy="SPREAD")
    group.wait()
    facts = placement_group_table(group)
    node = nodes()[0]["NodeID"]
    assert facts["placement_group_id"] == group.id.hex()
    assert facts["bundles"] == {0: {"CPU": 1.0}, 1: {"GPU": 2.0}}
    assert facts["bundles_to_node_id"] == {0: node, 1: node}
    assert (facts["name"], facts["strategy"], facts["state"]) == ("table", "SPREAD", "CREATED")
    assert placement_group_table() == {group.id.hex(): facts}
    remove_placement_group(group)
    assert placement_group_table(group)["state"] == "REMOVED"
    assert placement_group_table() == {}


# Running in a group


def test_tasks_and_actors_run_in_it() -> None:
    group = placement_group([{"CPU": 1}])
    assert get_current_placement_group() is None
    assert get(here.remote()) is None
    assert get(here.options(**inside(group)).remote()) == group
    member = Member.options(**inside(group, 0)).remote()
    assert get(member.group.remote()) == group
    remove_placement_group(group)


def test_no_more_at_once_than_the_bundle_has(tmp_path: Path) -> None:
    @remote
    def peak(folder: str) -> int:
        mine = Path(folder) / f"{os.getpid()}-{time.monotonic_ns()}"
        mine.touch()
        time.sleep(0.1)
        found = len(os.listdir(folder))
        mine.unlink()
        return found

    group = placement_group([{"CPU": 1}, {"CPU": 2}])
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one = [peak.options(**inside(group, 0)).remote(str(tmp_path / "one")) for _ in range(4)]
    two = [peak.options(**inside(group, 1)).remote(str(tmp_path / "two")) for _ in range(6)]
    assert max(get(one)) == 1
    assert max(get(two)) == 2
    remove_placement_group(group)


def test_devices_are_those_of_the_bundle() -> None:
    @remote(num_gpus=1)
    def whole() -> list[int]:
        return get_gpu_ids()

    @remote(num_cpus=0, num_gpus=0.5)
    def share() -> list[int]:
        time.sleep(0.1)
        return get_gpu_ids()

    group = placement_group([{"CPU": 1, "GPU": 1}, {"GPU": 1}])
    group.wait()
    outside = get(whole.remote())
    first = get([whole.options(**inside(group, 0)).remote() for _ in range(3)])
    second = get([share.options(**inside(group, 1)).remote() for _ in range(4)])
    assert first == [first[0]] * 3
    assert second == [second[0]] * 4
    assert len({outside[0], first[0][0], second[0][0]}) == 3
    remove_placement_group(group)


@pytest.mark.parametrize(
    ("options", "bundle", "says"),
    [
        ({"num_cpus": 2}, -1, "cannot fit into any bundle"),
        ({"num_gpus": 1}, 0, "cannot fit into bundle 0"),
        ({"resources": {"camera": 1}}, -1, "cannot fit into any bundle"),
    ],
    ids=str,
)
def test_what_fits_no_bundle_is_refused_at_the_call(options: dict[str, Any], bundle: int, says: str) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1, "GPU": 1}])
    with pytest.raises(ValueError, match=says):
        here.options(**inside(group, bundle), **options).remote()
    with pytest.raises(ValueError, match=says):
        Member.options(**inside(group, bundle), **options).remote()
    remove_placement_group(group)


def test_children_are_captured_when_asked() -> None:
    @remote(num_cpus=0.5)
    def parent(how: str) -> Any:
        if how == "leave":
            return get(here.options(num_cpus=0.5, **inside(None)).remote())
        if how == "spread":
            return get(here.options(num_cpus=0.5, scheduling_strategy="SPREAD").remote())
        if how == "actor":
            return get(Member.options(num_cpus=0.5).remote().group.remote())
        return get(here.options(num_cpus=0.5).remote())

    group = placement_group([{"CPU": 1}])
    assert get(parent.options(**inside(group, capture=True)).remote("child")) == group
    assert get(parent.options(**inside(group, capture=True)).remote("actor")) == group
    assert get(parent.options(**inside(group, capture=True)).remote("leave")) is None
    assert get(parent.options(**inside(group, capture=True)).remote("spread")) is None
    captures = remote(lambda: get_runtime_context().should_capture_child_tasks_in_placement_group)
    assert [get(captures.options(**inside(group, capture=one)).remote()) for one in (True, False)] == [True, False]
    assert get(parent.options(**inside(group)).remote("child")) is None
    assert get(parent.remote("child")) is None
    remove_placement_group(group)


def test_captured_children_run_in_any_bundle_of_the_group() -> None:
    """As in Ray: not only in the bundle of their parent, which may have no room for them."""

    @remote(num_cpus=1)
    def parent() -> list[PlacementGroup | None]:
        members = [Member.options(num_cpus=1).remote() for _ in range(2)]
        return get([member.group.remote() for member in members])

    group = placement_group([{"CPU": 1}, {"CPU": 1}, {"CPU": 1}])
    assert get(parent.options(**inside(group, 0, capture=True)).remote(), timeout=20) == [group] * 2
    remove_placement_group(group)


def test_a_captured_child_that_fits_no_bundle_fails() -> None:
    @remote(num_cpus=0)
    def parent() -> None:
        get(here.options(num_cpus=3).remote())

    group = placement_group([{"CPU": 1}])
    with pytest.raises(InfeasibleResourceError, match="in any bundle of placement group"):
        get(parent.options(**inside(group, capture=True)).remote())
    remove_placement_group(group)


def test_nested_calls_in_one_cpu_of_a_group() -> None:
    @remote
    def count(depth: int) -> int:
        return 1 + get(count.remote(depth - 1)) if depth else 0

    group = placement_group([{"CPU": 1}])
    assert get(count.options(**inside(group, capture=True)).remote(5)) == 5
    remove_placement_group(group)


def test_a_task_is_retried_in_its_bundle(tmp_path: Path) -> None:
    @remote
    def die_once(path: str) -> PlacementGroup | None:
        if not Path(path).exists():
            Path(path).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return get_current_placement_group()

    group = placement_group([{"CPU": 1}])
    assert get(die_once.options(**inside(group)).remote(str(tmp_path / "died"))) == group
    remove_placement_group(group)


# Removing


def test_removal_ends_all_that_runs_and_waits_in_it(tmp_path: Path) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1}])
    running = touch_and_sleep.options(**inside(group, 0)).remote(str(tmp_path / "pid"))
    queued = touch_and_sleep.options(**inside(group, 0)).remote(str(tmp_path / "other"))
    member = Member.options(num_cpus=1, **inside(group, 1)).remote()
    actor_pid = get(member.pid.remote())
    called = member.sleep.remote()
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    pid = int((tmp_path / "pid").read_text())
    assert "in bundle 0 of placement group" in explain(queued)
    remove_placement_group(group)
    with pytest.raises(PlacementGroupRemovedError, match="touch_and_sleep was stopped: placement group"):
        get(running)
    with pytest.raises(PlacementGroupRemovedError, match="was to run in placement group"):
        get(queued)
    with pytest.raises(ActorDiedError, match="its placement group was removed"):
        get(called)
    with pytest.raises(ActorDiedError, match="its placement group was removed"):
        get(member.pid.remote())
    with pytest.raises(PlacementGroupRemovedError):
        get(here.options(**inside(group)).remote())
    wait_until(lambda: not alive(pid) and not alive(actor_pid), what="the processes to be gone")
    wait_until(lambda: available_resources()["CPU"] == 4, what="the CPUs to come back")
    assert not (tmp_path / "other").exists()


def test_wait_after_the_removal_of_a_group_that_was_ready() -> None:
    group = placement_group([{"CPU": 1}])
    assert group.wait(30)
    assert group.wait(0)
    remove_placement_group(group)
    with pytest.raises(PlacementGroupRemovedError, match="was removed"):
        group.wait(30)


def test_removing_twice_and_removing_a_group_that_waits() -> None:
    group = placement_group([{"CPU": 99}])
    waiting = here.options(**inside(group)).remote()
    remove_placement_group(group)
    remove_placement_group(group)
    with pytest.raises(PlacementGroupRemovedError):
        get(waiting)


def test_handles_do_not_keep_a_group_and_it_lives_without_them(counts: Callable[[], dict[str, int]]) -> None:
    group = placement_group([{"CPU": 1}], name="alone")
    group.wait()
    del group
    assert counts()["placement_groups"] == 1
    found = get_placement_group("alone")
    assert get(here.options(**inside(found)).remote()) == found
    remove_placement_group(found)


# What is refused


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"bundles": []}, ValueError, "at least one bundle"),
        ({"bundles": {"CPU": 1}}, ValueError, "must be a list"),
        ({"bundles": [{}]}, ValueError, "at least one amount"),
        ({"bundles": [{"CPU": 0}]}, ValueError, "all amounts .* are 0"),
        ({"bundles": [{"CPU": -1}]}, ValueError, "0 or more"),
        ({"bundles": [{"CPU": "1"}]}, TypeError, "must be a number"),
        ({"bundles": [{"GPU": 1.5}]}, ValueError, "whole number"),
        ({"bundles": [{"object_store_memory": 1}]}, ValueError, "whole node"),
        ({"bundles": [{1: 1}]}, TypeError, "names of resources"),
        ({"bundles": [{"CPU": 1}], "strategy": "NICE"}, ValueError, "Invalid strategy 'NICE'"),
        ({"bundles": [{"CPU": 1}], "lifetime": "long"}, ValueError, "'detached' or None"),
        ({"bundles": [{"CPU": 1}], "name": 3}, TypeError, "must be a string"),
        ({"bundles": [{"CPU": 1}], "bundle_label_selector": []}, ValueError, "for each of the 1 bundle"),
        ({"bundles": [{"CPU": 1}], "bundle_label_selector": [{"a": "!"}]}, ValueError, r"selector\[0\] must be like"),
        ({"bundles": [{"CPU": 1}], "bundle_label_selector": [{"a": 1}]}, TypeError, "strings as keys and values"),
    ],
    ids=str,
)
def test_groups_that_are_refused(arguments: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        placement_group(**arguments)


def test_strategies_that_are_refused() -> None:
    group = placement_group([{"CPU": 1}])
    for index in (1, -2):
        with pytest.raises(ValueError, match="bundle index"):
            PlacementGroupSchedulingStrategy(group, index)
    for wrong in ("group", 3):
        with pytest.raises(TypeError, match="must be a PlacementGroup"):
            PlacementGroupSchedulingStrategy(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="whole number"):
        PlacementGroupSchedulingStrategy(group, "0")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="needs a PlacementGroup"):
        remove_placement_group(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="label_selector and a placement group"):
        here.options(label_selector={"zone": "a"}, **inside(group)).remote()
    remove_placement_group(group)


PROGRAM = """
import mpi_runtime as ray
from mpi_runtime.util import placement_group, remove_placement_group
from mpi_runtime.util.scheduling_strategies import PlacementGroupSchedulingStrategy

ray.init(num_cpus=4)

@ray.remote
class Worker:
    def rank(self):
        return ray.get_runtime_context().get_rank()

group = placement_group([{"CPU": 1}] * 4, strategy="PACK")
ray.get(group.ready())
workers = [
    Worker.options(num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(group, index)).remote()
    for index in range(4)
]
print(len(ray.get([worker.rank.remote() for worker in workers])), ray.available_resources().get("CPU"))
remove_placement_group(group)
try:
    ray.get(workers[0].rank.remote())
except ray.exceptions.ActorDiedError as error:
    print("removed" in str(error))
"""


def test_as_a_program_on_its_own() -> None:
    assert run_program(PROGRAM).expect().stdout == "4 None\nTrue\n"


@pytest.mark.mpi
def test_under_mpirun() -> None:
    assert run_program(PROGRAM, ranks=3).expect().stdout == "4 None\nTrue\n"


def test_a_group_of_a_job_that_has_ended() -> None:
    source = """
import mpi_runtime as ray
from mpi_runtime.util import placement_group, placement_group_table, remove_placement_group
from mpi_runtime.util.scheduling_strategies import PlacementGroupSchedulingStrategy

@ray.remote
def f():
    pass

ray.init(num_cpus=2)
group = placement_group([{"CPU": 2}])
group.wait()
ray.shutdown()
ray.init(num_cpus=2)
print(placement_group_table(), ray.available_resources()["CPU"])
for use in (
    group.wait,
    lambda: ray.get(group.ready()),
    lambda: remove_placement_group(group),
    lambda: f.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote(),
):
    try:
        use()
    except ray.exceptions.ObjectLostError as error:
        print("a job that has ended" in str(error))
"""
    assert run_program(source).expect().stdout == "{} 2.0\n" + 4 * "True\n"
