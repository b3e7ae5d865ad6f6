"""Names the packages; all else stands in pyproject.toml.

Three of them lie beside `mpi_runtime/`, which has links to them. A source distribution has no links, so they are looked
for where they really are.
"""

from setuptools import find_packages, setup

BESIDE = ("gpu", "scheduler", "slurm")

setup(
    packages=sorted(
        {
            *find_packages(include=["mpi_runtime*"]),
            *(f"mpi_runtime.{name}" for one in BESIDE for name in find_packages(include=[one, f"{one}.*"])),
        }
    )
)
