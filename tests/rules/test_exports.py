"""The public names: what `__all__` says, what can be seen and what static tools see are the same, and documented."""

import ast
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import mpi_runtime
from tests.helpers import ROOT
from tests.rules.house import PACKAGE, Module, is_for_types, modules, python_files, statements

NAMES = sorted(mpi_runtime.__all__)


def test_names_are_unique_and_there_are_some() -> None:
    assert {"init", "shutdown", "is_initialized", "remote", "get", "put", "wait", "kill", "ObjectRef"} <= set(NAMES)
    assert len(set(NAMES)) == len(mpi_runtime.__all__)


def test_what_is_visible_is_what_is_exported() -> None:
    """Asked in a fresh interpreter, before anything else has loaded submodules."""
    program = f"import {PACKAGE}; print(*sorted(n for n in dir({PACKAGE}) if not n.startswith('_')))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [name for name in NAMES if not name.startswith("_")]


def test_static_tools_see_every_name() -> None:
    tree = modules()[PACKAGE].tree
    blocks = [node for node in tree.body if not isinstance(node, ast.If) or is_for_types(node)]
    seen = {
        alias.asname or alias.name
        for block in blocks
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom | ast.Import)
        for alias in node.names
    }
    seen |= {
        target.id
        for node in tree.body
        for target in (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if isinstance(target, ast.Name)
    }
    assert set(NAMES) <= seen


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("_")])
def test_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(mpi_runtime, name)
    if isinstance(value, ModuleType) or inspect.isroutine(value):
        assert inspect.getdoc(value)
    elif inspect.isclass(value):
        assert value.__doc__, "the class has no docstring of its own"
        members = [member for key, member in vars(value).items() if not key.startswith("_")]
        undocumented = [one.__qualname__ for one in members if inspect.isfunction(one) and not inspect.getdoc(one)]
        assert not undocumented


def test_a_name_that_is_not_there_is_refused() -> None:
    name = "no_such_name"
    with pytest.raises(AttributeError, match=name):
        getattr(mpi_runtime, name)


def test_modules_of_util_need_no_import_of_their_own() -> None:
    """As `ray.util.queue.Queue()` after `import ray`; and only these names, so that `hasattr` tells the truth."""
    program = (
        f"import {PACKAGE} as ray; print(ray.util.queue.Queue.__name__, ray.util.ActorPool.__name__, "
        "ray.util.multiprocessing.Pool.__name__, hasattr(ray.util, 'nothing'), hasattr(ray.util, '__wrapped__'))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Queue", "ActorPool", "Pool", "False", "False"]


def bound(module: Module) -> set[str]:
    """The names that a module binds when it is loaded."""
    found: set[str] = set()
    todo: list[ast.AST] = [*module.tree.body]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        else:
            todo += ast.iter_child_nodes(node)
    return found


def test_what_others_import_of_the_package_exists() -> None:
    """Of tests and benchmarks mypy does not say it, because it knows neither `C.remote` nor the methods of handles."""
    names = {name: bound(module) for name, module in modules().items()}
    wrong = [
        f"{path}:{node.lineno}: {node.module}.{alias.name}"
        for path, text in python_files()
        if f"from {PACKAGE}" in text
        for node in statements(ast.parse(text).body)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE
        for alias in node.names
        if alias.name != "*"
        and f"{node.module}.{alias.name}" not in names
        and not {alias.name, "*", "__getattr__"} & names.get(node.module or "", set())
    ]
    assert not wrong
