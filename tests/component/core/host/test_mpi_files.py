"""Files of MPI libraries that a living process has mapped."""

from __future__ import annotations

import mmap
import subprocess
import sys
from pathlib import Path

from mpi_runtime.core.host import mpi_files
from tests.unit.core.host import test_mpi_files as unit
from tests.unit.core.host.test_mpi_files import LEFT

shared = unit.shared


def test_a_file_stays_that_another_process_has_mapped(shared: Path) -> None:
    path = shared / LEFT[0]
    path.write_bytes(bytes(mmap.PAGESIZE))
    code = (
        "import ctypes, os, sys\n"
        "file = os.open(sys.argv[1], os.O_RDWR)\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.mmap.restype = ctypes.c_void_p\n"
        "assert libc.mmap(None, ctypes.c_size_t(4096), 3, 1, file, ctypes.c_long(0)) != ctypes.c_void_p(-1).value\n"
        "os.close(file)\n"
        "print(flush=True)\n"
        "input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        mpi_files.sweep()
        assert path.exists()
        process.communicate(b"\n")
    assert process.returncode == 0
    mpi_files.sweep()
    assert not path.exists()
