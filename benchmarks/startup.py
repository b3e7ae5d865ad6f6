"""How long it takes from `init()` to the first result, what is read for it, and what a job costs that does nothing.

python -m benchmarks.startup               # plainly, and with 8 ranks
python -m benchmarks.startup --rounds 9 --idle 10
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

from benchmarks.launching import emit, environment, json_lines, machine, mpirun
from benchmarks.processes import cpu_seconds_of, roles

RANKS = 8
START_S = {1: 0.7, RANKS: 2.5}
"""What the time from `init()` to the first result should be under, by the number of ranks."""
IDLE_SHARE = 0.02
"""What an idle job of 8 ranks should use of one core, all its processes together, less than."""
SETTLE_S = 1.0
IMPORTING = """
import sys
import mpi_runtime

def from_files():
    specs = [getattr(module, "__spec__", None) for module in list(sys.modules.values())]
    return sum(spec is not None and spec.has_location for spec in specs)

mpi_runtime.init()
executor = mpi_runtime.get(mpi_runtime.remote(from_files).remote())
print('{"driver": %d, "executor": %d}' % (from_files(), executor), flush=True)
"""
"""A program that counts the modules that Python has read from files."""


def one() -> int:
    """The first task."""
    return 1


def measure(under_mpi: bool, idle_s: float) -> None:
    """Be the program that is measured: start, have a result, and be idle for a while if asked."""
    import mpi_runtime

    started = time.perf_counter()
    mpi_runtime.init()
    initialised_s = time.perf_counter() - started
    assert mpi_runtime.get(mpi_runtime.remote(one).remote()) == 1
    first_s = time.perf_counter() - started
    emit(init=initialised_s, first=first_s, cpu=cpu_seconds_of(roles(under_mpi)))
    if idle_s:
        time.sleep(SETTLE_S)
        job = roles(under_mpi)  # found before, so that looking for them is not counted
        before, slept_from = cpu_seconds_of(job), time.perf_counter()
        time.sleep(idle_s)
        slept_s, after = time.perf_counter() - slept_from, cpu_seconds_of(job)
        emit(idle={role: (after[role] - before[role]) / slept_s for role in after})
    mpi_runtime.shutdown()


def report_start(title: str, ranks: int, command: list[str], rounds: int) -> None:
    """Start the measured program again and again, and print medians."""
    inits, firsts, wholes, cpus = [], [], [], []
    for _ in range(rounds):
        started = time.perf_counter()
        lines, problem = json_lines([*command, "0"], timeout_s=60)
        if problem or not lines:
            print(f"{title}: no figures: {problem or 'nothing was printed'}")
            return
        wholes.append(time.perf_counter() - started)
        inits.append(lines[0]["init"])
        firsts.append(lines[0]["first"])
        cpus.append(lines[0]["cpu"])
    first = statistics.median(firsts)
    print(f"{title}, median of {rounds} (lowest - highest)")
    print(f"  init()                      {statistics.median(inits):6.2f} s  ({min(inits):.2f} - {max(inits):.2f})")
    print(
        f"  init() to first result      {first:6.2f} s  ({min(firsts):.2f} - {max(firsts):.2f})  "
        f"goal: under {START_S[ranks]} s, {'met' if first < START_S[ranks] else 'MISSED'}"
    )
    used = min(cpus, key=lambda by_role: sum(by_role.values()))
    parts = ", ".join(f"{role} {seconds:.2f}" for role, seconds in sorted(used.items()))
    print(f"  CPU time until then         {sum(used.values()):6.2f} s  (the least of all rounds: {parts})")
    print(f"  the command, start to end   {statistics.median(wholes):6.2f} s  ({min(wholes):.2f} - {max(wholes):.2f})")


def report_idle(title: str, command: list[str], idle_s: float) -> None:
    """Print what each kind of process of an idle job uses of one core."""
    lines, problem = json_lines([*command, str(idle_s)], timeout_s=60 + idle_s)
    shares = next((line["idle"] for line in lines if "idle" in line), None)
    if shares is None:
        print(f"{title}: no figures: {problem or 'nothing was printed'}")
        return
    total = sum(shares.values())
    parts = ", ".join(f"{role} {share:.2%}" for role, share in sorted(shares.items()) if share >= 0.0001)
    verdict = "met" if total < IDLE_SHARE else "MISSED"
    print(f"{title}, idle for {idle_s:g} s: {total:.2%} of one core; goal: under {IDLE_SHARE:.0%}, {verdict}")
    print(f"  {parts or 'no process used as much as 0.01 %'}")


def report_imports(launcher: str) -> None:
    """Print how many modules are read from files: what a slow shared file system is asked for, several times each."""
    # A worker runs none of the program after `init()`: Python itself tells what it and its forkserver import.
    command = [launcher, "-n", "1", sys.executable, "-c", IMPORTING, ":"]
    command += ["-n", "1", sys.executable, "-v", "-c", IMPORTING]
    try:
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=True)
    except subprocess.SubprocessError as error:
        print(f"modules read from files: no figures: {error}")
        return
    counts = json.loads(done.stdout.splitlines()[-1])
    read = [line for line in done.stderr.splitlines() if line.startswith("import '") and "FileLoader" in line]
    different = len({line.split("'")[1] for line in read})
    print("modules read from files, those of Python itself among them")
    print(f"  a worker and the forkserver of its executors  {len(read):4}, {different} different ones")
    print(f"  in the memory of an executor                  {counts['executor']:4}")
    print(f"  in the memory of the driver                   {counts['driver']:4}")


def main() -> None:
    """Measure both ways to start."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often the job is started (5)")
    parser.add_argument("--idle", type=float, default=5.0, help="for how many seconds it is watched idle (5)")
    parser.add_argument("--measure", nargs=2, metavar=("HOW", "IDLE_S"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure[0] == "mpi", float(options.measure[1]))
        return
    print(f"{machine()}\n")
    again = [sys.executable, "-m", "benchmarks.startup", "--measure"]
    ways = [("python app.py", 1, [*again, "plain"])]
    launcher = mpirun(RANKS)
    if launcher:
        report_imports(launcher[0])
        ways.append((f"mpirun -n {RANKS} python app.py", RANKS, [*launcher, *again, "mpi"]))
    else:
        print("mpirun: not found beside this Python or on PATH")
    for title, ranks, command in ways:
        report_start(title, ranks, command, options.rounds)
        report_idle(title, command, options.idle)


if __name__ == "__main__":
    main()
