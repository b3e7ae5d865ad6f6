"""`runtime_env`: what is refused, and what a call's own comes to beside that of its process."""

import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

from mpi_runtime import runtime_env, specs
from mpi_runtime.objects.serialize import Serialized
from mpi_runtime.processes.client import Client
from mpi_runtime.processes.scratch import PY_MODULES, WORKING_DIR, held, needs_files
from mpi_runtime.runtime_env import RuntimeEnv


@pytest.mark.parametrize(
    "given",
    [
        {}, {"env_vars": {}}, {"env_vars": {"A": ""}}, {"working_dir": "."}, {"working_dir": Path()},
        {"py_modules": ["a", Path("b.py"), math]}, {"excludes": ["*.csv"]}, {"config": {"eager_install": True}},
        {"working_dir": None, "py_modules": None, "env_vars": None},
    ],
    ids=str,
)  # fmt: skip
def test_good(given: dict[str, Any]) -> None:
    runtime_env.check("runtime_env", given)
    assert {**given, **RuntimeEnv(**given)} == given


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"pip": ["emoji"]}, "install it, before the job"), ({"conda": "x"}, "install it"), ({"uv": []}, "install it"),
        ({"container": {}}, "in the container"), ({"image_uri": "x"}, "in the container"),
        ({"py_executable": "uv run"}, "same"), ({"worker_process_setup_hook": print}, "constructor"),
        ({"nsight": "default"}, "profiler"), ({"java_jars": []}, "Java"), ({"workdir": "."}, "there are: env_vars"),
        ({"working_dir": 1}, "must be a path"), ({"working_dir": "s3://bucket/x.zip"}, "fetches nothing"),
        ({"py_modules": "a"}, "must be a list"), ({"py_modules": [1]}, "must be a path"),
        ({"py_modules": ["x.whl"]}, "install it"), ({"py_modules": ["s3://x"]}, "fetches nothing"),
        ({"excludes": "*.csv"}, "must be a list"), ({"excludes": [1]}, "must be a list"),
        ({"env_vars": {"A": 1}}, "must be a string"), ({"env_vars": {1: "A"}}, "must be a string"),
        ({"env_vars": ["A"]}, "must be a dict"), ({"env_vars": {"A=B": "x"}}, "name of a variable"),
        ({"env_vars": {"": "x"}}, "name of a variable"), ({"env_vars": {"A": "x\0"}}, "null character"),
    ],
    ids=str,
)  # fmt: skip
def test_bad(given: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        runtime_env.check("runtime_env", given)
    with pytest.raises((TypeError, ValueError), match=words):
        RuntimeEnv(**{str(key): value for key, value in given.items()})


class Store:
    """Of a client: what packing needs."""

    def __init__(self) -> None:
        self.environment: dict[str, str] = {"A": "1", "B": "1"}
        self.archives: dict[str, Any] = {}
        self.packed: dict[Any, str] = {}
        self.stored = 0
        self.store = self

    def put_serialized(self, value: Serialized) -> Any:
        self.stored += 1
        return Reference(self.stored)


class Reference:
    def __init__(self, number: int) -> None:
        self.number = number

    def hex(self) -> str:
        return f"{self.number:032x}"

    def check_job(self) -> None:
        """It always runs here."""


def environment(store: Store, **given: Any) -> dict[str, str]:
    return specs.environment(cast(Client, store), {"runtime_env": given})


def test_what_a_call_says_is_laid_over_what_its_process_has(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "file").touch()
    (tmp_path / "module.py").touch()
    store = Store()
    assert specs.environment(cast(Client, store), {}) is store.environment
    assert environment(store, env_vars={"B": "2", "C": "3"}) == {"A": "1", "B": "2", "C": "3"}
    one = environment(store, working_dir=str(tmp_path / "one"))
    assert {"A": "1", "B": "1"}.items() <= one.items()
    assert held(one) == [(1).to_bytes(16, "big")]
    assert needs_files(one)
    store.environment = one
    both = environment(store, py_modules=[tmp_path / "module.py", tmp_path / "two"])
    assert both[WORKING_DIR] == one[WORKING_DIR]
    assert [int.from_bytes(id, "big") for id in held(both)] == [1, 2, 3]
    store.environment = both
    less = environment(store, working_dir=tmp_path / "two", py_modules=[])
    assert less[WORKING_DIR] != one[WORKING_DIR]
    assert less[PY_MODULES] == ""
    assert store.stored == 4, "as a module a directory stands in itself"


def test_a_directory_is_packed_once_and_stored_once(tmp_path: Path) -> None:
    for name in ("one", "same"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("text")
    store = Store()
    first = environment(store, working_dir=tmp_path / "one")
    (tmp_path / "one" / "file").write_text("changed")
    assert environment(store, working_dir=tmp_path / "one") == first, "a snapshot"
    assert environment(store, working_dir=tmp_path / "same") == first, "the same content"
    assert environment(store, working_dir=tmp_path / "one", excludes=["file"]) != first
    assert store.stored == 2


def test_modules(tmp_path: Path) -> None:
    store = Store()
    path = tmp_path / "single.py"
    path.touch()
    single = ModuleType("single")
    single.__file__ = str(path)
    (tmp_path / "package").mkdir()
    package = ModuleType("package")
    package.__path__ = [str(tmp_path / "package")]
    assert len(held(environment(store, py_modules=[single, package, tmp_path / "package"]))) == 3
    assert store.stored == 2
    package.__path__ = ["a", "b"]
    for module in (sys, package):
        with pytest.raises(ValueError, match=module.__name__):
            environment(store, py_modules=[module])
    with pytest.raises(ValueError, match=r"neither a directory nor a \.py file"):
        environment(store, py_modules=["nowhere"])
