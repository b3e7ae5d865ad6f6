"""What programs log and print, metrics, locations of values, and environments of calls."""

import json
import logging
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import ray
from ray.experimental import get_local_object_locations, get_object_locations
from ray.runtime_env import RuntimeEnv

from tests.ray_docs.helpers import raised

KINDS = ("ValueError", "TypeError", "RuntimeEnvSetupError", "FileNotFoundError", "RayTaskError", "RayActorError")


def _printed(text):
    """What a program of its own writes to its error stream."""
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory, "program.py")
        program.write_text(text)
        here = [] if "mpi_runtime" not in sys.modules else ["-m", "mpi_runtime", "--as-ray"]
        found = subprocess.run(
            [sys.executable, *here, str(program)],
            capture_output=True,
            text=True,
            env={key: value for key, value in os.environ.items() if key not in ("RAY_ADDRESS", "MPI_RUNTIME_QUIET")},
        )
        return found.stderr + found.stdout


_TASK = """
import logging, ray
ray.init(include_dashboard=False, num_cpus=1, {settings})
@ray.remote
def f():
    logging.getLogger("of.mine").info("This is a task")
ray.get(f.remote())
import time
time.sleep(1)
"""
_ACTOR = """
import logging, ray
ray.init(include_dashboard=False, num_cpus=1, {settings})
@ray.remote
class Actor:
    def say(self):
        logging.getLogger("of.mine").info("This is an actor")
actor = Actor.remote()
ray.get(actor.say.remote())
import time
time.sleep(1)
"""
_DRIVER = """
import logging, ray
ray.init(include_dashboard=False, num_cpus=1, {settings})
logging.getLogger().info("This is a driver")
"""
_TEXT = 'logging_config=ray.LoggingConfig(encoding="TEXT", additional_log_standard_attrs=["name"])'
_KEYS = ("timestamp_ns=", "job_id=", "worker_id=", "node_id=", "actor_id=", "task_id=", "INFO", "This is", "name=")


def log_lines_as_text():
    """They name the job, the node, the process and the call."""
    for program in (_TASK, _ACTOR, _DRIVER):
        lines = [line for line in _printed(program.format(settings=_TEXT)).splitlines() if "This is" in line]
        print(len(lines), [key for key in _KEYS if key in "".join(lines)], [" pid=" in line for line in lines])


def log_lines_without_a_setting():
    """Those of tasks are not shown below warnings."""
    text = _printed(_TASK.format(settings='logging_level="ERROR"'))
    print("This is a task" in text, "timestamp_ns" in text)


def log_lines_as_json():
    """An object in each line, without the name of the process before it."""
    lines = _printed(_ACTOR.format(settings='logging_config=ray.LoggingConfig(encoding="JSON")')).splitlines()
    found = [json.loads(line) for line in lines if "This is" in line]
    keys = ("levelname", "message", "lineno", "process", "timestamp_ns", "job_id", "node_id", "actor_id", "task_id")
    print(len(found), found[0]["levelname"], found[0]["message"], [key for key in keys if key not in found[0]])
    print(any('"timestamp_ns"' in line and "This is" not in line for line in lines))  # lines about the start


def records_as_lines():
    """What a formatter makes of a record, and what a filter adds to it, in the driver and in a task."""
    from ray._common.filters import CoreContextFilter
    from ray._common.formatters import JSONFormatter, TextFormatter

    def added():
        record = logging.makeLogRecord({})
        names = set(vars(record)) - {"_ray_timestamp_ns"}
        print(CoreContextFilter().filter(record))
        return sorted(set(vars(record)) - names), record.job_id == ray.get_runtime_context().get_job_id()

    formatter = JSONFormatter()
    print(sorted(json.loads(formatter.format(logging.makeLogRecord({"user": "me"})))))
    formatter.set_additional_log_standard_attrs(["name"])
    print(formatter.additional_log_standard_attrs, "name" in json.loads(formatter.format(logging.makeLogRecord({}))))
    print("user=me" in TextFormatter().format(logging.makeLogRecord({"user": "me"})))
    print(added(), ray.get(ray.remote(added).remote()))


def levels_of_other_loggers():
    """A logger with a level of its own keeps it."""
    text = _printed(
        'import logging\nimport ray\nlogging.getLogger("ray.test").setLevel(logging.DEBUG)\n'
        'ray.init(include_dashboard=False, num_cpus=1, logging_config=ray.LoggingConfig(log_level="INFO"))\n'
        'print("level", logging.getLogger("ray.test").getEffectiveLevel())\n'
    )
    print(re.findall("level [0-9]+", text))


def lines_that_name_their_process():
    """A task by its function, an actor by its class or by what its `repr` says."""
    text = _printed(
        "import ray, time\nray.init(include_dashboard=False, num_cpus=4)\n"
        "@ray.remote\ndef f():\n    print('from f')\n"
        "@ray.remote\nclass A:\n    def g(self):\n        print('from g')\n"
        "@ray.remote\nclass B:\n    def __repr__(self):\n        return 'Bee(5)'\n    def h(self):\n        print('from h')\n"
        "a, b = A.remote(), B.remote()\n"
        "ray.get([f.remote(), a.g.remote(), b.h.remote()])\ntime.sleep(1)\n"
    )
    for part in ("f", "g", "h"):
        (line,) = [line for line in text.splitlines() if f"from {part}" in line]
        print(re.sub("[0-9]{2,}", "N", re.sub("\x1b\\[[0-9]*m", "", line)))


def where_results_are():
    """Large ones are on the node of their task, as all items of a stream are."""
    here = ray.get_runtime_context().get_node_id()

    @ray.remote
    def items():
        for _ in range(2):
            yield np.zeros(1_000_000, np.uint8)

    for ref in items.remote():
        found = get_local_object_locations([ref])[ref]
        print(found["node_ids"] == [here], found["object_size"] > 1_000_000)
    ref = ray.remote(lambda: np.zeros(1_000_000, np.uint8)).remote()
    ray.wait([ref])
    print(get_object_locations([ref])[ref]["node_ids"] == [here], get_object_locations([ref, ref]).keys() == {ref})


def directories_that_are_not_there():
    """An environment with one is refused, when it is made or used."""
    print(raised(lambda: RuntimeEnv(working_dir="/missing"), *KINDS))
    print(raised(lambda: RuntimeEnv(py_modules=["/missing"]), *KINDS))
    function = ray.remote(lambda: 1)
    print(raised(lambda: function.options(runtime_env={"working_dir": "/missing"}).remote(), *KINDS))


def nothing_to_leave_out():
    """`excludes` may be empty."""
    with tempfile.TemporaryDirectory() as directory:
        print(raised(lambda: RuntimeEnv(working_dir=directory, excludes=[]), *KINDS))
        print(raised(lambda: RuntimeEnv(excludes=[]), *KINDS), RuntimeEnv(excludes=[]).to_dict())
        print(raised(lambda: RuntimeEnv(excludes=None), *KINDS), raised(lambda: RuntimeEnv(env_vars=None), *KINDS))


def keys_of_environments():
    """Two that exclude each other, and one by its name."""
    print(raised(lambda: RuntimeEnv(pip=["a"], conda={"dependencies": []}), *KINDS))
    print(RuntimeEnv(env_vars={"A": "1"}).get("env_vars"), "env_vars" in RuntimeEnv(env_vars={"A": "1"}))


def parts_of_cancelled_tasks():
    """The error has the id of the task."""
    long = ray.remote(lambda: __import__("time").sleep(60)).remote()
    ray.cancel(long)
    try:
        ray.get(long)
    except ray.exceptions.TaskCancelledError as error:
        print(error.task_id == long.task_id(), type(error.task_id).__name__)


def parts_of_dead_actors():
    """The error has the id of the actor."""

    @ray.remote(num_cpus=0)
    class Actor:
        def call(self):
            pass

    actor = Actor.remote()
    ray.get(actor.call.remote())
    ray.kill(actor)
    try:
        ray.get(actor.call.remote())
    except ray.exceptions.ActorDiedError as error:
        print(error.actor_id == actor._actor_id.hex(), actor._actor_id.hex() in str(error), "Actor" in str(error))


def metrics_of_a_process():
    """They are made again by the same name, and observed in tasks."""
    from ray.util.metrics import Counter, Gauge, Histogram

    @ray.remote
    def counted():
        counter = Counter("of_logs_total", description="", tag_keys=("a",))
        counter.inc(1, {"a": "x"})
        Gauge("of_logs", tag_keys=()).set(5)
        Histogram("of_logs_seconds", boundaries=[1.0]).observe(2)
        return sorted(counter.info)

    print(ray.get([counted.remote(), counted.remote()])[0])
    print(logging.getLogger("of.logs").name)
