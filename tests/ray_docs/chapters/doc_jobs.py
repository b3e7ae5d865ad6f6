"""Programs of the documentation of Ray Core that start jobs of their own."""

import os

import ray
import ray.dag
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from tests.ray_docs.helpers import eventually, raised

OWN_JOBS = True


def _job(**options):
    return ray.init(include_dashboard=False, log_to_driver=False, **{"num_cpus": 4, **options})


def groups_step_by_step():
    """A group is made, waited for, used, and removed; another can never be made."""

    @ray.remote(num_cpus=1)
    class Actor:
        def ready(self):
            return "ready"

    with _job(num_cpus=2, num_gpus=2):
        group = placement_group([{"CPU": 1, "GPU": 1}])
        ray.get(group.ready(), timeout=10)
        print(len(ray.wait([group.ready()], timeout=10)[0]))
        table = placement_group_table(group)
        print(table["state"], table["strategy"], sorted(table["bundles"][0].items()), table["name"])
        actor = Actor.options(scheduling_strategy=PlacementGroupSchedulingStrategy(placement_group=group)).remote()
        print(ray.get(actor.ready.remote(), timeout=10))
        first = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=0)
        other = Actor.options(num_cpus=0, num_gpus=1, scheduling_strategy=first).remote()
        print(ray.get(other.ready.remote(), timeout=10))
        remove_placement_group(group)
        print(eventually(lambda: placement_group_table(group)["state"] == "REMOVED"))


def groups_with_names():
    """Found by their name until they are removed; the name is free then."""
    with _job(num_cpus=2):
        group = placement_group([{"CPU": 1}], lifetime="detached", name="global_name")
        ray.get(group.ready())
        print(ray.util.get_placement_group("global_name").id == group.id)
        remove_placement_group(group)
        gone = eventually(
            lambda: raised(lambda: ray.util.get_placement_group("global_name"), "ValueError") != "nothing"
        )
        again = placement_group([{"CPU": 1}], name="global_name")
        print(gone, again.wait(10), ray.util.get_placement_group("global_name").id == again.id)


def children_in_the_group_of_their_parent():
    """With `placement_group_capture_child_tasks`, and only then."""

    @ray.remote(num_cpus=1)
    def child():
        group = ray.util.get_current_placement_group()
        return None if group is None else group.id.hex()

    @ray.remote(num_cpus=1)
    def parent():
        return ray.get(child.remote())

    with _job(num_cpus=4):
        group = placement_group([{"CPU": 2}])
        ray.get(group.ready())
        for captures in (True, False):
            strategy = PlacementGroupSchedulingStrategy(
                placement_group=group, placement_group_capture_child_tasks=captures
            )
            print(ray.get(parent.options(scheduling_strategy=strategy).remote()) == group.id.hex())


def resources_that_a_group_has_taken():
    """Are not there for other tasks."""

    @ray.remote(num_cpus=2)
    def works():
        return True

    with _job(num_cpus=2):
        group = placement_group([{"CPU": 2}])
        ray.get(group.ready())
        outside = works.remote()
        print(len(ray.wait([outside], timeout=1)[0]))
        inside = works.options(scheduling_strategy=PlacementGroupSchedulingStrategy(placement_group=group)).remote()
        print(ray.get(inside, timeout=10))
        remove_placement_group(group)
        print(ray.get(outside, timeout=10))


def gpus_of_actors_and_tasks():
    """The first GPU is that of the actor, so the task has the second one."""

    @ray.remote(num_gpus=1)
    class Actor:
        def ids(self):
            return [int(one) for one in ray.get_gpu_ids()], os.environ["CUDA_VISIBLE_DEVICES"]

    @ray.remote(num_gpus=1)
    def ids():
        return [int(one) for one in ray.get_gpu_ids()], os.environ["CUDA_VISIBLE_DEVICES"]

    with _job(num_gpus=2):
        actor = Actor.remote()
        print(ray.get(actor.ids.remote()), ray.get(ids.remote()))
