"""What the benchmarks need to start programs under mpirun and to read the CPU time of processes."""

import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

OPEN_MPI_SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
"""More ranks than cores, no binding, and root in a container; other MPIs ignore these."""


def environment() -> dict[str, str]:
    """The environment of a benchmarked program: this checkout first, and Open MPI as `OPEN_MPI_SETTINGS` says.

    Byte code is written, as installing a package does: else each process of a checkout would compile all sources again.
    """
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, **OPEN_MPI_SETTINGS, "PYTHONPATH": path}


def mpirun(ranks: int) -> list[str] | None:
    """The start of a command line for so many ranks, or None if there is no launcher beside this Python or on PATH."""
    beside = Path(sys.executable).parent
    found = shutil.which("mpirun", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    return [found, "-n", str(ranks)] if found else None


def json_lines(command: Sequence[str], timeout_s: float) -> tuple[list[dict[str, Any]], str]:
    """Run a program; its lines of JSON, and what went wrong in one line, or nothing."""
    try:
        done = subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=timeout_s, cwd=ROOT, check=False
        )
        stdout, stderr, problem = done.stdout, done.stderr, f"exit code {done.returncode}" if done.returncode else ""
    except subprocess.TimeoutExpired as expired:
        streams = (expired.stdout, expired.stderr)
        stdout, stderr = (stream.decode() if isinstance(stream, bytes) else "" for stream in streams)
        problem = f"not done after {timeout_s:.0f} s"
    said = [line for line in stderr.splitlines() if any(map(str.isalpha, line))]
    if problem and said:
        errors = [line for line in said if "Error" in line]
        problem += f": {(errors or said)[-1].strip()}"
    return [json.loads(line) for line in stdout.splitlines() if line.startswith("{")], problem


def emit(**fields: object) -> None:
    """Print one line of JSON, for `json_lines` in the process that started this one."""
    print(json.dumps(fields), flush=True)


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a live process: to the nanosecond where the kernel counts so, else to 10 ms."""
    threads = list(Path(f"/proc/{pid}/task").glob("*/schedstat"))
    with contextlib.suppress(FileNotFoundError):  # a thread has just ended
        if threads:
            return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine() -> str:
    """The processor, how many cores this process may use, memory, and Python, in one line."""
    model = platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        model = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), model)
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, {memory:.0f} GiB, Linux {platform.release()}, Python {platform.python_version()}"
