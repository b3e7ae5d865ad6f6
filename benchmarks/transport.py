"""How close does the transport come to bare MPI, and what does it cost to sleep?

Two ranks, on one host or across two; more ranks only idle, which the last part measures:

    mpirun -n 2 python benchmarks/transport.py [megabytes ...]

Bare mpi4py (blocking calls for small messages; one Isend or Irecv and Wait for large ones) and the transport in the
loop of a rank process take turns in the same run. Rank 0 prints.
"""

from __future__ import annotations

import mmap
import select
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mpi_runtime.core.transport.base import Transfer
from mpi_runtime.core.transport.mpi import MpiTransport

ROUND_TRIPS = 1000
STREAM = 20_000
ROUNDS = 15
VOLUME = 64 << 20
"""Bytes that are moved in one round, so that small transfers are measured as long as large ones."""
IDLE_S = 5.0


class Loop:
    """The loop of a rank process."""

    def __init__(self, transport: MpiTransport) -> None:
        self.transport = transport
        self.turns = 0
        self._descriptors = [] if transport.fileno() < 0 else [transport.fileno()]

    def run_until(self, reached: Callable[[int], bool]) -> None:
        """Turn until it is reached, which is asked with the number of frames that have come."""
        transport, came, active = self.transport, 0, time.monotonic()
        while not reached(came):
            self.turns += 1
            frames = transport.receive()
            if frames:
                came += len(frames)
                active = time.monotonic()
                continue
            limit = transport.prepare_sleep(time.monotonic() - active)
            select.select(self._descriptors, [], [], limit)
            transport.wake()

    def take(self, count: int) -> None:
        """Turn until so many frames have come."""
        self.run_until(lambda came: came >= count)

    def finish(self, transfer: Transfer) -> None:
        """Turn until it is done."""
        self.run_until(lambda _: transfer.done())


def print_first(transport: MpiTransport, text: str) -> None:
    """Print on rank 0."""
    if transport.rank == 0:
        print(text, flush=True)


def round_trips(loop: Loop) -> None:
    """A frame of 100 bytes there and back: bare, with the loop, and when both have slept for a while."""
    from mpi4py import MPI

    transport, world, frame = loop.transport, MPI.COMM_WORLD, bytearray(100)
    other = 1 - transport.rank

    def bare() -> None:
        if transport.rank == 0:
            world.Send(frame, other)
            world.Recv(frame, other)
        else:
            world.Recv(frame, other)
            world.Send(frame, other)

    def ours() -> None:
        if transport.rank == 0:
            transport.send(other, frame)
            loop.take(1)
        else:
            loop.take(1)
            transport.send(other, frame)

    for name, once, pause_s, count in (
        ("bare", bare, 0.0, ROUND_TRIPS),
        ("transport", ours, 0.0, ROUND_TRIPS),
        ("transport, asleep before", ours, 0.01, ROUND_TRIPS // 5),
    ):
        times, cpu_s = [], 0.0
        for _ in range(count):
            if transport.rank == 0:
                time.sleep(pause_s)
            cpu, started = time.process_time(), time.perf_counter()
            once()
            times.append(time.perf_counter() - started)
            cpu_s += time.process_time() - cpu
        middle, cpu_us = statistics.median(times) * 1e6, cpu_s / count * 1e6
        print_first(transport, f"round trip, {name:25} {middle:7.1f} us (median), CPU {cpu_us:6.1f} us on rank 0")


def stream(loop: Loop) -> None:
    """Many frames one way: what one costs on either side."""
    transport, frame = loop.transport, bytes(200)
    cpu, started = time.process_time(), time.perf_counter()
    if transport.rank == 0:
        for _ in range(STREAM):
            transport.send(1, frame)
            transport.receive()
        transport.send(1, b"all")
        loop.take(1)
    else:
        loop.take(STREAM + 1)
        transport.send(0, b"all")
    wall_us = (time.perf_counter() - started) / STREAM * 1e6
    cpu_us = (time.process_time() - cpu) / STREAM * 1e6
    print(f"stream of frames: {wall_us:.1f} us for each, CPU {cpu_us:.1f} us on rank {transport.rank}", flush=True)


def bandwidth(loop: Loop, megabytes: int) -> None:
    """From rank 0 to rank 1: bare and ours in turns."""
    from mpi4py import MPI

    transport, world, size = loop.transport, MPI.COMM_WORLD, megabytes << 20
    buffer = memoryview(mmap.mmap(-1, size))
    buffer[:] = bytes(size)
    repeats = max(1, VOLUME // size)

    def bare() -> None:
        (world.Isend(buffer, 1) if transport.rank == 0 else world.Irecv(buffer, 0)).Wait()

    def ours() -> None:
        loop.finish(transport.send_bulk(1, 0, buffer) if transport.rank == 0 else transport.receive_bulk(0, 0, buffer))

    rates: dict[str, list[float]] = {"bare": [], "ours": []}
    for _ in range(ROUNDS):
        for name, once in (("bare", bare), ("ours", ours)):
            world.Barrier()
            started = time.perf_counter()
            for _ in range(repeats):
                once()
            world.Barrier()
            rates[name].append(repeats * size / (time.perf_counter() - started) / 1e9)
    # Of neighbours in time: what else the machine does falls on both.
    ratio = statistics.median(our / its for our, its in zip(rates["ours"], rates["bare"], strict=True))
    print_first(
        transport,
        f"{megabytes:5} MB: bare {statistics.median(rates['bare']):5.2f} GB/s (best {max(rates['bare']):5.2f}), "
        f"transport {statistics.median(rates['ours']):5.2f} GB/s (best {max(rates['ours']):5.2f}), ratio {ratio:.2f}",
    )


def idle(loop: Loop) -> None:
    """What all ranks together cost when nothing happens."""
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()
    end, cpu, loop.turns = time.monotonic() + IDLE_S, time.process_time(), 0
    loop.run_until(lambda _: time.monotonic() > end)
    total = MPI.COMM_WORLD.allreduce((time.process_time() - cpu) / IDLE_S * 100)
    turns = f"{loop.turns / IDLE_S:.0f} turns a second on rank 0"
    print_first(loop.transport, f"idle, {loop.transport.size} ranks: {total:.2f} % of one core together, {turns}")


def main() -> None:
    """Measure."""
    transport = MpiTransport()
    loop = Loop(transport)
    from mpi4py import MPI

    version = MPI.Get_library_version().split(",")[0].splitlines()[0]
    print_first(transport, f"{version}; ranks on {', '.join(transport.hostnames)}")
    if transport.size == 2:
        round_trips(loop)
        stream(loop)
        for megabytes in [int(argument) for argument in sys.argv[1:]] or [1, 16, 100]:
            bandwidth(loop, megabytes)
    idle(loop)
    transport.close(clean=True)


if __name__ == "__main__":
    main()
