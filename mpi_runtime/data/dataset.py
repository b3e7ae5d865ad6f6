"""`Dataset`: rows in blocks, and what can be done with them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy as shallow_copy
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING

import numpy

from mpi_runtime.core import published
from mpi_runtime.data import blocks, conditions, references, unsupported
from mpi_runtime.data.aggregate import AggregateFn, Unique, names_of
from mpi_runtime.data.arrow import pc as pa_compute
from mpi_runtime.data.blocks import Row
from mpi_runtime.data.context import DataContext
from mpi_runtime.data.expressions import Expr, check_exprs, has_objects, with_columns
from mpi_runtime.data.files.saving import Saving, different
from mpi_runtime.data.grouped import GroupedData
from mpi_runtime.data.iterating import DataIterator, Tables, check_positive, value_of, whole
from mpi_runtime.data.options import needs, step
from mpi_runtime.data.plan import PLAIN, Divided, Exchanged, Joined, Limited, Mapped, Operator, sources
from mpi_runtime.data.schema import Schema
from mpi_runtime.data.splitting import Shares, StreamSplitDataIterator
from mpi_runtime.data.steps import BATCHES, FILTER, FLAT, ROWS, TABLES, WRITE, Step
from mpi_runtime.data.streams import progress
from mpi_runtime.data.streams.lost_blocks import table_of
from mpi_runtime.data.streams.progress import Stats
from mpi_runtime.data.streams.records import Block
from mpi_runtime.data.streams.running import Running, tables_of
from mpi_runtime.data.streams.storing import of_blocks, stored
from mpi_runtime.data.whole import aggregating, dividing, exchange, grouping, joining, lacking, sorting
from mpi_runtime.data.whole.dividing import count_rows, known_count

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from mpi_runtime import ObjectRef

ROWS_SHOWN = 20
TO_PANDAS = 100_000


@published("mpi_runtime.data")
class Dataset(DataIterator, Saving):
    """Rows in blocks, which stream through functions on all nodes of the job.

        ds = data.read_parquet("in").map_batches(Model, num_gpus=1, concurrency=4, batch_size=64)
        ds.write_parquet("out")

    Made by functions of `mpi_runtime.data`. A transformation returns another data set. Nothing runs until
    rows are asked for, and it runs again each time, unless the data set was materialized.
    """

    def __init__(self, operator: Operator) -> None:
        """Use the functions of `mpi_runtime.data` instead."""
        self._operator = operator
        self._stats: Stats | None = None
        self._name: str | None = None
        self._schema: Schema | None = None
        self._settings: DataContext | None = None

    @staticmethod
    def _of_operator(operator: Operator) -> Dataset:
        """The rows of an operator of `data/plan.py`."""
        return Dataset(operator)

    @property
    def name(self) -> str | None:
        """A name that `set_name` has given."""
        return self._name

    def set_name(self, name: str | None) -> None:
        """Give it a name, for the program itself."""
        self._name = name

    @property
    def context(self) -> DataContext:
        """Its own settings, for iterations over its rows: those of this process at first."""
        if self._settings is None:
            self._settings = DataContext.get_current().copy()
        return self._settings

    def get_context(self) -> DataContext:
        """Its settings."""
        return self.context

    @staticmethod
    def copy(ds: Dataset) -> Dataset:
        """The same rows, with settings of their own."""
        made = shallow_copy(ds)
        made._settings = None if ds._settings is None else ds._settings.copy()
        return made

    def map(self, fn: Callable[..., Mapping[str, object]], **options: object) -> Dataset:
        """Make a row of each row.

        Options are those of `map_batches`, but for batches.
        """
        return self._mapped(ROWS, "map", fn, options)

    def flat_map(self, fn: Callable[..., Iterable[Mapping[str, object]]], **options: object) -> Dataset:
        """Make rows of each row: `fn` returns a list of rows, or is a generator of them."""
        return self._mapped(FLAT, "flat_map", fn, options)

    def filter(
        self,
        fn: Callable[..., bool] | None = None,
        expr: str | pyarrow.compute.Expression | Expr | None = None,
        **options: object,
    ) -> Dataset:
        """Keep the rows for which `fn` is true, or an expression, which is faster.

            ds.filter(lambda row: row["id"] > 5)
            ds.filter(expr="id > 5 and kind in ['a', 'b']")

        Args:
            fn: gets a row.
            expr: in place of `fn`: a text with names of columns, or an expression, of `data.expressions` or of
                `pyarrow.compute`.
            options: those of `map_batches`, but for batches.
        """
        if (expr is None) == (fn is None):
            raise ValueError("Exactly one of fn and expr must be passed to filter(), such as expr='id > 5'")
        if fn is not None:
            if not callable(fn):
                raise ValueError(f"fn must be a UserDefinedFunction, a function or a class with __call__, not {fn!r}")
            return self._mapped(FILTER, "filter", fn, options)
        if own := sorted(name for name in options if name.startswith("fn_")):
            raise ValueError(f"filter(expr=...) takes no {', '.join(own)}: an expression has no arguments")
        condition = conditions.parsed(expr) if isinstance(expr, str) else expr
        if isinstance(condition, Expr):
            return self._of_exprs(f"filter({condition})", _filtered, [condition], options)
        if not isinstance(condition, pa_compute.Expression):
            raise TypeError(f"filter(expr=...) takes a text or an expression, not {condition!r}")
        return self._of_tables(f"filter({condition})", lambda table: table.filter(condition), options)

    def map_batches(
        self,
        fn: Callable[..., object],
        *,
        batch_size: int | str | None = None,
        batch_format: str | None = "default",
        zero_copy_batch: bool = False,
        **options: object,
    ) -> Dataset:
        """Make batches of batches.

            class Model:
                def __init__(self, path):
                    self.model = load(path)

                def __call__(self, batch):
                    return {"label": self.model(batch["image"])}

            ds.map_batches(Model, fn_constructor_args=["model.pt"], batch_size=64, num_gpus=1, concurrency=(1, 4))

        Args:
            fn: gets a batch, and returns a dictionary of arrays by column, a data frame or a table, or yields several.
                A class runs in actors, each with an instance.
            batch_size: the rows of a batch; the last one of a block may have fewer. None: each block is a batch.
            batch_format: "numpy", a dictionary of arrays by column, "pandas" or "pyarrow".
            zero_copy_batch: arrays may be read-only views, which are not copied.
            options: `fn_args`, `fn_kwargs`, and of a class `fn_constructor_args`, `fn_constructor_kwargs`. What each
                task or actor has: `num_cpus`, `num_gpus`, `memory`, `resources`. `concurrency`: the most tasks, the
                number of actors, or the least and the greatest number of actors, as (1, 4). `compute`: a strategy in
                place of `concurrency`. `runtime_env`, `scheduling_strategy`, `label_selector` and `max_retries` as of
                calls. `ray_remote_args_fn` returns such options as a dictionary, for each task or actor.
        """
        blocks.check_format(batch_format)
        if isinstance(batch_size, str):
            if batch_size not in ("auto", "default"):
                raise ValueError(f"batch_size must be a number of rows, or None, not {batch_size!r}")
            batch_size = 1024 if batch_size == "default" else None
        batches = {
            "batch_size": check_positive("batch_size", batch_size),
            "batch_format": batch_format,
            "zero_copy": zero_copy_batch,
        }
        return self._mapped(BATCHES, "map_batches", fn, options, batches)

    def limit(self, limit: int) -> Dataset:
        """Keep the first `limit` rows: none, if it is below 0. What would make others is not run."""
        if (rows := whole(limit)) is None:
            raise ValueError(f"limit must be a whole number, not {limit!r}")
        return Dataset(Limited(self._operator, max(0, rows)))

    def select_columns(self, cols: str | Sequence[str], **options: object) -> Dataset:
        """Keep these columns."""
        names = different(cols, "select_columns")

        def selected(table: pyarrow.Table) -> pyarrow.Table:
            lacking.check_columns(table, names)
            return table.select(names)

        return self._of_tables("select_columns", selected, options)

    def drop_columns(self, cols: str | Sequence[str], **options: object) -> Dataset:
        """Leave out these columns."""
        names = different(cols, "drop_columns")

        def dropped(table: pyarrow.Table) -> pyarrow.Table:
            lacking.check_columns(table, names)
            return table.drop_columns(names)

        return self._of_tables("drop_columns", dropped, options)

    def rename_columns(self, names: Sequence[str] | Mapping[str, str], **options: object) -> Dataset:
        """Give columns other names: all, or those of a dictionary."""
        given = list(names.values()) if isinstance(names, Mapping) else names
        if not different(given, "rename_columns") or (isinstance(names, Mapping) and not different(names)):
            raise ValueError("rename_columns() needs at least one name")

        def renamed(table: pyarrow.Table) -> pyarrow.Table:
            if isinstance(names, Mapping):
                lacking.check_columns(table, list(names))
                return table.rename_columns([names.get(name, name) for name in table.column_names])
            return table.rename_columns(list(names))

        return self._of_tables("rename_columns", renamed, options)

    def add_column(
        self, col: str, fn: Callable[..., object], *, batch_format: str | None = "pandas", **options: object
    ) -> Dataset:
        """Add a column, or replace it. `fn` gets a batch, and returns a value for each row."""
        if not callable(fn):
            raise ValueError(f"add_column() takes a function of a batch, not {fn!r}")
        if not isinstance(col, str):
            raise ValueError(f"the name of a column must be a string, not {col!r}")
        blocks.check_format(batch_format)

        def added(table: pyarrow.Table) -> pyarrow.Table:
            values = fn(blocks.to_batch(table, batch_format))
            values = getattr(values, "values", values) if batch_format == "pandas" else values
            if numpy.ndim(values) == 0:  # type: ignore[arg-type]
                values = [values] * table.num_rows
            return blocks.with_column(table, col, blocks.of_batch({col: values}, f"add_column({col!r})").column(col))

        return self._of_tables("add_column", added, options)

    def with_column(self, column_name: str, expr: Expr, **options: object) -> Dataset:
        """Add a column, or replace it, by an expression of others.

        from mpi_runtime.data.expressions import col

        ds.with_column("total", col("price") * col("count"))
        """
        return self.with_columns({column_name: expr}, **options)

    def with_columns(self, exprs: Mapping[str, Expr], **options: object) -> Dataset:
        """Add columns, or replace them, by expressions; each sees those before it."""
        kept = dict(exprs)
        check_exprs(kept.values())
        added = partial(with_columns, list(kept))
        return self._of_exprs(f"with_columns({kept})", added, list(kept.values()), options)

    def union(self, *other: Dataset) -> Dataset:
        """Join the rows of several data sets: first these, then the others'."""
        return Dataset(Joined((self._operator, *(one._operator for one in other))))

    def zip(self, *other: Dataset) -> Dataset:
        """Join rows with the same places: each has the columns of all. A name that is there twice gets a number.

        Raises:
            ValueError: a data set has another number of rows. It is raised when rows are asked for.
        """
        operators = (self._operator, *(one._operator for one in other))
        return Dataset(Exchanged(operators, "zip", (), partial(dividing.beside, operators)))

    def join(
        self,
        ds: Dataset,
        join_type: str,
        num_partitions: int,
        on: Sequence[str] = ("id",),
        right_on: Sequence[str] | None = None,
        left_suffix: str | None = None,
        right_suffix: str | None = None,
        *,
        partition_size_hint: int | None = None,
        aggregator_ray_remote_args: Mapping[str, object] | None = None,
        validate_schemas: bool = False,
    ) -> Dataset:
        """Join the rows of two data sets whose keys are equal; missing keys are equal to nothing.

            ds.join(names, join_type="inner", num_partitions=8, on=("id",))

        All rows are made first. The store spills those for which it has no memory.

        Args:
            ds: the right side.
            join_type: "inner", or "left_", "right_" or "full_outer": also the rows of that side without others. "left_"
                or "right_semi": only the rows of that side that have others; "left_" or "right_anti": that have none.
            num_partitions: the number of blocks of the result. The rows of each must fit into the memory of a process.
            on: the columns with the keys, a list or a tuple.
            right_on: those of the right side, if they have other names.
            left_suffix: at the end of names that both sides have, of the left side.
            right_suffix: the same of the right side.
            partition_size_hint: Ray's, without effect.
            aggregator_ray_remote_args: Ray's, without effect.
            validate_schemas: refuse keys of different types now; this needs the columns of both sides.
        """
        del partition_size_hint, aggregator_ray_remote_args
        for name, value in (("on", on), ("right_on", right_on)):
            if value is not None and not isinstance(value, list | tuple):
                raise ValueError(f"Expected tuple or list as `{name}` (got {type(value).__name__})")
        kind = str(getattr(join_type, "value", join_type))
        if kind not in joining.KINDS:
            raise ValueError(f"join_type must be one of {', '.join(joining.KINDS)}, not {join_type!r}")
        check_positive("num_partitions", num_partitions)
        keys = (tuple(different(on, "join")), tuple(different(right_on or on, "join")))
        if not keys[0] or len(keys[0]) != len(keys[1]):
            raise ValueError(f"join() needs as many keys of one side as of the other, not {keys[0]} and {keys[1]}")
        if validate_schemas:
            joining.check_keys(self.schema(), ds.schema(), keys)
        join = joining.Join(kind, keys, (left_suffix, right_suffix))
        made = partial(joining.joined, self._operator, ds._operator, join, num_partitions)
        arguments = (kind, keys, left_suffix, right_suffix, num_partitions)
        return Dataset(Exchanged((self._operator, ds._operator), "join", arguments, made, keeps_rows=False))

    def random_sample(self, fraction: float, *, seed: int | None = None) -> Dataset:
        """Keep each row with this probability. The same seed keeps the same rows, if the blocks are the same."""
        if not isinstance(fraction, Real):
            raise TypeError(f"random_sample() needs a fraction from 0 to 1, not {fraction!r}")
        if not 0 <= (fraction := float(fraction)) <= 1:
            raise ValueError(f"random_sample() needs a fraction from 0 to 1, not {fraction!r}")
        sample = Step(WRITE, f"random_sample({fraction})", partial(exchange.sample, fraction=fraction, seed=seed))
        return Dataset(Mapped(self._operator, sample, PLAIN))

    def repartition(
        self,
        num_blocks: int | None = None,
        target_num_rows_per_block: int | None = None,
        *,
        strict: bool = False,
        shuffle: bool = False,
        keys: Sequence[str] | None = None,
        sort: bool = False,
    ) -> Dataset:
        """Divide the same rows into other blocks, in the same order unless they are shuffled.

        Args:
            num_blocks: their number. All rows are made before the first one moves on.
            target_num_rows_per_block: their rows; the last one of some blocks may have fewer.
            strict: with `target_num_rows_per_block`, only the last of all blocks may have fewer rows. All rows are
                made before the first one moves on.
            shuffle: rows get random places.
            keys: columns: rows with equal values in them are in one of `num_blocks` blocks.
            sort: with `keys`, the rows of each block are in their order.
        """
        num_blocks = check_positive("num_blocks", num_blocks)
        target_num_rows_per_block = check_positive("target_num_rows_per_block", target_num_rows_per_block)
        if num_blocks is not None and target_num_rows_per_block is not None:
            raise ValueError("Only one of `num_blocks` or `target_num_rows_per_block` must be set, but not both.")
        if num_blocks is None and target_num_rows_per_block is None:
            raise ValueError("Either `num_blocks` or `target_num_rows_per_block` must be set")
        if num_blocks is None:
            if shuffle:
                raise ValueError("`shuffle` must be False when `target_num_rows_per_block` is set.")
            rows = target_num_rows_per_block or 0
            if strict:
                exact = partial(dividing.divide_exactly, self._operator, rows)
                return Dataset(Exchanged((self._operator,), "repartition_exactly", (rows,), exact, is_stored=True))
            return Dataset(Divided(self._operator, rows=rows))
        if shuffle:
            return self.random_shuffle(num_blocks=num_blocks)
        if keys:
            names = different(keys)
            by_keys = partial(exchange.by_hash, self._operator, names, num_blocks, sort)
            return Dataset(Exchanged((self._operator,), "repartition", (num_blocks, names, sort), by_keys))
        blocks_of_all = partial(dividing.divide, self._operator, num_blocks)
        return Dataset(Exchanged((self._operator,), f"repartition({num_blocks})", (), blocks_of_all, is_stored=True))

    def random_shuffle(self, *, seed: int | None = None, num_blocks: int | None = None, **options: object) -> Dataset:
        """Give all rows random places.

        All rows are made first. The store spills those for which it has no memory.

        Args:
            seed: the same seed gives the same order, with the same blocks on as many CPUs. None: another one each time.
            num_blocks: the number of blocks; None: it is chosen.
            options: those of tasks are accepted, without effect.
        """
        needs("random_shuffle", False, **options)  # type: ignore[arg-type]
        num_blocks = check_positive("num_blocks", num_blocks)
        made = partial(exchange.shuffle, self._operator, seed, num_blocks)
        return Dataset(Exchanged((self._operator,), "random_shuffle", (seed, num_blocks), made))

    def randomize_block_order(self, *, seed: int | None = None) -> Dataset:
        """Give all blocks random places; the rows of each keep theirs."""
        made = partial(exchange.block_order, self._operator, seed)
        return Dataset(Exchanged((self._operator,), "randomize_block_order", (seed,), made, is_stored=True))

    def sort(
        self,
        key: str | Sequence[str],
        descending: bool | Sequence[bool] = False,
        boundaries: Sequence[object] | None = None,
    ) -> Dataset:
        """Bring all rows into the order of a column, or of several; rows with missing values are last.

        All rows are made first. The store spills those for which it has no memory. Equal rows keep their order.

        Args:
            key: a column, or a list of columns.
            descending: from the greatest, for all columns or for each.
            boundaries: of one column: the values with which blocks begin, but for the first; [10, 20] makes three.
        """
        keys = sorting.keys_of("sort", key, descending)
        if boundaries is not None and len(keys) > 1:
            raise ValueError(f"sort(boundaries={boundaries!r}) needs one column, not {key!r}")
        made = partial(sorting.by_range, "sort", self._operator, keys, None, begins=boundaries)
        return Dataset(Exchanged((self._operator,), "sort", (keys, boundaries), made))

    def groupby(self, key: str | Sequence[str] | None, num_partitions: int | None = None) -> GroupedData[Dataset]:
        """Make groups of the rows with equal values in a column, or in several; a missing value is equal to others.

            ds.groupby("kind").mean("price")
            ds.groupby("kind").map_groups(lambda batch: {"longest": [max(batch["text"], key=len)]})

        Results are in the order of the keys.

        Args:
            key: a column, or a list of columns; None: all rows are one group.
            num_partitions: the number of blocks of the result; None: it is chosen.
        """
        return GroupedData(self, key, num_partitions)

    def aggregate(self, *aggs: AggregateFn) -> dict[str, object] | None:
        """Reduce all rows, as {"sum(a)": 1, "max(b)": 2}.

        from mpi_runtime.data.aggregate import Max, Sum

        ds.aggregate(Sum("a"), Max("b"))
        """
        running = Running(grouping.held(self._operator, (), aggs), ordered=True, note=self._note)
        tables = list(tables_of(running))
        if not tables:
            return None
        table = blocks.joined(tables)
        lacking.check_somewhere(grouping.targets(aggs), lacking.columns_of(table))
        results = grouping.merged(table, aggs)
        return dict(zip(names_of(aggs), results, strict=True))

    def unique(self, column: str, ignore_nulls: bool = False) -> list[object]:
        """The different values of a column, in the order in which they are first met."""
        found: Mapping[str, object] = self.aggregate(Unique(column, ignore_nulls, "values")) or {"values": []}
        values = found["values"]
        assert isinstance(values, list)
        return values

    def train_test_split(
        self, test_size: int | float, *, shuffle: bool = False, seed: int | None = None, stratify: str | None = None
    ) -> tuple[MaterializedDataset, MaterializedDataset]:
        """Run it, and divide the rows into those of a training and those of its test, which are the last.

        Args:
            test_size: the rows of the test: their number, or a part between 0 and 1.
            shuffle: give all rows random places before.
            seed: of the shuffle.
            stratify: a column whose values have the same shares in both.
        """
        test_size = test_size if (number := whole(test_size)) is None else number
        if not isinstance(test_size, int | float):
            raise TypeError(f"test_size must be a number of rows, or a part between 0 and 1, not {test_size!r}")
        if stratify and shuffle:
            raise ValueError("train_test_split() takes either shuffle=True or stratify=...")
        least = test_size if type(test_size) is int else None
        if least is None and not (isinstance(test_size, float) and 0 < test_size < 1):
            raise ValueError(f"test_size must be a number of rows, or a part between 0 and 1, not {test_size!r}")
        all_rows = (self.random_shuffle(seed=seed) if shuffle else self).materialize()
        rows = all_rows.count()
        if least is not None and not 0 < least < rows:
            raise ValueError(f"test_size must be above 0 and below the number of rows, {rows}, not {test_size}")
        if stratify is not None:
            marked = all_rows.groupby(stratify).map_groups(
                partial(grouping.last_marked, share=test_size / (1 if least is None else rows)), batch_format="pyarrow"
            )
            both = marked.materialize()
            train, test = (
                both.filter(expr=f"{grouping.LAST} == {is_test}").drop_columns(grouping.LAST).materialize()
                for is_test in (False, True)
            )
            return train, test
        edge = rows - least if least is not None else int(rows * (1 - test_size))
        first, second = all_rows._cut_at([edge])
        return first, second

    def split(
        self, n: int, *, equal: bool = False, locality_hints: Sequence[object] | None = None
    ) -> list[MaterializedDataset]:
        """Run it, and divide the rows into `n` data sets, in their order.

        Args:
            n: the number of parts. Their sizes differ by one row at most.
            equal: all have the same number of rows; up to `n - 1` rows are left out.
            locality_hints: an actor for each part; accepted, without effect.
        """
        if (count := whole(n) or 0) < 1:
            raise ValueError(f"split(n): n must be a number above 0, not {n!r}")
        n = count
        check_hints(n, locality_hints)
        all_rows = self.materialize()
        rows = all_rows.count()
        kept = rows - rows % n if equal else rows
        return all_rows._cut_at([kept * i // n for i in range(1, n + 1)])[:n]

    def split_at_indices(self, indices: Sequence[int]) -> list[MaterializedDataset]:
        """Run it, and divide the rows at these places: [2, 5] makes rows 0 and 1, rows 2 to 4, and the rest."""
        wanted = list(map(int, indices))
        if not wanted or wanted[0] < 0 or wanted != sorted(wanted):
            raise ValueError(f"split_at_indices() needs places in ascending order, 0 or more, not {indices!r}")
        return self.materialize()._cut_at(wanted)

    def split_proportionately(self, proportions: Sequence[float]) -> list[MaterializedDataset]:
        """Run it, and divide the rows into parts of these sizes, [0.2, 0.5], and a last one with the rest."""
        shares = list(proportions)
        if not shares or min(shares) <= 0 or sum(shares) >= 1:
            raise ValueError(f"split_proportionately() needs parts above 0 with a sum below 1, not {proportions!r}")
        all_rows = self.materialize()
        rows = all_rows.count()
        if rows <= len(shares):
            raise ValueError(f"split_proportionately() has {rows} rows, too few for {len(shares) + 1} parts")
        return all_rows._cut_at(dividing.edges(rows, shares))

    def materialize(self) -> MaterializedDataset:
        """Make all blocks now, and keep them. The store spills those for which it has no memory."""
        kept = stored(self._operator, self._note)
        made = MaterializedDataset(of_blocks(kept, "materialized"), kept)
        made._stats = self._stats
        return made

    def to_arrow_refs(self) -> list[ObjectRef[pyarrow.Table]]:
        """Run it, and return a reference to the table of each block."""
        return [block.value for block in self.materialize()._kept]  # type: ignore[misc]

    get_internal_block_refs = to_arrow_refs

    def to_pandas_refs(self) -> list[ObjectRef[pandas.DataFrame]]:
        """Run it, and return a reference to a data frame for each block."""
        return references.batches(self.materialize()._kept, "pandas")

    def to_numpy_refs(self, *, column: str | None = None) -> list[ObjectRef[object]]:
        """Run it, and return a reference to arrays by column for each block, or to the array of one column."""
        return references.batches(self.materialize()._kept, "numpy", column)

    def take(self, limit: int = ROWS_SHOWN) -> list[Row]:
        """Return the first rows."""
        return list(self.limit(limit)._noted_by(self).iter_rows())

    def take_all(self, limit: int | None = None) -> list[Row]:
        """Return all rows. ValueError: there are more than `limit`."""
        if limit is None:
            return list(self.iter_rows())
        rows = self.take(limit + 1)
        if len(rows) > limit:
            raise ValueError(f"the data set has more than {limit} rows")
        return rows

    def take_batch(self, batch_size: int = ROWS_SHOWN, *, batch_format: str | None = "default") -> object:
        """Return the first rows as a batch."""
        limited = self.limit(batch_size)._noted_by(self)
        for batch in limited.iter_batches(batch_size=batch_size, batch_format=batch_format, prefetch_batches=0):
            return batch
        raise ValueError("the data set has no rows")

    def show(self, limit: int = ROWS_SHOWN) -> None:
        """Print the first rows."""
        for row in self.take(limit):
            print(row)

    def to_pandas(self, limit: int | None = None) -> pandas.DataFrame:
        """Return all rows as a data frame. ValueError: there are more than `limit`."""
        tables = self._all_tables()
        if limit is not None and sum(table.num_rows for table in tables) > limit:
            raise ValueError(f"the data set has more than limit={limit} rows")
        return blocks.to_batch(blocks.joined(tables) if tables else blocks.of_rows([]), "pandas")

    def count(self) -> int:
        """The number of rows. It is known without a run if no function changes it."""
        known = known_count(self._operator)
        if known is not None:
            return known
        counting = Mapped(self._operator, Step(TABLES, "count", count_rows), PLAIN)
        running = Running(counting, ordered=True, note=self._note)
        # A task reads several files, and joins the counts of them to a block.
        return sum(sum(table.column("rows").to_pylist()) for table in tables_of(running))

    def schema(self, fetch_if_missing: bool = True) -> Schema | None:
        """The names and types of columns, of the first block; None: there are none, or not `fetch_if_missing`."""
        if self._schema is None and fetch_if_missing:
            self._schema = self.limit(1)._noted_by(self)._first_schema()
        return self._schema

    def columns(self, fetch_if_missing: bool = True) -> list[str] | None:
        """The names of columns."""
        schema = self.schema(fetch_if_missing)
        return None if schema is None else schema.names

    def sum(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> object:
        """The sum of a column; with several columns a dictionary, as {"sum(a)": 1}; None: there are no values."""
        return self._aggregate("sum", on, ignore_nulls)

    def min(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> object:
        """The least value of a column, as `sum`."""
        return self._aggregate("min", on, ignore_nulls)

    def max(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> object:
        """The greatest value of a column, as `sum`."""
        return self._aggregate("max", on, ignore_nulls)

    def mean(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> object:
        """The mean of a column, as `sum`."""
        return self._aggregate("mean", on, ignore_nulls)

    def std(self, on: str | Sequence[str] | None = None, ddof: int = 1, ignore_nulls: bool = True) -> object:
        """The standard deviation of a column, as `sum`; `ddof` is subtracted from the number of values."""
        return self._aggregate("std", on, ignore_nulls, ddof)

    def iterator(self) -> DataIterator:
        """What reads the rows of this data set."""
        return self

    def streaming_split(
        self, n: int, *, equal: bool = False, locality_hints: Sequence[object] | None = None
    ) -> list[DataIterator]:
        """Return `n` iterators, for `n` processes, which share the rows of one stream.

        Each begins an iteration when all others have begun it too.

        Args:
            n: their number.
            equal: all get the same number of rows; up to `n - 1` rows are left out.
            locality_hints: accepted, without effect: a block is read where the iterator is.
        """
        n = check_positive("n", n) or 0
        check_hints(n, locality_hints)
        settings = self._settings or DataContext.get_current()
        shares = Shares(self._operator, n, equal, settings.copy())
        return [StreamSplitDataIterator(shares, rank) for rank in range(n)]

    def stats(self) -> str:
        """What the stages of the last run have done; empty: it did not run."""
        return "" if self._stats is None else progress.table(self._stats)

    def input_files(self) -> list[str]:
        """The files that it reads."""
        return sorted({name for source in sources(self._operator) for name in source.files})

    def __repr__(self) -> str:
        count = known_count(self._operator)
        schema = "Unknown schema"
        if self._schema is not None:
            kinds = zip(self._schema.names, self._schema.types, strict=True)
            schema = "{" + ", ".join(f"{name}: {kind}" for name, kind in kinds) + "}"
        return f"{type(self).__name__}(num_rows={'?' if count is None else count}, schema={schema})"

    def __iter__(self) -> None:
        raise TypeError("`Dataset` objects aren't iterable: use iter_rows() or iter_batches()")

    def __len__(self) -> int:
        raise AttributeError("a Dataset has no len(). Use `ds.count()` to compute the length, which may run it")

    def __bool__(self) -> bool:
        return True

    def num_blocks(self) -> int:
        """The number of blocks of a data set that is stored. NotImplementedError: it is not."""
        raise NotImplementedError("num_blocks() is that of a MaterializedDataset: materialize() makes one")

    def size_bytes(self) -> int:
        """The bytes of all blocks in memory. It is found by a run, unless the data set is stored."""
        sizes = Mapped(self._operator, Step(TABLES, "size_bytes", dividing.size_of), PLAIN)
        return sum(row["bytes"] for row in Dataset(sizes)._noted_by(self).iter_rows())  # type: ignore[misc]

    def __getattr__(self, name: str) -> object:
        raise AttributeError(unsupported.of_dataset(name))

    def _mapped(
        self,
        kind: str,
        caller: str,
        fn: Callable[..., object],
        options: Mapping[str, object],
        batches: Mapping[str, object] | None = None,
    ) -> Dataset:
        from msgspec.structs import replace

        own = {name: value for name, value in options.items() if name.startswith("fn_")}
        made = step(kind, caller, fn, **own)  # type: ignore[arg-type]
        of_calls = {name: value for name, value in options.items() if not name.startswith("fn_")}
        wanted = needs(caller, made.is_class, **of_calls)  # type: ignore[arg-type]
        return Dataset(Mapped(self._operator, replace(made, **batches) if batches else made, wanted))

    def _of_tables(
        self, caller: str, function: Callable[[pyarrow.Table], pyarrow.Table], options: Mapping[str, object]
    ) -> Dataset:
        wanted = needs(caller, False, **options)  # type: ignore[arg-type]
        return Dataset(Mapped(self._operator, Step(TABLES, caller, partial(_unless_nothing, function)), wanted))

    def _of_exprs(
        self, name: str, function: Callable[..., pyarrow.Table], exprs: list[Expr], options: Mapping[str, object]
    ) -> Dataset:
        if not any(map(has_objects, exprs)):
            return self._of_tables(name, lambda table: function(exprs, table), options)
        wanted = needs(name, True, **options)  # type: ignore[arg-type]
        return Dataset(Mapped(self._operator, Step(TABLES, name, _OfExprs, constructor_args=(function, exprs)), wanted))

    def _note(self, stats: Stats) -> None:
        self._stats = stats

    def _noted_by(self, other: Dataset) -> Dataset:
        self._note = other._note  # type: ignore[method-assign]
        return self

    def _tables(self, ordered: bool) -> Tables:
        running = Running(self._operator, ordered, self._note, self._settings)
        return Tables(tables_of(running), running.stop)

    def _first_schema(self) -> Schema | None:
        running = Running(self._operator, ordered=True, note=self._note, settings=self._settings)
        for table in tables_of(running):
            return Schema(table.schema)
        return None if running.empty is None else Schema(value_of(running.empty).schema)

    def _all_tables(self) -> list[pyarrow.Table]:
        running = Running(self._operator, ordered=True, note=self._note, settings=self._settings)
        tables = list(tables_of(running))
        return tables or ([value_of(running.empty)] if running.empty is not None else [])

    def _aggregate(self, kind: str, on: str | Sequence[str] | None, ignore_nulls: bool, ddof: int = 1) -> object:
        return aggregating.aggregate(self._operator, self._note, kind, on, ignore_nulls, ddof)


class _OfExprs:
    """A function of tables, with expressions that need objects of classes, which an actor keeps."""

    def __init__(self, function: Callable[..., pyarrow.Table], exprs: list[Expr]) -> None:
        self._made = partial(function, exprs)

    def __call__(self, table: pyarrow.Table) -> pyarrow.Table:
        return _unless_nothing(self._made, table)


def check_hints(n: int, hints: Sequence[object] | None) -> None:
    """Refuse places for another number of parts, by ValueError."""
    if hints is not None and len(hints) != n:
        raise ValueError(f"locality_hints has {len(hints)} actors, for {n} parts: it needs one for each")


def _unless_nothing(function: Callable[[pyarrow.Table], pyarrow.Table], table: pyarrow.Table) -> pyarrow.Table:
    """What a function makes of a block, unless it has neither rows nor columns, as of an empty list or file."""
    return function(table) if table.num_columns or table.num_rows else table


def _filtered(exprs: list[Expr], table: pyarrow.Table) -> pyarrow.Table:
    return table.filter(exprs[0].column_of(table))


@published("mpi_runtime.data")
class MaterializedDataset(Dataset):
    """A data set whose blocks are in the store."""

    def __init__(self, operator: Operator, kept: list[Block]) -> None:
        """Made by `materialize` and `from_items`, for example."""
        super().__init__(operator)
        self._kept = kept

    def _cut_at(self, places: Sequence[int]) -> list[MaterializedDataset]:
        """The rows before the first of these places, those between them, and those after the last."""
        bounds = itertools.pairwise([0, *places, max(self.count(), *places)])
        found = [dividing.stored_part(self._kept, low, high) for low, high in bounds]
        return [MaterializedDataset(of_blocks(part, "part"), part) for part in found]

    def num_blocks(self) -> int:
        """The number of blocks."""
        return len(self._kept)

    def size_bytes(self) -> int:
        """The bytes of all blocks."""
        return sum(block.bytes for block in self._kept)

    def schema(self, fetch_if_missing: bool = True) -> Schema | None:
        """The names and types of columns, of the first block; None: there are no columns."""
        if self._schema is None and self._kept:
            found = table_of(self._kept[0]).schema
            self._schema = Schema(found) if len(found) else None
        return self._schema

    def __repr__(self) -> str:
        self.schema()
        head, _, rest = super().__repr__().partition("(")
        return f"{head}(num_blocks={self.num_blocks()}, {rest}"
