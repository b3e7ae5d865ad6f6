"""What a call can ask; runtime environments; tools of `ray.util`; lists of what there is."""

import os
import sys

import ray

from tests.ray_docs.helpers import raised, tally


def ids_are_hexadecimal():
    """Job, node, worker, task, actor: strings of hexadecimal digits."""

    @ray.remote
    class A:
        def f(self):
            c = ray.get_runtime_context()
            return [c.get_job_id(), c.get_node_id(), c.get_worker_id(), c.get_task_id(), c.get_actor_id()]

    print([isinstance(id, str) and int(id, 16) >= 0 for id in ray.get(A.remote().f.remote())])


def the_driver_has_no_task_and_no_actor():
    """There they are None."""
    c = ray.get_runtime_context()
    print(c.get_actor_id(), c.get_actor_name(), c.get_task_name(), c.get_task_function_name())


def old_properties_of_the_context():
    """`job_id`, `node_id`, `task_id`, `actor_id` are ids with `hex()`."""

    @ray.remote
    class A:
        def f(self):
            c = ray.get_runtime_context()
            return [
                c.job_id.hex() == c.get_job_id(), c.node_id.hex() == c.get_node_id(),
                c.task_id.hex() == c.get_task_id(), c.actor_id.hex() == c.get_actor_id(),
            ]  # fmt: skip

    print(ray.get(A.remote().f.remote()))


def the_context_as_a_dictionary():
    """`get()` has what there is by name."""
    found = ray.get_runtime_context().get()
    print(found["job_id"].hex() == ray.get_runtime_context().get_job_id(), "node_id" in found)


def names_of_functions():
    """`get_task_function_name` has the module and the qualified name."""

    @ray.remote
    def a_function():
        c = ray.get_runtime_context()
        return c.get_task_name(), c.get_task_function_name()

    name, function = ray.get(a_function.options(name="n").remote())
    print(name, function.startswith(__name__), function.endswith("a_function"), function != "n")


def names_of_methods():
    """The class stands before it."""

    @ray.remote
    class A:
        def f(self):
            c = ray.get_runtime_context()
            return c.get_task_name().endswith("A.f"), c.get_task_function_name().endswith("A.f")

    print(ray.get(A.remote().f.remote()))


def the_namespace():
    """The one of `init`."""
    print(
        ray.get_runtime_context().namespace, ray.get(ray.remote(lambda: ray.get_runtime_context().namespace).remote())
    )


def reconstruction_is_told():
    """A new actor was not started again."""

    @ray.remote
    class A:
        def f(self):
            return ray.get_runtime_context().was_current_actor_reconstructed

    print(ray.get(A.remote().f.remote()))


def the_environment_of_a_call():
    """`runtime_env` of the context has its variables."""

    @ray.remote(runtime_env={"env_vars": {"DOCS_X": "1"}})
    def f():
        return ray.get_runtime_context().runtime_env["env_vars"], os.environ["DOCS_X"]

    print(ray.get(f.remote()))


def the_environment_as_a_class():
    """`RuntimeEnv` is as good as a dictionary."""
    from ray.runtime_env import RuntimeEnv

    env = RuntimeEnv(env_vars={"DOCS_X": "2"})
    print(env["env_vars"], ray.get(ray.remote(runtime_env=env)(lambda: os.environ["DOCS_X"]).remote()))


def variables_refer_to_others():
    """`${NAME}` in `env_vars` is what the process has, and empty if it has none."""
    variables = {"DOCS_A": "/x:${DOCS_A}", "DOCS_B": "${HOME}/b:$HOME", "DOCS_C": "$$", "PATH": "/x:${PATH}"}

    @ray.remote(runtime_env={"env_vars": variables})
    def f():
        return [os.environ[name] for name in sorted(variables)]

    a, b, c, path = ray.get(f.remote())
    home = os.path.expanduser("~")
    print(a, b == f"{home}/b:{home}", c, path.startswith("/x:") and os.environ["PATH"] in path)


def variables_are_inherited_as_they_were_stated():
    """A call of a call has the variables of both, and each process replaces what they refer to, by their names' order."""

    @ray.remote(runtime_env={"env_vars": {"DOCS_B": "b${DOCS_A}", "DOCS_0": "0${DOCS_A}"}})
    def inner():
        return os.environ["DOCS_A"], os.environ["DOCS_B"], os.environ["DOCS_0"]

    @ray.remote(runtime_env={"env_vars": {"DOCS_A": "a${DOCS_A}"}})
    def outer():
        return ray.get(inner.remote()), ray.get_runtime_context().runtime_env["env_vars"]

    print(ray.get(outer.remote()))


def variables_are_text():
    """Other values are refused."""

    @ray.remote
    def f():
        return 1

    print(raised(lambda: f.options(runtime_env={"env_vars": {"A": 1}}).remote(), "TypeError"))


def environments_of_actors():
    """An actor keeps its variables, and its children have them."""

    @ray.remote(runtime_env={"env_vars": {"DOCS_X": "3"}})
    class A:
        def f(self):
            return os.environ["DOCS_X"], ray.get(ray.remote(lambda: os.environ.get("DOCS_X")).remote())

    print(ray.get(A.remote().f.remote()))


def values_come_as_they_are_ready():
    """`ray.util.as_completed` gives each value once, or its reference."""

    @ray.remote
    def f(n):
        return n

    print(sorted(ray.util.as_completed([f.remote(n) for n in (2, 0, 1)], chunk_size=1)))
    print(len(list(ray.util.as_completed([f.remote(0)], yield_obj_refs=True))))


def map_in_any_order():
    """`ray.util.map_unordered`."""

    @ray.remote
    def f(n):
        return 2 * n

    print(
        sorted(ray.util.map_unordered(f, range(5))),
        raised(lambda: list(ray.util.map_unordered(f, [1], chunk_size=0)), "ValueError"),
    )


def the_address_of_the_node():
    """`get_node_ip_address` gives numbers with dots."""
    print(ray.util.get_node_ip_address().count("."))


def a_pool_of_processes():
    """`ray.util.multiprocessing.Pool` is that of the standard library."""
    from ray.util.multiprocessing import Pool

    with Pool(2) as pool:
        print(pool.map(abs, [-1, -2]), pool.apply(pow, (2, 3)), pool.starmap(pow, [(2, 2), (3, 2)]))
        print(
            list(pool.imap(abs, [-3, -4])),
            sorted(pool.imap_unordered(abs, [-5, -6])),
            pool.apply_async(abs, (-7,)).get(20),
        )


def a_pool_with_an_initializer():
    """It is run in each process before the first call."""
    from ray.util.multiprocessing import Pool

    def begin(value):
        os.environ["DOCS_POOL"] = value

    with Pool(2, initializer=begin, initargs=("begun",)) as pool:
        print(pool.map(lambda _: os.environ["DOCS_POOL"], range(3)))


def errors_in_a_pool():
    """They are those of the function."""
    from ray.util.multiprocessing import Pool

    with Pool(1) as pool:
        print(raised(lambda: pool.map(lambda x: 1 / x, [0]), "ZeroDivisionError"))


def a_closed_pool():
    """It takes no more work; `join` waits for its end."""
    from ray.util.multiprocessing import Pool

    pool = Pool(1)
    result = pool.map_async(abs, [-1])
    pool.close()
    print(raised(lambda: pool.apply(abs, (1,)), "ValueError"), raised(lambda: Pool(1).join(), "ValueError"))
    pool.join()
    print(result.get(), result.successful(), result.ready())


def modules_that_programs_import():
    """The public modules and their names."""
    import ray.actor
    import ray.cloudpickle
    import ray.exceptions
    import ray.runtime_context
    import ray.runtime_env
    import ray.util.accelerators
    import ray.util.queue
    import ray.util.scheduling_strategies
    import ray.util.state

    names = [
        "ray.ObjectRef", "ray.ObjectRefGenerator", "ray.DynamicObjectRefGenerator", "ray.ActorID", "ray.JobID", "ray.NodeID",
        "ray.TaskID", "ray.WorkerID", "ray.UniqueID", "ray.PlacementGroupID", "ray.FunctionID", "ray.ObjectID",
        "ray.actor.ActorHandle", "ray.actor.ActorClass", "ray.actor.ActorMethod", "ray.actor.exit_actor",
        "ray.remote_function.RemoteFunction", "ray.runtime_context.RuntimeContext", "ray.runtime_context.get_runtime_context",
        "ray.runtime_env.RuntimeEnv", "ray.runtime_env.RuntimeEnvConfig", "ray.types.ObjectRef", "ray.LoggingConfig",
        "ray.cloudpickle.dumps", "ray.cloudpickle.loads", "ray.util.ActorPool", "ray.util.as_completed", "ray.util.map_unordered",
        "ray.util.register_serializer", "ray.util.deregister_serializer", "ray.util.get_node_ip_address",
        "ray.util.get_current_placement_group", "ray.util.list_named_actors", "ray.util.inspect_serializability",
        "ray.util.log_once", "ray.util.annotations.PublicAPI", "ray.timeline", "ray.get_gpu_ids", "ray.is_initialized",
        "ray.available_resources", "ray.cluster_resources", "ray.nodes", "ray.cancel", "ray.kill", "ray.method", "ray.Language",
        "ray.SCRIPT_MODE", "ray.WORKER_MODE",
    ]  # fmt: skip

    def there(path):
        value = ray
        for part in path.split(".")[1:]:
            try:
                value = getattr(value, part)
            except AttributeError:
                return False
        return True

    for path in ("ray.remote_function", "ray.types", "ray.util.annotations"):
        __import__(path)
    print([name for name in names if not there(name)])


def annotations_of_libraries():
    """The marks change nothing."""
    from ray.util.annotations import Deprecated, DeveloperAPI, PublicAPI

    @PublicAPI
    def a():
        return 1

    @DeveloperAPI
    class B:
        pass

    @PublicAPI(stability="beta")
    def c():
        return 2

    print(a(), B().__class__.__name__, c(), callable(Deprecated))


def workers_have_the_drivers_path():
    """Executors look for modules where the driver does."""

    @ray.remote
    def f():
        return sys.path

    here = os.path.abspath(os.getcwd())
    print(here in [os.path.abspath(one) for one in ray.get(f.remote())])


def typed_ids():
    """Ids have types, hexadecimal forms and are equal by their bytes."""
    id = ray.ActorID.from_hex(ray.get(_actor_id())) if hasattr(ray.ActorID, "from_hex") else None
    print(
        id == ray.ActorID(id.binary()), id.hex() == id.binary().hex(), id.is_nil(), len({id, ray.ActorID(id.binary())})
    )


def _actor_id():
    @ray.remote
    class A:
        def f(self):
            return ray.get_runtime_context().get_actor_id()

    return A.remote().f.remote()


def log_once():
    """True the first time in a process."""
    print(ray.util.log_once("docs"), ray.util.log_once("docs"))


def enable_task_events_is_an_option():
    """It changes what is remembered, not what is computed."""

    @ray.remote(enable_task_events=False)
    def f():
        return 1

    print(ray.get(f.remote()))


def graphs_of_calls():
    """`bind` makes a graph, `execute` runs it."""

    @ray.remote
    def f(x):
        return x + 1

    @ray.remote
    def g(a, b):
        return a * b

    print(ray.get(g.bind(f.bind(1), f.bind(2)).execute()))


def graphs_of_actors():
    """Also for actors and their methods."""

    @ray.remote
    class A:
        def __init__(self, x):
            self.x = x

        def f(self, y):
            return self.x + y

    print(ray.get(A.bind(1).f.bind(2).execute()))


def a_pool_waits_for_its_processes():
    """The constructor of a pool returns when the initializer has run in each process."""
    from ray.util.multiprocessing import Pool

    with tally() as counts:
        with Pool(2, initializer=counts.add):
            print(counts.count)


def a_pool_with_an_initializer_that_raises():
    """The constructor raises."""
    from ray.util.multiprocessing import Pool

    def fail():
        raise ValueError("no")

    print(raised(lambda: Pool(2, initializer=fail), "RayActorError", "ValueError"))


def locations_of_objects():
    """Where values are, and how large."""
    from ray.experimental import get_object_locations

    refs = [ray.put(b"x" * 1_000_000), ray.put(1)]
    found = get_object_locations(refs)
    here = ray.get_runtime_context().get_node_id()
    print([set(found[ref]) >= {"node_ids", "object_size"} for ref in refs], found[refs[0]]["node_ids"] == [here])
    print(found[refs[0]]["object_size"] > 1_000_000, sorted(found[refs[0]]))


def local_locations_of_objects():
    """The same, as far as this process knows."""
    from ray.experimental import get_local_object_locations

    ref = ray.put(b"x" * 1_000_000)
    found = get_local_object_locations([ref])
    print(found[ref]["node_ids"] == [ray.get_runtime_context().get_node_id()], found[ref]["object_size"] > 1_000_000)
