"""Jobs: init and shutdown. Each program makes its own."""

import os

import ray

from tests.ray_docs.helpers import raised

OWN_JOBS = True


def _init(**options):
    return ray.init(include_dashboard=False, log_to_driver=False, **options)


def init_and_shutdown():
    """`is_initialized` tells; a second `init` is refused unless one says so; `shutdown` may be called twice."""
    print(ray.is_initialized())
    _init(num_cpus=1)
    print(ray.is_initialized(), raised(lambda: _init(num_cpus=1), "RuntimeError"))
    _init(num_cpus=1, ignore_reinit_error=True)
    print(ray.cluster_resources()["CPU"])
    ray.shutdown()
    ray.shutdown()
    print(ray.is_initialized())


def remote_functions_outlive_a_job():
    """What was decorated before works in the next job; references of the first do not."""

    @ray.remote
    def f():
        return 1

    @ray.remote
    class A:
        def f(self):
            return 2

    with _init(num_cpus=1):
        old = ray.put(1)
        print(ray.get(f.remote()), ray.get(A.remote().f.remote()))
    print(ray.is_initialized())
    with _init(num_cpus=1):
        print(ray.get(f.remote()), ray.get(A.remote().f.remote()))
    del old


def the_first_call_starts_a_job():
    """Without `init` the first use of the API starts one with the defaults."""

    @ray.remote
    def f():
        return 1

    print(ray.get(f.remote()), ray.is_initialized())
    ray.shutdown()


def the_environment_of_a_job():
    """`init(runtime_env=)` is for all calls; calls add to its variables."""
    with _init(num_cpus=2, runtime_env={"env_vars": {"DOCS_A": "1", "DOCS_B": "2"}}):
        f = ray.remote(lambda: (os.environ["DOCS_A"], os.environ["DOCS_B"]))
        print(
            ray.get(f.remote()),
            ray.get(f.options(runtime_env={"env_vars": {"DOCS_B": "3"}}).remote()),
            "DOCS_A" in os.environ,
        )


def a_working_directory():
    """`working_dir` is where calls start, a copy of the directory."""
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "docs_module.py"), "w") as file:
            file.write("VALUE = 5\n")

        def f():
            import docs_module

            return (
                docs_module.VALUE,
                sorted(one for one in os.listdir() if one.endswith(".py")),
                os.getcwd() != directory,
            )

        with _init(num_cpus=1, runtime_env={"working_dir": directory}):
            print(ray.get(ray.remote(f).remote()))


def modules_of_a_job():
    """`py_modules` can be imported."""
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        package = os.path.join(directory, "docs_package")
        os.mkdir(package)
        with open(os.path.join(package, "__init__.py"), "w") as file:
            file.write("VALUE = 6\n")

        def f():
            import docs_package

            return docs_package.VALUE

        with _init(num_cpus=1, runtime_env={"py_modules": [package]}):
            print(ray.get(ray.remote(f).remote()))


def arguments_of_init():
    """Numbers of resources are zero or more; unknown arguments are refused."""
    print(raised(lambda: _init(num_cpus=-1), "ValueError"), ray.is_initialized())
    print(raised(lambda: _init(nothing_like_this=1), "RuntimeError", "TypeError") != "nothing")
    print(raised(lambda: _init(namespace=""), "ValueError"), raised(lambda: _init(namespace=5), "TypeError"))
    ray.shutdown()


def memory_of_the_store():
    """`object_store_memory` in bytes, also as a number like 3e8."""
    with _init(num_cpus=1, object_store_memory=300e6):
        print(round(ray.cluster_resources()["object_store_memory"] / 1e6, -1))


def arguments_without_meaning_here():
    """Old and internal arguments are accepted."""
    internals = {"_enable_object_reconstruction": False, "_skip_env_hook": True, "_temp_dir": None}
    with _init(num_cpus=1, logging_level="ERROR", configure_logging=False, **internals):
        print(ray.get(ray.put(1)))


def a_job_has_labels():
    """`labels` of the node."""
    with _init(num_cpus=1, labels={"zone": "a"}):
        print(
            ray.nodes()[0]["Labels"]["zone"], ray.get(ray.remote(label_selector={"zone": "a"})(lambda: "ran").remote())
        )
        print(ray.get(ray.remote(lambda: ray.get_runtime_context().get_node_labels()["zone"]).remote()))


def calls_without_a_job_after_shutdown():
    """A handle of an ended job is of no use in the next."""

    @ray.remote
    class A:
        def f(self):
            return 1

    with _init(num_cpus=1):
        a = A.remote()
        ray.get(a.f.remote())
    with _init(num_cpus=1):
        print(raised(lambda: ray.get(a.f.remote(), timeout=10), "RayError", "ValueError", "Exception") != "nothing")


def killing_an_actor_of_an_ended_job():
    """`ActorHandleNotFoundError`, which is a ValueError."""

    @ray.remote
    class A:
        def f(self):
            return 1

    with _init(num_cpus=1):
        a = A.remote()
        ray.get(a.f.remote())
    with _init(num_cpus=1):
        print(raised(lambda: ray.kill(a), "ActorHandleNotFoundError", "ValueError", "RayError"))


def what_init_returns():
    """A mapping with facts, and a context manager."""
    with _init(num_cpus=1) as context:
        print(
            isinstance(context.python_version, str),
            context.dashboard_url in ("", None),
            "node_id" in context.address_info,
        )


def gpus_that_are_only_stated():
    """`num_gpus` in `init` is believed; calls get numbers."""
    with _init(num_cpus=2, num_gpus=2):
        f = ray.remote(num_gpus=1)(lambda: (ray.get_gpu_ids(), os.environ["CUDA_VISIBLE_DEVICES"]))
        ids, visible = ray.get(f.remote())
        print(len(ids), visible in ("0", "1"), ray.cluster_resources()["GPU"])
        half = ray.remote(num_gpus=0.5)(lambda: len(ray.get_gpu_ids()))
        print(ray.get([half.remote() for _ in range(4)]))
        hidden = ray.remote(lambda: os.environ.get("CUDA_VISIBLE_DEVICES"))
        print(ray.get(hidden.options(num_gpus=0).remote()) in ("", None))


def the_context_starts_a_job():
    """`get_runtime_context` starts a job."""
    ray.shutdown()
    context = ray.get_runtime_context()
    print(ray.is_initialized(), context.get_task_id())
    ray.shutdown()


def the_older_key_of_nodes():
    """`alive` of a node is `Alive`."""
    with ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False):
        print([node["alive"] for node in ray.nodes()])
