"""Timer: four naps of one second take four seconds in a loop, and one second as four tasks on four CPUs.

Shows that `.remote()` returns at once with a reference, and that `get` waits for the value.

    python examples/timer.py
    mpi-runtime run -n 4 examples/timer.py
"""

import time

import mpi_runtime

mpi_runtime.init(num_cpus=4)


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


started = time.perf_counter()
slept = [nap(1.0) for _ in range(4)]
serial_s = time.perf_counter() - started
print(f"in a loop:    4 naps took {serial_s:.2f} s")

remote_nap = mpi_runtime.remote(nap)
mpi_runtime.get([remote_nap.remote(0.0) for _ in range(4)])  # the first tasks wait for four processes to start

started = time.perf_counter()
refs = [remote_nap.remote(1.0) for _ in range(4)]
submit_s = time.perf_counter() - started
print(f"submitted:    4 calls of .remote() took {1000 * submit_s:.2f} ms and gave references:")
for ref in refs:
    print(f"                {ref}")

values = mpi_runtime.get(refs)
parallel_s = time.perf_counter() - started
print(f"as 4 tasks:   4 naps took {parallel_s:.2f} s, {serial_s / parallel_s:.1f} times as fast")

assert values == slept == [1.0] * 4
assert 1.0 <= parallel_s < serial_s
