"""`runtime_env={"nsight": ...}`: a stand-in for nsys on the PATH records its arguments and writes a report."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.helpers import process_ids, run_program, start_program, wait_until

NSYS = f"""#!{os.path.realpath("/proc/self/exe")}
import json, os, subprocess, sys, time
words = sys.argv[1:]
at = next(index for index, word in enumerate(words) if "python" in os.path.basename(word))
report = words[words.index("-o") + 1].replace("%p", str(os.getpid()))
child = subprocess.Popen(words[at:], close_fds=False)
code = child.wait()
time.sleep(0.3)  # it is not quick
with open(report + ".nsys-rep", "w") as file:
    json.dump(words[:at], file)
sys.exit(max(code, 0))
"""
BEGIN = """
import os, sys, time
import mpi_runtime as ray
ray.init(num_cpus=2, num_gpus=2)
OPTIONS = {"t": "cuda,cudnn,cublas", "o": "'worker_process_%p'", "cuda-graph-trace": "node"}  # those of vLLM

@ray.remote
class Worker:
    def seen(self):
        parent = open(f"/proc/{os.getppid()}/cmdline").read().split("\\0")
        return any(word.endswith("bin/nsys") for word in parent), os.environ["CUDA_VISIBLE_DEVICES"], os.environ["MINE"]

@ray.remote
def parent():
    return "nsys" in open(f"/proc/{os.getppid()}/cmdline").read()
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/nsys").write_text(NSYS)
    (tmp_path / "bin/nsys").chmod(0o755)
    return f"{tmp_path}/bin:{os.environ['PATH']}"


def reports(place: Path) -> list[list[str]]:
    return [json.loads(file.read_text()) for file in sorted((place / "nsight").glob("worker_process_[0-9]*.nsys-rep"))]


@pytest.mark.parametrize("ranks", [None, pytest.param(3, marks=pytest.mark.mpi)])
def test_actors_and_calls_run_under_the_profiler(ranks: int | None, path: str, tmp_path: Path) -> None:
    done = run_program(
        BEGIN
        + """
environment = {"nsight": "default", "env_vars": {"MINE": "1"}}
worker = Worker.options(num_gpus=1, runtime_env=environment).remote()
print(ray.get(worker.seen.remote()))
print(ray.get([parent.remote(), parent.options(runtime_env={"_nsight": OPTIONS}).remote()]))
ray.kill(worker)
""",
        ranks=ranks,
        env={"PATH": path},
        cwd=tmp_path,
    ).expect(0)
    assert done.stdout == "(True, '0', '1')\n[False, True]\n"
    where = ["-o", f"{tmp_path}/nsight/worker_process_%p"]
    assert sorted(reports(tmp_path)) == [
        ["profile", "-t", "cuda,cudnn,cublas", *where, "--cuda-graph-trace=node"],
        ["profile", "-t", "cuda,cudnn,cublas,nvtx", *where, "--stop-on-exit=true"],
    ], "one for a killed actor too, and one for the process of a call"


def test_calls_are_cancelled_and_retried_under_it(path: str, tmp_path: Path) -> None:
    done = run_program(
        BEGIN
        + """
@ray.remote(runtime_env={"nsight": OPTIONS}, max_retries=1)
def slow(place):
    if os.path.exists(place):
        return "again"
    with open(place, "w"):
        pass
    if place == "a":
        os._exit(1)
    time.sleep(60)

print(ray.get(slow.remote("a")))
ref = slow.remote("b")
while not os.path.exists("b"):
    time.sleep(0.01)
ray.cancel(ref)
try:
    ray.get(ref)
except ray.errors.TaskCancelledError:
    print("cancelled")
""",
        env={"PATH": path},
        cwd=tmp_path,
    ).expect(0)
    assert done.stdout == "again\ncancelled\n"


@pytest.mark.parametrize("victim", ["driver", "nsys", "forkserver"])
def test_nothing_is_left_of_it(victim: str, path: str, tmp_path: Path) -> None:
    source = BEGIN + (
        """
@ray.remote(runtime_env={"nsight": "default"}, max_retries=0)
def loop():
    names = [open(f"/proc/{pid}/status").read() for pid in (os.getppid(),)]
    upper = int(names[0].partition("PPid:")[2].split()[0])
    print("pids", os.getpid(), os.getppid(), upper, flush=True)
    while True:
        pass

try:
    ray.get(loop.remote())
except ray.errors.WorkerCrashedError:
    print("crashed", flush=True)
"""
    )
    with start_program(source, env={"PATH": path}, cwd=tmp_path) as program:
        line = program.wait_for_line("pids")
        words = line[line.index("pids") :].split()
        own, nsys, forkserver = (int(word) for word in words[1:4])
        os.kill({"driver": program.pid, "nsys": nsys, "forkserver": forkserver}[victim], signal.SIGKILL)
        wait_until(lambda: not {own, nsys} & set(process_ids()), what="the end of the executor", timeout=30)
        program.finish(timeout=40)


def test_a_host_without_it_is_named(tmp_path: Path) -> None:
    done = run_program(
        BEGIN
        + """
try:
    ray.get(parent.options(runtime_env={"nsight": "default"}).remote())
except ray.errors.RuntimeEnvSetupError as error:
    print(error)
""",
        env={"PATH": "/nowhere"},
        cwd=tmp_path,
    ).expect(0)
    assert "has no nsys on the PATH of the job. Load the module of Nsight Systems" in done.stdout
