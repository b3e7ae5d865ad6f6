"""docs/: each public name is in the reference and has a docstring, tables are complete, links lead somewhere.

`make docs` builds the site and checks links and references once more; this needs none of its tools.
"""

import ast
import importlib
import inspect
import pkgutil
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime import batch, config, errors, exceptions, slurm, train, tune, util
from mpi_runtime.cli import run
from mpi_runtime.cli.main import VERBS
from mpi_runtime.core.calls import options
from mpi_runtime.errors import ray as ray_errors
from mpi_runtime.tune import schedulers, search
from tests.helpers import ROOT
from tests.rules.house import PACKAGE, files, modules, packages, texts

GUIDES = "\n".join(path.read_text() for path in sorted((ROOT / "docs" / "guides").glob("*.md")))
REFERENCE = {path: path.read_text() for path in sorted((ROOT / "docs" / "reference").glob("*.md"))}
DIRECTIVE = re.compile(r"^::: mpi_runtime\.([\w.]+)$", re.MULTILINE)
DIRECTIVES = [name for text in REFERENCE.values() for name in DIRECTIVE.findall(text)]
PAGES = {path: text for path, text in texts() if path.suffix == ".md"}
FILE_OF_TESTS = re.compile(r"\btest_\w+\.py\b")
INSIDE = {
    "actor_pool",
    "addresses",
    "check_serialize",
    "collective_group",
    "helpers",
    "broadcasting",
    "serialization",
    "background_calls",
    "pool_process",
    "pool_results",
}
"""Modules of `util` whose public names are those of other modules."""
NOT_FOR_USERS = {"pauses", "terminated"}
TRAIN_MODULES = {"train.torch", "train.collective"}
RAYS_NAMES = {name for name in exceptions.__all__ if getattr(exceptions, name).__name__ != name} | {*ray_errors.__all__}
"""Other names of errors of ours, which a guide lists, and errors that nothing raises."""
NOT_SET_BY_USERS = {config.RANKS_TAKEN}
"""Variables that we set ourselves."""
OTHER_NAMES = {
    "train.TorchTrainer",
    "train.TrainContext",
    "tune.TuneContext",
    "tune.schedulers.ASHAScheduler",
    "util.state.memory_summary",
}
"""Of things that have a place of their own."""
MODULES_MAX = 24
"""In one folder of the package."""
LOOSE_MAX = 11
"""Files in the folder of the package itself."""
STANDARD = {"util.multiprocessing.TimeoutError"}
"""The standard library documents it."""


def find(name: str) -> Any:
    """What a dotted name stands for. A module goes before a function of the same name, if something of it is meant."""
    parts = name.split(".")
    for count in range(len(parts) - 1, -1, -1):
        try:
            value: Any = importlib.import_module(".".join(["mpi_runtime", *parts[:count]]))
        except ImportError as error:
            if not (error.name or "").startswith("mpi_runtime"):
                pytest.skip(f"needs {error.name or error}")
            continue
        for part in parts[count:]:
            value = inspect.getattr_static(value, part) if inspect.isclass(value) else getattr(value, part)
        return value
    raise AssertionError(name)


def public_names() -> set[str]:
    """All that the reference has to have."""
    found = {"actor.exit_actor", "config.Config", "runtime_env.RuntimeEnv"}
    found |= {name for name in mpi_runtime.__all__ if not inspect.ismodule(getattr(mpi_runtime, name))}
    found |= {f"errors.{name}" for name in exceptions.__all__ if name not in RAYS_NAMES}
    found |= {f"slurm.{name}" for name in slurm.__all__}
    found |= {f"batch.{name}" for name in batch.__all__}
    found |= {f"tune.{name}" for name in tune.__all__ if not inspect.ismodule(getattr(tune, name))}
    found |= {f"train.{name}" for name in train.__all__ if not hasattr(tune, name)} - TRAIN_MODULES
    for module_name in TRAIN_MODULES:
        public = importlib.import_module(f"mpi_runtime.{module_name}").__all__
        found |= {f"{module_name}.{name}" for name in public}
    found |= {
        f"tune.{part.__name__.rpartition('.')[2]}.{name}" for part in (schedulers, search) for name in part.__all__
    }
    modules = {one.name for one in pkgutil.iter_modules(util.__path__)} - INSIDE - {"placement_group", "accelerators"}
    for path in ["util", *(f"util.{name}" for name in modules)]:
        module = load(path)
        if module is not None:
            found |= {f"{path}.{name}" for name in getattr(module, "__all__", None) or own_names(module)}
    return found - STANDARD - OTHER_NAMES


def load(path: str) -> Any:
    """A module of the package; None: the library that it needs is not here."""
    try:
        return importlib.import_module(f"mpi_runtime.{path}")
    except ImportError as error:
        if (error.name or "").startswith("mpi_runtime"):
            raise
        return None


def own_names(module: Any) -> set[str]:
    """Names of functions and classes that a module without `__all__` has of itself, or shows of its own insides."""
    homes = (module.__name__, "mpi_runtime.util.pool_results")
    return {
        name
        for name, value in vars(module).items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ in homes
        if not name.startswith("_") and name not in NOT_FOR_USERS
    }


def test_every_public_name_is_in_the_reference() -> None:
    named = {*DIRECTIVES} | {name.replace("util.placement_group.", "util.") for name in DIRECTIVES}
    assert public_names() - named == set()


def test_no_name_is_in_the_reference_twice() -> None:
    assert sorted(DIRECTIVES) == sorted({*DIRECTIVES})


def undocumented(name: str, value: Any) -> Iterator[str]:
    """The name, its public members and its fields, if they have no text. Without one the site does not show them."""
    if inspect.ismodule(value) or inspect.isfunction(value):
        if not inspect.getdoc(value):
            yield name
        return
    assert inspect.isclass(value)
    if not value.__doc__:
        yield name
    for key, member in vars(value).items():
        is_shown = inspect.isfunction(member) or isinstance(member, (property, classmethod, staticmethod))
        if is_shown and not key.startswith("_") and not inspect.getdoc(member):
            yield f"{name}.{key}"
    body = definition(value)
    for node, following in zip(body.body, [*body.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
            is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            if not is_text:
                yield f"{name}.{node.target.id}"


@cache
def definitions() -> Mapping[str, Sequence[tuple[str, ast.ClassDef]]]:
    """The classes of the package by name, each with its module."""
    found = defaultdict(list)
    for name, module in modules().items():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append((name, node))
    return found


def definition(cls: type) -> ast.ClassDef:
    """Where a class is written down. Python looks in the module that offers it, where it is not."""
    for name, node in definitions()[cls.__name__]:
        if getattr(importlib.import_module(name), cls.__name__, None) is cls:
            return node
    pytest.fail(f"{cls} is nowhere")


@pytest.mark.parametrize("name", DIRECTIVES)
def test_what_the_reference_names_exists_and_has_a_text(name: str) -> None:
    assert [*undocumented(name, find(name))] == []


def test_other_names_of_errors_are_in_the_guide() -> None:
    others = {name for name in RAYS_NAMES if hasattr(errors, name)}
    assert others <= {*re.findall(r"`(\w+)`", GUIDES)}


def rows(header: str) -> set[str]:
    """The first cells of the table with this header."""
    table = re.findall(rf"^\| {header} \| .*\n\| --- .*\n((?:\| .*\n)+)", GUIDES, re.MULTILINE)
    return set(re.findall(r"^\| `([^` ]+)", "".join(table), re.MULTILINE))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("option of tasks", options.TASK_OPTIONS),
        ("option of actors", options.ACTOR_OPTIONS),
        ("option of methods", options.METHOD_OPTIONS),
        (
            "variable",
            {text for text in vars(config).values() if str(text).startswith("MPI_RUNTIME_")} - NOT_SET_BY_USERS
            | {config.RAY_LOGGING},
        ),
    ],
)
def test_tables_are_complete(header: str, expected: Iterable[str]) -> None:
    assert rows(header) == set(expected)


def test_options_of_the_command_line_are_complete() -> None:
    written = rows("option of run")
    options_of_run = [set(action.option_strings) for action in run.run_parser()._actions if action.dest != "help"]
    assert written <= set().union(*options_of_run)
    assert all(written & names for names in options_of_run)


def test_verbs_are_complete() -> None:
    assert set(re.findall(r"^\| `mpi-runtime (\w+)", GUIDES, re.MULTILINE)) == set(VERBS)


def anchors(path: Path) -> set[str]:
    """What a link can lead to within a page: its headings, and in the reference the names and their members."""
    prose = re.sub(r"^```.*?^```$", "", PAGES[path], flags=re.MULTILINE | re.DOTALL)
    found = {
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    }
    for name in DIRECTIVE.findall(PAGES[path]):
        value = find(name)
        members = {key for one in value.__mro__ for key in vars(one)} if inspect.isclass(value) else set()
        found |= {f"mpi_runtime.{name}", *(f"mpi_runtime.{name}.{key}" for key in members)}
    return found


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_links_lead_somewhere(path: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", PAGES[path], flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)]+)\)", prose):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        page = (ROOT / path.parent / file).resolve().relative_to(ROOT) if file else path
        assert (ROOT / page).exists(), target
        if anchor:
            assert anchor in anchors(page), target


def test_files_of_tests_that_pages_name_exist() -> None:
    names = {path.name for path in files()}
    wrong = [
        f"{path}: {name}" for path, text in PAGES.items() for name in FILE_OF_TESTS.findall(text) if name not in names
    ]
    assert not wrong


def test_figures_of_the_readme_are_those_of_the_benchmark() -> None:
    measured = PAGES[Path("docs/performance.md")]
    figures = re.findall(r"\d+,\d{3}", PAGES[Path("README.md")])
    assert figures
    assert [figure for figure in figures if f"{figure} /s" not in measured] == []


def test_each_example_is_in_the_gallery() -> None:
    named = set(re.findall(r"`examples/([\w/.]+)`", PAGES[Path("docs/examples.md")]))
    known = {path.relative_to(ROOT / "examples").as_posix() for path in (ROOT / "examples").rglob("*.toml")}
    known |= {path.name for path in (ROOT / "examples").glob("*.py")}
    assert named == known


ROOMS = packages()  # not of `modules`: each process of tests would parse all
IN_MAP = re.compile(r"^- `(\w+)(?:\.py|/)`: \S", re.MULTILINE)


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_has_its_map(room: str) -> None:
    """The docstring of a room names what stands in it, a line each."""
    inside = [name.rpartition(".")[2] for name in modules() if name.rpartition(".")[0] == room]
    assert sorted(IN_MAP.findall(ast.get_docstring(modules()[room].tree) or "")) == sorted(inside)


def test_rooms_are_small() -> None:
    sizes = Counter(module.path.parent for module in modules().values() if module.path.stem != "__init__")
    assert {room: size for room, size in sizes.items() if size > MODULES_MAX} == {}
    loose = list((ROOT / PACKAGE).glob("*.py"))
    assert len(loose) <= LOOSE_MAX, "only what `import mpi_runtime.X` must find, and what finds it"


def test_each_role_finds_its_door_in_the_first_screen_of_the_readme() -> None:
    """Before the word rank: who has a pool, commands, a Ray program, MPI programs, or a change of this code in mind."""
    screen = (ROOT / "README.md").read_text().split("\n## ")[0]
    assert len(screen.splitlines()) < 24
    for words in ("`multiprocessing`", "shell commands", "for Ray", "MPI programs", "change of this code"):
        assert any(words in line and "](" in line for line in screen.splitlines()), words
    assert "rank" not in screen.lower()
