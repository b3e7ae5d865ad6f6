"""Does memory of a GPU outlive the process that made it, if one without CUDA keeps its descriptor? Can readers write?

`python -m benchmarks.card_export [MiB]` needs libcuda and nothing else. A maker exports memory as a descriptor and is
killed; this process, which never loads CUDA, keeps the descriptor; two readers, one after the other, map it for
reading, look at its last word, and try to write. Times are in milliseconds. What comes of it decides how arrays stay
on devices.
"""

from __future__ import annotations

import ctypes as C
import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

MIB = 1 << 20
WORD = 0xC0FFEE
PINNED, POSIX_DESCRIPTOR, ON_DEVICE, READ, READ_WRITE = 1, 1, 1, 1, 3
"""CUDA's numbers for the kind of memory, of handle and of place, and for what a mapping allows."""


class Properties(C.Structure):
    """What memory is to be: `CUmemAllocationProp`."""

    _fields_ = (
        ("kind", C.c_int), ("handles", C.c_int), ("place", C.c_int), ("ordinal", C.c_int), ("meta", C.c_void_p),
        ("flags", C.c_ubyte * 8),
    )  # fmt: skip


class Access(C.Structure):
    """Who may do what with a mapping: `CUmemAccessDesc`."""

    _fields_ = (("place", C.c_int), ("ordinal", C.c_int), ("flags", C.c_int))


class Driver:
    """Calls of libcuda, with how long each took and what it answered."""

    def __init__(self) -> None:
        self._cuda = C.CDLL("libcuda.so.1")
        self.spent_ms: dict[str, float] = {}
        self.codes: dict[str, int] = {}
        device, context = C.c_int(), C.c_void_p()
        self("cuInit", C.c_uint(0))
        self("cuDeviceGet", C.byref(device), C.c_int(0))
        self("cuDevicePrimaryCtxRetain", C.byref(context), device)
        self("cuCtxSetCurrent", context)

    def __call__(self, name: str, *arguments: Any, as_name: str = "") -> int:
        """Call a function: its answer, which is noted under its name or another."""
        start_s = time.perf_counter()
        code = int(getattr(self._cuda, name)(*arguments))
        self.spent_ms[as_name or name] = round((time.perf_counter() - start_s) * 1e3, 3)
        self.codes[as_name or name] = code
        return code

    def mapped(self, handle: C.c_uint64, size: int, flags: int) -> C.c_uint64:
        """The address of memory that this process may use from now on."""
        at = C.c_uint64()
        self("cuMemAddressReserve", C.byref(at), C.c_size_t(size), C.c_size_t(0), C.c_uint64(0), C.c_uint64(0))
        self("cuMemMap", at, C.c_size_t(size), C.c_size_t(0), handle, C.c_uint64(0))
        self("cuMemSetAccess", at, C.c_size_t(size), C.byref(Access(ON_DEVICE, 0, flags)), C.c_size_t(1))
        return at

    def facts(self) -> dict[str, Any]:
        """What was asked, and what came of it."""
        return {"wrong": {name: code for name, code in self.codes.items() if code}, "ms": self.spent_ms}


def make(end: socket.socket, size: int) -> None:
    """Be the maker: send the facts, and the descriptor with them, and wait to be killed."""
    driver, handle, descriptor = Driver(), C.c_uint64(), C.c_int(-1)
    wish = Properties(PINNED, POSIX_DESCRIPTOR, ON_DEVICE, 0)
    driver("cuMemCreate", C.byref(handle), C.c_size_t(size), C.byref(wish), C.c_uint64(0))
    at = driver.mapped(handle, size, READ_WRITE)
    driver("cuMemsetD32_v2", at, C.c_uint(WORD), C.c_size_t(size // 4))
    driver("cuCtxSynchronize")
    driver("cuMemExportToShareableHandle", C.byref(descriptor), handle, C.c_int(POSIX_DESCRIPTOR), C.c_uint64(0))
    own = [descriptor.value] if descriptor.value >= 0 else []
    socket.send_fds(end, [json.dumps(driver.facts()).encode()], own)
    signal.pause()


def read(descriptor: int, size: int) -> None:
    """Be a reader: print the facts."""
    driver, handle, word = Driver(), C.c_uint64(), C.c_uint32()
    driver("cuMemImportFromShareableHandle", C.byref(handle), C.c_void_p(descriptor), C.c_int(POSIX_DESCRIPTOR))
    at = driver.mapped(handle, size, READ)
    driver("cuMemcpyDtoH_v2", C.byref(word), C.c_uint64(at.value + size - 4), C.c_size_t(4))
    found = {"is_right": word.value == WORD, **driver.facts()}
    driver("cuMemsetD32_v2", at, C.c_uint(1), C.c_size_t(1), as_name="write")
    found["write_into_what_is_mapped_for_reading"] = [driver.codes["write"], driver("cuCtxSynchronize")]
    print(json.dumps(found))


def used_mib() -> int:
    """What of the first GPU is in use, by whoever; -1: unknown."""
    command = ["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return -1


def main(size: int) -> dict[str, Any]:
    """All of it."""
    found: dict[str, Any] = {"bytes": size, "used_mib_before": used_mib()}
    command = [sys.executable, "-m", "benchmarks.card_export"]
    ours, theirs = socket.socketpair()
    maker = subprocess.Popen([*command, "make", str(theirs.fileno()), str(size)], pass_fds=[theirs.fileno()])
    theirs.close()
    data, descriptors, _, _ = socket.recv_fds(ours, 1 << 16, 1)
    ours.close()
    if not data:
        maker.wait()
        return {**found, "error": "the maker ended without an answer; what it said is above"}
    found |= {"maker": json.loads(data), "used_mib_while_it_lives": used_mib()}
    maker.kill()
    maker.wait()
    time.sleep(1)
    found["used_mib_when_it_is_killed"] = used_mib()
    found["readers"] = []
    for descriptor in descriptors * 2:
        done = subprocess.run(
            [*command, "read", str(descriptor), str(size)],
            pass_fds=descriptors,
            capture_output=True,
            text=True,
            check=False,
        )
        found["readers"].append(json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr[-500:]})
    for descriptor in descriptors:
        os.close(descriptor)
    time.sleep(1)
    found["used_mib_when_the_descriptor_is_closed"] = used_mib()
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]:
        make(socket.socket(fileno=int(sys.argv[2])), int(sys.argv[3]))
    elif sys.argv[1:2] == ["read"]:
        read(int(sys.argv[2]), int(sys.argv[3]))
    else:
        print(json.dumps(main(int(sys.argv[1] if len(sys.argv) > 1 else "1024") * MIB)))
