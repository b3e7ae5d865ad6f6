"""What does a driver on another host cost, beside the bare command that reaches it? In a running session of this user.

    mpi-runtime session start --name work            # on one host
    python -m benchmarks.far_driver work             # on another one, such as a login node

For each way to the host, `ssh` or `srun`: the time of `python -c pass` by it, and of an echo of 100 bytes through its
streams. Then, for the way that programs use: the time of `init()`, of a call of an actor, and of 100 MB there and back.
The claims are: `init()` takes 0.5 s more than `python -c pass`, and a call 0.3 ms more than an echo and a call there.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy

import mpi_runtime as ray
from mpi_runtime import config as configuration
from mpi_runtime.core.lines.commands import Way, environment_for, ways_to
from mpi_runtime.files import session_files
from mpi_runtime.files.session_files import Session

ROUNDS = 5
TIMES = 300
ECHO = "import os\nwhile data := os.read(0, 4096): os.write(1, data)"
MEGABYTES = 100


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="the name of the session")
    options = parser.parse_args()
    path, session = session_files.all_of(options.name)[0]
    for way in ways_to(session, path, sys.executable):
        try:
            print(f"{way.name}: python -c pass {_seconds_of(way, session):.2f} s")
            print(f"{way.name}: echo of 100 bytes {_echo_ms(way, session):.3f} ms")
        except (OSError, subprocess.CalledProcessError) as error:  # noqa: PERF203  (this way is not open)
            print(f"{way.name}: {error}")
    _measure_driver(options.name)


def _command(way: Way, session: Session, code: str) -> list[str]:
    """The command that runs this code by a way to the session."""
    python = session.python or sys.executable
    at = next(at for at, word in enumerate(way.command) if "session" in word)
    if way.command[0] == "ssh":
        return [*way.command[:at], f"cd / && exec {python} -c '{code}'"]
    return [*way.command[: way.command.index(python)], python, "-c", code]


def _seconds_of(way: Way, session: Session) -> float:
    def run() -> None:
        env = environment_for(configuration.environment())
        subprocess.run(_command(way, session, "pass"), check=True, stdin=subprocess.DEVNULL, env=env)

    return statistics.median(_timed(run) for _ in range(ROUNDS))


def _echo_ms(way: Way, session: Session) -> float:
    env, data = environment_for(configuration.environment()), bytes(99) + b"\n"
    command = _command(way, session, ECHO)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=env) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def echo() -> None:
            stdin.write(data)
            left = len(data)
            while left:
                part = stdout.read(left)
                if not part:
                    raise OSError("the echo has ended")
                left -= len(part)

        echo()
        found = statistics.median(_timed(echo) for _ in range(TIMES)) * 1000
        stdin.close()
    return found


def _measure_driver(name: str) -> None:
    connects = []
    for _ in range(ROUNDS):
        connects.append(_timed(lambda: ray.init(f"session:{name}", quiet=True)))
        ray.shutdown()
    ray.init(f"session:{name}", quiet=True)

    @ray.remote(num_cpus=0)
    class Echo:
        def echo(self, data: bytes) -> bytes:
            return data

        def inside_ms(self, times: int) -> float:
            """The time of a call of an actor on the host of the session."""
            other = Echo.remote()
            ray.get(other.echo.remote(b""))
            return (
                statistics.median(_timed(lambda: ray.get(other.echo.remote(bytes(100)))) for _ in range(times)) * 1000
            )

    actor = Echo.remote()
    ray.get(actor.echo.remote(b""))
    calls = statistics.median(_timed(lambda: ray.get(actor.echo.remote(bytes(100)))) for _ in range(TIMES)) * 1000
    print(f"driver: init() {statistics.median(connects):.2f} s")
    print(f"driver: a call of an actor {calls:.3f} ms")
    print(f"there: a call of an actor {ray.get(actor.inside_ms.remote(TIMES)):.3f} ms")
    values = numpy.random.default_rng(0).random(MEGABYTES * 125_000)
    took = statistics.median(_timed(lambda: ray.get(ray.put(values))) for _ in range(ROUNDS))
    print(f"driver: {MEGABYTES} MB there and back {took:.2f} s")
    ray.shutdown()


def _timed(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
