"""A session on one host, and programs on another: the door, the memory and the processes of it are not there."""

from __future__ import annotations

import os
import sys
from itertools import count

import pytest

from tests.e2e.sessions.started import NAME
from tests.helpers import Program, start_command
from tests.hosts.lab import Lab

pytestmark = pytest.mark.hosts
_numbers = count(1)
APP = f"""
import os, numpy
import mpi_runtime as ray
ray.init("session:{NAME}", namespace="tests", quiet=True)
@ray.remote
def where(x):
    print("printed there")
    return os.uname().nodename, x.sum()
@ray.remote
class Runs:
    def __init__(self): self.n = 0
    def add(self): self.n += 1; return self.n
runs = Runs.options(name="runs", lifetime="detached", get_if_exists=True).remote()
print(os.uname().nodename, *ray.get(where.remote(ray.put(numpy.ones(2_000_000)))), ray.get(runs.add.remote()))
"""

MODULE = f"""
import os, pathlib, sys
os.makedirs("/tmp/only", exist_ok=True)  # this host has a /tmp of its own
os.chdir("/tmp/only")
pathlib.Path("helper.py").write_text("def g(): return 'found there'")
sys.path.insert(0, "")
import helper
import mpi_runtime as ray
ray.init("session:{NAME}", quiet=True, WORDS)
print(ray.get(ray.remote(lambda: helper.g()).remote()))
"""


def test_a_program_on_another_host_uses_a_session(two_hosts: Lab) -> None:
    place = two_hosts.place / f"sessions{next(_numbers)}"
    place.mkdir()
    (place / "app.py").write_text(APP)
    env: dict[str, str | None] = {
        "XDG_STATE_HOME": str(place / "state"),
        "PATH": f"{two_hosts.place}:{os.environ['PATH']}",
        "TMPDIR": None,
    }

    def start(host: str, *words: str) -> Program:
        return start_command([*two_hosts.enter(host), sys.executable, *words], env=env, cwd=place)

    with start("host1", "-m", "mpi_runtime", "session", "start", "--name", NAME, "--num-cpus", "2") as session:
        assert session.process.wait(60) == 0, session.stderr
        for host, number in (("host2", 1), ("host1", 2), ("host2", 3)):
            with start(host, str(place / "app.py")) as program:
                lines = program.finish().expect(0).stdout.splitlines()
            assert f"{host} host1 2000000.0 {number}" in lines
            assert any(line.endswith("printed there") for line in lines)
        for words, expected in (
            (
                "",
                "no directory /tmp/only, in which the program runs. init(runtime_env={'working_dir': '.'})",
            ),
            ("runtime_env={'working_dir': '.'}", "found there"),
        ):
            source = MODULE.replace("WORDS", words)
            with start("host2", "-c", source) as program:
                assert expected in program.finish().output()
        with start("host1", "-m", "mpi_runtime", "session", "stop", NAME) as stopped:
            stopped.finish().expect(0)
