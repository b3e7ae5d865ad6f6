"""docs/api: every public name stands there with its arguments and their defaults, and none that does not exist."""

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime import config, errors, exceptions, util
from mpi_runtime.calls import options
from mpi_runtime.calls.mapping import Results
from mpi_runtime.calls.placement_groups import PlacementGroup
from mpi_runtime.cli import run
from mpi_runtime.cli.main import VERBS
from tests.helpers import ROOT

PAGES = {path.name: path.read_text() for path in sorted((ROOT / "docs" / "api").glob("*.md"))}
TEXT = "\n".join(PAGES.values())
ENTRY = re.compile(r"([\w.]+)(\(.*\))?")
OWN_SYNTAX = {"remote", "method", "RemoteFunction.remote", "ActorClass.remote"}
"""Used as decorators, or taking what the function takes: what is written there is how they are used."""
INSIDE = {
    "actor_pool",
    "addresses",
    "background_calls",
    "check_serialize",
    "collective_group",
    "helpers",
    "pool_process",
    "pool_results",
    "serialization",
}
"""Modules of `util` whose public names are those of other modules."""
NOT_FOR_USERS = {"pauses", "terminated"}


def entries() -> Iterator[tuple[str, str]]:
    """Name and signature (with brackets, or empty) of each entry: headings, and the first cells of tables of names."""
    of_names = False
    for line in TEXT.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("### `"):
            yield from code(line)
        elif line.startswith("| ") and cells[0] in ("name", "condition", "error"):
            of_names = True
        elif line.startswith("| `") and of_names:
            for cell in cells[:-1]:
                yield from code(cell)
        elif not line.startswith("|"):
            of_names = False


def code(text: str) -> list[tuple[str, str]]:
    """The names in a cell or heading, with what stands in brackets behind them."""
    found = (ENTRY.fullmatch(span) for span in re.findall(r"`([^`]+)`", text))
    return [(one[1], one[2] or "") for one in found if one]


ENTRIES = list(entries())


def rows(header: str) -> set[str]:
    """The first cells of the table with this header."""
    table = re.findall(rf"^\| {header} \| .*\n\| --- .*\n((?:\| .*\n)+)", TEXT, re.MULTILINE)
    return set(re.findall(r"^\| `([^` ]+)", "".join(table), re.MULTILINE))


def find(name: str) -> Any:
    """What a dotted name stands for. A module goes before a function of the same name, if something of it is meant."""
    parts = name.split(".")
    for count in range(len(parts) - 1, -1, -1):
        try:
            value: Any = importlib.import_module(".".join(["mpi_runtime", *parts[:count]]))
        except ImportError as error:
            if not (error.name or "").startswith("mpi_runtime"):
                pytest.skip(f"needs {error.name}")
            continue
        for part in parts[count:]:
            value = inspect.getattr_static(value, part) if inspect.isclass(value) else getattr(value, part)
        return value
    raise AssertionError(name)


def parameters(signature: str) -> list[tuple[str, str]]:
    """Names and defaults of what is written in brackets."""
    (function,) = ast.parse(f"def f{signature}: ...").body
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults)) + [*arguments.defaults]
    pairs = list(zip(plain, defaults, strict=True))
    if arguments.vararg:
        pairs.append((arguments.vararg, None))
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    if arguments.kwarg:
        pairs.append((arguments.kwarg, None))
    return [(one.arg, ast.unparse(default) if default is not None else "") for one, default in pairs]


def defined(value: Any) -> list[tuple[str, str]]:
    """Names and defaults of what it takes."""
    found = list(inspect.signature(value).parameters.values())
    if inspect.isfunction(value) and "." in value.__qualname__ and found[0].name == "self":
        del found[0]
    return [(one.name, "" if one.default is one.empty else str_of(one.default)) for one in found]


def str_of(default: object) -> str:
    return str(default) if type(default).__name__ == "ReduceOp" else repr(default)


def public_of(name: str, value: object) -> set[str]:
    """The name, and if it is a class those of its public methods and properties."""
    members = vars(value).items() if inspect.isclass(value) else ()
    is_shown = (inspect.isfunction, lambda member: isinstance(member, property))
    shown = (key for key, member in members if not key.startswith("_") and any(is_one(member) for is_one in is_shown))
    return {name, *(f"{name}.{key}" for key in shown)}


def public_names() -> set[str]:
    """All that the pages have to have."""
    found = {"actor.exit_actor"} | public_of("calls.mapping.Results", Results)
    for name in mpi_runtime.__all__:
        value = getattr(mpi_runtime, name)
        if not inspect.ismodule(value):
            found |= public_of(name, value)
    for name in exceptions.__all__:
        found |= {f"errors.{name}" if hasattr(errors, name) else f"exceptions.{name}"}
    found |= public_of("errors.TaskError", errors.TaskError)
    found |= public_of("util.placement_group.PlacementGroup", PlacementGroup)
    modules = {one.name for one in pkgutil.iter_modules(util.__path__)} - INSIDE
    for path in ["util", *(f"util.{name}" for name in modules - {"placement_group"})]:
        module = load(path)
        if module is None:
            continue
        for name in getattr(module, "__all__", None) or own_names(module):
            found |= public_of(f"{path}.{name}", getattr(module, name))
    return found


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


def test_every_public_name_stands_there() -> None:
    mentioned = set(re.findall(r"`(\w+\.[\w.]+)`", TEXT))  # such as `util.state.Entry`
    assert public_names() - {name for name, _ in ENTRIES} - mentioned == set()


@pytest.mark.parametrize(("name", "signature"), ENTRIES, ids=[name for name, _ in ENTRIES])
def test_what_stands_there_exists_and_takes_this(name: str, signature: str) -> None:
    value = find(name)
    if isinstance(value, property):
        assert not signature
    elif (signature or inspect.isfunction(value)) and name not in OWN_SYNTAX:
        assert parameters(signature) == defined(value)


def test_no_name_stands_there_twice() -> None:
    names = [name for name, _ in ENTRIES if not name.startswith("errors.")]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("option of tasks", options.TASK_OPTIONS),
        ("option of actors", options.ACTOR_OPTIONS),
        ("option of methods", options.METHOD_OPTIONS),
        ("argument of init", config.Config.__struct_fields__),
        ("variable", re.findall(r"^    (MPI_RUNTIME_\w+)", config.__doc__ or "", re.MULTILINE)),
    ],
)
def test_options_are_complete(header: str, expected: Iterable[str]) -> None:
    assert rows(header) == set(expected)


def test_options_of_the_command_line_are_complete() -> None:
    written = rows("option of run")
    options_of_run = [set(action.option_strings) for action in run._parser()._actions if action.dest != "help"]
    assert written <= set().union(*options_of_run)
    assert all(written & names for names in options_of_run)


def test_verbs_are_complete() -> None:
    assert set(re.findall(r"^\| `mpi-runtime (\w+)", TEXT, re.MULTILINE)) == set(VERBS)


def test_links_lead_somewhere() -> None:
    for name, text in PAGES.items():
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert (ROOT / "docs" / "api" / target).exists(), f"{name}: {target}"
