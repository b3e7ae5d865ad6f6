"""The state of one job that has groups, actors, retried calls and environments: each program shows a part."""

import functools
import importlib
import os
import warnings

import ray

from tests.ray_docs.helpers import eventually, raised

OWN_JOBS = True


@functools.cache
def _seen():
    from ray.util import state

    ray.init(include_dashboard=True, log_to_driver=False, num_cpus=4, namespace="seen")
    address = getattr(ray.get_runtime_context(), "gcs_address", None)
    if address:  # of Ray: else it looks for clusters, and may find several
        os.environ["RAY_ADDRESS"] = address
    try:
        eventually(lambda: raised(state.list_nodes) == "nothing", timeout=60)
        return _asked(state)
    finally:
        os.environ.pop("RAY_ADDRESS", None)
        ray.shutdown()


def _asked(state):
    @ray.remote
    class Named:
        def __repr__(self):
            return "of mine"

        def pid(self):
            return os.getpid()

        def fails(self):
            raise KeyError("on purpose")

    @ray.remote(max_retries=1, retry_exceptions=True)
    def retried(path):
        with open(path, "a") as file:
            file.write("x")
        if os.path.getsize(path) == 1:
            raise ValueError("the first time")
        return 5

    groups = ray.util.placement_group([{"CPU": 1}, {"CPU": 1}], strategy="SPREAD", name="pair")
    ray.get(groups.ready())
    large = ray.util.placement_group([{"CPU": 1}], name="gone")
    ray.get(large.ready())
    ray.util.remove_placement_group(large)
    actor = Named.options(name="one", lifetime="detached", runtime_env={"env_vars": {"A": "1"}}).remote()
    pid = ray.get(actor.pid.remote())
    raised(lambda: ray.get(actor.fails.remote()))
    path = os.path.join(ray.util.get_node_ip_address() and "/tmp", f"state_more_{os.getpid()}")
    try:
        ray.get(retried.options(name="again").remote(path))
    finally:
        os.unlink(path)

    eventually(lambda: state.list_tasks(filters=[("name", "=", "again"), ("state", "=", "FINISHED")]))
    eventually(lambda: len([one for one in state.list_placement_groups() if one.state != "REMOVED"]) == 1)
    eventually(lambda: any(one.error_type for one in state.list_tasks(detail=True)))
    return _facts(state, groups, actor, pid)


def _facts(state, groups, actor, pid):
    found = {}
    listed = [one for one in state.list_placement_groups(detail=True) if one.state != "REMOVED"]
    found["groups"] = [(one.name, one.state, len(one.bundles)) for one in listed]
    one = state.get_placement_group(groups.id.hex())
    found["group"] = one.placement_group_id == groups.id.hex(), one.name, one.state, one["state"] == one.state
    known = (
        (state.get_placement_group, groups.id.hex()),
        (state.get_actor, actor._actor_id.hex()),
        (state.get_task, state.list_tasks()[0].task_id),
        (state.get_node, state.list_nodes()[0].node_id),
        (state.get_worker, state.list_workers()[0].worker_id),
    )
    found["unknown"] = [(bool(ask(id)), ask("beef" + id[4:])) for ask, id in known]
    (own,) = state.list_actors(filters=[("class_name", "=", "Named")], detail=True) or state.list_actors(detail=True)
    found["actor"] = own.name, own.state, own.ray_namespace, own.pid == pid, own.num_restarts
    found["repr"] = own.repr_name
    lengths = ((state.get_task, 48), (state.get_node, 56), (state.get_placement_group, 36), (state.get_actor, 32))
    found["ids"] = [ask("0" * length) for ask, length in lengths]
    ref = actor.pid.remote()
    eventually(lambda: state.get_task(ref) is not None and state.get_task(ref).state == "FINISHED")
    found["reference"] = state.get_task(ref).type, state.get_task(ref).task_id == ref.task_id().hex()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        earlier = importlib.import_module("ray.experimental.state.api")
    found["earlier"] = [any(issubclass(one.category, DeprecationWarning) for one in caught), len(earlier.list_actors())]
    found["same"] = own.actor_id == actor._actor_id.hex() == own["actor_id"]
    found["filtered"] = [
        len(state.list_actors(filters=filters))
        for filters in (
            [("state", "=", "ALIVE")],
            [("state", "!=", "ALIVE")],
            [("name", "=", "one")],
            [("pid", "=", pid)],
            [("name", "=", "one"), ("state", "=", "DEAD")],
            [("actor_id", "=", own.actor_id)],
        )
    ]
    worker = [one for one in state.list_workers(detail=True) if one.pid == pid]
    found["worker"] = [(one.worker_type, one.is_alive) for one in worker]
    attempts = state.list_tasks(filters=[("name", "=", "again")], detail=True)
    found["attempts"] = sorted((one.attempt_number, one.state, one.error_type) for one in attempts)
    found["task"] = len({one.task_id for one in attempts}), type(state.get_task(attempts[0].task_id)).__name__
    method = [one for one in state.list_tasks(detail=True) if one.type == "ACTOR_TASK" and one.error_type]
    found["method"] = [(one.state, one.error_type, one.actor_id == own.actor_id) for one in method]
    summary = state.summarize_tasks()["cluster"]
    found["summary"] = summary["total_tasks"], summary["total_actor_scheduled"], summary["summary_by"]
    found["counts"] = summary["summary"]["again"]["state_counts"], summary["summary"]["again"]["type"]
    return found


def groups_are_listed():
    """By name, with their bundles."""
    print(_seen()["groups"], _seen()["group"])


def things_that_are_not_there():
    """An id that nothing has gives nothing."""
    print(_seen()["unknown"])


def actors_are_described():
    """By name, state, namespace and process."""
    print(_seen()["actor"], _seen()["repr"], _seen()["same"])


def actors_are_filtered():
    """All conditions count."""
    print(_seen()["filtered"])


def workers_are_described():
    """The process of an actor is one."""
    print(_seen()["worker"])


def attempts_are_listed():
    """Each attempt of a call is one entry, and `get_task` gives all of them."""
    print(_seen()["attempts"], _seen()["task"])


def methods_that_fail():
    """Have the type of their error, and the id of their actor."""
    print(_seen()["method"])


def calls_are_counted():
    """By name."""
    print(_seen()["counts"], _seen()["summary"][2])


def ids_of_nothing():
    """What is looked up by an id that nothing has is None."""
    print(_seen()["ids"])


def tasks_are_found_by_their_references():
    """Instead of an id."""
    print(_seen()["reference"])


def the_earlier_place_warns():
    """`ray.experimental.state` has the same functions, and its import warns."""
    print(_seen()["earlier"])
