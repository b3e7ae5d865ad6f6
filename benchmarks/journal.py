"""What a journal costs: tasks per second with and without, bytes for each call, and the time to resume finished calls.

    python -m benchmarks.journal                  # 20 000 empty tasks, one after the other
    python -m benchmarks.journal --calls 1000000  # as many finished calls to resume

Each line is one program in a fresh process: without a journal, with a new one, and again with that one, which then has
all calls. Times are of the calls alone, from the first submission to the last value.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """
import json, resource, sys, time
import mpi_runtime as ray

began = time.perf_counter()
ray.init(num_cpus=2, quiet=True, **json.loads(sys.argv[2]))

@ray.remote
def f(x):
    return x

calls = int(sys.argv[1])
ray.get(f.remote(-1))
started = time.perf_counter()
begun = started - began
total = 0
for begin in range(0, calls, 10_000):
    total += sum(ray.get([f.remote(x) for x in range(begin, min(begin + 10_000, calls))]))
took = time.perf_counter() - started
assert total == calls * (calls - 1) // 2
ray.shutdown()
largest = resource.getrusage(resource.RUSAGE_CHILDREN)
print(took, begun, largest.ru_maxrss * 1024, largest.ru_utime + largest.ru_stime)
"""


def measured(calls: int, **init: object) -> tuple[float, float, float, float]:
    """How many seconds so many empty tasks take, and how many it takes until the first one has ended.

    Then the bytes that the largest of the processes has used, which is the head's where a journal is large, and the
    seconds of processor time of all of them, the program's own apart.
    """
    command = [sys.executable, "-c", PROGRAM, str(calls), json.dumps(init)]
    took, begun, size, used = map(float, subprocess.run(command, check=True, stdout=-1, text=True).stdout.split())
    return took, begun, size, used


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.journal")
    parser.add_argument("--calls", type=int, default=20_000)
    calls = parser.parse_args().calls
    with tempfile.TemporaryDirectory() as folder:
        for name, init in (("no journal", {}), ("recorded", {"journal": folder}), ("resumed", {"journal": folder})):
            took, begun, used, cpu = measured(calls, **init)
            print(
                f"{name:12} {took:8.2f} s, {calls / took:8.0f} calls/s, {cpu:8.2f} s of processor time; begun after "
                f"{begun:6.2f} s; the largest process has used {used / 2**20:6.0f} MiB",
                flush=True,
            )
            if name == "recorded":
                size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
                print(f"{'':12} {size / calls:8.1f} bytes for each call", flush=True)


if __name__ == "__main__":
    main()
