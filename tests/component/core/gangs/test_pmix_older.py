"""The PMIx library of Slurm's packages is of version 4: the server runs with it, without functions of version 5."""

import ctypes.util
import subprocess
import sys
from pathlib import Path

import pytest

from mpi_runtime.core.gangs import pmix_older
from mpi_runtime.core.gangs.pmix_types import PmixError

PROGRAM = """
import sys
from mpi_runtime.core.gangs.pmix_library import Server
from mpi_runtime.core.gangs.pmix_messages import Register

server = Server(sys.argv[1], sys.argv[2], "host1", None)
found = server.register(Register("job@1", [0, 0, 1], ["host1", "host2"], 0))
print(server.version.split(",")[0], sorted(found))
for rank, variables in found.items():
    print(variables["PMIX_NAMESPACE"], variables["PMIX_RANK"], "PMIX_SERVER_URI4" in variables)
server.forget("job@1")
server.register(Register("job@2", [0], ["host1"], 0))
print("well")
"""


def path_of_version_4() -> str:
    """The path of a PMIx library without functions of version 5."""
    name = ctypes.util.find_library("pmix") or ""
    program = f"import ctypes; print(hasattr(ctypes.CDLL({name!r}), 'PMIx_Info_create'))"
    if (
        not name
        or subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout != b"False\n"
    ):
        pytest.skip("there is no PMIx library of version 4: the package libpmix2 of Debian 12 has one")
    return name


@pytest.mark.timeout(60)
def test_the_server_runs_with_a_library_of_version_4(tmp_path: Path) -> None:
    words = [sys.executable, "-c", PROGRAM, path_of_version_4(), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("OpenPMIx 4.")
    assert lines[0].endswith("[0, 1]")
    assert lines[1:] == ["job@1 0 True", "job@1 1 True", "well"]


def test_a_library_before_version_4_is_refused() -> None:
    with pytest.raises(PmixError, match=r"has no PMIx_Value_destruct: it is older than version 4\.1"):
        pmix_older.supply(ctypes.CDLL(None))
