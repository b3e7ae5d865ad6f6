"""The task of a command with several ranks, on each member of its gang: the member's agent answers the program's MPI.

1. Each rank runs the whole line in a shell of its own. Only rank 0 has the command's standard input.
2. Each rank sends its output in whole lines to rank 0, which writes it: no two processes write to one file. Lines that
   arrive at the same time are in the order of ranks.
3. A rank that fails raises; then the others have `GRACE_S` to end before they are killed. So the command has the end of
   the rank that failed first.
4. A rank whose program succeeds must also have started MPI and finalized it. With an MPI library that does not
   understand how it was started, each rank would be a program of its own, and all would succeed.
5. When all programs have ended, the ranks meet, and rank 0 returns the result. The next command finds the same members.

With a launcher (`launch_lines.py`), rank 0 runs that, and the others hold their resources until it has ended.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock, Thread, Timer

import msgspec

from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.text import SELF
from mpi_runtime.batch.run.launch_lines import LaunchProblemError, Where, environment_of, line_of
from mpi_runtime.batch.run.program import Ending, not_started, open_outputs, run_program
from mpi_runtime.extend import (
    NAME,
    PMI1,
    PMIX,
    SHOWN_BY,
    VARIABLE,
    AgentLostError,
    Status,
    abort_s,
    children,
    kill_group,
    member,
)

HOLD_S = 0.1
"""Lines that arrive within this time are written in the order of their ranks."""
HELD_BYTES_MAX = 1 << 20
"""More than this is not held."""


class Ordered:
    """Holds lines for a moment. What a rank sends to one stream keeps its order."""

    def __init__(self, write: Callable[[int, bytes], None]) -> None:
        """Hold nothing yet. `write`: writes lines to a stream of the command."""
        self._write = write
        self._lock = Lock()
        self._held: list[tuple[int, int, bytes]] = []
        self._bytes = 0
        self._timer: Timer | None = None
        self.error: OSError | None = None
        """The first error of `write`: lines are lost."""

    def take(self, stream: int, data: bytes, rank: int) -> None:
        """Take lines of a rank for a stream."""
        with self._lock:
            self._held.append((rank, stream, data))
            self._bytes += len(data)
            is_much = self._bytes > HELD_BYTES_MAX
            if self._timer is None and not is_much:
                self._timer = Timer(HOLD_S, self.flush)
                self._timer.daemon = True
                self._timer.start()
        if is_much:
            self.flush()

    def flush(self) -> None:
        """Write what is held, or keep the error."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            held, self._held, self._bytes, self._timer = self._held, [], 0, None
            try:
                for _, stream, data in sorted(held, key=lambda one: one[0]):
                    self._write(stream, data)
            except OSError as error:
                self.error = self.error or error


GRACE_S = 1.0
LAST_LINES_S = 0.3
"""Seconds that rank 0 takes output of others after its own program has failed. Others wait as long: the failure that
follows from that of rank 0 must not be reported first."""
READ_BYTES = 1 << 16
LINE_BYTES_MAX = 1 << 20
"""A line longer than this is sent in pieces."""
_SPEAKS = {PMI1: "PMI-1, which MPICH speaks", PMIX: "PMIx, which Open MPI speaks", "": "no protocol"}


class Rank:
    """This process as a rank of a command."""

    def __init__(self) -> None:
        """Find the place of this process in its gang, and prepare for a program. All ranks call this."""
        assert member.current is not None
        self._member = member.current
        place = self._member.place
        self.number, self.size = place.rank, place.size
        counts = {name: place.hosts.count(index) for index, name in enumerate(place.names)}
        self.host = place.names[place.hosts[place.rank]]
        self.hosts = ",".join(f"{name}:{count}" for name, count in counts.items())
        self.line = self._member.line
        self._files: tuple[int, int] | None = None
        self._ordered = Ordered(self._write)
        self._aborted: tuple[int, str] | None = None
        self._member.begin_program()

    def values(self) -> dict[str, str]:
        """The values of its placeholders."""
        path = f"/proc/{os.getpid()}/fd/{_host_file()}"
        return {"ranks": str(self.size), "rank": str(self.number), "hosts": self.hosts, "hostfile": path}

    def run(self, program: Command, env: Mapping[str, str], cpus: Sequence[int], is_own: bool) -> Ending:
        """Run the program of this rank to its end, and wait for the others if it succeeds.

        The arguments are those of `run_program`, with the values of this rank. Return the end of this rank; on rank 0
        the end of all. With a `problem` that makes it a failure.
        """
        env = {name: text for name, text in env.items() if name != VARIABLE}
        if program.launcher:
            return self._launch(program, env, is_own)
        if "PMI_FD" in env:
            os.set_inheritable(int(env["PMI_FD"]), True)
        opened: list[int] = []
        try:
            if self.number == 0:
                self._files = open_outputs(program, is_own, opened)
            else:
                program = msgspec.structs.replace(program, stdin="")
            self.line.serve(self._ordered.take, self._on_abort)
            with self._forwarded(program.stdout != program.stderr) as outputs:
                ending = run_program(program, env, cpus, is_own, outputs)
            status = self.line.status()  # behind the report of an abort, if there was one
            if self._aborted is not None and not ending.problem:
                code, text = self._aborted
                if len(self._member.place.names) > 1:  # the rank that failed first may be on another node
                    time.sleep(abort_s(code))
                problem = f"MPI_Abort with code {code}{text and ': '}{text}"
                ending = msgspec.structs.replace(
                    ending, exit_code=code & 255, signal=None, problem=problem, has_aborted=True
                )
            return self._ended(program, ending, status)
        except OSError as error:
            return not_started(error, time.time())
        finally:
            self._ordered.flush()
            self._files = None
            for descriptor in opened:
                os.close(descriptor)

    def any_of_all(self, one: bool) -> bool:
        """Whether this is true on any rank. All ranks call this."""
        return b"1" in self.line.meet(b"%d" % one)

    def counts(self, program: Command) -> bool:
        """Whether the end that this rank has seen is one of its own. A launcher runs on rank 0."""
        return not program.launcher or self.number == 0

    def _launch(self, program: Command, env: Mapping[str, str], is_own: bool) -> Ending:
        """Have the launcher of a command start its ranks, on rank 0; on others wait. All return the same end."""
        self._member.must_end = True  # the agents kill what a launcher leaves when the gang has ended
        self.line.launch()
        shown = {name: env[name] for name in SHOWN_BY if name in env}
        own = Where(self.host, env.get("SLURMD_NODENAME", self.host), shown)
        parts = self.line.meet(msgspec.msgpack.encode(own))
        places = [msgspec.msgpack.decode(part, type=Where) for part in parts]
        ending = self._run_launcher(program, env, is_own, places) if self.number == 0 else None
        return msgspec.msgpack.decode(self.line.meet(msgspec.msgpack.encode(ending))[0], type=Ending)

    def _run_launcher(self, program: Command, env: Mapping[str, str], is_own: bool, places: Sequence[Where]) -> Ending:
        os.write(_host_file(), "".join(f"{one.node}\n" for one in places).encode())
        env = environment_of(env, max(1, int(program.num_cpus)))
        try:
            line = line_of(program, places, self.values()["hostfile"], env, NAME)
        except LaunchProblemError as error:
            return not_started(error, time.time())
        ending = run_program(msgspec.structs.replace(program, text=line), env, (), is_own)
        if ending.exit_code not in program.success_codes and program.launcher != SELF:
            tried = line.removeprefix("exec ").partition(" env ")[0]
            with contextlib.suppress(OSError), open(program.stderr, "a") as file:
                file.write(f"mpi-runtime: the launcher of ranks on {self.hosts} has failed: {tried} ...\n")
        return ending

    def _ended(self, program: Command, ending: Ending, status: Status) -> Ending:
        is_success = not ending.problem and ending.exit_code in program.success_codes
        if is_success:
            self._member.must_end = status.is_initialised and not status.is_finalized
            problem = problem_of(status, self.number, self.size) if program.mpi else ""
            ending = msgspec.structs.replace(ending, problem=problem)
            is_success = not problem
        if not is_success:
            self._take_last_lines()
            return ending
        parts = self.line.meet(msgspec.msgpack.encode(ending))
        endings = [msgspec.msgpack.decode(part, type=Ending) for part in parts]
        self._ordered.flush()
        if (error := self._ordered.error) is not None:
            # The programs do not notice it: they write to pipes.
            ending = msgspec.structs.replace(
                ending, problem=f"its output could not be written: {error.strerror} ({program.stdout} is incomplete)"
            )
        return msgspec.structs.replace(
            ending,
            cpu_time=sum(one.cpu_time for one in endings),
            peak_memory=max(one.peak_memory for one in endings),
            end=max(one.end for one in endings),
        )

    def _take_last_lines(self) -> None:
        end_s = time.monotonic() + LAST_LINES_S
        while (left_s := end_s - time.monotonic()) > 0:
            if select.select([self.line] if self.number == 0 else [], [], [], left_s)[0]:
                self.line.look()

    def _on_abort(self, code: int, text: str) -> None:
        self._aborted = code, text
        for pid in children():
            kill_group(pid)

    def _write(self, stream: int, data: bytes) -> None:
        if self._files is not None:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._files[stream - 1], rest) :]

    @contextlib.contextmanager
    def _forwarded(self, is_two: bool) -> Iterator[tuple[int, int]]:
        """Descriptors for the outputs of a program: what it writes is sent to rank 0 in whole lines."""
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(1 + is_two)]
        sources = {read: stream for stream, (read, _) in enumerate(pipes, 1)}
        thread = Thread(target=self._forward, args=(sources,), name="mpi_runtime lines", daemon=True)
        thread.start()
        try:
            yield pipes[0][1], pipes[-1][1]
        finally:
            for _, write in pipes:
                os.close(write)
            thread.join()
            for read, _ in pipes:
                os.close(read)

    def _forward(self, sources: dict[int, int]) -> None:
        """Read the outputs until they end; on rank 0 write those of others meanwhile."""
        rests = dict.fromkeys(sources, b"")
        with contextlib.suppress(AgentLostError, OSError):  # then this process ends soon
            while sources:
                line = self.line.fileno()
                ready, _, _ = select.select([*sources, line], [], [])
                if line in ready:
                    self.line.look()
                for read in sources.keys() & ready:
                    data = os.read(read, READ_BYTES)
                    whole, newline, rest = (rests[read] + data).rpartition(b"\n")
                    if len(rest) > LINE_BYTES_MAX or (rest and not data):
                        whole, newline, rest = whole + newline + rest, b"\n", b""
                    rests[read] = rest
                    if newline:
                        self.line.send(sources[read], whole + newline)
                    if not data:
                        del sources[read]


@functools.cache
def _host_file() -> int:
    """A file for the hosts of the gang. It needs no directory, and ends with this process."""
    return os.memfd_create("hosts")


def problem_of(status: Status, rank: int, size: int) -> str:
    """Why a program that has ended with success has failed all the same; empty: it has not."""
    who = f"rank {rank} of {size}"
    if status.is_finalized:
        return ""
    if status.is_initialised:
        return f"{who} has called MPI_Init, and ended without MPI_Finalize"
    if status.problem:
        return f"{who} could not start MPI: {status.problem}. If it is not an MPI program, set mpi to false"
    return (
        f"{who} has not called MPI_Init of the MPI for which it was started, by {_SPEAKS[status.protocol]}. If its MPI "
        f"speaks {_SPEAKS[PMIX if status.protocol == PMI1 else PMI1]}, each rank was a world of its own: build it with "
        "the MPI that mpi4py loads here, or set launcher to the mpiexec of its own MPI, or to 'srun'. If it does not "
        "use MPI, set mpi to false"
    )
