"""The plan of a data set: operators, which do nothing, and the stages that they become."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from types import CellType, CodeType, FunctionType
from typing import Protocol

from msgspec import Struct

from mpi_runtime.data.steps import BATCHES, Chain, Step
from mpi_runtime.data.streams.records import UNLIMITED, Block, Stage

Concurrency = int | tuple[int, int] | None


class Needs(Struct, frozen=True):
    """What each task or actor of an operator has. An operator that needs nothing special joins the one before it."""

    num_cpus: float | None = None
    num_gpus: float = 0.0
    memory: int = 0
    resources: Mapping[str, float] = {}
    concurrency: Concurrency = None
    options: Mapping[str, object] = {}
    each: Callable[[], Mapping[str, object]] | None = None
    """Returns further options, for each task or actor."""

    @property
    def options_of_calls(self) -> dict[str, object]:
        """The options of its calls, without those of CPUs."""
        given: dict[str, object] = dict(self.options)
        for name in ("num_gpus", "memory"):
            if value := getattr(self, name):
                given[name] = value
        if self.resources:
            given["resources"] = dict(self.resources)
        return given

    @property
    def keeps(self) -> bool:
        """Whether its tasks keep something while they rest."""
        return bool(self.num_gpus or self.memory or self.resources or self.each)

    def of_next_call(self) -> dict[str, object]:
        """Options of the next task or actor, which take precedence."""
        return dict(self.each()) if self.each else {}


PLAIN = Needs()


class Source(Struct, frozen=True, eq=False):
    """Where rows come from."""

    name: str
    blocks: Callable[[int, int], list[Block]]
    """Its blocks, or the pieces that tasks read, for a number of CPUs and the size of blocks."""
    identity: Callable[[], tuple[object, ...]]
    """The same in each run of a program: names of written files hold it."""
    count: Callable[[], int] | None = None
    files: tuple[str, ...] = ()
    is_stored: bool = False
    """Whether its blocks are values: without a function they pass without a task."""
    needs: Needs = PLAIN


class Mapped(Struct, frozen=True, eq=False):
    """Rows that a function makes."""

    parent: Operator
    step: Step
    needs: Needs


class Limited(Struct, frozen=True, eq=False):
    """The first rows."""

    parent: Operator
    rows: int


class Joined(Struct, frozen=True, eq=False):
    """The rows of all."""

    parents: tuple[Operator, ...]


class Divided(Struct, frozen=True, eq=False):
    """The same rows in blocks with another number of rows."""

    parent: Operator
    rows: int
    is_exact: bool = True
    """Whether blocks have this number of rows; else small ones are joined until they have it."""


class Exchanged(Struct, frozen=True, eq=False):
    """Rows for which all of the parents' are needed."""

    parents: tuple[Operator, ...]
    name: str
    arguments: tuple[object, ...]
    """The same in each run of a program."""
    blocks: Callable[[int, int], list[Block]]
    """Runs the parents, and returns blocks, or pieces that tasks read, for a number of CPUs and the size of blocks."""
    keeps_rows: bool = True
    """Whether there are as many rows, with the same columns, as in its only or first parent."""
    is_stored: bool = False


SORTED = ("sort", "groupby")
"""Names of operators whose rows are in the order of their keys."""
Operator = Source | Mapped | Limited | Joined | Divided | Exchanged


class Built(Struct):
    """A stage, and what its tasks do."""

    stage: Stage
    steps: list[Step]
    needs: Needs
    is_fusable: bool
    is_stored: bool = False


class Earlier(Protocol):
    """What earlier runs of the same program have left."""

    def sizes(self, cpus: int, block_bytes: int) -> tuple[int, int]:
        """The number of CPUs and the size of blocks that parts of sources are made for; the arguments: of this run."""

    def leave_out(self, stages: list[Stage]) -> bool:
        """Remove parts of sources. Return whether what becomes of different parts is not to be mixed."""


class Building:
    """Makes stages of operators."""

    def __init__(self, cpus: int, block_bytes: int, of_parts: tuple[int, int] | None = None) -> None:
        """`of_parts`: the same numbers for parts of sources, if they are others."""
        self._cpus = cpus
        self._block_bytes = block_bytes
        self._of_parts = of_parts or (cpus, block_bytes)
        self._sources = 0
        self.built: list[Built] = []

    def add(self, operator: Operator) -> int:
        """Add the stages of an operator and of those before it, and return the number of its own."""
        match operator:
            case Source():
                return self._source(operator)
            case Mapped():
                return self._mapped(operator)
            case Limited(parent, rows):
                up = self.add(parent)
                return self._new(Stage(f"limit={rows}", (up,), limit=rows))
            case Joined(parents):
                ups = tuple(self.add(parent) for parent in parents)
                return self._new(Stage("union", ups, limit=UNLIMITED))
            case Exchanged(_, name, _, blocks, _, is_stored):
                return self._source(Source(name, blocks, tuple, is_stored=is_stored))
            case Divided(parent, rows, is_exact):
                up = self.add(parent)
                steps = [_of_size(rows)] if is_exact else []
                return self._new(Stage(f"repartition({rows} rows)", (up,), bundle_rows=rows), steps)

    def _source(self, source: Source) -> int:
        blocks = source.blocks(*self._of_parts)
        for i, block in enumerate(blocks):
            block.key = (self._sources, i)
        self._sources += 1
        stage = Stage(source.name, queues=[deque(blocks)])
        stage.tasks_max = _tasks_max(source.needs, stage.tasks_max)
        number = self._new(stage, needs=source.needs, is_fusable=True)
        self.built[number].is_stored = source.is_stored
        return number

    def _mapped(self, operator: Mapped) -> int:
        up = self.add(operator.parent)
        before = self.built[up]
        step, needs = operator.step, operator.needs
        if before.is_fusable and not step.is_class and needs == PLAIN and before.needs.concurrency is None:
            if not before.steps and not before.stage.inputs and all(block.rows for block in before.stage.queues[0]):
                before.stage.bundle_rows = step.batch_size or 1
            before.steps.append(step)
            before.stage.name += f" → {step.name}"
            return up
        stage = Stage(step.name, (up,), bundle_rows=step.batch_size or 1)
        if step.is_class:
            stage.pool = _pool(needs, self._cpus)
            stage.keeps_cpus = needs.num_cpus is not None
        else:
            stage.tasks_max = _tasks_max(needs, stage.tasks_max)
        return self._new(stage, [step], needs, is_fusable=needs == PLAIN and not step.is_class)

    def _new(self, stage: Stage, steps: Sequence[Step] = (), needs: Needs = PLAIN, is_fusable: bool = False) -> int:
        default = 0.0 if needs.num_gpus and not stage.pool else 1.0
        stage.cpus = default if needs.num_cpus is None else needs.num_cpus
        if stage.pool and needs.num_cpus is None:
            stage.cpus = 0.0 if needs.num_gpus else 1.0
        self.built.append(Built(stage, list(steps), needs, is_fusable))
        return len(self.built) - 1

    def chains(self, catches: bool) -> list[Chain]:
        """What the tasks of each stage do. Call it when all is added."""
        for built in self.built:
            if built.is_stored and not built.steps:
                built.stage.limit = UNLIMITED
        return [Chain(tuple(built.steps), self._block_bytes, catches) for built in self.built]


def identity(operator: Operator) -> tuple[object, ...]:
    """What is the same in each run of a program that makes this data set."""
    match operator:
        case Source():
            return (operator.name, *operator.identity())
        case Mapped(parent, step):
            arguments = (step.args, step.kwargs, step.constructor_args, step.constructor_kwargs)
            return (
                *identity(parent), step.kind, step.name, fixed(step.function), fixed(arguments), step.batch_size,
                step.batch_format,
            )  # fmt: skip
        case Limited(parent, rows):
            return (*identity(parent), "limit", rows)
        case Joined(parents):
            return tuple(identity(parent) for parent in parents)
        case Divided(parent, rows):
            return (*identity(parent), "repartition", rows)
        case Exchanged(parents, name, arguments):
            return (tuple(identity(parent) for parent in parents), name, fixed(arguments))


def has_order(operator: Operator) -> bool:
    """Whether rows were sorted, or are left out by their place, so that their order matters."""
    match operator:
        case Source():
            return False
        case Limited():
            return True
        case Joined(parents) | Exchanged(parents):
            is_sorted = isinstance(operator, Exchanged) and operator.name in SORTED
            return is_sorted or any(map(has_order, parents))
        case _:
            return has_order(operator.parent)


def sources(operator: Operator) -> list[Source]:
    """All sources of a data set."""
    match operator:
        case Source():
            return [operator]
        case Joined(parents) | Exchanged(parents):
            return [source for parent in parents for source in sources(parent)]
        case _:
            return sources(operator.parent)


def check_is_not_read(operator: Operator, folder: str, beginning: str = "") -> None:
    """Check that a data set reads no file below a directory whose name has this beginning: these will be replaced.

    Raises:
        ValueError: it reads one.
    """
    place = os.path.join(os.path.realpath(folder), "")
    for name in (name for source in sources(operator) for name in source.files):
        if os.path.realpath(name).startswith(place) and os.path.basename(name).startswith(beginning):
            raise ValueError(
                f"the data set reads {name}, which this would replace, so rows could be lost: write to another "
                "directory, or call materialize() first"
            )


def fixed(value: object, around: tuple[int, ...] = ()) -> str:
    """A text of a function or an argument that is the same in each run of a program: no address is in it.

    `around`: what it is in, by `id`, since functions and lists may refer to themselves.
    """
    if id(value) in around:
        return "itself"
    inner = partial(fixed, around=(*around, id(value)))
    match value:
        case None | bool() | int() | float() | str() | bytes() | PurePath():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(map(inner, value))}]"
        case set() | frozenset():
            return f"{{{', '.join(sorted(map(inner, value)))}}}"
        case Mapping():
            return f"{{{', '.join(f'{inner(key)}: {inner(one)}' for key, one in value.items())}}}"
        case partial():
            return f"{inner(value.func)} {inner(value.args)} {inner(value.keywords)}"
        case FunctionType():
            held = [inner(cell.cell_contents) for cell in value.__closure__ or () if _is_filled(cell)]
            return f"{inner(value.__code__)} {inner(value.__defaults__)} {inner(value.__kwdefaults__)} {held}"
        case CodeType():
            return f"{value.co_code.hex()} {inner(value.co_consts)} {value.co_names}"
        case Struct():  # such as an expression
            return f"{type(value).__qualname__}{inner([getattr(value, name) for name in value.__struct_fields__])}"
        case _ if type(value).__module__ == "pyarrow._compute":  # one of pyarrow
            return str(value)
        case _:
            kind = value if hasattr(value, "__qualname__") else type(value)
            return f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', '')}"


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _of_size(rows: int) -> Step:
    return Step(BATCHES, "repartition", _same, batch_size=rows, batch_format="pyarrow", is_exact=True)


def _same(table: object) -> object:
    return table


def _tasks_max(needs: Needs, default: int) -> int:
    concurrency = needs.concurrency
    if isinstance(concurrency, tuple):
        return concurrency[-1]
    return concurrency or default


def _pool(needs: Needs, cpus: int) -> tuple[int, int]:
    if isinstance(needs.concurrency, tuple):
        return needs.concurrency
    if needs.concurrency:
        return needs.concurrency, needs.concurrency
    return 1, max(1, cpus)
