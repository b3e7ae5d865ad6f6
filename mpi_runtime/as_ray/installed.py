"""Importing this module makes `import ray` give this runtime in the process that imports it."""

import sys

from mpi_runtime.as_ray.modules import Finder

sys.meta_path.insert(0, Finder())
