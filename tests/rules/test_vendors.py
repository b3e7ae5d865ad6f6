"""The variables of vendors of GPUs are named in `gpu/`, and in one table of `slurm/`, which knows nothing of `gpu/`."""

import re

from mpi_runtime.gpu.vendor import SHOWN_BY, VENDORS
from mpi_runtime.slurm.systems import devices
from tests.rules.house import PACKAGED, python_files

TABLE = "slurm/systems/devices.py"
NAMES = re.compile(r"\b(?:[A-Z_]+_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|GPU_DEVICE_ORDINAL|ZE_[A-Z_]+|ONEAPI_[A-Z_]+)")


def test_variables_of_vendors_have_one_place() -> None:
    wrong = [
        f"{path}: {found[0]}"
        for path, text in python_files()
        if path.parts[0] in PACKAGED and path.parts[0] != "gpu" and path.as_posix() != TABLE
        for found in NAMES.finditer(text)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_rule_knows_all_of_them() -> None:
    assert all(NAMES.fullmatch(name) for name in (*SHOWN_BY, *devices.ALL))


def test_both_tables_agree() -> None:
    assert tuple(one.of_batch for one in VENDORS) == devices.OF_JOB
