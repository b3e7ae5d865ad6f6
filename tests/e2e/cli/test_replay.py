"""Real jobs are recorded and replayed: every decision comes out the same, to the last byte.

`test_examples.py` replays the job of each example too.
"""

from pathlib import Path

from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.recording import Recording, replay
from tests.helpers import run_program

CRASHES = """
import os, signal
import mpi_runtime as ray

@ray.remote(max_retries=2)
def crash(path):
    if not os.path.exists(path):
        open(path, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"

@ray.remote(max_restarts=1)
class Keeper:
    def pid(self):
        return os.getpid()

for round in range(2):
    ray.init(num_cpus=2)
    keeper = Keeper.remote()
    os.kill(ray.get(keeper.pid.remote()), signal.SIGKILL)
    print(ray.get(crash.remote(f"mark{round}")))
    print(ray.get(keeper.pid.options(max_task_retries=-1).remote()) > 0)
    ray.shutdown()
"""


def test_crashes_and_two_jobs_of_one_program(tmp_path: Path) -> None:
    path = tmp_path / "job"
    run_program(CRASHES, env={"MPI_RUNTIME_RECORD": str(path)}, cwd=tmp_path).expect(0)
    for name in ("job", "job.2"):
        recording = Recording((tmp_path / name).read_bytes())
        scheduler = Scheduler()
        assert str(replay(recording, scheduler)).endswith(": identical")
        assert scheduler.state.retried >= 1
        assert scheduler.state.restarted == 1


def test_a_recording_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    program = "import mpi_runtime as ray; ray.init(); print('runs')"
    completed = run_program(program, env={"MPI_RUNTIME_RECORD": f"{tmp_path}/{'x' * 300}"}).expect(0)
    assert completed.stdout == "runs\n"
    assert "mpi_runtime: the job is not recorded: [Errno 36] File name too long" in completed.stderr
