"""Resources, placement groups, strategies, labels, accelerators."""

import time

import ray
from ray.util.placement_group import (
    PlacementGroup,
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import (
    DoesNotExist,
    Exists,
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
    PlacementGroupSchedulingStrategy,
)

from tests.ray_docs.helpers import eventually, raised


def _all_free():
    return eventually(lambda: ray.available_resources().get("CPU") == 4)


def resources_of_the_cluster():
    """What `init` was told."""
    found = ray.cluster_resources()
    print(found["CPU"], found["special"], found["memory"] > 0)


def what_is_free():
    """`available_resources` shrinks while something is held."""

    @ray.remote(num_cpus=1, resources={"special": 1})
    class A:
        def f(self):
            return 1

    _all_free()
    a = A.remote()
    ray.get(a.f.remote())
    print(
        eventually(lambda: ray.available_resources().get("CPU") == 3 and ray.available_resources().get("special") == 1)
    )


def what_is_held_completely_is_not_listed():
    """A resource of which nothing is free."""

    @ray.remote(resources={"special": 2})
    class A:
        def f(self):
            return 1

    a = A.remote()
    ray.get(a.f.remote())
    print(eventually(lambda: ray.available_resources().get("special", 0) == 0))


def nodes_of_the_cluster():
    """A list of dictionaries."""
    (node,) = ray.nodes()
    print(
        node["Alive"],
        node["Resources"]["CPU"],
        isinstance(node["NodeID"], str),
        isinstance(node["NodeManagerAddress"], str),
    )
    print(node["NodeID"] == ray.get_runtime_context().get_node_id(), "Labels" in node)


def a_task_waits_for_its_resource():
    """It starts when that is free."""

    @ray.remote(resources={"special": 2})
    def f(n):
        time.sleep(0.05)
        return n

    print(ray.get([f.remote(n) for n in range(3)]))


def fractions_above_one_are_refused_for_gpus():
    """A share of a GPU, or whole ones."""

    @ray.remote
    def f():
        return 1

    print(raised(lambda: f.options(num_gpus=1.5).remote(), "ValueError"))


def fractions_of_own_resources_above_one():
    """Own resources above one are whole."""

    @ray.remote
    def f():
        return 1

    print(raised(lambda: f.options(resources={"special": 1.5}).remote(), "ValueError"))


def reserved_names_of_resources():
    """CPU, GPU and memory have options of their own."""

    @ray.remote
    def f():
        return 1

    print(
        [raised(lambda n=name: f.options(resources={n: 1}).remote(), "ValueError") for name in ("CPU", "GPU", "memory")]
    )


def memory_as_a_resource():
    """`memory` is held like others, in bytes."""

    @ray.remote(memory=100 * 1024 * 1024)
    def f():
        return ray.get_runtime_context().get_assigned_resources()["memory"]

    print(ray.get(f.remote()) == 100 * 1024 * 1024)


def no_gpus():
    """Without GPUs a call has no ids of any."""

    @ray.remote
    def f():
        return ray.get_gpu_ids()

    print(ray.get(f.remote()), ray.get_gpu_ids())


def a_placement_group_is_ready():
    """`ready()` gives a reference, `wait` an answer."""
    group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="PACK")
    got = ray.get(group.ready())
    print(isinstance(got, PlacementGroup), group.wait(10), group.bundle_specs, group.bundle_count)
    remove_placement_group(group)
    print(_all_free())


def a_group_holds_what_it_asked_for():
    """Its resources are not free for others."""
    _all_free()
    group = placement_group([{"CPU": 3}])
    ray.get(group.ready())
    print(eventually(lambda: ray.available_resources().get("CPU") == 1))
    remove_placement_group(group)
    print(_all_free())


def tasks_in_a_group():
    """By its strategy, in a bundle by its number or in any."""
    group = placement_group([{"CPU": 1}, {"CPU": 1, "special": 1}])

    @ray.remote(num_cpus=1)
    def f():
        return ray.get_runtime_context().get_placement_group_id() == group_id

    group_id = group.id.hex()
    any_of = PlacementGroupSchedulingStrategy(placement_group=group)
    second = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=1)
    print(ray.get([f.options(scheduling_strategy=any_of).remote(), f.options(scheduling_strategy=second).remote()]))
    remove_placement_group(group)
    _all_free()


def a_bundle_that_does_not_exist():
    """Its number is out of bounds."""
    group = placement_group([{"CPU": 1}])

    @ray.remote
    def f():
        return 1

    def call():
        strategy = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=3)
        f.options(scheduling_strategy=strategy).remote()

    print(raised(call, "ValueError"))
    remove_placement_group(group)
    _all_free()


def a_call_too_large_for_its_group():
    """No bundle can hold it."""
    group = placement_group([{"CPU": 1}])

    @ray.remote(num_cpus=2)
    def f():
        return 1

    strategy = PlacementGroupSchedulingStrategy(placement_group=group)
    print(raised(lambda: f.options(scheduling_strategy=strategy).remote(), "ValueError"))
    remove_placement_group(group)
    _all_free()


def actors_in_a_group():
    """They live in it and take from it."""
    group = placement_group([{"CPU": 2}])

    @ray.remote(num_cpus=1)
    class A:
        def f(self):
            return get_current_placement_group() is not None

    strategy = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=0)
    a, b = (A.options(scheduling_strategy=strategy).remote() for _ in range(2))
    print(ray.get([a.f.remote(), b.f.remote()]))
    del a, b
    remove_placement_group(group)
    print(_all_free())


def children_are_captured_where_asked_for():
    """`placement_group_capture_child_tasks` keeps what a call submits in the group."""
    group = placement_group([{"CPU": 2}])

    @ray.remote
    def child():
        return get_current_placement_group() is not None

    @ray.remote
    def parent():
        return ray.get(child.remote())

    def run(capture):
        strategy = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_capture_child_tasks=capture)
        return ray.get(parent.options(scheduling_strategy=strategy).remote())

    print(run(True), run(False))
    remove_placement_group(group)
    _all_free()


def outside_of_groups():
    """There is no current group."""
    print(get_current_placement_group(), ray.get_runtime_context().get_placement_group_id())


def a_named_group():
    """`get_placement_group` finds it."""
    group = placement_group([{"CPU": 1}], name="docs-group")
    ray.get(group.ready())
    print(
        get_placement_group("docs-group").id == group.id, raised(lambda: get_placement_group("docs-none"), "ValueError")
    )
    remove_placement_group(group)
    _all_free()


def the_table_of_groups():
    """By id: name, bundles, strategy, state."""
    group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="SPREAD", name="docs-table")
    ray.get(group.ready())
    row = placement_group_table(group)
    print(row["name"], row["strategy"], row["state"], row["bundles"], row["placement_group_id"] == group.id.hex())
    print(sorted(row["bundles_to_node_id"]), set(row["bundles_to_node_id"].values()) == {ray.nodes()[0]["NodeID"]})
    remove_placement_group(group)
    print(eventually(lambda: placement_group_table(group)["state"] == "REMOVED"))
    _all_free()


def calls_in_a_group_that_is_removed():
    """What runs in it ends."""
    group = placement_group([{"CPU": 1}])

    @ray.remote(num_cpus=1)
    class A:
        def f(self):
            return 1

    a = A.options(scheduling_strategy=PlacementGroupSchedulingStrategy(placement_group=group)).remote()
    ray.get(a.f.remote())
    remove_placement_group(group)
    print(eventually(lambda: raised(lambda: ray.get(a.f.remote()), "RayActorError") == "RayActorError"))
    _all_free()


def strategies_of_groups():
    """Four, and no others."""
    for strategy in ("PACK", "SPREAD", "STRICT_PACK"):
        group = placement_group([{"CPU": 1}], strategy=strategy)
        print(strategy, group.wait(10))
        remove_placement_group(group)
    print(raised(lambda: placement_group([{"CPU": 1}], strategy="ELSEWHERE"), "ValueError"))
    _all_free()


def bundles_that_make_no_sense():
    """Empty, negative, no list."""
    for bundles in ([], [{}], [{"CPU": 0}], {"CPU": 1}, [1]):
        print(bundles, raised(lambda b=bundles: placement_group(b), "ValueError", "TypeError"))


def lifetimes_of_groups():
    """None or "detached"."""
    print(raised(lambda: placement_group([{"CPU": 1}], lifetime="forever"), "ValueError"))


def a_group_that_does_not_fit_now():
    """It waits until there is room."""
    first = placement_group([{"CPU": 4}])
    ray.get(first.ready())
    second = placement_group([{"CPU": 4}])
    ready = second.ready()
    print(ray.wait([ready], timeout=0.5)[0])
    remove_placement_group(first)
    print(len(ray.wait([ready], timeout=30)[0]))
    remove_placement_group(second)
    _all_free()


def ids_of_groups():
    """An id has hex and binary forms; an empty group has none."""
    group = placement_group([{"CPU": 1}])
    print(len(group.id.hex()) == 2 * len(group.id.binary()), group.is_empty, PlacementGroup.empty().is_empty)
    remove_placement_group(group)
    _all_free()


def groups_are_arguments():
    """A group is passed on and is equal to itself."""
    group = placement_group([{"CPU": 1}])
    ray.get(group.ready())
    print(ray.get(ray.remote(num_cpus=0)(lambda g: g).remote(group)) == group)
    remove_placement_group(group)
    _all_free()


def the_default_and_spread_strategies():
    """By name."""

    @ray.remote
    def f():
        return 1

    print(ray.get([f.options(scheduling_strategy=s).remote() for s in ("DEFAULT", "SPREAD")]))
    print(raised(lambda: f.options(scheduling_strategy="NEAR").remote(), "ValueError"))


def a_call_on_a_node_by_its_id():
    """`NodeAffinitySchedulingStrategy`, hard and soft."""

    @ray.remote
    def f():
        return ray.get_runtime_context().get_node_id()

    id = ray.nodes()[0]["NodeID"]
    hard = NodeAffinitySchedulingStrategy(id, soft=False)
    print(ray.get(f.options(scheduling_strategy=hard).remote()) == id)
    soft = NodeAffinitySchedulingStrategy("00" * 28, soft=True)
    print(ray.get(f.options(scheduling_strategy=soft).remote()) == id)


def an_affinity_to_an_id_of_the_context():
    """The old `node_id` of the context is good too."""
    id = ray.get_runtime_context().node_id

    @ray.remote
    def f():
        return ray.get_runtime_context().get_node_id()

    strategy = NodeAffinitySchedulingStrategy(node_id=id, soft=False)
    print(ray.get(f.options(scheduling_strategy=strategy).remote()) == id.hex() == strategy.node_id)


def a_node_that_is_not_there():
    """A hard affinity to it is an error of the call."""

    @ray.remote
    def f():
        return 1

    strategy = NodeAffinitySchedulingStrategy("00" * 28, soft=False)
    print(
        raised(lambda: ray.get(f.options(scheduling_strategy=strategy).remote(), timeout=30), "TaskUnschedulableError")
    )


def labels_of_nodes():
    """Conditions on labels that a node has."""
    labels = ray.nodes()[0]["Labels"]
    name = "zone"
    print(labels[name], labels["ray.io/node-id"] == ray.nodes()[0]["NodeID"])

    @ray.remote
    def f():
        return "ran"

    hard = NodeLabelSchedulingStrategy(hard={name: In(labels[name])})
    exists = NodeLabelSchedulingStrategy(
        hard={name: Exists(), "docs-none": DoesNotExist()}, soft={"docs-none": NotIn("x")}
    )
    print(ray.get([f.options(scheduling_strategy=s).remote() for s in (hard, exists)]))


def label_selectors():
    """`label_selector` asks for labels by value."""

    @ray.remote
    def f():
        return "ran"

    print(ray.get([f.options(label_selector={"zone": s}).remote() for s in ("a", "in(a,x)", "!x", "!in(x,y)")]))


def malformed_label_selectors():
    """They are refused where they are stated."""

    @ray.remote
    def f():
        return 1

    for selector in ({"a": 1}, {"a": "in()"}, {"a b": "c"}, {"a": "b c"}, ["a"], {1: "a"}):
        print(selector, raised(lambda s=selector: f.options(label_selector=s).remote(), "ValueError", "TypeError"))


def accelerator_types():
    """There are names for them."""
    from ray.util.accelerators import NVIDIA_A100, NVIDIA_H100, NVIDIA_TESLA_V100

    print(NVIDIA_TESLA_V100, NVIDIA_A100, NVIDIA_H100)


def fallback_strategies():
    """`fallback_strategy` says what to do where a selector finds nothing."""

    @ray.remote(label_selector={"docs-none": "x"}, fallback_strategy=[{"label_selector": {"zone": "a"}}])
    def f():
        return "fell back"

    print(ray.get(f.remote(), timeout=30))


def assigned_ids_of_accelerators():
    """By kind; none here."""

    @ray.remote
    def f():
        return ray.get_runtime_context().get_accelerator_ids().get("GPU")

    print(ray.get(f.remote()))


def old_options_of_groups():
    """A strategy and the old option together are refused."""
    group = placement_group([{"CPU": 1}])

    @ray.remote
    def f():
        return 1

    strategy = PlacementGroupSchedulingStrategy(placement_group=group)
    print(raised(lambda: f.options(placement_group=group, scheduling_strategy=strategy).remote(), "ValueError"))
    remove_placement_group(group)
    _all_free()


def ready_after_removal():
    """`ready()` of a group that was removed is an error."""
    group = placement_group([{"CPU": 1}])
    ray.get(group.ready())
    remove_placement_group(group)
    _all_free()
    print(raised(lambda: ray.get(group.ready(), timeout=5), "RayError", "GetTimeoutError"))


def the_table_of_a_group_that_waits():
    """A group that was not placed is in the table, without nodes."""
    group = ray.util.placement_group([{"CPU": 1}, {"CPU": 1000}], strategy="PACK", name="waits")
    table = ray.util.placement_group_table(group)
    shown = ("state", "bundles", "bundles_to_node_id", "name", "strategy")
    print({name: table[name] for name in shown})
    print(any(entry["name"] == "waits" for entry in ray.util.placement_group_table().values()))
    ray.util.remove_placement_group(group)


def a_group_that_can_never_be():
    """`ready` of a group that no node can hold.

    Differs: nodes never join a job later, so `ready` fails at once.
    """
    group = ray.util.placement_group([{"CPU": 1000}])
    print(
        raised(lambda: ray.get(group.ready(), timeout=3), "GetTimeoutError", "TaskUnschedulableError", "RayTaskError")
    )
    print(group.wait(1))
    ray.util.remove_placement_group(group)
