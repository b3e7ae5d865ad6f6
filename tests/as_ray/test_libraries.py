"""Libraries that are made for Ray, unchanged, on this runtime: `make as-ray` installs them and runs this.

Elsewhere they are not installed, and each test is skipped. docs/libraries.md is the table of the last run.
"""

import importlib.util
from pathlib import Path

import pytest

from tests.helpers import run_program

LIBRARIES = Path(__file__).parent / "libraries"
EXPECTED = {
    # program: (the module that it needs, what it prints)
    "cotengra_search": ("cotengra", "True 8\n32 [1, 2]\n"),
    "cubed_arrays": ("cubed", "[[2, 4, 6], [8, 10, 12], [14, 16, 18]] 45\n"),
    "daft_frames": ("daft", "{'group': [1, 2], 'value': [3, 3]}\n"),
    "dagster_options": ("dagster_ray", "3\n"),
    "dask_graph": ("dask", "499500\n(np.int64(999), np.int64(0))\n499.5\n"),
    "datatrove_pipeline": ("datatrove", "40\n"),
    "deephyper_search": ("deephyper", "True True 2\n"),
    "dipy_voxels": ("dipy", "(3, 2, 2, 15) True\n"),
    "econml_crossfit": ("econml", "True 3.0\n"),
    "eolearn_patches": ("eolearn", "True (3, 8, 8, 1) 0\n[1, 2, 3]\n"),
    "evotorch_search": ("evotorch", "2 True\n"),
    "flaml_tune": ("flaml", "20 True\n"),
    "flwr_simulation": ("flwr", "1 [1.5, 1.5]\n2 [3.0, 3.0]\n3 [4.5, 4.5]\n"),
    "hamilton_dag": ("hamilton", "{'total': 42, 'squared': 36}\n{'added': 100}\n"),
    "hiclass_nodes": ("hiclass", "True 1.0\n"),
    "hydra_sweep": ("hydra_plugins.hydra_ray_launcher", "['1', '4', '9']\n"),
    "joblib_sklearn": ("sklearn", "True\n"),
    "modin_frames": ("modin", "groupby\nsort\nmerge\napply\ndescribe\nparquet\nerror True\n"),
    "neuralforecast_auto": ("neuralforecast", "6 True 2\n"),
    "prefect_flow": ("prefect_ray", "14\n"),
    "pymoo_problem": ("pymoo", "True True\n"),
    "rayease_functions": ("ray_ease", "[0, 2, 4, 6]\n"),
    "sktime_parallel": ("sktime", "[0, 3, 6, 9, 12]\nTrue 5\n"),
    "sunray_typed": ("sunray", "7 3\n8 [0, 1, 2]\n"),
    "swifter_groupby": ("swifter", "True\n"),
    "tianshou_envs": ("tianshou", "True True\n"),
    "unidist_backend": ("unidist", "[0, 1, 4, 9, 16]\n[11, 13] True\n5 0 True\n"),
    "xyzpy_combos": ("xyzpy", "[[41, 51], [42, 52], [43, 53]]\n"),
}


def test_each_program_is_run() -> None:
    assert {path.stem for path in LIBRARIES.glob("*.py")} == EXPECTED.keys()


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", EXPECTED)
def test_a_library_made_for_ray(name: str) -> None:
    module, expected = EXPECTED[name]
    if importlib.util.find_spec(module.partition(".")[0]) is None or importlib.util.find_spec(module) is None:
        pytest.skip(f"needs {module}: make as-ray")
    program = LIBRARIES / f"{name}.py"
    options = ("-W", "ignore", "-m", "mpi_runtime", "--as-ray")
    completed = run_program(program, ranks=3, options=options, timeout=200).expect(0)
    # What colorama adds at the end of a program, where some library has loaded it.
    assert completed.stdout.removesuffix("\x1b[0m") == expected
