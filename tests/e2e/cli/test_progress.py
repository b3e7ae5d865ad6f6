"""`init(progress=True)`: a line on a terminal, and nothing in a file."""

import os
import sys
from pathlib import Path

import pytest

from tests import helpers

PROGRAM = """
import os, sys, time
import mpi_runtime as ray

@ray.remote
def wait(gate):
    print("told", flush=True)
    while not os.path.exists(gate):
        time.sleep(0.02)

with ray.init(num_cpus=1, quiet=True, progress=True):
    ray.get([wait.remote(sys.argv[1]) for _ in range(3)])
print("end")
"""


def test_on_a_terminal(tmp_path: Path) -> None:
    pexpect = pytest.importorskip("pexpect", reason="pexpect is not installed")
    gate, app = tmp_path / "gate", tmp_path / "app.py"
    app.write_text(PROGRAM)
    env = {**os.environ, "PYTHONPATH": str(helpers.ROOT), "TERM": "xterm"}
    child = pexpect.spawn(sys.executable, [str(app), str(gate)], dimensions=(30, 120), timeout=60, env=env)
    try:
        child.expect(r"\[\.+\] 0 of 3 calls ended")
        gate.touch()
        child.expect("end")
        child.expect(pexpect.EOF)
        child.wait()
        assert child.exitstatus == 0
    finally:
        child.close(force=True)


def test_not_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "gate").touch()
    done = helpers.run_program(PROGRAM, str(tmp_path / "gate")).expect(0)
    assert "calls ended" not in done.stdout + done.stderr
