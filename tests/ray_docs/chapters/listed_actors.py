"""What is listed of actors, also of those that have ended, of groups and of values."""

import contextlib
import gc
import os

import ray
from ray.util.state import get_actor, get_objects, get_placement_group, list_nodes, list_tasks

from tests.ray_docs.helpers import eventually, raised

OWN_JOBS = True


@contextlib.contextmanager
def _job():
    ray.init(include_dashboard=True, log_to_driver=False, num_cpus=4, resources={"special": 2}, namespace="listed")
    address = getattr(ray.get_runtime_context(), "gcs_address", None)
    if address:  # of Ray: else it looks for clusters, and may find several
        os.environ["RAY_ADDRESS"] = address
    try:
        eventually(lambda: raised(list_nodes) == "nothing", timeout=60)
        yield
    finally:
        os.environ.pop("RAY_ADDRESS", None)
        ray.shutdown()


@_job()
def classes_are_listed_with_their_surroundings():
    """As Python writes them."""

    class Outer:
        @ray.remote
        class Inner:
            def ready(self):
                return True

    actor = Outer.Inner.remote()
    ray.get(actor.ready.remote())
    print(get_actor(actor._actor_id.hex()).class_name)
    of = [("actor_id", "=", actor._actor_id.hex())]
    print(eventually(lambda: len(list_tasks(filters=of)) == 2), sorted(one.name for one in list_tasks(filters=of)))


def _ending():
    @ray.remote
    class Ending:
        def ready(self):
            return True

        def leave(self):
            ray.actor.exit_actor()

    return Ending


@_job()
def a_call_that_ends_its_actor_has_finished():
    """Its caller gets an error all the same."""
    actor = _ending().remote()
    print(raised(lambda: ray.get(actor.leave.remote()), "RayActorError"))
    of = [("actor_id", "=", actor._actor_id.hex()), ("name", "=", "Ending.leave")]
    print(eventually(lambda: [one.state for one in list_tasks(filters=of)] == ["FINISHED"]))
    print([one.error_type for one in list_tasks(filters=of, detail=True)])


@_job()
def an_actor_without_handles_is_still_listed():
    """It is dead, and keeps its name."""
    actor = _ending().options(name="short", namespace="lives").remote()
    ray.get(actor.ready.remote())
    known = actor._actor_id.hex()
    del actor
    gc.collect()
    print(eventually(lambda: get_actor(known).state == "DEAD"))
    found = get_actor(known)
    print(found.name, found.ray_namespace, found.pid > 0)


@_job()
def actors_are_listed_with_what_they_hold():
    """Their resources, whether they are detached, and their placement group."""
    group = ray.util.placement_group([{"CPU": 1}])
    ray.get(group.ready())
    place = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group)
    plain = _ending().remote()
    large = _ending().options(num_cpus=1, resources={"special": 1}, lifetime="detached", name="large").remote()
    placed = _ending().options(num_cpus=1, scheduling_strategy=place).remote()
    ray.get([one.ready.remote() for one in (plain, large, placed)])
    for one in (plain, large):
        found = get_actor(one._actor_id.hex())
        print(found.is_detached, sorted(found.required_resources.items()), found.placement_group_id)
    print(get_actor(placed._actor_id.hex()).placement_group_id == group.id.hex())
    ray.kill(large)
    ray.util.remove_placement_group(group)


@_job()
def bundles_are_listed_with_their_numbers():
    """Each with its group, its resources and its node."""
    group = ray.util.placement_group([{"CPU": 1}, {"CPU": 2}])
    ray.get(group.ready())
    found = get_placement_group(group.id.hex())
    for one in found.bundles:
        print(one["bundle_id"]["placement_group_id"] == group.id.hex(), one["bundle_id"]["bundle_index"])
        print(one["unit_resources"], one["node_id"] == ray.get_runtime_context().get_node_id())


@_job()
def a_value_that_is_not_stored_is_not_found():
    """`get_objects` gives nothing then."""
    stored = ray.put(bytes(1_000_000))
    print(eventually(lambda: len(get_objects(stored.hex()) or ()) == 1), get_objects("f" * len(stored.hex())))
