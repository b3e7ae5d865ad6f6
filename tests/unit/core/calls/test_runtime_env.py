"""`runtime_env`: what is refused, and what a call's own comes to beside that of its process."""

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

from mpi_runtime.core.calls import runtime_env, specs
from mpi_runtime.core.calls.runtime_env import RuntimeEnv
from mpi_runtime.core.client import current
from mpi_runtime.core.client.client import Client
from mpi_runtime.core.client.object_ref import adopt
from mpi_runtime.core.client.scope import Inherited
from mpi_runtime.core.executor.scratch import PY_MODULES, WORKING_DIR, held, needs_files
from mpi_runtime.core.objects import arena
from mpi_runtime.core.objects.arena import ClientArena
from mpi_runtime.core.transport import channel
from mpi_runtime.errors import ObjectStoreFullError


@pytest.mark.parametrize(
    "given",
    [
        {}, {"env_vars": {}}, {"env_vars": {"A": ""}}, {"working_dir": "."}, {"working_dir": Path()},
        {"py_modules": ["a", Path("b.py"), math]}, {"excludes": ["*.csv"]}, {"config": {"eager_install": True}},
        {"nsight": "default"}, {"nsight": {"t": "cuda,nvtx"}}, {"nsight": None},
        {"working_dir": None, "py_modules": None, "env_vars": None},
    ],
    ids=str,
)  # fmt: skip
def test_good(given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "b.py").touch()
    runtime_env.check("runtime_env", given)
    assert {**given, **RuntimeEnv(**given)} == given


@pytest.mark.parametrize("given", [{"working_dir": "/missing"}, {"py_modules": [math, Path("/missing")]}], ids=str)
def test_files_that_are_not_there(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="'/missing', and there is no such file"):
        RuntimeEnv(**given)


def test_an_empty_list_of_what_is_left_out_says_nothing() -> None:
    assert RuntimeEnv(excludes=[], env_vars={}) == {"env_vars": {}}


def test_an_environment_of_another_host_is_read() -> None:
    text = '{"working_dir": "/missing"}'
    assert RuntimeEnv.deserialize(text).serialize() == text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"pip": ["emoji"]}, "install it, before the job"), ({"conda": "x"}, "install it"), ({"uv": []}, "install it"),
        ({"container": {}}, "in the container"), ({"image_uri": "x"}, "in the container"),
        ({"py_executable": "uv run"}, "same"), ({"worker_process_setup_hook": "print"}, "module.function"),
        ({"nsight": "all"}, "options of nsys profile"), ({"nsight": {"t": 1}}, "options of nsys"),
        ({"java_jars": []}, "Java"), ({"workdir": "."}, "there are: env_vars"),
        ({"working_dir": 1}, "must be a path"), ({"working_dir": "s3://bucket/x.zip"}, "downloads nothing"),
        ({"py_modules": "a"}, "must be a list"), ({"py_modules": [1]}, "must be a path"),
        ({"py_modules": ["x.whl"]}, "install it"), ({"py_modules": ["s3://x"]}, "downloads nothing"),
        ({"excludes": "*.csv"}, "must be a list"), ({"excludes": [1]}, "must be a list"),
        ({"env_vars": {"A": 1}}, r"Dict\[str, str\].* value 1 is of type <class 'int'>"),
        ({"env_vars": {1: "A"}}, "key 1 is of type"), ({"config": {"setup_timeout_seconds": 0}}, "must be positive"),
        ({"config": {"setup_timeout_seconds": 1.5}}, "whole"), ({"config": {"eager_install": 1}}, "True or False"),
        ({"env_vars": ["A"]}, "names and texts"), ({"env_vars": {"A=B": "x"}}, "name of a variable"),
        ({"env_vars": {"": "x"}}, "name of a variable"), ({"env_vars": {"A": "x\0"}}, "null character"),
    ],
    ids=str,
)  # fmt: skip
def test_bad(given: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        runtime_env.check("runtime_env", given)
    with pytest.raises((TypeError, ValueError), match=words):
        RuntimeEnv(**{str(key): value for key, value in given.items()})


@pytest.fixture
def inherited() -> Iterator[Inherited]:
    """Of a client that has the archives, and nobody at the other end of its line."""
    ours, theirs = channel.pair()
    descriptor = arena.create(1 << 20, 1)
    client = Client(ours, ClientArena(descriptor), {0: 0}, 65536)
    client.inherited.environment = {"A": "1", "B": "1"}
    current.set_client(client)
    yield client.inherited
    current.set_client(None)
    client.close()
    for one in (ours, theirs):
        one.close()
    os.close(descriptor)


def environment(inherited: Inherited, **given: Any) -> dict[str, str]:
    return specs.environment(inherited, {"runtime_env": given})


def test_what_a_call_says_is_laid_over_what_its_process_has(tmp_path: Path, inherited: Inherited) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "file").touch()
    (tmp_path / "module.py").touch()
    assert specs.environment(inherited, {}) is inherited.environment
    assert environment(inherited, env_vars={"B": "2", "C": "3"}) == {"A": "1", "B": "2", "C": "3"}
    one = environment(inherited, working_dir=str(tmp_path / "one"))
    assert {"A": "1", "B": "1"}.items() <= one.items()
    assert held(one) == list(inherited.archives.values())
    assert needs_files(one)
    inherited.environment = one
    both = environment(inherited, py_modules=[tmp_path / "module.py", tmp_path / "two"])
    assert both[WORKING_DIR] == one[WORKING_DIR]
    assert held(both) == list(inherited.archives.values())
    assert len(held(both)) == 3
    inherited.environment = both
    less = environment(inherited, working_dir=tmp_path / "two", py_modules=[])
    assert less[WORKING_DIR] != one[WORKING_DIR]
    assert less[PY_MODULES] == ""
    assert len(inherited.archives) == 4, "as a module a directory stands in itself"


def test_a_directory_is_packed_once_and_stored_once(tmp_path: Path, inherited: Inherited) -> None:
    for name in ("one", "same"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("text")
    first = environment(inherited, working_dir=tmp_path / "one")
    (tmp_path / "one" / "file").write_text("changed")
    assert environment(inherited, working_dir=tmp_path / "one") == first, "a snapshot"
    assert environment(inherited, working_dir=tmp_path / "same") == first, "the same content"
    assert environment(inherited, working_dir=tmp_path / "one", excludes=["file"]) != first
    assert len(inherited.archives) == 2


def test_modules(tmp_path: Path, inherited: Inherited) -> None:
    path = tmp_path / "single.py"
    path.touch()
    single = ModuleType("single")
    single.__file__ = str(path)
    (tmp_path / "package").mkdir()
    package = ModuleType("package")
    package.__path__ = [str(tmp_path / "package")]
    assert len(held(environment(inherited, py_modules=[single, package, tmp_path / "package"]))) == 3
    assert len(inherited.archives) == 2
    package.__path__ = ["a", "b"]
    for module in (sys, package):
        with pytest.raises(ValueError, match=module.__name__):
            environment(inherited, py_modules=[module])
    with pytest.raises(ValueError, match=r"neither a directory nor a \.py file"):
        environment(inherited, py_modules=["nowhere"])


def test_what_could_not_be_stored_is_packed_again(
    tmp_path: Path, inherited: Inherited, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> NoReturn:
        raise ObjectStoreFullError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(runtime_env, "put", full)
        with pytest.raises(ObjectStoreFullError):
            environment(inherited, working_dir=tmp_path)
    assert len(held(environment(inherited, working_dir=tmp_path))) == 1


def test_an_archive_that_calls_name_is_kept_though_another_process_has_packed_the_same(
    tmp_path: Path, inherited: Inherited
) -> None:
    here = environment(inherited, working_dir=tmp_path)
    (hash,) = inherited.archives
    other = runtime_env.Archive(hash, adopt(b"o" * 16))
    assert environment(inherited, working_dir=other) == here
    del other
    client = current.client()
    client.outbox.flush()
    assert [*client.references.counts] == held(here), "the one that is named"
