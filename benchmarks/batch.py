"""How many commands per second: `mpi-runtime batch` beside xargs, GNU parallel and what starting a process costs.

    python -m benchmarks.batch                    # 5 000 times `true`, on all processors of this host
    python -m benchmarks.batch --commands 100000  # a long list: also how long it takes until the first one runs
    python -m benchmarks.batch --commands 1000000 --only "mpi-runtime batch"
    python -m benchmarks.batch --turns 4 --commands 1800  # in alternation: CPU beyond the start, for a busy machine

Each line is one program. "start" is the time until the first command has begun, the rest is counted from there.
`posix_spawn` is as many processes as there are processors, each of which starts /bin/sh and waits for it, again and
again, with the output in a file: what cannot be beaten with a shell for each command. GNU parallel is left out if it
is not installed. HyperQueue is measured if an interpreter is named that has its package (`--hyperqueue PYTHON`), with a
server and a worker in one process, by a shell for each command as all others. `--srun N` measures N steps of the Slurm
job in which this runs; their CPU time is that of `srun` alone. CPU is that of everything, the commands
too; on a busy machine it tells more than the time. The package is compiled first: with PYTHONDONTWRITEBYTECODE=1 an
editable installation would be compiled by each process again, which takes a second.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

import mpi_runtime
from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.history.batch_history import FOLDER, Planning
from mpi_runtime.batch.history.journal import BatchJournal
from mpi_runtime.batch.history.keys import key_of
from mpi_runtime.batch.history.results import CommandResult


def spawn(numbers: range, folder: str) -> None:
    """Start commands one after the other."""
    for number in numbers:
        actions = [(os.POSIX_SPAWN_OPEN, 1, f"{folder}/{number}.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)]
        pid = os.posix_spawn("/bin/sh", ["/bin/sh", "-c", command(number)], os.environ, file_actions=actions)
        os.waitpid(pid, 0)


def command(number: int) -> str:
    """What is run; the first one tells when it has begun."""
    return "true" if number else "touch first"


def with_posix_spawn(count: int, processors: int) -> None:
    """As many processes as there are processors."""
    os.mkdir("out")
    parts = [range(first, count, processors) for first in range(processors)]
    workers = [multiprocessing.Process(target=spawn, args=(part, "out")) for part in parts]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def with_xargs(count: int, processors: int) -> None:
    """It keeps no output apart, and no record."""
    words = ["xargs", "-P", str(processors), "-d", "\n", "-I{}", "sh", "-c", "{}"]
    subprocess.run(words, input="\n".join(map(command, range(count))), text=True, check=True)


def with_parallel(count: int, processors: int) -> None:
    """With its record, as the batch has one."""
    words = ["parallel", "--will-cite", "-j", str(processors), "--joblog", "log", "--results", "out"]
    subprocess.run(words, input="\n".join(map(command, range(count))), text=True, check=True, stdout=subprocess.DEVNULL)


def with_batch(count: int, processors: int) -> None:
    """With its record, and a file of output for each."""
    Path("jobs.txt").write_text("\n".join(map(command, range(count))))
    words = [sys.executable, "-m", "mpi_runtime", "batch", "jobs.txt"]
    env = {**os.environ, "MPI_RUNTIME_NUM_CPUS": str(processors), "MPI_RUNTIME_QUIET": "1"}
    subprocess.run(words, check=True, env=env, stderr=subprocess.DEVNULL)


def with_srun(count: int, processors: int) -> None:
    """A step of Slurm for each, as loops in batch scripts have it: to be run within an allocation."""
    words = ["xargs", "-P", str(processors), "-d", "\n", "-I{}", "srun", "-N1", "-n1", "--exact", "sh", "-c", "{}"]
    subprocess.run(words, input="\n".join(map(command, range(count))), text=True, check=True)


HYPERQUEUE = """
import os, sys
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

with LocalCluster(worker_config=WorkerConfig(cores=int(sys.argv[2]))) as cluster:
    job = Job()
    for number in range(int(sys.argv[1])):
        text = "true" if number else "touch " + os.path.abspath("first")
        job.program(["/bin/sh", "-c", text], stdout=os.path.abspath(f"{number}.out"), stderr=None)
    client = cluster.client()
    client.wait_for_jobs([client.submit(job)])
"""


def with_hyperqueue(python: str, count: int, processors: int) -> None:
    """Without a journal, with a file of output for each."""
    words = [python, "-c", HYPERQUEUE, str(count), str(processors)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


WAYS: dict[str, Callable[[int, int], None]] = {
    "posix_spawn": with_posix_spawn,
    "xargs -P": with_xargs,
    "GNU parallel": with_parallel,
    "mpi-runtime batch": with_batch,
}


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batch")
    parser.add_argument("--commands", type=int, default=5_000)
    parser.add_argument("--hyperqueue", metavar="PYTHON", help="an interpreter that has the package hyperqueue")
    parser.add_argument("--srun", type=int, default=0, metavar="N", help="also N steps of Slurm, in an allocation; 0")
    parser.add_argument(
        "--turns", type=int, default=0, help="alternate so often, and print medians of CPU time alone; 0"
    )
    parser.add_argument("--only", choices=WAYS, help="measure this one alone, as --commands 1000000 needs")
    options = parser.parse_args()
    compileall.compile_dir(os.path.dirname(mpi_runtime.__file__), quiet=2)  # as pip does when it installs
    count = options.commands
    spent_us, size = journal_us(20_000)
    print(f"{'the journal':20} {spent_us:.0f} us of CPU and {size} bytes for each command")
    processors = len(os.sched_getaffinity(0))
    ways = {name: run for name, run in WAYS.items() if options.only in (None, name)}
    if options.hyperqueue:
        ways["HyperQueue"] = partial(with_hyperqueue, os.path.abspath(options.hyperqueue))
    if options.turns:
        in_turns(ways, count, processors, options.turns)
        return
    counts = dict.fromkeys(ways, count)
    if options.srun:
        ways["srun"], counts["srun"] = with_srun, options.srun
    for name, run in ways.items():
        count = counts.get(name, options.commands)
        if name == "GNU parallel" and shutil.which("parallel") is None:
            print(f"{name:20} is not installed")
            continue
        with folder_of_its_own(name):
            before, begin_s = cpu_s(), time.time()
            run(count, processors)
            end_s, used_s = time.time(), cpu_s() - before
            first_s = os.stat("first").st_mtime
        rate = count / (end_s - first_s)
        print(
            f"{name:20} start {first_s - begin_s:6.2f} s, {rate:8.0f} commands/s, {1e3 * used_s / count:6.2f} ms of CPU"
        )


def in_turns(ways: dict[str, Callable[[int, int], None]], count: int, processors: int, turns: int) -> None:
    """Print the CPU time of a command, in all and beyond the start: what so many cost more than a sixth of them."""
    few = count // 6
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, run in ways.items():
            if name == "GNU parallel":
                continue
            used = []
            for number in (few, count):
                with folder_of_its_own(name):
                    before = cpu_s()
                    run(number, processors)
                    used.append(cpu_s() - before)
            found[name].append((used[1] / count, (used[1] - used[0]) / (count - few)))
    print(f"load average {os.getloadavg()[0]:.1f} on {processors} processors")
    for name, spent in found.items():
        if spent:
            whole, beyond = (1e3 * median(column) for column in zip(*spent, strict=True))
            print(f"{name:20} {whole:6.2f} ms of CPU for each of {count}, {beyond:6.2f} beyond the start")


@contextlib.contextmanager
def folder_of_its_own(name: str) -> Iterator[None]:
    """Be in a new folder, in memory if there is `/dev/shm`. It stays until this process ends.

    For minutes after many files were deleted ext4 takes long to make one: it looks for an inode that was not in use
    just before. So who comes next would pay for what others have deleted.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.TemporaryDirectory(prefix=name.replace(" ", "-"), dir=memory)
    _folders.append(folder)
    os.chdir(folder.name)
    try:
        yield
    finally:
        os.chdir("/")


_folders: list[tempfile.TemporaryDirectory[str]] = []


def journal_us(count: int) -> tuple[float, int]:
    """What the record of a batch costs for each command, in microseconds of CPU, and its bytes.

    One write for each command that ends, as where commands are long: the dearest case.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(BatchJournal(folder)) as journal:
        commands = [Command(text="python train.py --seed {i}", name=f"train.{one}") for one in range(count)]
        journal.plan(Planning([Group("train", tuple(commands), is_array=True)]))
        journal.turn()
        before, size = cpu_s(), _size(folder)
        for command_of in commands:
            key = key_of(command_of, [])
            number = journal.next_number()
            journal.began(command_of.name, number)
            result = CommandResult(
                name=command_of.name, command="python train.py --seed 1", exit_code=0, is_success=True, start=1e9,
                end=1e9 + 1, host="node1", cpu_time=1.0, peak_memory=1 << 20, stdout=f"{folder}/{command_of.name}.out",
            )  # fmt: skip
            journal.ended(command_of, key, result, number)
            journal.turn()
        return 1e6 * (cpu_s() - before) / count, (_size(folder) - size) // count


def _size(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder, FOLDER).iterdir())


def cpu_s() -> float:
    """CPU time of this process and of all that have ended below it."""
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


if __name__ == "__main__":
    main()
