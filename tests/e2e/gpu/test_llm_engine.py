"""`examples/llm_engine.py`: the engine answers, starts again if it dies, and ends with its job."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.fake_nvml import machines
from tests.helpers import ROOT, process_ids, run_program, start_program, wait_until

EXAMPLE = ROOT / "examples" / "llm_engine.py"
SLOW = EXAMPLE.read_text().replace("def do_POST(self):", "def do_POST(self):\n        import time; time.sleep(0.4)")
"""Each answer takes a while, so that something can happen meanwhile."""


def engine_in(line: str) -> int:
    (found,) = re.findall(r"the engine (\d+) answers", line)
    return int(found)


@pytest.mark.parametrize("ranks", [None, pytest.param(3, marks=pytest.mark.mpi)])
def test_it_has_the_gpus_of_its_actor(ranks: int | None, tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text(
        "import os, sys\nprint('shown', os.environ['CUDA_VISIBLE_DEVICES'], flush=True)\n"
        "sys.path.insert(0, sys.argv[2])\nfrom llm_engine import STAND_IN\nexec(STAND_IN)\n"
    )
    words = ("--prompts", "3", "--gpus", "2", "--", sys.executable, str(tmp_path / "engine.py"), "{port}")
    env = machines.shown(machines.h100x8())
    done = run_program(EXAMPLE, *words, str(EXAMPLE.parent), ranks=ranks, env=env).expect(0)
    assert "shown 0,1" in done.stdout
    assert "'prompt 2': 'PROMPT 2'" in done.stdout


def test_an_engine_that_does_not_start_is_an_error() -> None:
    done = run_program(EXAMPLE, "--", sys.executable, "-c", "raise SystemExit(3)")
    assert done.returncode
    assert "the engine has not started: its exit code is 3" in done.stderr


def test_an_engine_that_dies_starts_again() -> None:
    with start_program(SLOW, "--prompts", "40") as program:
        first = engine_in(program.wait_for_line("answers at"))
        program.wait_for_line("answers at")
        os.kill(first, signal.SIGKILL)
        done = program.finish(timeout=90).expect(0)
    assert len(re.findall("answers at", done.stdout)) == 2
    assert all(f"'prompt {number}': 'PROMPT {number}'" in done.stdout for number in range(40))


@pytest.mark.parametrize("victim", ["driver", "actor"])
def test_it_ends_with_its_job_and_its_actor(victim: str) -> None:
    with start_program(SLOW, "--prompts", "40") as program:
        line = program.wait_for_line("answers at")
        engine = engine_in(line)
        (actor,) = re.findall(r"Engine pid=(\d+)", line)
        os.kill(program.pid if victim == "driver" else int(actor), signal.SIGKILL)
        wait_until(lambda: engine not in process_ids(), what="the end of the engine", timeout=30)
        done = program.finish(timeout=90)
    if victim == "actor":
        assert "'prompt 39': 'PROMPT 39'" in done.expect(0).stdout
