"""Ctrl-C while the job starts: the program's traceback, and none of the head."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers import wait_until


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.1, 0.15, 0.2, 0.3])
def test_no_traceback_of_the_head(delay: float) -> None:
    program = "import time, mpi_runtime; mpi_runtime.init(num_cpus=1); time.sleep(60)"
    driver = subprocess.Popen(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_until(Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text, timeout=60, what="the head")
    time.sleep(delay)
    os.killpg(driver.pid, signal.SIGINT)  # as a terminal does
    _, errors = driver.communicate(timeout=60)
    assert driver.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1
    assert "head/process" not in errors


LOST = """
import os, signal, sys, time, weakref

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "mpi_runtime.core.transport.codec":  # the client is loaded, and the head's process starts
            class Lock: pass
            lock = Lock()
            reference = weakref.ref(lock, lambda _: os.kill(os.getpid(), signal.SIGINT))
            del lock  # Python ignores what is raised in the callback

sys.meta_path.insert(0, Finder())
import mpi_runtime
mpi_runtime.init(num_cpus=1)
print("started")
"""


def test_an_interrupt_is_not_lost_where_python_ignores_exceptions() -> None:
    done = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGINT
    assert "started" not in done.stdout
    assert done.stderr.count("Traceback") == 1
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    ("start", "loads"),
    [
        ("import mpi_runtime; mpi_runtime.ObjectRef; print('started')", "transport.codec"),
        ("import sys; from mpi_runtime.cli.main import main; sys.exit(main(['view']))", "head.inspecting"),
    ],
)
def test_nor_while_a_public_name_or_a_verb_is_loaded(start: str, loads: str) -> None:
    program = LOST[: LOST.index("import mpi_runtime")].replace("transport.codec", loads) + start
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode in (-signal.SIGINT, 130)
    assert "started" not in done.stdout
    assert "Exception ignored" not in done.stderr


CONTINUES = """
import os, subprocess, sys, time
try:
    mpi_runtime.init(num_cpus=1)
except KeyboardInterrupt:
    print("interrupted")
from pathlib import Path
limit_s = time.monotonic() + 30
while Path(f"/proc/self/task/{os.getpid()}/children").read_text() and time.monotonic() < limit_s:
    time.sleep(0.05)
print("children:", Path(f"/proc/self/task/{os.getpid()}/children").read_text())
with mpi_runtime.init(num_cpus=1):
    print(mpi_runtime.get(mpi_runtime.put(7)))
"""


def test_a_program_that_continues_has_no_head_of_the_start_that_was_interrupted() -> None:
    program = LOST[: LOST.index("mpi_runtime.init")] + CONTINUES
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.split("\n") == ["interrupted", "children: ", "7", ""], done.stderr


IN_A_HASH = """
import os, signal, sys, typing

known = typing._AnnotatedAlias.__hash__

def interrupted(self):
    if "mpi_runtime.core.transport.codec" in sys.modules:  # it makes its decoder
        typing._AnnotatedAlias.__hash__ = known
        os.kill(os.getpid(), signal.SIGINT)
    return known(self)

typing._AnnotatedAlias.__hash__ = interrupted
from mpi_runtime.cli.main import main
sys.exit(main(["batch", "jobs.txt"]))
"""


def test_nor_where_a_decoder_is_made_as_a_batch_starts(tmp_path: Path) -> None:
    (tmp_path / "jobs.txt").write_text("touch made\n")
    done = subprocess.run([sys.executable, "-c", IN_A_HASH], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode in (-signal.SIGINT, 130), done
    assert not (tmp_path / "made").exists()
