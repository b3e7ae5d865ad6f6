"""Environments of calls: `RuntimeEnv`, the function that each process calls first, and how processes log."""

import logging
import os
import tempfile

import ray
from ray.runtime_env import RuntimeEnv, RuntimeEnvConfig

from tests.ray_docs.helpers import eventually, raised

OWN_JOBS = True


def _job(**options):
    return ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, **options)


def a_runtime_env_is_a_dictionary():
    """Keys are set by name, checked when they are set, and given back as a plain dictionary."""
    env = RuntimeEnv()
    print(env.to_dict(), env.has_pip(), env.has_uv(), env.has_conda(), env.has_working_dir(), env.has_py_container())
    env.set("env_vars", {"B": "2"})
    env["excludes"] = ["x"]
    print(env.to_dict(), type(env.to_dict()) is dict, env.get("env_vars"), env.env_vars(), env.py_modules())
    print(raised(lambda: env.set("env_vars", {"B": 2}), "TypeError"))
    print(raised(lambda: env.__setitem__("env_vars", "no"), "TypeError"))
    print(env == {"env_vars": {"B": "2"}, "excludes": ["x"]}, repr(RuntimeEnv().working_dir()))
    text = RuntimeEnv(env_vars={"B": "2", "A": "1"}).serialize()
    print(text, RuntimeEnv.deserialize(text).to_dict())


def settings_of_the_set_up():
    """`RuntimeEnvConfig` has defaults, and refuses what makes no sense."""
    print(sorted(RuntimeEnvConfig().items()))
    print(sorted(RuntimeEnvConfig(setup_timeout_seconds=-1, eager_install=False).items()))
    print(raised(lambda: RuntimeEnvConfig(setup_timeout_seconds=0), "ValueError"))
    print(raised(lambda: RuntimeEnvConfig(setup_timeout_seconds="x"), "TypeError"))
    print(raised(lambda: RuntimeEnvConfig(eager_install=1), "TypeError"))
    print(raised(lambda: RuntimeEnv(config="x"), "TypeError"))


def settings_of_the_set_up_as_a_dictionary():
    """They are checked in an environment too, where it is made and where it is used."""
    function = ray.remote(lambda: 1)
    for given in (
        {"setup_timeout_seconds": 10.0},
        {"setup_timeout_seconds": 0},
        {"setup_timeout_seconds": "10"},
        {"setup_timeout_seconds": 10},
        {"setup_timeout_seconds": -1},
    ):
        env = {"config": given}
        print(raised(lambda given=given: RuntimeEnv(config=given), "TypeError", "ValueError"))
        print(raised(lambda env=env: function.options(runtime_env=env), "TypeError", "ValueError"))
    print(RuntimeEnvConfig(setup_timeout_seconds=1).to_dict())


def copies_of_environments():
    """`to_dict` gives a copy, which is a field of a dataclass like any other."""
    import dataclasses

    @dataclasses.dataclass
    class Settings:
        env: dict

    env = RuntimeEnv(env_vars={"A": "B"}, config=RuntimeEnvConfig(setup_timeout_seconds=1))
    plain = env.to_dict()
    plain["env_vars"]["A"] = "C"
    print(env["env_vars"], type(plain["config"]) is dict, dataclasses.asdict(Settings(plain)))


def texts_about_variables():
    """They name what is wrong, and its type."""
    for given in ({"A": 1}, {"A": True}, {1.5: "A"}):
        try:
            RuntimeEnv(env_vars=given)
        except TypeError as error:
            (key, value), text = next(iter(given.items())), str(error)
            wrong = f"value {value} is of" if isinstance(key, str) else f"key {key} is of"
            print("Dict[str, str]" in text, wrong in text, "<class '" in text)


def modules_on_a_path_of_their_own():
    """Directories in a PYTHONPATH of the environment are those of modules, before the modules of the installation."""
    with tempfile.TemporaryDirectory() as directory:
        for name in ("module_of_a_path", "this"):
            with open(f"{directory}/{name}.py", "w") as file:
                file.write("value = 5")
        with _job(runtime_env={"env_vars": {"PYTHONPATH": f"{directory}:{directory}/nothing"}}):

            @ray.remote
            def imported():
                import this

                import module_of_a_path

                return module_of_a_path.value, getattr(this, "value", None)

            print(ray.get(imported.remote()))


def a_function_that_each_process_calls_first():
    """`worker_process_setup_hook` runs once in each process, before tasks and constructors, with the variables set."""

    def hook():
        os.environ["SEEN"] = os.environ["ABC"] + "!"
        os.environ["TIMES"] = os.environ.get("TIMES", "") + "x"

    @ray.remote
    def seen():
        return os.environ["SEEN"], os.environ["TIMES"]

    @ray.remote
    class A:
        def __init__(self):
            self.seen = os.environ["SEEN"]

        def get(self):
            return self.seen

    with _job(runtime_env={"worker_process_setup_hook": hook, "env_vars": {"ABC": "123"}}):
        print(ray.get([seen.remote() for _ in range(3)]), "SEEN" in os.environ)
        actor = A.options(num_cpus=0).remote()
        print(ray.get(actor.get.remote()), ray.get(actor.__ray_ready__.remote()))


def the_function_by_its_name():
    """A string names a function of a module."""
    with _job(runtime_env={"worker_process_setup_hook": "logging.captureWarnings"}):
        print(raised(lambda: ray.get(ray.remote(lambda: 1).remote(), timeout=20), "RayError"))
    with _job(runtime_env={"worker_process_setup_hook": "logging.shutdown"}):
        print(ray.get(ray.remote(lambda: 1).remote()))


def a_function_that_fails():
    """Its error is that of actors that need the process. A function that cannot be pickled ends `init`."""
    import threading

    @ray.remote
    class A:
        pass

    def fails():
        raise ValueError("the set-up failed")

    with _job(runtime_env={"worker_process_setup_hook": fails}):
        actor = A.remote()
        try:
            ray.get(actor.__ray_ready__.remote())
        except ray.exceptions.RayActorError as error:
            print("RayActorError", "the set-up failed" in str(error), "execute the setup hook" in str(error))
    with _job(runtime_env={"worker_process_setup_hook": "logging.nothing_of_this_name"}):
        actor = A.remote()
        print(raised(lambda: ray.get(actor.__ray_ready__.remote()), "RayActorError"))
    lock = threading.Lock()
    hook = {"worker_process_setup_hook": lambda: print(lock)}
    print(raised(lambda: _job(runtime_env=hook), "RuntimeEnvSetupError"))
    ray.shutdown()


def settings_of_logging():
    """`LoggingConfig` refuses formats and attributes that do not exist; its settings hold in all processes."""
    print(raised(lambda: ray.LoggingConfig(encoding="INVALID"), "ValueError"))
    print(raised(lambda: ray.LoggingConfig(additional_log_standard_attrs=["invalid"]), "ValueError"))
    print(ray.LoggingConfig(encoding="JSON", log_level="DEBUG"))
    level = logging.getLogger().level

    @ray.remote
    def levels():
        root = logging.getLogger()
        record = logging.makeLogRecord({"msg": "text", "levelname": "INFO"})
        lines = [one.format(record) for one in root.handlers]
        return root.level, any("timestamp_ns" in line and "job_id" in line and "task_id" in line for line in lines)

    with _job(logging_config=ray.LoggingConfig(encoding="JSON", log_level="DEBUG")):
        print(ray.get(levels.remote())[0], logging.getLogger().level)
        print(eventually(lambda: logging.getLogger("other.library").getEffectiveLevel() == 10))
    logging.getLogger().setLevel(level)


def where_values_are():
    """Locations of a pending value: none, and no size; of a small result a size."""
    from ray.experimental import get_local_object_locations, get_object_locations

    with _job():

        @ray.remote
        def long():
            import time

            time.sleep(60)

        small = ray.remote(lambda: 1).remote()
        ray.wait([small])
        pending = long.remote()
        large = ray.put(b"x" * 1_000_000)
        here = ray.get_runtime_context().get_node_id()
        for function in (get_object_locations, get_local_object_locations):
            found = function([small, pending, large])
            print(len(found), found[pending]["node_ids"], found[pending]["object_size"], found[pending]["did_spill"])
            print(found[small]["node_ids"], found[small]["object_size"] > 0)
            print(found[large]["node_ids"] == [here], found[large]["object_size"] > 1_000_000)
            print(function([]))


def where_values_are_without_a_job():
    """Nobody can say it, also of no values."""
    from ray.experimental import get_local_object_locations, get_object_locations

    for function in (get_object_locations, get_local_object_locations):
        print(raised(lambda function=function: function([]), "RuntimeError"))


def variables_win_over_numbers_of_cpus():
    """OMP_NUM_THREADS of a `runtime_env` stays as it is, whatever CPUs a call has."""
    with ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False):

        @ray.remote(num_cpus=2, runtime_env={"env_vars": {"OMP_NUM_THREADS": "3"}})
        def threads():
            return os.environ["OMP_NUM_THREADS"]

        print(ray.get(threads.remote()), ray.get(threads.options(num_cpus=1).remote()))
