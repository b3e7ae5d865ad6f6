"""Whether CUDA still works in this process is asked of libcuda, if somebody has loaded it: here of a stand-in in C."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpi_runtime.gpu import cuda_context
from tests.fake_cuda import memory
from tests.helpers import ROOT

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler (cc)")

PROGRAM = """
import ctypes, sys
from mpi_runtime.gpu import cuda_context

assert cuda_context.driver() is None, "nobody has loaded it, and we do not"
assert cuda_context.error(None) == 0
fake = ctypes.CDLL(sys.argv[1])
found = cuda_context.driver()
for start, dead, active, answer in ((0, 0, 1, 0), (0, 700, 1, 700), (0, 700, 0, 0), (802, 0, 0, 802), (3, 700, 1, 3)):
    fake.fake_set(start, dead, active)
    assert cuda_context.error(found) == answer, (start, dead, active)
    assert cuda_context.start_error(found) == start
    assert fake.fake_kept() == 0, "what was retained is released"
"""


def test_it_is_asked_only_if_it_is_loaded(tmp_path: Path) -> None:
    library = tmp_path / cuda_context.LIBRARY
    source = Path(memory.__file__).with_name("libcuda.c")
    command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{cuda_context.LIBRARY}", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    asked = [sys.executable, "-c", PROGRAM, str(library)]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
