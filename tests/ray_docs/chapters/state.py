"""The state of a job, as lists and counts. Ray needs its dashboard for them: `pip install "ray[default]"`."""

import os
from contextlib import contextmanager

import ray

from tests.ray_docs.helpers import eventually, raised

OWN_JOBS = True


@contextmanager
def _job(num_cpus=2):
    from ray.util.state import list_nodes

    ray.init(include_dashboard=True, log_to_driver=False, num_cpus=num_cpus)
    address = getattr(ray.get_runtime_context(), "gcs_address", None)
    if address:  # of Ray: else it looks for clusters, and may find several
        os.environ["RAY_ADDRESS"] = address
    try:
        eventually(lambda: raised(list_nodes) == "nothing", timeout=30)
        yield
    finally:
        os.environ.pop("RAY_ADDRESS", None)
        ray.shutdown()


def ended_calls_are_listed():
    """`list_tasks` has calls that have ended: with their names, states, kinds and errors."""
    from ray.util.state import list_tasks

    with _job():

        @ray.remote
        def works():
            return 1

        @ray.remote
        def fails():
            raise ValueError("no")

        ray.get(works.options(name="other").remote())
        print(raised(lambda: ray.get(fails.remote()), "ValueError"))
        eventually(lambda: len([one for one in list_tasks(detail=True) if one.start_time_ms and one.end_time_ms]) == 2)
        for one in sorted(list_tasks(detail=True), key=lambda one: one["name"]):
            print(
                one.name, one.func_or_class_name, one.state, one.type, one.error_type, one.attempt_number, one.actor_id
            )
            print(one.end_time_ms >= one.start_time_ms >= one.creation_time_ms, one.required_resources)
            print(one.job_id == ray.get_runtime_context().get_job_id(), "ValueError: no" in (one.error_message or ""))


def calls_of_actors_are_listed():
    """Creations and methods: their names have that of the class, or the `repr` of the actor."""
    from ray.util.state import list_tasks

    with _job():

        @ray.remote
        class Plain:
            def f(self):
                pass

        @ray.remote
        class Named:
            def __repr__(self):
                return "titled"

            def f(self):
                pass

        actors = [Plain.remote(), Named.remote()]
        ray.get([one.f.remote() for one in actors])
        ray.get(actors[1].f.options(name="mine").remote())
        eventually(lambda: len(list_tasks(filters=[("state", "=", "FINISHED")])) == 5)
        for one in sorted(list_tasks(), key=lambda one: (one.type, one.name)):
            names = [
                name.replace("calls_of_actors_are_listed.<locals>.", "") for name in (one.name, one.func_or_class_name)
            ]
            print(*names, one.type, one.actor_id in [a._actor_id.hex() for a in actors])


def the_parent_of_a_call():
    """`parent_task_id` is the call that has submitted it."""
    from ray.util.state import get_task, list_tasks

    with _job():

        @ray.remote
        def child():
            pass

        @ray.remote
        def parent():
            ray.get(child.remote())
            return ray.get_runtime_context().get_task_id()

        id = ray.get(parent.remote())
        found = []
        eventually(
            lambda: found.extend(list_tasks(filters=[("name", "=", "child"), ("state", "=", "FINISHED")])) or found
        )
        print(found[0].parent_task_id == id, get_task(id).name, get_task(id).state)


def waiting_and_running_calls():
    """Calls that have not ended are listed by their state; an infeasible one waits in Ray."""
    from ray.util.state import list_tasks, summarize_tasks

    with _job():

        @ray.remote
        def long():
            import time

            time.sleep(60)

        @ray.remote
        def after(value):
            pass

        refs = [long.remote(), long.remote(), long.remote()]
        last = after.remote(refs[0])
        wanted = {"RUNNING": 2, "PENDING_NODE_ASSIGNMENT": 1}

        def counted():
            return summarize_tasks()["cluster"]["summary"].get("long", {}).get("state_counts") == wanted

        print(eventually(counted), len(list_tasks()), list_tasks(filters=[("name", "=", "after")])[0].state)
        found = summarize_tasks()["cluster"]
        print(found["total_tasks"], found["total_actor_tasks"], found["total_actor_scheduled"], found["summary_by"])
        print({name: found["summary"]["after"][name] for name in ("func_or_class_name", "type", "state_counts")})
        del last


def failed_calls_that_did_not_run():
    """A call that was cancelled before it ran, and calls of a dead actor, have failed."""
    from ray.util.state import list_tasks

    with _job(num_cpus=1):

        @ray.remote
        def long():
            import time

            time.sleep(60)

        @ray.remote(num_cpus=0)
        class A:
            def f(self):
                pass

        actor = A.remote()
        ray.get(actor.f.remote())
        ray.kill(actor)
        print(eventually(lambda: raised(lambda: ray.get(actor.f.remote()), "RayActorError") == "RayActorError"))
        running = long.remote()
        waiting = long.options(name="waiting").remote()
        ray.cancel(waiting)
        print(raised(lambda: ray.get(waiting), "TaskCancelledError"))
        failed = [("state", "=", "FAILED")]
        eventually(lambda: len({one.name for one in list_tasks(filters=failed)}) == 2)
        print(sorted({(one.name.rpartition(".")[2], one.error_type) for one in list_tasks(filters=failed)}))
        del running


def a_call_whose_process_dies():
    """Each attempt is an entry; the first has failed with its process."""
    from ray.util.state import list_tasks

    with _job():
        path = f"/tmp/ray-docs-{os.getpid()}"

        @ray.remote(max_retries=1)
        def dies():
            if not os.path.exists(path):
                open(path, "w").close()
                os._exit(1)

        ray.get(dies.remote())
        os.unlink(path)
        eventually(lambda: list_tasks(filters=[("state", "=", "FINISHED")]))
        print(sorted((one.attempt_number, one.state, one.error_type or "") for one in list_tasks()))


def filters():
    """Keys and texts are compared without case, numbers also as texts; wrong ones are refused."""
    from ray.util.state import list_actors, list_tasks
    from ray.util.state.exception import RayStateApiException

    with _job():

        @ray.remote
        def f():
            pass

        ray.get(f.remote())
        eventually(lambda: list_tasks(filters=[("state", "=", "FINISHED")]))
        print(len(list_tasks(filters=[("STATE", "=", "finished"), ("attempt_number", "=", "0")])))
        print(len(list_tasks(filters=[("name", "!=", "f")])), len(list_tasks(limit=0)))
        print(raised(lambda: list_actors(filters=[("state", ">", "DEAD")]), "ValueError"))
        for wrong in ({"filters": [("nothing", "=", 1)]}, {"limit": 10_001}, {"limit": -1}):
            try:
                list_tasks(**wrong)
            except RayStateApiException:
                print("refused")


def actors_and_their_ends():
    """An actor that was killed is DEAD, with the process that it had."""
    from ray.util.state import get_actor, list_actors, summarize_actors

    with _job():

        @ray.remote
        class A:
            def pid(self):
                return os.getpid()

        one, two = A.remote(), A.options(name="two").remote()
        pids = ray.get([one.pid.remote(), two.pid.remote()])
        ray.kill(two)
        print(eventually(lambda: list_actors(filters=[("state", "=", "DEAD")])))
        print(
            [(a.pid == pids[1], a.class_name.rpartition(".")[2]) for a in list_actors(filters=[("state", "=", "DEAD")])]
        )
        print([a.pid == pids[0] for a in list_actors(filters=[("state", "!=", "DEAD"), ("pid", "=", str(pids[0]))])])
        found = summarize_actors()["cluster"]
        (counts,) = found["summary"].values()
        print(found["total_actors"], found["summary_by"], sorted(counts["state_counts"].items()))
        print(get_actor(one._actor_id.hex()).state, len(list_actors(limit=1)))


def objects_nodes_and_workers():
    """Sizes of values, addresses of nodes, and which processes live."""
    from ray.util.state import get_node, list_nodes, list_objects, list_workers, summarize_objects

    with _job():
        ref = ray.put(b"x" * 2_000_000)
        print(eventually(lambda: [one.object_id for one in list_objects()] == [ref.hex()]))
        found = summarize_objects()["cluster"]
        print(found["total_objects"], round(found["total_size_mb"], 1), found["callsite_enabled"], found["summary_by"])
        (node,) = list_nodes()
        same = ray.nodes()[0]
        print(
            node.node_ip == same["NodeManagerAddress"] == ray.util.get_node_ip_address(), node.state, node.is_head_node
        )
        print(get_node(node.node_id).node_name == node.node_name == same["NodeName"])
        ray.get(ray.remote(lambda: 1).remote())
        print(
            len(list_workers(filters=[("is_alive", "=", "true"), ("worker_type", "=", "WORKER")])) > 0,
            len(list_workers(filters=[("is_alive", "!=", "True")])),
        )


def resources_of_nodes():
    """Each node has one of `node:ADDRESS`, the head's also of `node:__internal_head__`; calls can request them."""
    with _job():
        address = ray.util.get_node_ip_address()
        names = sorted(name for name in ray.cluster_resources() if name.startswith("node:"))
        print([name.replace(address, "ADDRESS") for name in names])
        resources = {f"node:{address}": 0.001, "node:__internal_head__": 0.001}
        print(ray.get(ray.remote(lambda: 1).options(resources=resources).remote()))
        group = ray.util.placement_group([{"CPU": 1, f"node:{address}": 0.001}])
        print(group.wait(10))


def processes_that_have_ended():
    """`list_workers` has the driver, and processes that have ended, with the kind of their end."""
    from ray.util.state import list_workers

    def ends(pid):
        return [one["exit_type"] for one in listed([("pid", "=", pid), ("is_alive", "=", False)])]

    def listed(filters=(), **options):
        # Ray calls its list incomplete when it has filtered it.
        return list_workers(filters=[*filters], limit=1000, raise_on_missing_output=False, **options)

    with _job():

        @ray.remote
        class Actor:
            def pid(self):
                return os.getpid()

            def leave(self):
                ray.actor.exit_actor()

        @ray.remote(max_calls=1)
        def once():
            return os.getpid()

        def ended(actor, end):
            pid = ray.get(actor.pid.remote())
            end(actor)
            eventually(lambda: ends(pid))
            return ends(pid)

        print(ended(Actor.remote(), ray.kill))
        print(ended(Actor.remote(), lambda actor: raised(lambda: ray.get(actor.leave.remote()))))
        print(ended(Actor.remote(), lambda actor: os.kill(ray.get(actor.pid.remote()), 9)))
        pid = ray.get(once.remote())
        print(eventually(lambda: ends(pid)), ends(pid))
        (driver,) = listed([("worker_type", "=", "DRIVER")], detail=True)
        print(driver["pid"] == os.getpid(), driver["is_alive"], driver["exit_type"])
        print(driver["worker_id"] == ray.get_runtime_context().get_worker_id())
        (dead,) = listed([("pid", "=", pid)], detail=True)
        print(dead["end_time_ms"] > 10**12, bool(dead["exit_detail"]), dead["ip"] == ray.util.get_node_ip_address())


def groups_that_were_removed():
    """`list_placement_groups` has groups that were removed."""
    from ray.util.state import list_placement_groups

    with _job():
        group = ray.util.placement_group([{"CPU": 1}], name="gone")
        ray.get(group.ready())
        ray.util.remove_placement_group(group)
        chosen = [("placement_group_id", "=", group.id.hex())]
        print(eventually(lambda: [one["state"] for one in list_placement_groups(filters=chosen)] == ["REMOVED"]))
        (found,) = list_placement_groups(filters=chosen)
        print(found["name"], found["state"])


def references_by_process():
    """`list_objects` has an entry for each process with a reference."""
    from ray.util.state import list_objects

    with _job():

        @ray.remote
        class Holder:
            def hold(self, refs):
                self.refs = refs
                return os.getpid()

        large = ray.put(bytes(300_000))
        holder = Holder.remote()
        pid = ray.get(holder.hold.remote([large]))

        def rows():
            try:
                found = list_objects(raise_on_missing_output=False)
            except Exception:  # Ray's list takes some time on a busy host
                return []
            found = [one for one in found if one["object_id"] == large.hex()]
            return sorted((one["type"], one["pid"] in (pid, os.getpid()), one["reference_type"]) for one in found)

        print(eventually(lambda: len(rows()) == 2), rows())
        mine = [one for one in list_objects(raise_on_missing_output=False) if one["pid"] == os.getpid()]
        print([one["ip"] == ray.util.get_node_ip_address() for one in mine if one["object_id"] == large.hex()])


def values_of_filters():
    """A value that no entry can have is refused."""
    from ray.util.state import list_actors, list_tasks, list_workers
    from ray.util.state.exception import RayStateApiException

    def refused(list_them, key, value):
        try:
            return len(list_them(filters=[(key, "=", value)]))
        except RayStateApiException:
            return "refused"

    with _job():
        print(refused(list_actors, "state", 3), refused(list_workers, "is_alive", "maybe"))
        print(refused(list_tasks, "attempt_number", "x"), refused(list_actors, "pid", "x"))
