"""What a process loads for evolution strategies."""

import subprocess
import sys

import pytest

pytest.importorskip("gymnasium")


def test_es_needs_no_torch() -> None:
    program = (
        "import sys\n"
        "from mpi_runtime import rl\n"
        "assert not {'torch', 'gymnasium'} & set(sys.modules), 'at the import'\n"
        "rl.ES('CartPole-v1', noise_size=100_000, population=4).train()\n"
        "assert 'torch' not in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
