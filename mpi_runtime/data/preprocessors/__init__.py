"""What prepares rows for a training: learns from a data set, then changes columns of it and of others in the same way.

    scaler = StandardScaler(columns=["age"])
    train = scaler.fit_transform(train)
    test = scaler.transform(test)

With `--as-ray` these are the names of `ray.data.preprocessors`. They need pandas.

- `base.py`: `Preprocessor`: what all have in common, to be subclassed too
- `scalers.py`: numbers of another scale
- `encoders.py`: values as numbers
- `texts.py`: texts as words, and as numbers of words
- `bins.py`: numbers as intervals
- `columns.py`: missing values, several columns as one, several preprocessors as one
- `counting.py`: how often values are there
"""

from typing import TYPE_CHECKING

from mpi_runtime import _face

_HOMES = {
    "base": "Preprocessor PreprocessorNotFittedException",
    "bins": "CustomKBinsDiscretizer UniformKBinsDiscretizer",
    "columns": "Chain Concatenator SimpleImputer",
    "encoders": "Categorizer LabelEncoder MultiHotEncoder OneHotEncoder OrdinalEncoder",
    "scalers": "MaxAbsScaler MinMaxScaler Normalizer PowerTransformer RobustScaler StandardScaler",
    "texts": "CountVectorizer FeatureHasher HashingVectorizer Tokenizer",
}

__all__ = [
    "Categorizer", "Chain", "Concatenator", "CountVectorizer", "CustomKBinsDiscretizer", "FeatureHasher",
    "HashingVectorizer", "LabelEncoder", "MaxAbsScaler", "MinMaxScaler", "MultiHotEncoder", "Normalizer",
    "OneHotEncoder", "OrdinalEncoder", "PowerTransformer", "Preprocessor", "PreprocessorNotFittedException",
    "RobustScaler", "SimpleImputer", "StandardScaler", "Tokenizer", "UniformKBinsDiscretizer",
]  # fmt: skip

if TYPE_CHECKING:
    from mpi_runtime.data.preprocessors.base import Preprocessor, PreprocessorNotFittedException
    from mpi_runtime.data.preprocessors.bins import CustomKBinsDiscretizer, UniformKBinsDiscretizer
    from mpi_runtime.data.preprocessors.columns import Chain, Concatenator, SimpleImputer
    from mpi_runtime.data.preprocessors.encoders import (
        Categorizer,
        LabelEncoder,
        MultiHotEncoder,
        OneHotEncoder,
        OrdinalEncoder,
    )
    from mpi_runtime.data.preprocessors.scalers import (
        MaxAbsScaler,
        MinMaxScaler,
        Normalizer,
        PowerTransformer,
        RobustScaler,
        StandardScaler,
    )
    from mpi_runtime.data.preprocessors.texts import CountVectorizer, FeatureHasher, HashingVectorizer, Tokenizer
else:  # a checker would take every name for one of ours
    __getattr__, __dir__ = _face(__name__, _HOMES, __all__)
