"""Which part of the house may know which: arrows point down only, and some rooms have no door at all."""

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.helpers import ROOT
from tests.rules.house import PACKAGE, Module, imports, modules

FLOORS: tuple[tuple[str, ...], ...] = (
    # Top first. A module may import its own floor and those below; the most specific name counts.
    ("__main__", "cli", "util"),
    ("",),  # the package itself: public names, loaded on first use
    ("api",),
    (
        *("remote_function", "mapping", "chunks", "actors", "placement", "strategies", "context"),
        *("arguments", "options", "specs", "running", "runtime_env", "tracing"),
    ),
    ("session",),
    ("processes",),
    ("objects",),
    ("transport",),
    ("config",),
    ("current", "refs", "generators", "errors", "exceptions", "signatures"),
    ("scheduler", "gpu", "slurm"),
)
TYPES_FROM_ABOVE = {
    # The ground floor holds the client of this process without knowing more than its type.
    (f"{PACKAGE}.current", f"{PACKAGE}.processes.client"),
    (f"{PACKAGE}.refs", f"{PACKAGE}.processes.client"),
    (f"{PACKAGE}.generators", f"{PACKAGE}.processes.client"),
    # The package offers it as a name, loaded on first use.
    (PACKAGE, f"{PACKAGE}.util"),
}
PURE_GPU = {f"{PACKAGE}.gpu.{name}" for name in ("device", "topology", "ledger", "request")}
CLOSED: dict[str, Callable[[str], bool]] = {
    # Rooms that know nothing of the package but this.
    f"{PACKAGE}.scheduler": lambda name: below(name, f"{PACKAGE}.scheduler") or name in PURE_GPU,
    f"{PACKAGE}.gpu": lambda name: below(name, f"{PACKAGE}.gpu"),
    f"{PACKAGE}.slurm": lambda name: below(name, f"{PACKAGE}.slurm"),
}
SCHEDULER_IN_TRANSPORT = {f"{PACKAGE}.scheduler.events", f"{PACKAGE}.scheduler.effects"}
PURE_LIBRARY = {
    # What scheduler/ and the pure modules of gpu/ may import besides: nothing that sees the world outside.
    *("__future__", "abc", "array", "bisect", "collections", "contextlib", "copy", "dataclasses", "enum", "functools"),
    *("hashlib", "heapq", "itertools", "math", "operator", "re", "string", "struct", "textwrap", "types", "typing"),
    *("msgspec", "_blake2"),
}
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__", "hash", "id"}
"""`hash` of a string and `id` differ from run to run."""
WRITES_ENVIRONMENT = {"update", "clear", "pop", "setdefault"}


def below(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def floor(name: str) -> int:
    room = name[len(PACKAGE) + 1 :].split(".")[0]
    for number, rooms in enumerate(FLOORS):
        if room in rooms:
            return number
    pytest.fail(f"{name} has no floor: say in FLOORS of this test where it belongs")


def ours() -> Iterator[tuple[Module, str, str, bool]]:
    """Each import inside the package: importer, imported, place, and whether it is for types alone."""
    for module in modules().values():
        for one in imports(module):
            if below(one.module, PACKAGE):
                yield module, one.module, module.where(one.line), one.for_types


def outside(module: Module) -> Iterator[tuple[str, str]]:
    """The imports of other packages: top-level name and place."""
    for one in imports(module):
        if not below(one.module, PACKAGE):
            yield one.module.split(".")[0], module.where(one.line)


def is_pure(module: Module) -> bool:
    return below(module.name, f"{PACKAGE}.scheduler") or module.name in PURE_GPU


def test_every_import_names_an_existing_module() -> None:
    assert modules()
    wrong = [f"{where}: {name}" for _, name, where, _ in ours() if name not in modules()]
    assert not wrong


def test_arrows_point_down() -> None:
    wrong = [
        f"{where}: {name}"
        for module, name, where, for_types in ours()
        if floor(name) < floor(module.name) and not (for_types and (module.name, name) in TYPES_FROM_ABOVE)
    ]
    assert not wrong, "these imports point up (see FLOORS)"


@pytest.mark.parametrize("room", CLOSED)
def test_closed_rooms_know_only_themselves(room: str) -> None:
    allowed = CLOSED[room]
    wrong = [f"{where}: {name}" for module, name, where, _ in ours() if below(module.name, room) and not allowed(name)]
    assert not wrong, f"{room} imports nothing else of {PACKAGE}"


def test_transport_knows_of_the_scheduler_its_messages_only() -> None:
    wrong = [
        f"{where}: {name}"
        for module, name, where, _ in ours()
        if below(module.name, f"{PACKAGE}.transport")
        and below(name, f"{PACKAGE}.scheduler")
        and name not in SCHEDULER_IN_TRANSPORT
    ]
    assert not wrong


def test_there_are_no_circles() -> None:
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for module, name, _, for_types in ours():
        if not for_types and name != module.name:
            graph[module.name].add(name)
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            pytest.fail("a circle: " + " -> ".join([*path[path.index(name) :], name]))
        if name not in done:
            for next_name in sorted(graph.get(name, ())):
                visit(next_name, [*path, name])
            done.add(name)

    for name in graph:
        visit(name, [])


def test_the_scheduler_is_pure() -> None:
    pure = [module for module in modules().values() if is_pure(module)]
    assert pure
    wrong = [f"{where}: {name}" for module in pure for name, where in outside(module) if name not in PURE_LIBRARY]
    wrong += [
        f"{module.where(node.lineno)}: {node.func.id}()"
        for module in pure
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS
    ]
    assert not wrong


def test_only_one_module_imports_mpi4py() -> None:
    users = {module.name for module in modules().values() for name, _ in outside(module) if name == "mpi4py"}
    assert users == {f"{PACKAGE}.transport.mpi"}


def test_only_config_reads_the_environment() -> None:
    # The command line makes environments for others; slurm/ knows nothing of config.py.
    allowed = (f"{PACKAGE}.config", f"{PACKAGE}.cli", f"{PACKAGE}.slurm.environment")
    wrong = [
        module.where(line)
        for module in modules().values()
        if not any(below(module.name, room) for room in allowed)
        for line in environment_reads(module.tree)
    ]
    assert not wrong, f"only {PACKAGE}/config.py reads the environment"


def environment_reads(tree: ast.AST) -> list[int]:
    """The lines that mention the environment other than to change it."""
    writes = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            writes.add(id(node.value))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            function = node.value.func
            if isinstance(function, ast.Attribute) and function.attr in WRITES_ENVIRONMENT:
                writes.add(id(function.value))
    names = {"environ", "environb", "getenv", "getenvb"}
    return [
        node.lineno
        for node in ast.walk(tree)
        if (
            isinstance(node, ast.Attribute)
            and node.attr in names
            and ast.unparse(node.value) == "os"
            and id(node) not in writes
        )
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and any(one.name in names for one in node.names))
    ]


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("os.environ['A'] = '1'\ndel os.environ['A']\nos.environ.update(a)\nos.environ.clear()", []),
        ("x = os.environ['A']", [1]),
        ("x = os.environ.pop('A')", [1]),
        ("f(os.environ)\nos.getenv('A')", [1, 2]),
        ("from os import environ", [1]),
    ],
)
def test_reads_of_the_environment_are_told_from_writes(source: str, lines: list[int]) -> None:
    assert environment_reads(ast.parse(source)) == lines


def test_importing_the_package_loads_neither_mpi_nor_array_libraries() -> None:
    program = f"import sys, {PACKAGE}; print([n for n in ('mpi4py', 'numpy', 'cupy', 'pynvml') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert done.stderr == ""
