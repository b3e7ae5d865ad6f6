"""How a job starts where Python lies on a slow file system: what each process asks for, and how long it takes.

python -m benchmarks.slow_files                  # 8 ranks, both ways to start, 0, 1, 2 and 5 ms for each operation
python -m benchmarks.slow_files --ranks 3 --delays 2

All processes load a library (slow_files.c, compiled here) that delays and counts what they ask of the environment's
directories: opening a file, asking whether there is one, listing a directory, loading a library. Nothing is cached, as
if each process were on a node of its own that has never seen these files. What the dynamic linker and the kernel ask
for themselves is not seen. Counts are exact; what delays take is their product; wall times depend on the machine.
"""

import argparse
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.launching import ROOT, environment, json_lines, machine, mpirun
from benchmarks.processes import NAMES

RANKS = 8
DELAYS_MS = (0.0, 1.0, 2.0, 5.0)
WAYS = {"python app.py": (), "python -m mpi_runtime app.py": ("-m", "mpi_runtime")}
SLOT = struct.Struct("i16s8s4i")
SLOTS = 4096
PROGRAM = """
import time
import mpi_runtime

mpi_runtime.init()
assert mpi_runtime.get(mpi_runtime.remote(lambda: 1).remote()) == 1
print('{"at": %f}' % time.time(), flush=True)
"""


class Asked(NamedTuple):
    """What one process has asked for."""

    role: str
    """Driver, head, worker, forkserver, executor, or the name of the program."""
    opened: int
    looked_at: int
    listed: int
    loaded: int

    @property
    def operations(self) -> int:
        """All of it."""
        return self.opened + self.looked_at + self.listed + self.loaded


def slow_files(place: Path, delay_ms: float, below: Sequence[Path] = ()) -> dict[str, str]:
    """Variables with which programs find these directories slow. What they ask for is counted in a file in `place`.

    By default it is where Python, its packages and this checkout lie.

    Raises:
        OSError: there is no C compiler.
        subprocess.CalledProcessError: what it said is on standard error.
    """
    library, counts = place / "slow_files.so", place / "counts"
    if not library.exists():
        source = Path(__file__).with_suffix(".c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    counts.write_bytes(bytes(SLOT.size * SLOTS))
    named = below or [Path(sys.prefix), Path(sys.base_prefix), ROOT]
    directories = dict.fromkeys(str(path) for one in named for path in (one, one.resolve()))
    return {
        "LD_PRELOAD": str(library),
        "SLOW_FILES_BELOW": os.pathsep.join(directories),
        "SLOW_FILES_US": str(round(delay_ms * 1000)),
        "SLOW_FILES_COUNTS": str(counts),
    }


def asked(place: Path) -> list[Asked]:
    """What each process has asked for that was started with these variables."""
    found = []
    for pid, name, rank, *counts in SLOT.iter_unpack((place / "counts").read_bytes()):
        if pid:
            found.append(Asked(_role(name.partition(b"\0")[0].decode(), rank.partition(b"\0")[0].decode()), *counts))
    return found


def _role(name: str, rank: str) -> str:
    if name in NAMES:
        return NAMES[name]
    if name.startswith("python"):
        return "worker" if rank not in ("", "0") else "driver"
    return name


def start(way: Sequence[str], ranks: int, variables: Mapping[str, str], place: Path) -> float:
    """Start a program of so many ranks; seconds from the command to its first result.

    Raises:
        RuntimeError: it did not come to that.
    """
    program = place / "app.py"
    program.write_text(PROGRAM)
    launcher = mpirun(ranks)
    if launcher is None:
        raise RuntimeError("no mpirun beside this Python or on PATH")
    before = time.time()
    command = [*launcher, "env", *(f"{name}={value}" for name, value in variables.items())]
    lines, problem = json_lines([*command, sys.executable, *way, str(program)], timeout_s=300)
    if problem or not lines:
        raise RuntimeError(problem or "nothing was printed")
    return float(lines[0]["at"]) - before


def report(title: str, place: Path) -> None:
    """Print what processes of each kind have asked for, of several the most."""
    processes = asked(place)
    print(f"{title}\n  process        number  opened  looked at  listed  loaded     all")
    for role in dict.fromkeys(one.role for one in processes):
        same = [one for one in processes if one.role == role]
        most = max(same, key=lambda one: one.operations)
        print(
            f"  {role:14} {len(same):6}  {most.opened:6}  {most.looked_at:9}  {most.listed:6}  {most.loaded:6}  "
            f"{most.operations:6}"
        )


def main() -> None:
    """Measure both ways to start."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=RANKS)
    parser.add_argument("--delays", type=float, nargs="+", default=DELAYS_MS, metavar="MS")
    options = parser.parse_args()
    os.environ.update(environment())
    print(f"{machine()}\n")
    for title, way in WAYS.items():
        times = []
        with tempfile.TemporaryDirectory(prefix="mrb-") as name:
            for delay_ms in options.delays:
                place = Path(name)
                first_s = start(way, options.ranks, slow_files(place, delay_ms), place)
                times.append(f"{delay_ms:g} ms: {first_s:.1f} s")
            report(f"mpirun -n {options.ranks} {title}", place)
        print(f"  from the command to the first result, by the delay of each operation: {', '.join(times)}\n")


if __name__ == "__main__":
    main()
