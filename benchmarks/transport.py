"""How close does the transport come to bare MPI, and what does it cost to sleep?

Run it on two ranks, on one host or across two (further ranks only idle, which the last part measures):

    mpirun -n 2 python benchmarks/transport.py [megabytes ...]

Everything is measured side by side in one run: bare mpi4py (Isend and Irecv of one message, waited for by Waitall)
against the transport in the loop of a rank process. Rank 0 prints.
"""

from __future__ import annotations

import os
import select
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mpi_runtime.transport.base import Transfer, Transport
from mpi_runtime.transport.mpi import MpiTransport

ROUNDS = 5
IDLE_S = 5.0


class Loop:
    """The loop of a rank process, with the CPU time of its turns left to the caller."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.descriptors = [] if transport.fileno() < 0 else [transport.fileno()]
        self.turns = 0
        self.last: list[tuple[int, bytes]] = []

    def run_until(self, reached: Callable[[], bool]) -> list[tuple[int, bytes]]:
        """Turn until it is reached; returns the frames that came."""
        transport = self.transport
        came: list[tuple[int, bytes]] = []
        active = time.monotonic()
        while not reached():
            self.turns += 1
            frames = transport.receive()
            if frames:
                came += [(source, bytes(frame)) for source, frame in frames]
                self.last = came
                active = time.monotonic()
                continue
            limit = transport.prepare_sleep(time.monotonic() - active)
            select.select(self.descriptors, [], [], limit)
            transport.wake()
        return came

    def frames(self, count: int) -> list[tuple[int, bytes]]:
        """Turn until so many frames have come."""
        self.last = []
        return self.run_until(lambda: len(self.last) >= count)

    def transfer(self, transfers: list[Transfer]) -> None:
        """Turn until all of them are done."""
        self.run_until(lambda: not sum(not transfer.done() for transfer in transfers))


def say(transport: Transport, text: str) -> None:
    """Print on rank 0."""
    if transport.rank == 0:
        print(text, flush=True)


def round_trips(loop: Loop) -> None:
    """A frame of 100 bytes there and back: bare, awake, and with both ranks asleep before each."""
    from mpi4py import MPI

    transport = loop.transport
    world, frame, count = MPI.COMM_WORLD, bytearray(100), 3000
    other = 1 - transport.rank

    def bare() -> None:
        for turn in range(2):
            if turn == transport.rank:
                world.Send(frame, other, 9)
            else:
                world.Recv(frame, other, 9)

    def ours() -> None:
        for turn in range(2):
            if turn == transport.rank:
                transport.send(other, frame)
            else:
                loop.frames(1)

    def asleep() -> None:
        if transport.rank == 0:
            time.sleep(0.005)
        ours()

    for name, once, repeats in (("bare", bare, count), ("transport", ours, count), ("transport, asleep", asleep, 200)):
        times, cpu = [], time.process_time()
        for _ in range(repeats):
            started = time.perf_counter()
            once()
            times.append(time.perf_counter() - started)
        cpu = (time.process_time() - cpu) / repeats
        middle = statistics.median(times) - (0.005 if once is asleep else 0)
        say(transport, f"round trip, {name:18} {middle * 1e6:8.1f} us (median), CPU {cpu * 1e6:6.1f} us on rank 0")


def stream(loop: Loop) -> None:
    """Many frames one way, taken in the loop: cost of one frame on either side."""
    transport, count = loop.transport, 20_000
    frame = bytes(200)
    loop_cpu = time.process_time()
    started = time.perf_counter()
    if transport.rank == 0:
        for _ in range(count):
            transport.send(1, frame)
            transport.receive()
        loop.frames(1)
    else:
        loop.frames(count)
        transport.send(0, b"taken")
    seconds, cpu = time.perf_counter() - started, time.process_time() - loop_cpu
    figures = f"{seconds / count * 1e6:.1f} us, CPU {cpu / count * 1e6:.1f} us on rank {transport.rank}"
    print(f"one frame in a stream of {count}: {figures}", flush=True)


def bandwidth(loop: Loop, megabytes: int) -> None:
    """One way, rank 0 to rank 1: bare and ours in turns, best of each."""
    from mpi4py import MPI

    transport, world = loop.transport, MPI.COMM_WORLD
    size = megabytes << 20
    descriptor = os.memfd_create("mpi_runtime-benchmark")
    os.ftruncate(descriptor, size)
    import mmap

    buffer = memoryview(mmap.mmap(descriptor, size))
    buffer[:] = bytes(size)
    repeats = max(1, 256 // megabytes)

    def bare() -> None:
        for _ in range(repeats):
            request = world.Isend(buffer, 1, 9) if transport.rank == 0 else world.Irecv(buffer, 0, 9)
            request.Wait()

    def ours() -> None:
        for _ in range(repeats):
            if transport.rank == 0:
                loop.transfer([transport.send_bulk(1, 5, buffer)])
            else:
                loop.transfer([transport.receive_bulk(0, 5, buffer)])

    rates: dict[str, list[float]] = {"bare": [], "ours": []}
    turns = []
    for _ in range(ROUNDS):
        for name, once in (("bare", bare), ("ours", ours)):
            world.Barrier()
            started, loop.turns = time.perf_counter(), 0
            once()
            world.Barrier()
            rates[name].append(repeats * size / (time.perf_counter() - started) / 1e9)
        turns.append(loop.turns / repeats)
    ratio = statistics.median(ours / bare for ours, bare in zip(rates["ours"], rates["bare"], strict=True))
    say(
        transport,
        f"{megabytes:5} MB: bare {max(rates['bare']):5.2f} GB/s, transport {max(rates['ours']):5.2f} GB/s, "
        f"ratio {ratio:.2f} (median of {ROUNDS}), {statistics.median(turns):.0f} turns",
    )


def idle(loop: Loop) -> None:
    """What all ranks together cost when nothing happens."""
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()
    end, cpu = time.monotonic() + IDLE_S, time.process_time()
    loop.turns = 0
    loop.run_until(lambda: time.monotonic() > end)
    spent = (time.process_time() - cpu) / IDLE_S * 100
    total = MPI.COMM_WORLD.reduce(spent)
    if loop.transport.rank == 0:
        turns = f"{loop.turns / IDLE_S:.0f} turns/s of rank 0"
        print(f"idle, {loop.transport.size} ranks: {total:.2f} % of one core in total, {turns}", flush=True)


def main() -> None:
    """Measure on ranks 0 and 1."""
    transport = MpiTransport()
    loop = Loop(transport)
    from mpi4py import MPI

    version = MPI.Get_library_version().split(",")[0].splitlines()[0]
    say(transport, f"{version}; ranks on {', '.join(transport.hostnames)}")
    if transport.rank < 2 <= transport.size:
        pair = loop
        round_trips(pair)
        stream(pair)
    if transport.size == 2:
        for megabytes in [int(argument) for argument in sys.argv[1:]] or [1, 16, 100]:
            bandwidth(loop, megabytes)
    idle(loop)
    transport.close(clean=True)


if __name__ == "__main__":
    main()
