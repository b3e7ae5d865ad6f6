"""Which part of the house may know which: arrows point down only, and some rooms have no door at all."""

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.helpers import ROOT
from tests.rules.house import PACKAGE, Module, imports, modules

FLOORS: dict[str, tuple[tuple[str, ...], ...]] = {
    # Top first. What stands in a room may import its own floor and those below; "": what lies loose in the room.
    "": (
        ("",),  # the package itself: public names, loaded on first use
        ("__main__", "cli"),
        ("as_ray",),  # and nobody below knows of Ray's name
        ("train",),
        ("tune", "whatif", "rl", "data"),
        ("util", "batch"),
        ("actor", "mpi", "runtime_env", "runtime_context"),
        ("extend",),
        ("core",),
        ("files", "show", "config", "cloudpickle"),
        ("exceptions",),
        ("errors",),
        ("scheduler", "gpu", "slurm"),
        ("listings",),
    ),
    "core": (
        ("api",),
        ("calls",),
        ("driver",),
        ("lines",),
        ("head",),
        ("rank",),
        ("agent",),
        ("executor",),
        ("gangs",),
        ("client",),
        ("objects",),
        ("transport",),
        ("journal",),
        ("host",),
        ("",),  # what names things by their faces
    ),
    "scheduler": (
        ("core", "recording"),
        ("answers",),
        ("losses",),
        ("gangs",),
        ("nodes",),
        ("calls",),
        ("actors",),
        ("dispatch",),
        ("places",),
        ("values",),
        ("log",),
        ("records",),
        ("protocol",),
    ),
    "tune": (
        ("", "cli", "extend"),
        ("experiment", "integration"),
        ("show",),
        ("trials",),
        ("study",),
        ("schedulers",),
        ("search",),
        ("space",),
        ("counting",),
        ("trial", "unsupported", "local_paths", "state_files"),
    ),
    "rl": (
        ("", "extend"),
        ("cli",),
        ("results",),
        ("evaluation", "trainable"),
        ("config",),
        ("ppo", "a2c", "a3c", "dqn", "apex", "sac", "es"),
        ("algorithm",),
        ("checkpoints", "samplers"),
        ("sampler",),
        ("policies",),
        ("nets_torch", "envs", "learner", "parameters", "presets", "curves"),
        ("parts",),
    ),
    "batch": (
        ("__main__", "extend"),
        ("cli",),
        ("",),
        ("allocate",),
        ("run",),
        ("show",),
        ("history",),
        ("elastic",),
        ("file",),
    ),
}
OF_OTHER_LIBRARIES = {f"{PACKAGE}.tune.search.{name}" for name in ("optuna", "hyperopt", "bayesopt", "nevergrad")}
FACES = {f"{PACKAGE}.tune.search", f"{PACKAGE}.tune.schedulers"}
"""They load their names on first use, by a function of the package itself."""
PURE_TUNE = tuple(
    f"{PACKAGE}.tune.{name}" for name in ("study", "schedulers", "search", "space", "counting", "trial", "unsupported")
)
"""What decides in an experiment: it knows neither the runtime nor a clock."""
STATE_FILES = f"{PACKAGE}.tune.state_files"
"""Files that a program asks for: no decision reads one."""
NAMING = f"{PACKAGE}.core"
"""The package itself has nothing but `published`, by which each room names what it offers."""
LIBRARIES = ("util", "batch", "tune", "train", "rl", "data", "whatif", "as_ray")
FOUNDATIONS = ("errors", "show", "config", "files", "cloudpickle", "slurm")
"""What a library may import as it is, beside public names and `extend`."""
AS_USERS_DO = ("__main__", "cli", "extend", *LIBRARIES)
"""Rooms that may import the package itself, whose names are loaded on first use, as users do."""
PURE_GPU = {f"{PACKAGE}.gpu.{name}" for name in ("device", "topology", "ledger")}
PURE_ELASTIC = tuple(f"{PACKAGE}.batch.elastic.{name}" for name in ("coordinator", "member", "records", "watch"))
"""What decides in an elastic batch: values in, orders out."""
CLOSED: dict[str, Callable[[str], bool]] = {
    # Rooms that know nothing of the package but this.
    f"{PACKAGE}.scheduler": lambda name: below(name, f"{PACKAGE}.scheduler") or name in PURE_GPU,
    f"{PACKAGE}.gpu": lambda name: below(name, f"{PACKAGE}.gpu"),
    f"{PACKAGE}.slurm": lambda name: below(name, f"{PACKAGE}.slurm"),
}
PROTOCOL = f"{PACKAGE}.scheduler.protocol"
SCHEDULER_OPEN = (PROTOCOL, f"{PACKAGE}.scheduler.core", f"{PACKAGE}.scheduler.recording")
"""What others may import of the scheduler: its words and its front."""
PUBLIC_TOOLS = {
    f"{PACKAGE}.util.{name}"
    for name in ("collective", "joblib", "placement_group", "scheduling_strategies", "state", "streams")
}
"""Modules of `util` with public names of their own."""
PURE_CLIENT = {
    f"{PACKAGE}.core.client.{name}" for name in ("blocking", "executor_feed", "incoming", "outgoing", "references")
}
"""What every client is made of, whatever line it has: the simulator's too."""
KNOWN_TO_PURE_CLIENT = {
    *PURE_CLIENT,
    *(f"{PACKAGE}.{name}" for name in ("core.client.scope", "core.transport.messages")),
    *(f"{PROTOCOL}.{name}" for name in ("effects", "events")),
}
PURE_LIBRARY = {
    # What scheduler/ and the pure modules of gpu/ and client/ may import besides: nothing that sees the world outside.
    *("__future__", "abc", "array", "bisect", "collections", "contextlib", "copy", "dataclasses", "enum", "functools"),
    *("hashlib", "heapq", "itertools", "math", "operator", "re", "string", "struct", "textwrap", "types", "typing"),
    *("msgspec", "_blake2"),
}
PURE_TUNE_LIBRARY = PURE_LIBRARY | {"datetime", "inspect", "numbers", "numpy", "statistics"}
"""What an experiment may import: its spaces draw with numpy's generators, and spans of time may be given to it."""
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__", "hash", "id"}
"""`hash` of a string and `id` differ from run to run."""
WRITES_ENVIRONMENT = {"update", "clear", "pop", "setdefault"}


def below(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def floor(name: str, inside: str) -> int:
    """The number of a module's floor in a room that has it: 0 is the top."""
    rest = name.removeprefix(f"{PACKAGE}.{inside}" if inside else PACKAGE).lstrip(".")
    for number, rooms in enumerate(FLOORS[inside]):
        if rest.split(".")[0] in rooms:
            return number
    pytest.fail(f"{name} has no floor: say in FLOORS of this test where it belongs")


def rooms_of(name: str) -> set[str]:
    """The rooms with floors in which a module stands."""
    return {inside for inside in FLOORS if below(name, f"{PACKAGE}.{inside}" if inside else PACKAGE)}


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
    return below(module.name, f"{PACKAGE}.scheduler") or module.name in PURE_GPU | PURE_CLIENT


def test_every_import_names_an_existing_module() -> None:
    assert modules()
    wrong = [f"{where}: {name}" for _, name, where, _ in ours() if name not in modules()]
    assert not wrong


def test_arrows_point_down() -> None:
    wrong = [
        f"{where}: {name}"
        for module, name, where, _ in ours()
        for inside in rooms_of(module.name) & rooms_of(name)
        if floor(name, inside) < floor(module.name, inside)
        and not (name == PACKAGE and module.name.split(".")[1] in AS_USERS_DO)
    ]
    assert not wrong, "these imports point up (see FLOORS)"


def test_libraries_use_the_waist() -> None:
    """A library imports public names, `extend`, the foundations, the fronts of the pure rooms, and of other libraries
    the public names and their `extend`. A module that only re-exports names may import the core.
    """
    wrong = [
        f"{where}: {name}"
        for module, name, where, _ in ours()
        for library in module.name.split(".")[1:2]
        if library in LIBRARIES and not below(name, f"{PACKAGE}.{library}") and not is_offered(name)
        if not (below(name, f"{PACKAGE}.core") and only_reexports(module))
    ]
    assert not wrong


def is_offered(name: str) -> bool:
    """Whether libraries may import a module that is not theirs."""
    first, *rest = name.split(".")[1:] or [""]
    if first in LIBRARIES:
        return not rest or rest == ["extend"] or (first == "util" and name in PUBLIC_TOOLS)
    doors = (*SCHEDULER_OPEN, *PURE_GPU, f"{PACKAGE}.extend", *(f"{PACKAGE}.{room}" for room in FOUNDATIONS))
    return name in (PACKAGE, NAMING) or any(below(name, door) for door in doors)


def only_reexports(module: Module) -> bool:
    """Whether there is nothing in a module but imports, their names, and what loads them on first use."""
    return all(
        isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.If)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in module.tree.body
    )


@pytest.mark.parametrize("closed", CLOSED)
def test_closed_rooms_know_only_themselves(closed: str) -> None:
    allowed = CLOSED[closed]
    wrong = [
        f"{where}: {name}" for module, name, where, _ in ours() if below(module.name, closed) and not allowed(name)
    ]
    assert not wrong, f"{closed} imports nothing else of {PACKAGE}"


def test_transport_knows_of_the_scheduler_its_messages_only() -> None:
    wrong = [
        f"{where}: {name}"
        for module, name, where, _ in ours()
        if below(module.name, f"{PACKAGE}.core.transport")
        and below(name, f"{PACKAGE}.scheduler")
        and not below(name, PROTOCOL)
    ]
    assert not wrong


def test_the_scheduler_has_no_imports_for_types_alone_and_none_inside_functions() -> None:
    """So the search for circles sees every arrow, also those of types."""
    own = [module for module in modules().values() if below(module.name, f"{PACKAGE}.scheduler")]
    wrong = [
        module.where(node.lineno)
        for module in own
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and node not in module.tree.body
    ]
    wrong += [module.where(one.line) for module in own for one in imports(module) if one.for_types]
    assert len(own) > 60
    assert not wrong


def test_the_scheduler_is_closed() -> None:
    """Others know its protocol and its front, `core.py`; what they need beyond its effects they ask it for."""
    outside = [module for module in modules().values() if not below(module.name, f"{PACKAGE}.scheduler")]
    wrong = [
        f"{module.where(one.line)}: {one.module}"
        for module in outside
        for one in imports(module)
        if below(one.module, f"{PACKAGE}.scheduler") and not any(below(one.module, door) for door in SCHEDULER_OPEN)
    ]
    wrong += [
        f"{module.where(node.lineno)}: {ast.unparse(node)}"
        for module in outside
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
        and node.attr == "state"
        and ast.unparse(node.value).lower().endswith(("scheduler", "scheduler()"))
    ]
    assert not wrong, "nothing outside scheduler/ knows its state"


def test_states_change_in_one_place() -> None:
    """Only `advance`, which looks into the tables, assigns to the `state` of a record."""
    own = [module for module in modules().values() if below(module.name, f"{PACKAGE}.scheduler")]
    found = {
        module.where(node.lineno): ast.unparse(node)
        for module in own
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and node.attr == "state" and isinstance(node.ctx, ast.Store | ast.Del)
    }
    assert sorted(found.values()) == ["self.state", "thing.state"], f"not only the scheduler's own: {found}"
    assert not [
        module.where(node.lineno)
        for module in own
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "object.__setattr__")
    ]


def test_there_are_no_circles() -> None:
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for module, name, _, _ in ours():  # those for types alone count too: what is known is known
        if name != module.name and module.name != PACKAGE:  # which loads nothing before it is used
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


def test_the_protocol_of_clients_knows_messages_only() -> None:
    wrong = [
        f"{where}: {name}"
        for module, name, where, _ in ours()
        if module.name in PURE_CLIENT and name not in KNOWN_TO_PURE_CLIENT
    ]
    assert not wrong
    assert modules().keys() >= PURE_CLIENT


def test_scheduler_and_protocol_are_pure() -> None:
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


def test_experiments_are_pure() -> None:
    """The same seed and the same events make the same decisions: no clock, no environment, no global generator."""
    own = [
        module
        for module in modules().values()
        if any(below(module.name, room) for room in PURE_TUNE) and module.name not in OF_OTHER_LIBRARIES | FACES
    ]
    names = {module.name for module in own}
    wrong = [f"{where}: {name}" for module in own for name, where in outside(module) if name not in PURE_TUNE_LIBRARY]
    wrong += [
        f"{module.where(one.line)}: {one.module}"
        for module in own
        for one in imports(module)
        if below(one.module, PACKAGE) and one.module not in names | {NAMING, STATE_FILES}
    ]
    wrong += [
        f"{module.where(node.lineno)}: {ast.unparse(node.func)}()"
        for module in own
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS)
            or (isinstance(node.func, ast.Attribute) and node.func.attr in ("now", "today", "utcnow"))
            or ("random." in ast.unparse(node.func) and "default_rng" not in ast.unparse(node.func))
        )
    ]
    assert own
    assert not wrong


def test_decisions_of_elastic_batches_are_pure() -> None:
    own = [module for module in modules().values() if module.name in PURE_ELASTIC]
    assert len(own) == len(PURE_ELASTIC)
    allowed = {*PURE_LIBRARY, "hashlib"}
    assert not [f"{where}: {name}" for module in own for name, where in outside(module) if name not in allowed]
    known = {f"{PACKAGE}.batch.elastic", *PURE_ELASTIC, f"{PACKAGE}.batch.file.model", PROTOCOL}
    found = [one.module for module in own for one in imports(module) if below(one.module, PACKAGE)]
    assert not [name for name in found if not any(below(name, one) for one in known)]


def test_only_one_module_of_ranks_imports_mpi4py() -> None:
    users = {module.name for module in modules().values() for name, _ in outside(module) if name == "mpi4py"}
    users -= {f"{PACKAGE}.core.gangs.{name}" for name in ("member", "library")}  # in executors; in a copy of the helper
    users.discard(f"{PACKAGE}.mpi")  # a type
    assert users == {f"{PACKAGE}.core.transport.mpi"}


def test_only_config_reads_the_environment() -> None:
    # The command line makes environments for others; slurm/ knows nothing of config.py.
    allowed = (f"{PACKAGE}.config", f"{PACKAGE}.cli", f"{PACKAGE}.slurm.environment")
    wrong = [
        module.where(line)
        for module in modules().values()
        if not any(below(module.name, reader) for reader in allowed)
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


@pytest.mark.parametrize("loaded_before", ["core.executor.forkserver", "core.driver.session"])
def test_the_start_of_the_head_does_not_wait_for_the_modules_of_clients(loaded_before: str) -> None:
    """The head is forked after the first of these is loaded, and its process starts after the second."""
    program = f"import sys, {PACKAGE}.{loaded_before}; print([n for n in sys.modules if '.client.client' in n])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
