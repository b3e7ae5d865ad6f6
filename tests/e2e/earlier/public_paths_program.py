"""Pickles one of each thing of the package that a value may contain, and prints the modules that its pickle names."""

import pickletools

import mpi_runtime as ray
from mpi_runtime import batch
from mpi_runtime.core.objects import code_pickler

ray.init(num_cpus=2, quiet=True)


@ray.remote
def f():
    return 1


@ray.remote
def items(n):
    yield from range(n)


@ray.remote
class Counter:
    def add(self, n):
        return n


counter = Counter.remote()
group = ray.util.placement_group([{"CPU": 1}])
strategies = ray.util.scheduling_strategies
things = {
    "remote function": f,
    "remote function with options": f.options(num_cpus=1),
    "actor class": ray.remote(dict),
    "handle": counter,
    "method": counter.add,
    "reference": f.remote(),
    "several references": ray.get(items.options(num_returns="dynamic").remote(2)),
    "group": group,
    "strategies": [
        strategies.NodeAffinitySchedulingStrategy("node", soft=True),
        strategies.PlacementGroupSchedulingStrategy(group),
        strategies.NodeLabelSchedulingStrategy(hard={"a": strategies.In("b"), "c": strategies.Exists()}),
    ],
    "ids": [f.remote().task_id(), counter._actor_id, ray.get_runtime_context().job_id],
    "environment": ray.runtime_env.RuntimeEnv(env_vars={"A": "b"}),
    "public functions": [
        ray.get,
        ray.put,
        ray.wait,
        ray.remote,
        ray.kill,
        ray.cancel,
        ray.nodes,
        ray.get_actor,
        ray.util.list_named_actors,
    ],
    "public classes": [
        ray.ObjectRef,
        ray.ActorHandle,
        ray.actor.ActorMethod,
        ray.actor.exit_actor,
        ray.ObjectRefGenerator,
    ],
    "results of commands": [batch.CommandResult, batch.CommandError],
    "context": ray.get_runtime_context(),
    "errors": [ray.exceptions.TaskTimeoutError("late"), ray.exceptions.RayTaskError, ray.exceptions.OutOfDiskError],
}
for name, thing in things.items():
    data = code_pickler.dumps(thing)
    texts = [argument for _, argument, _ in pickletools.genops(data) if isinstance(argument, str)]
    print(
        name,
        *["by value"] * ("_make_skeleton_class" in texts),
        *sorted({one for one in texts if one.startswith("mpi_runtime")}),
    )
ray.shutdown()
