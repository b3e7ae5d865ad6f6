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
