"""Texts as words, and as numbers of words."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mpi_runtime.core import published
from mpi_runtime.data.arrow import pd
from mpi_runtime.data.preprocessors import counting
from mpi_runtime.data.preprocessors.base import OfColumns, Preprocessor

if TYPE_CHECKING:
    from mpi_runtime.data.dataset import Dataset

    Tokenize = Callable[[str], list[str]]


def simple_split_tokenizer(value: str) -> list[str]:
    """The words of a text between single spaces."""
    return value.split(" ")


def simple_hash(value: object, num_features: int) -> int:
    """A number below `num_features` that each process finds for a value."""
    return int(hashlib.sha256(str(value).encode()).hexdigest(), 16) % num_features


class _OfWords(OfColumns):
    """One that divides texts into words."""

    def __init__(
        self, columns: Sequence[str], tokenization_fn: Tokenize | None, output_columns: Sequence[str] | None
    ) -> None:
        super().__init__(columns, output_columns)
        self._tokenization_fn = tokenization_fn or simple_split_tokenizer

    @property
    def tokenization_fn(self) -> Tokenize:
        """Makes a list of words of a text."""
        return self._tokenization_fn

    def _lists(self, values: Any, made: Callable[[list[str]], object]) -> Any:
        """What is made of the words of each text; None of one that is missing."""
        lists = [None if counting.is_missing(value) else made(self._tokenization_fn(value)) for value in values]
        return pd.Series(lists, index=values.index, dtype=object)


@published("mpi_runtime.data.preprocessors")
class Tokenizer(_OfWords):
    """Texts become lists of words."""

    _is_fittable = False
    _shown = ("columns", "tokenization_fn", "output_columns")

    def __init__(
        self,
        columns: Sequence[str],
        tokenization_fn: Tokenize | None = None,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        """`tokenization_fn`: makes a list of a text; None: words lie between single spaces."""
        super().__init__(columns, tokenization_fn, output_columns)

    def _transform_pandas(self, df: Any) -> Any:
        return self._each(df, lambda values, _: self._lists(values, list))


@published("mpi_runtime.data.preprocessors")
class HashingVectorizer(_OfWords):
    """Texts become lists: how often words with each hash are there."""

    _is_fittable = False
    _shown = ("columns", "num_features", "tokenization_fn", "output_columns")

    def __init__(
        self,
        columns: Sequence[str],
        num_features: int,
        tokenization_fn: Tokenize | None = None,
        *,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        """`num_features`: the number of hashes, and the length of lists."""
        super().__init__(columns, tokenization_fn, output_columns)
        self._num_features = num_features

    @property
    def num_features(self) -> int:
        """The length of lists."""
        return self._num_features

    def _transform_pandas(self, df: Any) -> Any:
        def counted(words: list[str]) -> list[int]:
            count = Counter(simple_hash(word, self._num_features) for word in words)
            return [count[number] for number in range(self._num_features)]

        return self._each(df, lambda values, _: self._lists(values, counted))


@published("mpi_runtime.data.preprocessors")
class CountVectorizer(_OfWords):
    """Texts become lists: how often each word is there, the most frequent words first."""

    _shown = ("columns", "tokenization_fn", "max_features", "output_columns")

    def __init__(
        self,
        columns: Sequence[str],
        tokenization_fn: Tokenize | None = None,
        max_features: int | None = None,
        *,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        """`max_features`: the most words that count, the frequent ones; None: all."""
        super().__init__(columns, tokenization_fn, output_columns)
        self._max_features = max_features

    @property
    def max_features(self) -> int | None:
        """The most words that count."""
        return self._max_features

    def _fit(self, ds: Dataset) -> object:
        found = counting.counts(ds, self._columns, partial(_words, self._tokenization_fn))
        self.stats_ = {
            f"token_counts({column})": Counter(dict(count.most_common(self._max_features)))
            for column, count in found.items()
        }
        return self

    def _transform_pandas(self, df: Any) -> Any:
        def counted(values: Any, column: str) -> Any:
            known = [word for word, _ in self.stats_[f"token_counts({column})"].most_common()]

            def of_words(words: list[str]) -> list[int]:
                count = Counter(words)
                return [count[word] for word in known]

            return self._lists(values, of_words)

        return self._each(df, counted)


def _words(tokenize: Tokenize, values: Any) -> Counter[Hashable]:
    return Counter(word for value in values if not counting.is_missing(value) for word in tokenize(value))


@published("mpi_runtime.data.preprocessors")
class FeatureHasher(Preprocessor):
    """Columns with numbers of words, as `CountVectorizer` could have them, become a list with fewer numbers."""

    _is_fittable = False
    _shown = ("columns", "num_features", "output_column")

    def __init__(self, columns: Sequence[str], num_features: int, output_column: str) -> None:
        """`num_features`: the number of hashes of the names of columns, and the length of lists."""
        super().__init__()
        self._columns: list[str] = list(columns)
        self._num_features = num_features
        self._output_column = output_column

    @property
    def columns(self) -> list[str]:
        """The columns that it reads."""
        return self._columns

    @property
    def num_features(self) -> int:
        """The length of lists."""
        return self._num_features

    @property
    def output_column(self) -> str:
        """The column that it makes."""
        return self._output_column

    def get_output_columns(self) -> list[str]:
        """The column that it makes."""
        return [self._output_column]

    def _transform_pandas(self, df: Any) -> Any:
        sums: list[Any] = [0] * self._num_features
        for column in self._columns:
            sums[simple_hash(column, self._num_features)] += df[column]
        made = pd.DataFrame(dict(enumerate(sums)), index=df.index).to_numpy()
        df[self._output_column] = pd.Series(list(made), index=df.index, dtype=object)
        return df
