"""Lists of what a job has, and single entries of them: all programs look at one job."""

import functools
import importlib
import json
import os
import sys
import tempfile
import time
import warnings

import ray

from tests.ray_docs.helpers import eventually, raised

OWN_JOBS = True


@functools.cache
def _state():
    from ray.util import state

    ray.init(include_dashboard=True, log_to_driver=False, num_cpus=4, namespace="listings")
    address = getattr(ray.get_runtime_context(), "gcs_address", None)
    if address:  # of Ray: else it looks for clusters, and may find several
        os.environ["RAY_ADDRESS"] = address
    eventually(lambda: raised(state.list_nodes) == "nothing", timeout=60)
    return state


def _is_hex(text):
    return text == text.lower() and set(text) <= set("0123456789abcdef") and len(text) >= 16


@ray.remote(num_cpus=0)
class Actor:
    def pid(self):
        return os.getpid()

    def sleep(self):
        time.sleep(100)

    def put(self):
        self.ref = ray.put(123)


def entries_of_actors():
    """The entry of one is that of the list."""
    state, actor = _state(), Actor.remote()
    ray.get(actor.pid.remote())
    (found,) = state.list_actors(filters=[("actor_id", "=", actor._actor_id.hex())], detail=True)
    print(found.state, _is_hex(found.actor_id), found["actor_id"] == actor._actor_id.hex())
    print(state.get_actor(found.actor_id) == found, state.get_actor(id=found.actor_id).state)


def entries_of_groups():
    """Likewise."""
    state, group = _state(), ray.util.placement_group([{"CPU": 1}])
    ray.get(group.ready())
    try:
        print(eventually(lambda: state.get_placement_group(group.id.hex()).state == "CREATED"))
        (found,) = state.list_placement_groups(filters=[("placement_group_id", "=", group.id.hex())], detail=True)
        print(state.get_placement_group(found.placement_group_id) == found)
        print(found.bundles[0]["unit_resources"])
    finally:
        ray.util.remove_placement_group(group)


def entries_of_nodes():
    """Likewise, and as `nodes` says it."""
    state = _state()
    (found,) = state.list_nodes(detail=True)
    (same,) = ray.nodes()
    print(found.state, _is_hex(found.node_id), state.get_node(found.node_id).node_id == same["NodeID"])
    print(found.node_name == same["NodeName"], found.resources_total["CPU"], found.is_head_node)


def entries_of_workers():
    """Likewise."""
    state, actor = _state(), Actor.remote()
    pid = ray.get(actor.pid.remote())
    print(eventually(lambda: any(one.pid == pid for one in state.list_workers())))
    (found,) = [one for one in state.list_workers(detail=True) if one.pid == pid]
    print(_is_hex(found.worker_id), state.get_worker(found.worker_id).pid == pid)
    print(found.worker_type, found.is_alive, found.exit_type, found.node_id == ray.get_runtime_context().get_node_id())


def entries_of_objects():
    """By their ids, also as a list of entries."""
    state, ref = _state(), ray.put(bytes(2_000_000))
    print(eventually(lambda: any(one.object_id == ref.hex() for one in state.list_objects())))
    found = state.get_objects(ref.hex())
    print(len(found), found[0].object_id == ref.hex(), found[0].object_size > 2_000_000, found[0].reference_type)
    print(found[0].type, found[0].pid == os.getpid())


def entries_of_tasks():
    """By their ids."""
    state = _state()

    @ray.remote
    def of_entries():
        return ray.get_runtime_context().get_task_id()

    id = ray.get(of_entries.remote())
    print(eventually(lambda: state.get_task(id) is not None and state.get_task(id).state == "FINISHED"))
    found = state.get_task(id)
    print(found == state.list_tasks(filters=[("task_id", "=", id)], detail=True)[0])
    print(found.name, found.func_or_class_name, found.type, found.job_id == ray.get_runtime_context().get_job_id())


def keys_of_entries():
    """Entries are mappings and have attributes."""
    state, actor = _state(), Actor.remote()
    ray.get(actor.pid.remote())
    (found,) = state.list_actors(filters=[("actor_id", "=", actor._actor_id.hex())])
    plain = found.asdict()
    print(plain["state"], found["state"], found.state, json.loads(json.dumps(plain))["class_name"] == found.class_name)


def keys_without_details():
    """What is there without `detail`, and with it."""
    state, actor = _state(), Actor.remote()
    ray.get(actor.pid.remote())
    mine = [("actor_id", "=", actor._actor_id.hex())]
    wanted = {"actor_id", "class_name", "state", "job_id", "name", "node_id", "pid", "ray_namespace"}
    for detail in (False, True):
        (found,) = state.list_actors(filters=mine, detail=detail)
        print(wanted <= set(found.asdict()))
    print({"repr_name", "num_restarts", "required_resources"} <= set(found.asdict()))


def calls_that_wait_for_others():
    """For the result of another, and for their turn in an actor."""
    state, actor = _state(), Actor.remote()

    @ray.remote
    def long_of_listings():
        time.sleep(100)

    @ray.remote
    def after_of_listings(value):
        return value

    first = long_of_listings.remote()
    after_of_listings.remote(first)
    calls = [actor.sleep.remote() for _ in range(4)]

    def states(name):
        found = state.list_tasks(filters=[("func_or_class_name", "=", name)])
        return sorted(one.state for one in found)

    print(eventually(lambda: states("long_of_listings") == ["RUNNING"]), states("after_of_listings"))
    print(eventually(lambda: states("Actor.sleep").count("RUNNING") == 1), states("Actor.sleep"))
    ray.cancel(first, force=True)
    ray.kill(actor)
    del calls


def limits_of_lists():
    """The first entries, twice the same."""
    state, actors = _state(), [Actor.remote() for _ in range(3)]
    ray.get([actor.pid.remote() for actor in actors])
    first = state.list_actors(limit=2)
    print(len(first), [one.actor_id for one in first] == [one.actor_id for one in state.list_actors(limit=2)])


def conditions_of_lists():
    """Numbers and truth values, in several forms; more than one."""
    state, one, two = _state(), Actor.remote(), Actor.remote()
    pids = ray.get([one.pid.remote(), two.pid.remote()])
    ray.kill(two)

    def found(*filters):
        mine = [a for a in state.list_actors(filters=list(filters)) if a.pid in pids]
        return [pids.index(a.pid) for a in mine]

    print(eventually(lambda: found(("state", "=", "DEAD")) == [1]), found(("state", "!=", "DEAD")))
    print(found(("pid", "=", pids[0])), found(("pid", "=", str(pids[0])), ("state", "=", "DEAD")))
    for value in ("true", "1", "True"):
        alive = state.list_workers(filters=[("is_alive", "=", value)], raise_on_missing_output=False)
        print(value, len(alive) > 0, {one.is_alive for one in alive})
    ray.get(one.put.remote())
    mine = [("pid", "=", pids[0]), ("reference_type", "=", "LOCAL_REFERENCE")]
    print(eventually(lambda: len(state.list_objects(filters=mine, raise_on_missing_output=False)) == 1))


def conditions_that_are_none():
    """Only equal and not equal."""
    state = _state()
    for wrong in ([("state", ">", "DEAD")], [("state", "=")], ["state"]):
        print(raised(lambda wrong=wrong: state.list_actors(filters=wrong), "ValueError", "TypeError", "AssertionError"))


def names_of_actors_that_have_one():
    """What `__repr__` says, also of a nested class, of an actor with coroutines, and of one with threads."""
    state = _state()

    class Named:
        def __init__(self, name):
            self.name = name

        def __repr__(self):
            return self.name

        def ready(self):
            pass

    class Coroutines(Named):
        async def ready(self):
            pass

    plain, coroutines = ray.remote(num_cpus=0)(Named), ray.remote(num_cpus=0)(Coroutines)
    made = [
        plain.remote("plain"),
        coroutines.remote("coroutines"),
        plain.options(max_concurrency=3).remote("threads"),
        plain.options(name="of listings").remote("with a name"),
        Actor.remote(),
    ]
    ray.get([one.__ray_ready__.remote() for one in made])

    def names():
        return [state.get_actor(one._actor_id.hex()).repr_name for one in made]

    eventually(lambda: all(names()[:4]))
    print(names())


def actors_that_wait():
    """For resources, among others that live."""
    state = _state()

    @ray.remote(num_cpus=2)
    class Large:
        def ready(self):
            pass

    made = [Large.remote() for _ in range(3)]
    eventually(lambda: len(ray.wait([one.ready.remote() for one in made], num_returns=2)[0]) == 2)

    def counts():
        found = state.summarize_actors()["cluster"]["summary"]
        (mine,) = [found[name] for name in found if name.endswith("Large")]
        return mine["state_counts"]

    print(eventually(lambda: counts() == {"ALIVE": 2, "PENDING_CREATION": 1}), counts())


def a_task_that_leaves():
    """With an error."""
    state = _state()

    @ray.remote(max_retries=0)
    def leaves_of_listings():
        sys.exit(1)

    print(raised(lambda: ray.get(leaves_of_listings.remote()), "WorkerCrashedError", "SystemExit"))
    mine = [("name", "=", "leaves_of_listings")]
    eventually(lambda: all(one.end_time_ms for one in state.list_tasks(filters=mine, detail=True)))
    print([(one.state, one.error_type) for one in state.list_tasks(filters=mine, detail=True)])


def an_actor_that_could_not_be_made():
    """Its creation has failed, and its calls."""
    state = _state()

    @ray.remote(num_cpus=0)
    class Fails:
        def __init__(self):
            raise ValueError("no")

        def call(self):
            pass

    actor = Fails.remote()
    print(raised(lambda: ray.get(actor.call.remote()), "RayActorError", "ActorDiedError"))

    def found():
        mine = [("actor_id", "=", actor._actor_id.hex())]
        return sorted((one.type, one.state, one.error_type) for one in state.list_tasks(filters=mine, detail=True))

    eventually(lambda: len(found()) == 2 and all(one[1] == "FAILED" for one in found()))
    print(found(), state.get_actor(actor._actor_id.hex()).state)


def the_timeline():
    """As a list, or in a file."""
    _state()
    ray.get([ray.remote(lambda: 1).remote() for _ in range(3)])
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/timeline.json"
        print(eventually(lambda: ray.timeline() != []), ray.timeline(path))
        with open(path) as file:
            print(len(json.load(file)) > 0)


def the_job_is_listed():
    """Its id, its kind and its state."""
    state = _state()
    found = [one for one in state.list_jobs() if one.job_id == ray.get_runtime_context().get_job_id()]
    print([(one.type == "DRIVER", one.status == "RUNNING") for one in found])


def entries_that_are_not_there():
    """None, and nothing."""
    state = _state()
    print(state.get_actor("0" * 32), state.get_objects("0" * 56), state.list_actors(filters=[("name", "=", "nobody")]))


def threads_of_actors():
    """Two of ten calls run in an actor with two threads."""
    state = _state()
    actor = Actor.options(max_concurrency=2).remote()
    calls = [actor.sleep.remote() for _ in range(10)]

    def running():
        found = state.list_tasks(filters=[("actor_id", "=", actor._actor_id.hex()), ("type", "=", "ACTOR_TASK")])
        return len(found), sum(one.state == "RUNNING" for one in found)

    print(eventually(lambda: running() == (10, 2)), running())
    ray.kill(actor)
    del calls


def kinds_of_things():
    """A client lists them by kind; their columns are known, with and without details; environments are listed too."""
    from ray.util.state import StateApiClient, common

    state, client = _state(), StateApiClient()
    actor = Actor.options(runtime_env={"env_vars": {"OF_KINDS": "1"}}).remote()
    ray.get(actor.pid.remote())
    mine = common.ListApiOptions(filters=[("actor_id", "=", actor._actor_id.hex())], detail=True)
    kinds, (found,) = common.StateResource, client.list(common.StateResource.ACTORS, mine, True)
    print(found.state, client.get(kinds.ACTORS, found.actor_id, common.GetApiOptions())["actor_id"] == found.actor_id)
    print(common.ActorState.columns() <= set(found.asdict()), common.DEFAULT_LIMIT)
    print(sorted(common.ActorState.base_columns()), "repr_name" in common.ActorState.detail_columns())
    print({"name", "state"} <= common.TaskState.filterable_columns(), kinds("tasks"))
    print(raised(lambda: common.ListApiOptions(filters=[("state", ">", 1)]), "ValueError"))
    counted = client.summary(
        common.SummaryResource.ACTORS, options=common.SummaryApiOptions(), raise_on_missing_output=False
    )
    print(counted["cluster"]["total_actors"] > 0, raised(lambda: state.get_actor("1234")))

    def environments():
        listed = state.list_runtime_envs(detail=True)
        return [one for one in listed if one.runtime_env.get("env_vars") == {"OF_KINDS": "1"}]

    print(eventually(environments), [(one.success, one.error) for one in environments()])


def facts_of_values():
    """How many entries there are, in how many processes, and by kind of reference."""
    state, ref = _state(), ray.put(bytes(2_000_000))
    print(eventually(lambda: "disabled" in state.summarize_objects()["cluster"]["summary"]))
    found = state.summarize_objects()["cluster"]
    (facts,) = found["summary"].values()
    print(
        sorted(facts), facts["total_objects"] == found["total_objects"], facts["ref_type_counts"]["LOCAL_REFERENCE"] > 0
    )
    print(facts["total_num_nodes"], found["callsite_enabled"], found["summary_by"])
    del ref


def places_before_these():
    """Each part of `ray.experimental.state` warns at its import."""
    for name in ("common", "exception"):
        sys.modules.pop(f"ray.experimental.state.{name}", None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            module = importlib.import_module(f"ray.experimental.state.{name}")
        print(any(issubclass(one.category, DeprecationWarning) for one in caught), hasattr(module, "DEFAULT_LIMIT"))
