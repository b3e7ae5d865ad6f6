"""The names of Ray, and their meanings, by which engines for language models place their workers."""

from tests.helpers import run_program

NAMES = """
import os
import re
import ray
from ray.actor import ActorHandle
from ray.experimental.state.api import get_actor
from ray.runtime_env import RuntimeEnv
from ray.types import ObjectRef
from ray.util import placement_group_table
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy
from ray._private.state import available_resources_per_node
from ray._private.state import state as _state
import ray._private.state
NOSET = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"
right = {}


def meaning(words, value):
    right[words] = bool(value)


try:
    ray.init("auto")
except ConnectionError:
    meaning('init("auto") without a cluster is a ConnectionError', True)
ray.init(address=None, num_cpus=8, num_gpus=2, runtime_env=None)
here = ray.get_runtime_context().get_node_id()
address = ray.util.get_node_ip_address()
(node,) = ray.nodes()
meaning("nodes have ids and addresses", (node["NodeID"], node["NodeManagerAddress"]) == (here, address))
meaning("nodes are alive and have resources", node["Alive"] and node["Resources"]["GPU"] == 2)
total = ray.cluster_resources()
meaning("cluster_resources counts devices", total["GPU"] == 2 and total.get("NPU", 0) == 0)
free = available_resources_per_node()[here]
meaning("what a node has free", free["GPU"] == 2 and free["CPU"] == 8)
meaning("the same by its older name", _state.available_resources_per_node()[here] == free)
meaning("no group in the driver", ray.util.get_current_placement_group() is None)

bundles = [{"GPU": 1.0, f"node:{address}": 0.001}, {"GPU": 1.0}]
group = ray.util.placement_group(bundles, strategy="PACK", name="executor")
ready = group.ready()
meaning("a group is ready", ray.wait([ready], timeout=60) == ([ready], []))
ray.get(ready, timeout=0)
facts = placement_group_table(group)
places = facts["bundles_to_node_id"]
meaning("places of bundles", places == {0: here, 1: here} and facts["bundles"] == dict(enumerate(bundles)))
meaning("the table by private name", _state.placement_group_table(group.id)["bundles_to_node_id"][0] == here
        and ray._private.state.state is _state)
meaning("the table of all groups", list(ray.util.placement_group_table()) == [group.id.hex()])
meaning("bundles of a group", isinstance(group, PlacementGroup) and group.bundle_count == 2
        and group.bundle_specs == bundles)
late = placement_group([{"GPU": 1}], strategy="STRICT_PACK", lifetime="detached", name="late")
try:
    ray.get(late.ready(), timeout=0)
except ray.exceptions.GetTimeoutError:
    meaning("a group that is not ready is a GetTimeoutError", True)


class Base:
    pass


class Worker(Base):
    def __init__(self, *, rank):
        self.rank = rank

    def where(self):
        context = ray.get_runtime_context()
        return context.get_node_id(), context.get_accelerator_ids()["GPU"], os.environ.get("CUDA_VISIBLE_DEVICES")

    def address(self):
        return ray.util.get_node_ip_address()

    def group(self):
        return ray.util.get_current_placement_group().id.hex(), os.environ["RANK"], os.environ.get(NOSET)

    def run(self):
        return self.rank

    def fail(self):
        os._exit(1)


def options(bundle, **environment):
    strategy = PlacementGroupSchedulingStrategy(
        placement_group=group, placement_group_capture_child_tasks=True, placement_group_bundle_index=bundle
    )
    env_vars = {"RANK": str(bundle), **environment}
    return {"num_cpus": 0, "num_gpus": 1, "scheduling_strategy": strategy, "runtime_env": {"env_vars": env_vars}}


first = ray.remote(**options(0))(Worker).remote(rank=0)
wrapped = ray.remote(Worker)
second = wrapped.options(name="executor_1", **options(1, **{NOSET: "1"})).remote(rank=1)
meaning("classes and handles", isinstance(first, ActorHandle) and wrapped.__ray_actor_class__ is Worker
        and Base in wrapped.__ray_actor_class__.__mro__)
meaning("the name of a class of actors", re.search(r"ActorClass\\(([^)]+)\\)", type(wrapped).__name__)[1] == "Worker")
places = ray.get([first.where.remote(), second.where.remote()])
devices = sorted(int(ids[0]) for _, ids, _ in places)
meaning("devices of a worker, by vendor", devices == [0, 1] and places[0][0] == here)
meaning("the variable has the devices, but with NOSET", places[0][2] == str(places[0][1][0]) and places[1][2] is None)
meaning("the address of a worker", ray.get(second.address.remote()) == address)
meaning("the group of a worker, and its variables", ray.get(second.group.remote()) == (group.id.hex(), "1", "1"))
run = {worker.run.remote(): rank for rank, worker in enumerate((first, second))}
done, _ = ray.wait(list(run), num_returns=2, timeout=60)
meaning("references are keys", sorted(run[ref] for ref in done) == [0, 1])
by_name = getattr(ray.get_actor("executor_1"), "run")
meaning("workers by name", "executor_1" in ray.util.list_named_actors() and ray.get(by_name.remote()) == 1)
near = ray.remote(lambda: 3).options(scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=here, soft=False))
meaning("next to a worker", ray.get(near.remote()) == 3)
meaning("the state of a worker", get_actor(first._actor_id.hex()).get("state", "undefined") == "ALIVE")
third = ray.remote(Worker).options(runtime_env=RuntimeEnv(env_vars={"RANK": "2"})).remote(rank=2)
fail = third.fail.remote()
ended, _ = ray.wait([fail], timeout=60)
meaning("a worker that dies ends its call", ended == [fail])
ray.kill(first)
ray.util.remove_placement_group(group)
wrong = [words for words, good in right.items() if not good]
print(len(right), wrong)
"""


def test_names_that_engines_use() -> None:
    """As Ray 2.60 answers them, but for the state of a worker, which Ray's dashboard knows."""
    environment = {"CUDA_VISIBLE_DEVICES": None, "RAY_ADDRESS": None}
    completed = run_program(NAMES, options=("-m", "mpi_runtime", "--as-ray"), env=environment).expect(0)
    assert completed.stdout == "24 []\n"
