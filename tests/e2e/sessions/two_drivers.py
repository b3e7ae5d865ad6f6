"""What Ray's documentation says about several drivers of one cluster, as programs.

    python -m tests.e2e.sessions.two_drivers --record     on Ray itself, which is installed: writes two_drivers.json

Each program is a driver, and runs others by `other` and `hold`. It runs on Ray (`ray start --head`) and here, and
prints the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RECORDED = Path(__file__).with_suffix(".json")
HEADER = """
import subprocess, sys, time
try: import mpi_runtime as ray
except ImportError: import ray
QUIET = {"log_to_driver": False, "logging_level": 40}

@ray.remote(num_cpus=0)
class Counter:
    def __init__(self): self.count = 0
    def add(self):
        self.count += 1
        return self.count

def raised(call):
    try: return call()
    except Exception as error: return [one.__name__ for one in type(error).__mro__ if one.__name__ in KINDS][0]

KINDS = ("ValueError", "ConnectionError", "ActorDiedError", "RuntimeError")

def eventually(wanted, call):
    for _ in range(150):
        if (found := raised(call)) == wanted: return found
        time.sleep(0.1)
    return found
"""
OTHERS = """
HEADER = {header!r}

def other(source):
    return subprocess.run([sys.executable, "-c", HEADER + source], capture_output=True, text=True).stdout.strip()

def hold(source):
    program = subprocess.Popen([sys.executable, "-c", HEADER + source + "\\nprint('ready', flush=True)\\ninput()"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert program.stdout.readline() == "ready\\n"
    return program
"""
PROGRAMS = {
    "an address joins the cluster that runs": """
ray.init("auto", **QUIET)
print(ray.cluster_resources()["CPU"], ray.is_initialized())
""",
    "the variable is enough": """
ray.init(**QUIET)
print(ray.cluster_resources()["CPU"])
""",
    "resources are those of the cluster": """
for arguments in ({"num_cpus": 1}, {"num_gpus": 0}, {"resources": {"a": 1}}, {"object_store_memory": 100_000_000}):
    print(raised(lambda: ray.init("auto", **arguments, **QUIET)))
""",
    "named actors are seen in their namespace": """
ray.init("auto", namespace="a", **QUIET)
mine = Counter.options(name="x").remote()
print(ray.get(mine.add.remote()))
print(other('ray.init("auto", namespace="a", **QUIET)\\nprint(ray.get(ray.get_actor("x").add.remote()))'))
print(other('ray.init("auto", namespace="b", **QUIET)\\nprint(raised(lambda: ray.get_actor("x")))'))
print(other('ray.init("auto", **QUIET)\\nprint(raised(lambda: ray.get_actor("x")))'))
print(other('ray.init("auto", **QUIET)\\nprint(ray.get(ray.get_actor("x", namespace="a").add.remote()))'))
""",
    "a driver without a namespace has one of its own": """
ray.init("auto", **QUIET)
source = 'ray.init("auto", **QUIET)\\nprint(ray.get_runtime_context().namespace)'
print(len({ray.get_runtime_context().namespace, other(source), other(source)}))
""",
    "a detached actor outlives its driver": """
source = 'ray.init("auto", namespace="d", **QUIET)\\n'
source += 'c = Counter.options(name="{}", lifetime={}).remote()\\nprint(ray.get(c.add.remote()))'
print(other(source.format("stays", '"detached"')), other(source.format("goes", "None")))
ray.init("auto", namespace="d", **QUIET)
print(ray.get(ray.get_actor("stays").add.remote()))
print(eventually("ValueError", lambda: ray.get_actor("goes")))
ray.kill(ray.get_actor("stays"))
print(eventually("ValueError", lambda: ray.get_actor("stays")))
""",
    "an actor dies with its driver although others have handles": """
for kills in (True, False):
    program = hold('ray.init("auto", namespace="h", **QUIET)\\n'
                   'c = Counter.options(name="c").remote()\\nc.__ray_ready__')
    if not ray.is_initialized(): ray.init("auto", namespace="h", **QUIET)
    held = ray.get_actor("c")
    print(ray.get(held.add.remote()))
    program.kill() if kills else program.communicate("\\n")
    program.wait()
    print(eventually("ActorDiedError", lambda: ray.get(held.add.remote())))
    print(eventually("ValueError", lambda: ray.get_actor("c")))
""",
    "a name can be taken once in a namespace": """
ray.init("auto", namespace="n", **QUIET)
mine = Counter.options(name="x").remote()
print(ray.get(mine.add.remote()))
source = 'ray.init("auto", namespace="n", **QUIET)\\n'
print(other(source + 'print(raised(lambda: Counter.options(name="x").remote()))'))
print(other(source + 'print(ray.get(Counter.options(name="x", get_if_exists=True).remote().add.remote()))'))
print(ray.get(mine.add.remote()))
""",
    "names are listed by namespace": """
ray.init("auto", namespace="l1", **QUIET)
mine = Counter.options(name="one").remote()
ray.get(mine.add.remote())
program = hold('ray.init("auto", namespace="l2", **QUIET)\\n'
               'c = Counter.options(name="two").remote()\\nray.get(c.add.remote())')
print(ray.util.list_named_actors())
print(sorted(tuple(sorted(one.items())) for one in ray.util.list_named_actors(all_namespaces=True)))
program.kill()
program.wait()
print(eventually(1, lambda: len(ray.util.list_named_actors(all_namespaces=True))))
""",
    "each driver is a job": """
ray.init("auto", **QUIET)
source = 'ray.init("auto", **QUIET)\\nprint(ray.get_runtime_context().get_job_id())'
own = ray.get_runtime_context().get_job_id()

@ray.remote
def inside(): return ray.get_runtime_context().get_job_id()

print(len({own, other(source), other(source)}), ray.get(inside.remote()) == own, len(own))
""",
    "calls end with their driver": """
import os, tempfile
path = tempfile.mktemp()
source = '@ray.remote\\ndef writes(path):\\n    while True:\\n'
source += '        open(path, "a").write("x")\\n        time.sleep(0.05)\\n'
program = hold(f'ray.init("auto", **QUIET)\\n{source}r = writes.remote({path!r})\\n'
               f'import os\\nwhile not os.path.exists({path!r}): time.sleep(0.05)')
program.kill()
program.wait()
for _ in range(100):
    before = os.path.getsize(path)
    time.sleep(0.5)
    if os.path.getsize(path) == before: break
print(os.path.getsize(path) == before)
os.unlink(path)
""",
    "a driver may kill a detached actor of another": """
print(other('ray.init("auto", namespace="k", **QUIET)\\nc = Counter.options(name="k", lifetime="detached").remote()\\n'
            'print(ray.get(c.add.remote()))'))
ray.init("auto", namespace="k", **QUIET)
held = ray.get_actor("k")
ray.kill(held)
print(eventually("ActorDiedError", lambda: ray.get(held.add.remote())))
""",
    "init is once in a driver": """
ray.init("auto", **QUIET)
print(raised(lambda: ray.init("auto", **QUIET)))
print(ray.init("auto", ignore_reinit_error=True, **QUIET) is not None)
ray.shutdown()
print(ray.is_initialized())
ray.init("auto", **QUIET)
print(ray.get(ray.put(1)))
""",
}


def source(name: str) -> str:
    """The whole text of a program."""
    return HEADER + OTHERS.format(header=HEADER) + PROGRAMS[name]


def main() -> int:
    """Run the programs on Ray, and write down what they print."""
    ray = Path(sys.executable).with_name("ray")
    with tempfile.TemporaryDirectory() as place:
        words = ["--head", "--num-cpus=2", "--include-dashboard=false", f"--temp-dir={place}", "--port=0"]
        env = {**os.environ, "RAY_AUTH_MODE": "disabled"}
        cluster = subprocess.Popen([ray, "start", "--block", *words], env=env, stdout=subprocess.DEVNULL)
        where = Path(place, "ray_current_cluster")
        while not where.exists():
            time.sleep(0.5)
        time.sleep(3)
        env["RAY_ADDRESS"] = where.read_text().strip()
        found = {}
        for name in PROGRAMS:
            done = subprocess.run([sys.executable, "-c", source(name)], env=env, capture_output=True, text=True)
            found[name] = done.stdout.splitlines()
            print(name, found[name], done.stderr[-2000:] if done.returncode else "", flush=True)
        cluster.terminate()
        cluster.wait()
    RECORDED.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
