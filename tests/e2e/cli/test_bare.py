"""In an environment with nothing but the dependencies: optional libraries are asked for where they are used.

`make bare` makes the environment and runs this; without the environment the tests are skipped.
"""

import os
import re
from pathlib import Path

import pytest

from mpi_runtime.as_ray.ray_names import LIBRARIES, MODULES
from mpi_runtime.cli.main import VERBS
from tests.e2e.cli.test_examples import EXAMPLES, LINES, NEEDS, check
from tests.e2e.tune import test_program as test_tune_program
from tests.helpers import ROOT, Completed, run_program

PYTHON = Path(os.environ.get("MPI_RUNTIME_BARE_PYTHON", ROOT / ".venv-bare" / "bin" / "python"))
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason=f"no {PYTHON}: `make bare` makes it")

AS_RAY = ("-m", "mpi_runtime", "--as-ray")
OPTIONAL = {
    # Our modules that need a library, and under which name of Ray they are.
    "mpi_runtime.train.lightning": "ray.train.lightning",
    "mpi_runtime.train.transformers": "ray.train.huggingface.transformers",
    "mpi_runtime.util.dask": "ray.util.dask",
    "mpi_runtime.util.joblib": "ray.util.joblib",
    "mpi_runtime.util.optuna": "",
    "mpi_runtime.util.tqdm": "ray.experimental.tqdm_ray",
}


def run_bare(program: str | Path, *args: str, options: tuple[str, ...] = ()) -> Completed:
    return run_program(program, *args, options=options, python=PYTHON).expect(0)


def test_the_environment_has_the_dependencies_alone() -> None:
    found = run_bare("import importlib.metadata as m; print(*sorted({d.metadata['Name'] for d in m.distributions()}))")
    dependencies = re.findall(r'^    "([\w-]+)', (ROOT / "pyproject.toml").read_text().split("[project.opt")[0], re.M)
    assert set(found.stdout.split()) - {"pip", "setuptools"} <= {*dependencies, "mpi-runtime"}


def test_every_module_can_be_imported_but_those_named_after_a_library() -> None:
    completed = run_bare(
        f"INNER = {sorted(INNER)}"
        + """
import importlib, pkgutil
import mpi_runtime
for found in pkgutil.walk_packages(mpi_runtime.__path__, "mpi_runtime."):
    if not found.name.endswith("__main__") and found.name not in INNER:
        try:
            importlib.import_module(found.name)
        except ImportError as error:
            print(found.name, "pip install " in str(error))
"""
    )
    assert completed.stdout == "".join(f"{name} True\n" for name in OPTIONAL)


INNER = {
    "mpi_runtime.cli.top_screen",
    "mpi_runtime.data.columns",
    "mpi_runtime.show.server",
    *(f"mpi_runtime.rl.{name}" for name in ("a2c", "a3c", "apex", "dqn", "learner", "nets_torch", "ppo", "sac")),
}
"""Modules that need a library, and are loaded by others, which say so."""
NAMES = """
import importlib, inspect, sys
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    inspect.getmembers(module)
    for public in getattr(module, "__all__", ()):
        getattr(module, public)
    exec(f"from {name} import *")
print("all")
"""
MISSING = """
import sys
for name in sys.argv[1:]:
    above, _, last = name.rpartition(".")
    for line in (f"import {name}", f"from {above} import {last}", f"from {name} import *"):
        try:
            exec(line)
        except ImportError as error:
            assert "pip install " in str(error), error
        else:
            raise AssertionError(line)
    assert not hasattr(sys.modules[above], last), name
print("all")
"""
RAY = [name for name in MODULES if name not in OPTIONAL.values()]
OURS = [
    "mpi_runtime",
    "mpi_runtime.util",
    "mpi_runtime.tune",
    "mpi_runtime.tune.search",
    "mpi_runtime.tune.schedulers",
    "mpi_runtime.data",
]


@pytest.mark.parametrize(
    ("start", "options", "names", "missing"),
    [
        ("", (), OURS, list(OPTIONAL)),
        ("", AS_RAY, RAY, list(filter(None, OPTIONAL.values()))),
        ("import mpi_runtime; mpi_runtime.install_as_ray()", (), RAY, list(filter(None, OPTIONAL.values()))),
    ],
    ids=["plainly", "as-ray", "install_as_ray"],
)
def test_every_public_name(start: str, options: tuple[str, ...], names: list[str], missing: list[str]) -> None:
    assert run_bare(start + NAMES, *names, options=options).stdout == "all\n"
    assert run_bare(start + MISSING, *missing, options=options).stdout == "all\n"


def test_a_library_is_named_where_it_is_used(tmp_path: Path) -> None:
    completed = run_bare(
        """
import sys
import mpi_runtime
from mpi_runtime import tune
mpi_runtime.init(num_cpus=2)
results = tune.Tuner(
    lambda config: {"loss": config["x"]}, param_space={"x": tune.grid_search([1, 2])},
    run_config=tune.RunConfig(name="bare", storage_path=sys.argv[1]),
    tune_config=tune.TuneConfig(metric="loss", mode="min"),
).fit()
print(results.get_best_result().metrics["loss"])
for name in ("OptunaSearch", "HyperOptSearch", "BayesOptSearch", "NevergradSearch"):
    try:
        getattr(tune.search, name)(space={"x": tune.uniform(0, 1)}, metric="loss", mode="min")
    except ImportError as error:
        print(name, "pip install" in str(error))
for use in (results.get_dataframe, lambda: tune.TBXLoggerCallback()):
    try:
        use()
    except ImportError as error:
        print("pip install" in str(error))
""",
        str(tmp_path),
    )
    assert completed.stdout.split("1\n", 1)[1].count("True") == 6, completed.output()


@pytest.mark.parametrize("verb", VERBS)
def test_verbs(verb: str) -> None:
    words = [] if verb == "version" else ["--help"]
    assert run_bare(f"import sys; sys.argv[:] = {['mpi-runtime', verb, *words]}\n"
                    "from mpi_runtime.cli.main import main; sys.exit(main())").stdout  # fmt: skip


@pytest.mark.timeout(150)
@pytest.mark.parametrize("name", [name for name in LINES if name not in NEEDS])
def test_examples_as_ray(name: str) -> None:
    """Under their own names they run in `test_examples.py`."""
    source = (EXAMPLES / f"{name}.py").read_text()
    renamed = re.sub(r"^import mpi_runtime$", "import ray as mpi_runtime", source, flags=re.M)
    renamed = re.sub(r"^from mpi_runtime(?!.*\bbatch\b)", "from ray", renamed, flags=re.M)
    completed = run_bare(renamed, options=AS_RAY)
    check(name, completed.stdout)
    assert completed.stderr == ""


def test_the_program_of_the_articles_as_it_is_in_them(tmp_path: Path) -> None:
    app = test_tune_program.APP.replace("STOP", "{'mean_accuracy': 100, 'timesteps_total': 300}")
    app = app.replace("ALPHAS", "[0.2, 0.4, 0.6]").replace("import mpi_runtime\n", "import ray\n")
    app = app.replace("from mpi_runtime.", "from ray.").replace("mpi_runtime.init", "ray.init")
    assert "mpi_runtime" not in app
    completed = run_bare(app, str(tmp_path), options=AS_RAY)
    assert sorted(line.split()[2] for line in completed.stdout.splitlines()) == ["151"] * 3 + ["301"] * 3


def test_what_ray_has_and_is_not_here_says_so() -> None:
    completed = run_bare(
        """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert "`ray` is mpi_runtime" in str(error), error
    else:
        raise AssertionError(name)
print("all")
""",
        *(f"{name}.other" if name in MODULES else name for name in sorted(LIBRARIES)),  # the first are here in part
        options=AS_RAY,
    )
    assert completed.stdout == "all\n"
