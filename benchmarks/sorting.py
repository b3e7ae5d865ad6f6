"""Sort more than shared memory has room for, on this runtime and on Ray: `python -m benchmarks.sorting`.

    python -m benchmarks.sorting [--megabytes 2000] [--store 400] [--rounds 3] [--peer PYTHON] [--directory DIR]

The same program for both (`PROGRAM`): blocks are drawn, sorted and cut, pieces merged, parts looked at. `--peer` is an
interpreter that has Ray. The two take turns; a line for each run, then the medians in GB/s of input. The disk's own
speed is measured with `dd` in the same directory.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = """
import sys, time
import numpy as np
import {module} as ray

megabytes, store, cpus, directory = int(sys.argv[1]), int(sys.argv[2]) * 1_000_000, int(sys.argv[3]), sys.argv[4]
BLOCK = 8_000_000 // 8
BLOCKS = PARTS = megabytes // 8
if ray.__name__ == "ray":
    ray.init(num_cpus=cpus, object_store_memory=store, object_spilling_directory=directory, log_to_driver=False,
             include_dashboard=False)
else:
    ray.init(num_cpus=cpus, object_store_memory=store, object_spilling_directory=directory)

@ray.remote(num_returns=PARTS)
def cut(seed):
    block = np.sort(np.random.default_rng(seed).integers(0, 1 << 63, BLOCK, dtype=np.uint64))
    edges = np.searchsorted(block, np.array([(part << 63) // PARTS for part in range(1, PARTS)], np.uint64))
    return tuple(np.split(block, edges))

@ray.remote
def merge(*pieces):
    return np.sort(np.concatenate(pieces), kind="stable")

@ray.remote
def look(part):
    assert bool((part[:-1] <= part[1:]).all())
    return int(part[0]), int(part[-1]), len(part)

@ray.remote
def empty():
    pass

ray.get([empty.remote() for _ in range(100)])
started = time.perf_counter()
rows = [cut.remote(seed) for seed in range(BLOCKS)]
merged = [merge.remote(*(row[part] for row in rows)) for part in range(PARTS)]
del rows
seen = ray.get([look.remote(part) for part in merged])
took_s = time.perf_counter() - started
assert all(before[1] <= after[0] for before, after in zip(seen, seen[1:]))
assert sum(count for *_, count in seen) == BLOCKS * BLOCK
print(took_s)
"""


def run(python: str, module: str, arguments: argparse.Namespace, directory: str) -> float:
    """Seconds that it takes."""
    with tempfile.TemporaryDirectory(dir=directory) as place:
        program = Path(place) / "program.py"
        program.write_text(PROGRAM.replace("{module}", module))
        words = [str(arguments.megabytes), str(arguments.store), str(arguments.cpus), place]
        done = subprocess.run([python, program, *words], capture_output=True, text=True, timeout=arguments.limit)
    if done.returncode:
        raise SystemExit(f"{module} failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def disk(megabytes: int, directory: str) -> tuple[float, float]:
    """Seconds to write so much to a file, to the end, and to read it, past the page cache."""
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        times = []
        for words in (
            ["if=/dev/zero", f"of={file.name}", "conv=fdatasync,notrunc"],
            [f"if={file.name}", "of=/dev/null", "iflag=direct"],
        ):
            started = time.perf_counter()
            subprocess.run(["dd", *words, "bs=8M", f"count={megabytes // 8}"], check=True, capture_output=True)
            times.append(time.perf_counter() - started)
    return times[0], times[1]


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=int, default=2000, help="of numbers (default 2000)")
    parser.add_argument("--store", type=int, default=400, help="megabytes of shared memory (default 400)")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", help="an interpreter that has Ray")
    parser.add_argument("--directory", default="/tmp", help="on the disk that is to be used (default /tmp)")
    parser.add_argument("--limit", type=float, default=1200, help="seconds for one run (default 1200)")
    arguments = parser.parse_args()
    systems = {"mpi_runtime": sys.executable} | ({"ray": arguments.peer} if arguments.peer else {})
    times: dict[str, list[float]] = {name: [] for name in systems}
    size = arguments.megabytes / 1000
    for _ in range(arguments.rounds):
        for name, python in systems.items():
            times[name].append(run(python, name, arguments, arguments.directory))
            print(f"{name:12} {times[name][-1]:7.2f} s, {size / times[name][-1]:.3f} GB/s", flush=True)
        written_s, read_s = disk(arguments.megabytes, arguments.directory)
        print(f"disk alone: writes {size / written_s:.3f} GB/s, reads {size / read_s:.3f} GB/s", flush=True)
    medians = {name: statistics.median(each) for name, each in times.items()}
    for name, median in medians.items():
        print(f"{name:12} median {median:7.2f} s, {size / median:.3f} GB/s")
    if "ray" in medians:
        print(f"ratio of speeds {medians['ray'] / medians['mpi_runtime']:.2f}")


if __name__ == "__main__":
    main()
