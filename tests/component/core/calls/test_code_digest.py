"""The hash of a function is the same in every process."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.core.calls.test_code_digest import KNOWN, VALUES


@pytest.mark.parametrize("seed", ["0", "1"])
def test_it_is_the_same_in_each_process(seed: str) -> None:
    code = "from tests.unit.core.calls.test_code_digest import KNOWN; print(KNOWN.hex())"
    env = {"PYTHONHASHSEED": seed, "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == KNOWN.hex()


def test_that_of_instances_is_the_same_in_each_process(tmp_path: Path) -> None:
    found = set()
    for seed in ("0", "1"):
        program = tmp_path / f"app{seed}.py"
        program.write_text(
            f"# {seed}\n" * int(seed)
            + VALUES
            + "from mpi_runtime.core.calls.code_digest import digest_of\nprint(digest_of(f).hex())\n"
        )
        env = {"PYTHONHASHSEED": seed, "PATH": ""}
        done = subprocess.run([sys.executable, program], env=env, capture_output=True, text=True, check=True)
        found.add(done.stdout)
    assert len(found) == 1
    assert found != {"\n"}
