"""`pytest -m device` loads no module without such tests: where a card is there may be no dask and no hypothesis."""

import os
import subprocess
import sys

from tests.helpers import ROOT

WITHOUT = """
import sys

class Missing:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in ("dask", "joblib", "hypothesis", "tqdm"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing)
import pytest
sys.exit(pytest.main(["-m", "device", "--collect-only", "-q", "-p", "no:cacheprovider", "-p", "pytest_timeout"]))
"""


def test_device_tests_are_found_where_other_libraries_are_not() -> None:
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # hypothesis has one too
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    files = {line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line}
    assert files == {
        "tests/device/test_card.py",
        "tests/e2e/gpu/test_device_arrays.py",
        "tests/e2e/gpu/test_examples.py",
    }
