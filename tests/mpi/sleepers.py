"""Ranks of one host that have nothing to do, and are woken one by one: what it costs, and how long it takes."""

import statistics
import time

from mpi_runtime.core.transport.mpi import MpiTransport
from tests.mpi.contract import Loop

IDLE_S = 3.0
RINGS_EACH = 10


def main() -> None:
    """Idle together, then let rank 0 wake one after the other; it prints."""
    transport = MpiTransport()
    loop = Loop(transport)
    loop.meet(1)
    end, before = time.monotonic() + IDLE_S, time.process_time()
    loop.run_until(lambda: time.monotonic() > end)
    spent = time.process_time() - before
    loop.send(2, 0, str(spent).encode())
    if transport.rank > 0:
        for _ in range(RINGS_EACH):
            loop.expect(3, 1)
            loop.send(4, 0, b"")
    else:
        total = sum(float(frame) for _, frame in loop.expect(2, transport.size))
        print(f"idle: {total / IDLE_S * 100:.2f} % of one core, {transport.size} ranks together", flush=True)
        times = []
        for number in range(RINGS_EACH * (transport.size - 1)):
            time.sleep(0.01)
            started = time.perf_counter()
            loop.send(3, 1 + number % (transport.size - 1), b"")
            loop.expect(4, 1)
            times.append(time.perf_counter() - started)
        middle, longest = statistics.median(times) * 1e6, max(times) * 1e6
        print(f"round trip to a sleeper: median {middle:.0f} us, longest {longest:.0f} us", flush=True)
    loop.meet(5)
    transport.close(clean=True)


if __name__ == "__main__":
    main()
