"""How fast are copies between a GPU and memory, and from which size on, and by which chunks, does pinned staging pay?

Each way down and up, by size of the array: the plain copy of pageable memory; through two pinned buffers, as
`gpu/staging.py` does it, by chunks of 1 to 64 MiB; memory that was registered with the driver, and what registering
takes; and `put` and `get` as programs call them, with and without a pinned object store (`MPI_RUNTIME_GPU_PIN_MB`):
of one array again and again, and of four in turn. At the end it says which of both should be the default.
`python -m benchmarks.gpu_copies`, with `--quick` for the smallest sizes. It needs cupy and a GPU that cupy can use.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import mpi_runtime as ray
from mpi_runtime.gpu import arrays, staging

MIB = 1 << 20
SIZES = (1 * MIB, 4 * MIB, 8 * MIB, 32 * MIB, 256 * MIB, 1024 * MIB)
CHUNKS = (1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB)
SECONDS_MIN, ROUNDS = 0.3, 5
PIN = "MPI_RUNTIME_GPU_PIN_MB"
PINNED_MB = 2048
IN_TURN = 4
PAYS, COSTS = 1.2, 0.95
"""Pinning should be the default if it makes one way so many times as fast, and none slower than this."""


def rate(work: Callable[[], Any], size: int, quick: bool) -> float:
    """GB/s: the median of some rounds after one that does not count."""
    work()
    seconds: list[float] = []
    while len(seconds) < ROUNDS or (sum(seconds) < SECONDS_MIN and not quick):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return size / median(seconds) / 1e9


def by_runtime(cupy: Any, device: Any, host: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    """One call of the driver for the whole, down and up."""
    runtime, stream = cupy.cuda.runtime, cupy.cuda.get_current_stream()
    there, here, size = device.data.ptr, host.ctypes.data, host.nbytes

    def down() -> None:
        runtime.memcpyAsync(here, there, size, runtime.memcpyDeviceToHost, stream.ptr)
        stream.synchronize()

    def up() -> None:
        runtime.memcpyAsync(there, here, size, runtime.memcpyHostToDevice, stream.ptr)
        stream.synchronize()

    return down, up


def use_chunks_of(size: int) -> None:
    """Stage arrays of any size so from now on."""
    if size != staging.CHUNK:
        staging._pairs.clear()
    staging.CHUNK, staging.PINNED_BYTES_MIN = size, 0


def staged(device: Any, host: Any, chunk: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """Through two pinned buffers of this size, however small the array."""
    found = arrays.find(device)
    assert found is not None
    way = found.way

    def down() -> None:
        use_chunks_of(chunk)
        at = 0
        for piece in staging.to_host(way):
            host.data[at : at + len(piece)] = piece
            at += len(piece)

    def up() -> None:
        use_chunks_of(chunk)
        staging.to_device(way, host.data)

    return down, up


@ray.remote(num_cpus=0, num_gpus=1)
def copies(size: int, quick: bool) -> list[tuple[str, float, float]]:
    """Name, GB/s down and GB/s up of each way for one size."""
    return list(all_ways(size, quick))


def all_ways(size: int, quick: bool) -> Iterator[tuple[str, float, float]]:
    """The same, one after the other."""
    import cupy
    import numpy

    runtime = cupy.cuda.runtime
    host = numpy.ones(size, numpy.uint8)
    device = cupy.asarray(host)
    ways = {"pageable": by_runtime(cupy, device, host)}
    ways |= {f"staged by {chunk // MIB} MiB": staged(device, host, chunk) for chunk in CHUNKS if chunk <= size}
    before = staging.CHUNK, staging.PINNED_BYTES_MIN
    for name, (down, up) in ways.items():
        yield name, rate(down, size, quick), rate(up, size, quick)
    use_chunks_of(before[0])
    staging.PINNED_BYTES_MIN = before[1]
    down, up = by_runtime(cupy, device, host)
    try:
        start = time.perf_counter()
        runtime.hostRegister(host.ctypes.data, size, 0)
        taken = time.perf_counter() - start
    except runtime.CUDARuntimeError as error:
        yield f"registered: skipped, {error}", 0.0, 0.0
    else:
        yield f"registered (took {taken * 1e3:.2f} ms)", rate(down, size, quick), rate(up, size, quick)
        runtime.hostUnregister(host.ctypes.data)


@ray.remote(num_cpus=0, num_gpus=1)
def by_programs(size: int, quick: bool) -> list[tuple[str, float, float]]:
    """The same for the ways of programs. Raises RuntimeError if an array comes back with other bytes."""
    import cupy

    arrays_of = [cupy.arange(size // 8) + number for number in range(IN_TURN)]
    refs = [ray.put(one) for one in arrays_of]
    turn = iter(range(1 << 30))

    def put_in_turn() -> None:
        number = next(turn) % IN_TURN
        refs[number] = ray.put(arrays_of[number])

    def get_in_turn() -> None:
        number = next(turn) % IN_TURN
        if int(ray.get(refs[number])[-1:].get()[0]) != size // 8 - 1 + number:
            raise RuntimeError(f"array {number} of {size} bytes came back with other bytes")

    one = ray.put(arrays_of[0])
    return [
        ("put, get", rate(lambda: ray.put(arrays_of[0]), size, quick), rate(lambda: ray.get(one), size, quick)),
        ("put, get in turn", rate(put_in_turn, size, quick), rate(get_in_turn, size, quick)),
    ]


def verdict(found: list[tuple[float, float]]) -> str:
    """What follows from pairs of rates, without and with pinning."""
    ratios = sorted(pinned / plain for plain, pinned in found if plain)
    if not ratios:
        return "nothing was measured"
    pays = ratios[-1] >= PAYS and ratios[0] >= COSTS
    return (
        f"{PIN}={PINNED_MB} makes put and get {ratios[0]:.2f} to {ratios[-1]:.2f} times as fast, in the middle "
        f"{median(ratios):.2f}: it should be {'on' if pays else 'off'} by default"
    )


@ray.remote(num_cpus=0, num_gpus=1)
def card() -> str:
    """Which card it is; what is missing instead, in brackets."""
    try:
        import cupy
    except ImportError as error:
        return f"(cupy: {error})"
    try:
        cupy.cuda.runtime.getDeviceCount()  # `is_available` would not say why
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"(a GPU that cupy can use: {error})"
    return ray.get_gpus()[0].name


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the two smallest sizes, few rounds")
    quick = parser.parse_args().quick
    ray.init()
    if not ray.cluster_resources().get("GPU"):
        print("skipped: everything. There is no GPU here")
        return
    name = ray.get(card.remote())
    if name.startswith("("):
        print(f"skipped: everything. Missing: {name[1:-1]}")
        return
    print(f"{name}; staged from {staging.PINNED_BYTES_MIN >> 10} KiB on by chunks of {staging.CHUNK / MIB:g} MiB")
    pairs: list[tuple[float, float]] = []
    print("     size  way                              down          up")
    for size in SIZES[: 2 if quick else None]:
        found = ray.get(copies.remote(size, quick))
        plain = ray.get(by_programs.remote(size, quick))
        pinning = by_programs.options(runtime_env={"env_vars": {PIN: str(PINNED_MB)}})
        pinned = ray.get(pinning.remote(size, quick))
        for before, after in zip(plain, pinned, strict=True):
            pairs += zip(before[1:], after[1:], strict=True)
        for way, down, up in [*found, *plain, *((f"{way}, pinned", down, up) for way, down, up in pinned)]:
            print(f"{size // MIB:5} MiB  {way:28} {down:6.2f} GB/s {up:6.2f} GB/s", flush=True)
    print(verdict(pairs))


if __name__ == "__main__":
    main()
