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
    ("",),  # the package itself: public names, loaded on first use
    ("__main__", "cli"),
    ("as_ray",),  # and nobody below knows of Ray's name
    ("tune", "whatif"),
    ("util", "batch"),
    ("api", "values", "context", "tracing", "actor", "runtime_env", "runtime_context"),
    ("calls",),
    ("session", "head_handle"),
    ("rank",),
    ("executor",),
    ("client",),
    ("objects",),
    ("transport",),
    ("journal",),
    ("host",),
    ("config", "log", "cloudpickle", "job_report", "report_page"),
    ("exceptions",),
    ("ray_errors",),
    ("checks", "errors", "remote_errors", "exception_copies", "tracebacks", "tables"),
    ("scheduler", "gpu", "slurm"),
)
TUNE_DOES = {
    # What runs experiments. All else in the room decides, and knows neither the runtime nor a clock.
    PACKAGE + ".tune",
    *(
        f"{PACKAGE}.tune.{name}"
        for name in (
            *("checkpoint", "reporting", "trainable", "trial_runner", "study_driver", "study_log", "kept_checkpoints"),
            *("bundles", "resuming", "tuner", "old_names", "result_grid", "progress_reporter", "loggers", "plots"),
            *("html_report",),
            *("optuna_search", "hyperopt_search", "bayesopt_search", "nevergrad_search", "search"),
        )
    ),
}
AS_USERS_DO = ("__main__", "cli", "util", "batch", "tune")
"""Rooms that may import the package itself, whose names are loaded on first use, as users do."""
PURE_GPU = {f"{PACKAGE}.gpu.{name}" for name in ("device", "topology", "ledger")}
CLOSED: dict[str, Callable[[str], bool]] = {
    # Rooms that know nothing of the package but this.
    f"{PACKAGE}.scheduler": lambda name: below(name, f"{PACKAGE}.scheduler") or name in PURE_GPU,
    f"{PACKAGE}.gpu": lambda name: below(name, f"{PACKAGE}.gpu"),
    f"{PACKAGE}.slurm": lambda name: below(name, f"{PACKAGE}.slurm"),
}
SCHEDULER_IN_TRANSPORT = {f"{PACKAGE}.scheduler.{name}" for name in ("events", "rank_events", "effects")}
SCHEDULER_OPEN = {
    # What is outside of it may import: its front, its words, and arithmetic on what calls ask for.
    *(f"{PACKAGE}.scheduler.{name}" for name in ("core", "recording", "events", "rank_events", "effects")),
    *(f"{PACKAGE}.scheduler.{name}" for name in ("ids", "limits", "resources")),
}
SCHEDULER_RECORDS = {
    # What the scheduler knows, and the words it is told in: they import nothing of what acts on them.
    f"{PACKAGE}.scheduler.{name}"
    for name in (
        *("events", "rank_events", "effects", "ids", "limits", "timers"),
        *("lifecycle", "resources", "sources", "records", "index", "state"),
    )
}
PURE_CLIENT = {
    f"{PACKAGE}.client.{name}"
    for name in ("arrivals", "blocking", "entries", "feed", "outgoing", "received_items", "references")
}
"""What every client is made of, whatever line it has: the simulator's too."""
KNOWN_TO_PURE_CLIENT = {
    *PURE_CLIENT,
    *(f"{PACKAGE}.{name}" for name in ("client.scope", "scheduler.effects", "scheduler.events", "transport.messages")),
}
PURE_LIBRARY = {
    # What scheduler/ and the pure modules of gpu/ and client/ may import besides: nothing that sees the world outside.
    *("__future__", "abc", "array", "bisect", "collections", "contextlib", "copy", "dataclasses", "enum", "functools"),
    *("hashlib", "heapq", "itertools", "math", "operator", "re", "string", "struct", "textwrap", "types", "typing"),
    *("msgspec", "_blake2"),
}
PURE_TUNE_LIBRARY = PURE_LIBRARY | {"datetime", "inspect", "numpy", "statistics"}
"""What an experiment may import: its spaces draw with numpy's generators, and spans of time may be given to it."""
NAMED_BY_RAY = {
    # Modules whose names programs written for Ray import. Each may stand a second time, in a room of its own.
    "runtime_env": "the public name of what `calls/runtime_env.py` has",
    "state": "`util.state` is Ray's; `scheduler/state.py` has all tables",
}
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__", "hash", "id"}
"""`hash` of a string and `id` differ from run to run."""
WRITES_ENVIRONMENT = {"update", "clear", "pop", "setdefault"}


def below(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def room(name: str) -> str:
    return name[len(PACKAGE) + 1 :].split(".")[0]


def floor(name: str) -> int:
    for number, rooms in enumerate(FLOORS):
        if room(name) in rooms:
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
    return below(module.name, f"{PACKAGE}.scheduler") or module.name in PURE_GPU | PURE_CLIENT


def test_every_import_names_an_existing_module() -> None:
    assert modules()
    wrong = [f"{where}: {name}" for _, name, where, _ in ours() if name not in modules()]
    assert not wrong


def test_arrows_point_down() -> None:
    wrong = [
        f"{where}: {name}"
        for module, name, where, _ in ours()
        if floor(name) < floor(module.name) and not (name == PACKAGE and room(module.name) in AS_USERS_DO)
    ]
    assert not wrong, "these imports point up (see FLOORS)"


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
        if below(module.name, f"{PACKAGE}.transport")
        and below(name, f"{PACKAGE}.scheduler")
        and name not in SCHEDULER_IN_TRANSPORT
    ]
    assert not wrong


def test_records_lie_below_behaviour() -> None:
    wrong = [
        f"{where}: {name}"
        for module, name, where, _ in ours()
        if module.name in SCHEDULER_RECORDS and not (name in SCHEDULER_RECORDS or name in PURE_GPU)
    ]
    assert modules().keys() >= SCHEDULER_RECORDS
    assert not wrong, "records of the scheduler import nothing of what acts on them"


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
    assert len(own) > len(SCHEDULER_RECORDS)
    assert not wrong


def test_the_scheduler_is_closed() -> None:
    """Others know its words and its front, `core.py`; what they need beyond its effects they ask it for."""
    outside = [module for module in modules().values() if not below(module.name, f"{PACKAGE}.scheduler")]
    wrong = [
        f"{module.where(one.line)}: {one.module}"
        for module in outside
        for one in imports(module)
        if below(one.module, f"{PACKAGE}.scheduler") and one.module not in SCHEDULER_OPEN
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


def test_no_name_stands_in_two_rooms() -> None:
    """A module is known by its name alone: in a traceback, in ARCHITECTURE.md, in talk."""
    homes: dict[str, list[str]] = {}
    for name, module in modules().items():
        if module.path.stem not in ("__init__", "__main__"):
            homes.setdefault(module.path.stem, []).append(name)
    twice = {stem: names for stem, names in homes.items() if len(names) > 1}
    assert {stem: names for stem, names in twice.items() if stem not in NAMED_BY_RAY} == {}
    assert twice.keys() >= NAMED_BY_RAY.keys(), "an exception that nobody needs"


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
    room = f"{PACKAGE}.tune"
    own = [module for module in modules().values() if below(module.name, room) and module.name not in TUNE_DOES]
    wrong = [f"{where}: {name}" for module in own for name, where in outside(module) if name not in PURE_TUNE_LIBRARY]
    wrong += [
        f"{module.where(one.line)}: {one.module}"
        for module in own
        for one in imports(module)
        if below(one.module, PACKAGE) and (not below(one.module, room) or one.module in TUNE_DOES - {room})
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


def test_only_one_module_imports_mpi4py() -> None:
    users = {module.name for module in modules().values() for name, _ in outside(module) if name == "mpi4py"}
    assert users == {f"{PACKAGE}.transport.mpi"}


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
