"""Stands before the real pynvml in a process that is to see a described machine (`tests.fake_nvml.machines.shown`).

Loads the real module from where the variable says, and puts the stand-in under it in the place of the C library.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path

from tests.fake_nvml.library import Library

_spec = importlib.util.spec_from_file_location("pynvml", os.environ["FAKE_NVML_PYNVML"])
assert _spec is not None
assert _spec.loader is not None
_real = importlib.util.module_from_spec(_spec)
sys.modules["pynvml"] = _real  # it looks itself up there
_spec.loader.exec_module(_real)
_machine = os.environ["FAKE_NVML_MACHINE"]
_real.nvmlLib = Library(json.loads(Path(_machine).read_text() if _machine.startswith("/") else _machine))
