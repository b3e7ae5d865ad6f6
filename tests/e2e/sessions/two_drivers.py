"""What Ray's documentation says about several drivers of one cluster, as programs.

    python -m tests.e2e.sessions.two_drivers --record     on Ray itself, which is installed: writes two_drivers.json
    python -m tests.e2e.sessions.two_drivers NAME ...     the same of these programs

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
    except Exception as error:
        return next((one.__name__ for one in type(error).__mro__ if one.__name__ in KINDS), type(error).__name__)

KINDS = ("ValueError", "TypeError", "ConnectionError", "ActorDiedError", "RuntimeError")

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
    "actors may be detached by default": """
AS_RAY = 'if ray.__name__ != "ray": ray.install_as_ray()\\nimport ray\\n'
exec(AS_RAY)
source = AS_RAY + 'options = ray.job_config.JobConfig(default_actor_lifetime="{}")\\n'
source += 'ray.init("auto", namespace="def", job_config=options, **QUIET)\\n'
source += 'c = Counter.options(name="{}"{}).remote()\\nprint(ray.get(c.add.remote()))'
print(other(source.format("detached", "stays", "")))
print(other(source.format("detached", "goes", ', lifetime="non_detached"')))
print(other(source.format("non_detached", "goes too", "")))
ray.init("auto", namespace="def", **QUIET)
print(ray.get(ray.get_actor("stays").add.remote()))
for gone in ("goes", "goes too"): print(eventually("ValueError", lambda: ray.get_actor(gone)))
ray.kill(ray.get_actor("stays"))
print(raised(lambda: ray.job_config.JobConfig(default_actor_lifetime="random")))
""",
    "actors of actors may be detached by default": """
AS_RAY = 'if ray.__name__ != "ray": ray.install_as_ray()\\nimport ray\\n'
source = AS_RAY + '''
@ray.remote(num_cpus=0)
class Parent:
    def make(self, name, lifetime):
        self.child = Counter.options(name=name, lifetime=lifetime).remote()
        return ray.get(self.child.add.remote())

options = ray.job_config.JobConfig(default_actor_lifetime="BY_DEFAULT", ray_namespace="children")
ray.init("auto", job_config=options, **QUIET)
for lifetime in (None, "detached", "non_detached"):
    parent = Parent.remote()
    ray.get(parent.make.remote(f"child {lifetime}", lifetime))
    ray.kill(parent)
    eventually("ActorDiedError", lambda: ray.get(parent.make.remote("other", None)))
    if (lifetime or "BY_DEFAULT") == "non_detached":
        print(eventually("ValueError", lambda: ray.get_actor(f"child {lifetime}")), end=" ")
    else:
        time.sleep(1)
        print(ray.get(ray.get_actor(f"child {lifetime}").add.remote()), end=" ")
        ray.kill(ray.get_actor(f"child {lifetime}"))
        eventually("ValueError", lambda: ray.get_actor(f"child {lifetime}"))
'''
for lifetime in ("detached", "non_detached"): print(other(source.replace("BY_DEFAULT", lifetime)))
""",
    "a namespace is a text": """
for wrong in ("", 1, b"a"):
    print(raised(lambda: ray.init("auto", namespace=wrong, **QUIET)))
    ray.shutdown()
ray.init("auto", namespace="texts", **QUIET)
for wrong in ("", 1):
    print(raised(lambda: Counter.options(name="x", namespace=wrong).remote()))
    print(raised(lambda: ray.get_actor("x", namespace=wrong)))
print(raised(lambda: ray.get_actor("")))
""",
    "an actor may be named in another namespace": """
program = hold('ray.init("auto", namespace="from", **QUIET)\\n'
               'c = Counter.options(name="x", namespace="to").remote()\\nray.get(c.add.remote())')
ray.init("auto", namespace="to", **QUIET)
print(ray.get(ray.get_actor("x").add.remote()))
print(raised(lambda: ray.get_actor("x", namespace="from")))
print(raised(lambda: Counter.options(name="x", namespace="to").remote()))
mine = Counter.options(name="x", namespace="from", get_if_exists=True).remote()
print(ray.get(mine.add.remote()))
print(other('ray.init("auto", namespace="from", **QUIET)\\nprint(ray.get(ray.get_actor("x").add.remote()))'))
program.kill()
program.wait()
print(eventually("ValueError", lambda: ray.get_actor("x")))
print(ray.get(mine.add.remote()))
""",
    "calls and detached actors are in the namespace of their driver": """
HELPS = '''
@ray.remote(num_cpus=0)
class Helper:
    def where(self): return ray.get_runtime_context().namespace
    def job(self): return ray.get_runtime_context().get_job_id()
    def count(self, name): return ray.get(ray.get_actor(name).add.remote())
    def make(self, name):
        self.made = Counter.options(name=name).remote()
        return ray.get(self.made.add.remote())
'''
exec(HELPS)
source = 'ray.init("auto", namespace="home", **QUIET)\\n'
source += 'h = Helper.options(name="helper", lifetime="detached").remote()\\n'
source += 'c = Counter.options(name="peer", lifetime="detached").remote()\\n'
source += 'context = ray.get_runtime_context()\\n'
source += 'where = ray.remote(lambda: ray.get_runtime_context().namespace)\\n'
source += 'print(ray.get(h.where.remote()), ray.get(where.remote()))\\n'
source += 'print(ray.get(h.job.remote()) == context.get_job_id(), context.get_job_id())'
found = other(HELPS + source).split()
print(found[:3])
ray.init("auto", namespace="away", **QUIET)
helper = ray.get_actor("helper", namespace="home")
print(ray.get(helper.where.remote()), ray.get(helper.job.remote()) == found[3])
print(ray.get(helper.count.remote("peer")), ray.get(helper.count.remote("peer")))
print(ray.get(helper.make.remote("child")))
print(raised(lambda: ray.get_actor("child")), ray.get(ray.get_actor("child", namespace="home").add.remote()))
ray.kill(helper)
print(eventually("ValueError", lambda: ray.get_actor("child", namespace="home")))
ray.kill(ray.get_actor("peer", namespace="home"))
""",
    "a detached actor restarts without its driver": """
DIES = '''
@ray.remote(num_cpus=0, max_restarts=1)
class Dies:
    def __init__(self): self.count = 0
    def add(self):
        self.count += 1
        return self.count
    def die(self):
        import os
        os._exit(1)
'''
print(other(DIES + 'ray.init("auto", namespace="r", **QUIET)\\n'
            'd = Dies.options(name="d", lifetime="detached").remote()\\nprint(ray.get(d.add.remote()))'))
ray.init("auto", namespace="r", **QUIET)
held = ray.get_actor("d")
print(ray.get(held.add.remote()))
held.die.remote()
print(eventually(2, lambda: ray.get(held.add.remote())))
print(other('ray.init("auto", namespace="r", **QUIET)\\nprint(ray.get(ray.get_actor("d").add.remote()))'))
held.die.remote()
print(eventually("ActorDiedError", lambda: ray.get(held.add.remote())))
print(eventually("ValueError", lambda: ray.get_actor("d")))
""",
    "a detached actor whose start fails leaves its name": """
FAILS = '@ray.remote(num_cpus=0)\\nclass Fails:\\n    def __init__(self): raise OSError\\n    def f(self): return 1\\n'
print(other(FAILS + 'ray.init("auto", namespace="f", **QUIET)\\n'
            'd = Fails.options(name="d", lifetime="detached").remote()\\nprint(raised(lambda: ray.get(d.f.remote())))'))
ray.init("auto", namespace="f", **QUIET)
print(eventually("ValueError", lambda: ray.get_actor("d")))
again = Counter.options(name="d", lifetime="detached").remote()
print(ray.get(again.add.remote()))
ray.kill(again)
print(raised(lambda: Counter.options(name="d", lifetime="forever").remote()))
print(raised(lambda: Counter.options(name="d", lifetime=1).remote()))
""",
    "placement groups have names and lifetimes": """
source = 'ray.init("auto", namespace="p", **QUIET)\\n'
source += 'g = ray.util.placement_group([{{"CPU": 0.1}}], name="{}", lifetime={})\\n'
source += 'ray.get(g.ready(), timeout=30)\\nprint(len(g.bundle_specs))'
print(other(source.format("stays", '"detached"')), other(source.format("goes", None)))
ray.init("auto", namespace="p", **QUIET)
group = ray.util.get_placement_group("stays")
print(group.bundle_specs)
print(eventually("ValueError", lambda: ray.util.get_placement_group("goes")))
print(other('ray.init("auto", namespace="q", **QUIET)\\nprint(raised(lambda: ray.util.get_placement_group("stays")))'))
ray.util.remove_placement_group(group)
print(eventually("ValueError", lambda: ray.util.get_placement_group("stays")))
""",
    "each driver has its own environment": """
source = 'ray.init("auto", runtime_env={{"env_vars": {{"OF_DRIVER": "{0}"}}}}, **QUIET)\\nimport os\\n'
source += 'get = ray.remote(lambda: os.environ.get("OF_DRIVER"))\\n'
source += 'own = get.options(runtime_env={{"env_vars": {{"OF_DRIVER": "call"}}}})\\n'
source += 'print([ray.get(get.remote()) for _ in range(3)], ray.get(own.remote()), os.environ.get("OF_DRIVER"))'
print(other(source.format("a")))
print(other(source.format("b")))
ray.init("auto", **QUIET)
import os
print(ray.get(ray.remote(lambda: os.environ.get("OF_DRIVER")).remote()))
""",
    "handles of a driver that has gone are of no use to detached actors": """
KEEPS = '''
@ray.remote(num_cpus=0)
class Keeps:
    def keep(self, handle): self.handle = handle
    def use(self): return raised(lambda: ray.get(self.handle.add.remote()))
'''
print(other(KEEPS + 'ray.init("auto", namespace="w", **QUIET)\\n'
            'k = Keeps.options(name="k", lifetime="detached").remote()\\nc = Counter.remote()\\n'
            'ray.get(k.keep.remote(c))\\nprint(ray.get(k.use.remote()))'))
print(other('ray.init("auto", namespace="w", **QUIET)\\nk = ray.get_actor("k")\\n'
            'print(eventually("ActorDiedError", lambda: ray.get(k.use.remote())))\\n'
            'c = Counter.options(lifetime="detached").remote()\\n'
            'ray.get(k.keep.remote(c))\\nprint(ray.get(k.use.remote()))'))
ray.init("auto", namespace="w", **QUIET)
keeps = ray.get_actor("k")
print(ray.get(keeps.use.remote()), ray.get(keeps.use.remote()))
ray.kill(keeps)
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
        found = json.loads(RECORDED.read_text())
        for name in [word for word in sys.argv[1:] if word != "--record"] or PROGRAMS:
            words = [sys.executable, "-c", source(name)]
            done = subprocess.run(words, env=env, cwd=place, capture_output=True, text=True)
            found[name] = done.stdout.splitlines()
            print(name, found[name], done.stderr[-2000:] if done.returncode else "", flush=True)
        cluster.terminate()
        cluster.wait()
    RECORDED.write_text(json.dumps({name: found[name] for name in PROGRAMS}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
