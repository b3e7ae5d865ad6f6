"""Facts about one GPU that the design of `gpu/` rests on, one at a time: `python -m benchmarks.card_facts context`.

Each prints a line of JSON. `make device` asks for all of them. They need cupy and pynvml; torch where it is there.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

MIB, GIB = 1 << 20, 1 << 30
Facts = dict[str, Any]


def ask(*words: str, env: Mapping[str, str | None] | None = None, descriptors: tuple[int, ...] = ()) -> Any:
    """What another process finds, in an environment with these changes."""
    known: dict[str, str | None] = {**os.environ, **(env or {})}
    environment = {name: value for name, value in known.items() if value is not None}
    command = [sys.executable, "-m", "benchmarks.card_facts", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, pass_fds=descriptors)
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if done.returncode == 0 and lines else {"error": done.stderr[-500:]}


def used_mib() -> float:
    """What of the first GPU is in use, by whoever."""
    import pynvml

    pynvml.nvmlInit()
    return float(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used / MIB)


def seconds(work: Callable[[], Any], rounds: int = 5) -> float:
    """The median of some rounds."""
    found = []
    for _ in range(rounds):
        start_s = time.perf_counter()
        work()
        found.append(time.perf_counter() - start_s)
    return median(found)


def first_uuid() -> str:
    """Of the first GPU, as NVML says it."""
    import pynvml

    pynvml.nvmlInit()
    return str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0)))


# The facts


def warm_up() -> Facts:
    """Seconds until cupy has computed something: its import, a context, cuBLAS, a kernel that is compiled."""
    found, start_s = {}, time.perf_counter()
    import cupy

    found["import"] = time.perf_counter() - start_s
    matrix = cupy.ones((64, 64), cupy.float32)
    works: dict[str, Callable[[], Any]] = {"product": lambda: matrix @ matrix, "kernel": lambda: cupy.exp(matrix) + 1}
    for name, work in works.items():
        start_s = time.perf_counter()
        work()
        cupy.cuda.Device().synchronize()
        found[name] = time.perf_counter() - start_s
    return {"seconds": found, "cupy": cupy.__version__, "runtime": cupy.cuda.runtime.runtimeGetVersion()}


def agreement() -> Facts:
    """Whether NVML and CUDA speak of the same cards, in the same order; and what NVML answers on this machine."""
    import cupy
    import pynvml

    pynvml.nvmlInit()
    cuda, found = ctypes.CDLL("libcuda.so.1"), []
    for number in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(number)
        asked = {
            "bus": lambda one: pynvml.nvmlDeviceGetPciInfo(one).busId, "name": pynvml.nvmlDeviceGetName,
            "uuid": pynvml.nvmlDeviceGetUUID, "mode": pynvml.nvmlDeviceGetComputeMode,
            "persistence": pynvml.nvmlDeviceGetPersistenceMode, "numa": pynvml.nvmlDeviceGetNumaNodeId,
            "mig": pynvml.nvmlDeviceGetMigMode, "minor": pynvml.nvmlDeviceGetMinorNumber,
            "total": lambda one: pynvml.nvmlDeviceGetMemoryInfo(one).total,
            "reserved": lambda one: pynvml.nvmlDeviceGetMemoryInfo(one, pynvml.nvmlMemory_v2).reserved,
            "cpus": lambda one: [hex(word) for word in pynvml.nvmlDeviceGetCpuAffinity(one, 4)],
            "pids": lambda one: [each.pid for each in pynvml.nvmlDeviceGetComputeRunningProcesses(one)],
        }  # fmt: skip
        found.append({name: answer_of(call, handle) for name, call in asked.items()})
    by_cuda, raw, device = [], (ctypes.c_ubyte * 16)(), ctypes.c_int()
    for ordinal in range(cupy.cuda.runtime.getDeviceCount()):
        cuda.cuDeviceGet(ctypes.byref(device), ordinal)
        cuda.cuDeviceGetUuid(raw, device)
        text = bytes(raw).hex()
        uuid = "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
        by_cuda.append({"uuid": uuid, "bus": cupy.cuda.runtime.deviceGetPCIBusId(ordinal)})
    same = [one["uuid"] for one in found] == [one["uuid"] for one in by_cuda]
    return {"nvml": found, "cuda": by_cuda, "same_uuids_in_the_same_order": same, "own_pid": os.getpid()}


def answer_of(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns, or raises, in words."""
    try:
        return call(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def visible() -> Facts:
    """How many devices CUDA shows for what may stand in CUDA_VISIBLE_DEVICES, after the codes of cuInit and count."""
    uuid = first_uuid()
    values = (
        None, "", "-1", "NoDevFiles", "none", "void", "0", "0,0", "0,-1", "-1,0", "7", "0,7", "7,0", " 0", "0 ", "00",
        "0abc",
        uuid, uuid[:12], uuid.lower(), f"{uuid},{uuid}", f"0,{uuid}", "GPU-ffffffff", f"MIG-{uuid}/0/0",
    )  # fmt: skip
    return {str(value).replace(uuid, "UUID"): ask("count", env={"CUDA_VISIBLE_DEVICES": value}) for value in values}


def count() -> list[int]:
    """In this process."""
    cuda, number = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(-1)
    return [cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(number)), number.value]


def context() -> Facts:
    """What a process takes of the device that does nothing, by library: MiB and seconds. It is `Device.reserve`."""
    return {kind: ask("one_context", kind) for kind in ("driver", "cupy", "product", "torch")}


def one_context(kind: str) -> Facts:
    """In this process."""
    before, start_s = used_mib(), time.perf_counter()
    if kind == "driver":
        cuda, device, made = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
        codes = [cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0)]
        codes.append(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(made), device))
        return {"seconds": time.perf_counter() - start_s, "mib": used_mib() - before, "codes": codes}
    if kind == "torch":
        import torch

        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
    else:
        import cupy

        matrix = cupy.zeros((64, 64), cupy.float32)
        if kind == "product":
            _ = matrix @ matrix
        cupy.cuda.Device().synchronize()
    return {"seconds": time.perf_counter() - start_s, "mib": used_mib() - before}


def registered() -> Facts:
    """Memory as the arena has it, made known to the driver: what that takes, and how fast copies are then."""
    descriptor = os.memfd_create("card_facts")
    os.ftruncate(descriptor, GIB)
    os.set_inheritable(descriptor, True)
    own = register(descriptor)
    return {"first": own, "another_process": ask("register_again", str(descriptor), descriptors=(descriptor,))}


def register_again(descriptor: str) -> Facts:
    """In a process that has not seen the memory before."""
    return register(int(descriptor))


def register(descriptor: int) -> Facts:
    """In this process: seconds for each step of one GiB, GB/s up and down before and after."""
    import mmap

    import cupy
    import numpy

    host = numpy.frombuffer(mmap.mmap(descriptor, GIB), numpy.uint8)
    host[::4096] = 7
    device, runtime = cupy.empty(GIB, cupy.uint8), cupy.cuda.runtime
    here, there = host.ctypes.data, device.data.ptr

    def rates() -> list[float]:
        up = seconds(lambda: runtime.memcpy(there, here, GIB, runtime.memcpyHostToDevice))
        return [
            GIB / up / 1e9,
            GIB / seconds(lambda: runtime.memcpy(here, there, GIB, runtime.memcpyDeviceToHost)) / 1e9,
        ]

    found: Facts = {"pageable_gb_s": rates()}
    found["register_s"] = seconds(lambda: runtime.hostRegister(here, GIB, 0), 1)
    found["registered_gb_s"] = rates()
    found["unregister_s"] = seconds(lambda: runtime.hostUnregister(here), 1)
    parts = range(0, GIB, 4 * MIB)
    found["register_by_4_mib_s"] = seconds(lambda: [runtime.hostRegister(here + at, 4 * MIB, 0) for at in parts], 1)
    found["across_two_ranges"] = str(answer_of(runtime.memcpy, there, here, 8 * MIB, runtime.memcpyHostToDevice))
    for at in parts:
        runtime.hostUnregister(here + at)
    return found


def pinned() -> Facts:
    """What the pinning of the object store rests on (`mpi_runtime/core/objects/pinned_extents.py`), by the driver.

    Mappings that are read only; copies that lie in a pinned range only in part; and the hazard itself: when pinned
    pages are taken from under their mapping, does the device still write into the old ones?
    """
    import mmap
    import resource

    import cupy
    import numpy

    from mpi_runtime.gpu import cuda_context

    descriptor, size = os.memfd_create("card_facts"), 8 * MIB
    os.ftruncate(descriptor, size)
    mapping = mmap.mmap(descriptor, size)
    host, seen = (numpy.frombuffer(one, numpy.uint8) for one in (mapping, mmap.mmap(descriptor, size)))
    seen[:] = 1
    device, runtime, value = cupy.full(size, 7, cupy.uint8), cupy.cuda.runtime, ctypes.c_int(-1)
    here, there, cuda = host.ctypes.data, device.data.ptr, cuda_context.driver()  # which cupy has loaded by now
    limits = [str(one) for one in resource.getrlimit(resource.RLIMIT_MEMLOCK)]
    found: Facts = {"driver_is_found": cuda is not None, "ulimit_l": limits}
    if cuda is None:
        return found
    for name, number in (("host_register", 99), ("read_only_register", 113), ("uses_host_page_tables", 100)):
        code = cuda.cuDeviceGetAttribute(ctypes.byref(value), number, 0)
        found[f"attribute_{name}"] = value.value if not code else f"error {code}"
    read_only = numpy.frombuffer(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ), numpy.uint8).ctypes.data
    for name, flags in (("", 1), ("_by_its_flag", 1 | 8)):
        found[f"register_read_only{name}"] = cuda_context.register(cuda, read_only, size, flags)
        cuda_context.unregister(cuda, read_only)
    found["register"] = cuda_context.register(cuda, here, size // 2)
    found["register_again"] = cuda_context.register(cuda, here + MIB, MIB)
    found["copy_in_part"] = str(answer_of(runtime.memcpy, there, here, size, runtime.memcpyHostToDevice))
    found["copy_by_another_mapping"] = str(
        answer_of(runtime.memcpy, seen.ctypes.data, there, size, runtime.memcpyDeviceToHost)
    )
    found["another_mapping_has_it"] = bool((seen == 7).all())
    mapping.madvise(mmap.MADV_REMOVE, 0, MIB)
    runtime.memcpy(here, there, 2 * MIB, runtime.memcpyDeviceToHost)
    found["seen_where_pages_were_taken"] = int(seen[:MIB].max())  # 0: the hazard is real
    found["seen_beside"] = int(seen[MIB : 2 * MIB].min())
    found["unregister"] = cuda_context.unregister(cuda, here)
    found["unregister_again"] = cuda_context.unregister(cuda, here)
    os.close(descriptor)
    return found


def exported(array: Any) -> Facts:
    """What another process needs to map an array of this one."""
    import cupy

    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    cuda = ctypes.CDLL("libcuda.so.1")
    code = cuda.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(array.data.ptr))
    handle = cupy.cuda.runtime.ipcGetMemHandle(base.value)
    return {
        "handle": handle.hex(),
        "at": array.data.ptr - base.value,
        "size": size.value,
        "n": array.nbytes,
        "code": code,
    }


def ipc() -> Facts:
    """Arrays of one process in another: what it takes to open them, and whether small ones are what they were."""
    import cupy

    large, small = cupy.full(GIB, 5, cupy.uint8), [cupy.full(1000, number, cupy.uint8) for number in range(4)]
    cupy.cuda.Device().synchronize()
    start_s = time.perf_counter()
    facts = exported(large)
    found: Facts = {"export_s": time.perf_counter() - start_s, "large": ask("open_array", json.dumps(facts))}
    found["shown_by_uuid"] = ask("open_array", json.dumps(facts), env={"CUDA_VISIBLE_DEVICES": first_uuid()})
    given = [exported(one) for one in small]
    found["small_have_one_handle"] = len({one["handle"] for one in given}) == 1
    found["small"] = [ask("open_array", json.dumps(one)).get("first") for one in given]
    for name, make in (("async", cupy.cuda.malloc_async), ("managed", cupy.cuda.malloc_managed)):
        memory = make(4 * MIB)
        found[f"handle_of_{name}_memory"] = str(answer_of(cupy.cuda.runtime.ipcGetMemHandle, memory.ptr))[:100]
    return found


def open_array(text: str) -> Facts:
    """In the other process."""
    import cupy

    facts, runtime = json.loads(text), cupy.cuda.runtime
    cupy.zeros(1)
    start_s = time.perf_counter()
    pointer = runtime.ipcOpenMemHandle(bytes.fromhex(facts["handle"]))
    found: Facts = {"open_s": time.perf_counter() - start_s}
    memory = cupy.cuda.UnownedMemory(pointer, facts["size"], None)
    array = cupy.ndarray(facts["n"], cupy.uint8, cupy.cuda.MemoryPointer(memory, facts["at"]))
    found |= {"first": int(array[0]), "last": int(array[-1])}
    found["close_s"] = seconds(lambda: runtime.ipcCloseMemHandle(pointer), 1)
    return found


def orphans() -> Facts:
    """Memory that is mapped here while its maker is killed: is it what it was, and when is it free?"""
    import cupy

    before = used_mib()
    maker = subprocess.Popen([sys.executable, "-m", "benchmarks.card_facts", "hold"], stdout=subprocess.PIPE, text=True)
    assert maker.stdout is not None
    facts = json.loads(maker.stdout.readline())
    pointer = cupy.cuda.runtime.ipcOpenMemHandle(bytes.fromhex(facts["handle"]))
    memory = cupy.cuda.UnownedMemory(pointer, facts["size"], None)
    array = cupy.ndarray(facts["n"], cupy.uint8, cupy.cuda.MemoryPointer(memory, facts["at"]))
    found: Facts = {"mib_while_it_lives": used_mib() - before, "value": int(array[-1])}
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    killed_s = time.perf_counter()
    try:
        found["value_when_it_is_killed"] = int(array[-1])
    except cupy.cuda.runtime.CUDARuntimeError as error:
        found["value_when_it_is_killed"] = str(error)
    found["mib_when_it_is_killed"] = used_mib() - before
    cupy.cuda.runtime.ipcCloseMemHandle(pointer)
    while used_mib() - before > found["mib_while_it_lives"] - 900 and time.perf_counter() - killed_s < 10:
        time.sleep(0.01)
    found |= {"seconds_until_free": time.perf_counter() - killed_s, "mib_at_the_end": used_mib() - before}
    return found


def hold() -> None:
    """Have a GiB until killed."""
    import cupy

    array = cupy.full(GIB, 9, cupy.uint8)
    cupy.cuda.Device().synchronize()
    print(json.dumps(exported(array)), flush=True)
    time.sleep(60)


def pool() -> Facts:
    """MiB that a process keeps when its arrays are gone, and whether limits hold."""
    import cupy

    cupy.zeros(1)
    before, found = used_mib(), {}
    arrays = [cupy.zeros(256 * MIB, cupy.uint8) for _ in range(4)]
    found["with_arrays"] = used_mib() - before
    arrays.clear()
    found["without"] = used_mib() - before
    found["free_s"] = seconds(cupy.get_default_memory_pool().free_all_blocks, 1)
    found["freed"] = used_mib() - before
    cupy.get_default_memory_pool().set_limit(size=512 * MIB)
    found["cupy_is_held"] = is_refused(lambda: cupy.zeros(600 * MIB, cupy.uint8), cupy.cuda.memory.OutOfMemoryError)
    try:
        import torch
    except ImportError:
        return found
    torch.cuda.set_per_process_memory_fraction(0.01)
    much = int(torch.cuda.get_device_properties(0).total_memory * 0.02)
    found["torch_is_held"] = is_refused(
        lambda: torch.empty(much, dtype=torch.uint8, device="cuda"), torch.OutOfMemoryError
    )
    return found


def is_refused(work: Callable[[], Any], error: type[Exception]) -> bool:
    """Whether it raises this."""
    try:
        work()
    except error:
        return True
    return False


def nsight() -> Facts:
    """Whether a call runs under nsys where that is installed, and which reports it leaves; else the error in words."""
    import tempfile

    import mpi_runtime as ray

    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        ray.init(num_cpus=1, num_gpus=1, quiet=True)

        @ray.remote(num_gpus=1, runtime_env={"nsight": "default"})
        def compute() -> float:
            import cupy

            return float(cupy.asnumpy(cupy.full((64, 64), 2.0)).sum())

        try:
            found: Facts = {"sum": ray.get(compute.remote())}
        except (ray.errors.RuntimeEnvSetupError, ray.errors.WorkerCrashedError) as error:
            found = {"error": str(error)}
        start_s = time.perf_counter()
        ray.shutdown()
        found["end_s"] = time.perf_counter() - start_s
        names = os.listdir("nsight") if os.path.isdir("nsight") else []
        os.chdir("/")
    return {**found, "reports": sorted(names)}


def products() -> Facts:
    """TFLOP/s of bare products by type and size: what tasks are measured against."""
    return {kind: ask("rates", kind, env={"CUPY_TF32": str(int(kind == "tf32"))}) for kind in ("fp32", "tf32", "fp16")}


def rates(kind: str) -> Facts:
    """In this process."""
    import cupy

    found, runtime = {}, cupy.cuda
    for n in (1024, 4096, 8192, 16384):
        a, b = (
            cupy.random.random((n, n), dtype=cupy.float32).astype("f2" if kind == "fp16" else "f4") for _ in range(2)
        )
        out, repeats = a @ b, max(1, (16384 // n) ** 2)
        begun, ended = runtime.Event(), runtime.Event()
        begun.record()
        for _ in range(repeats):
            cupy.matmul(a, b, out=out)
        ended.record()
        ended.synchronize()
        found[str(n)] = 2 * n**3 * repeats / (runtime.get_elapsed_time(begun, ended) / 1e3) / 1e12
    return found


if __name__ == "__main__":
    answer = globals()[sys.argv[1]](*sys.argv[2:])
    if answer is not None:
        print(json.dumps(answer))
