"""Data sets: preprocessors, what they learn, and how they change data sets and batches."""

import numpy as np
import pandas as pd
import pyarrow as pa
import ray
import ray.data
from ray.data.preprocessor import Preprocessor, PreprocessorNotFittedException
from ray.data.preprocessors import (
    Categorizer,
    Chain,
    Concatenator,
    CountVectorizer,
    CustomKBinsDiscretizer,
    FeatureHasher,
    HashingVectorizer,
    LabelEncoder,
    MaxAbsScaler,
    MinMaxScaler,
    MultiHotEncoder,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    RobustScaler,
    SimpleImputer,
    StandardScaler,
    Tokenizer,
    UniformKBinsDiscretizer,
)

from tests.ray_docs.helpers import raised


def _plain(value):
    if isinstance(value, np.ndarray | list):
        return [_plain(one) for one in value]
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or value is pd.NA or (isinstance(value, float) and value != value):
        return None
    return round(value, 9) if isinstance(value, float) else value


def _rows(given):
    """Rows of a data set or a data frame, without the differences of missing values."""
    rows = given.take_all() if hasattr(given, "take_all") else given.to_dict("records")
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


def _stats(preprocessor):
    return {name: _plain(value) for name, value in sorted(preprocessor.stats_.items())}


def _numbers():
    return ray.data.from_pandas(pd.DataFrame({"a": [-1, 0, 1], "b": [1, 3, 5], "c": [1, 1, None]}))


def _unfitted(preprocessor, ds, batch):
    try:
        preprocessor.transform(ds)
    except PreprocessorNotFittedException:
        print("not fitted")
    print(raised(lambda: preprocessor.transform_batch(batch), "RuntimeError"))


def standard_scaler():
    """Means and deviations; missing values stay."""
    ds, batch = _numbers(), pd.DataFrame({"a": [1, 2], "b": [3, 7], "c": [0, 1]})
    scaler = StandardScaler(columns=["b", "c"])
    _unfitted(scaler, ds, batch)
    print(scaler.fit(ds) is scaler, _stats(scaler))
    print(_rows(scaler.transform(ds)))
    print(_rows(scaler.transform_batch(batch)))
    print(scaler, scaler.columns, scaler.output_columns)
    more = StandardScaler(columns=["b"], output_columns=["scaled"])
    print(_rows(more.fit_transform(ds)), more)


def scaler_of_least_and_greatest():
    """From 0 to 1."""
    ds, batch = _numbers(), pd.DataFrame({"b": [3, 7], "c": [0, 1]})
    scaler = MinMaxScaler(columns=["b", "c"])
    _unfitted(scaler, ds, batch)
    scaler.fit(ds)
    print(_stats(scaler))
    print(_rows(scaler.transform(ds)))
    print(_rows(scaler.transform_batch(batch)), scaler)


def scaler_of_absolute_values():
    """From -1 to 1."""
    ds = ray.data.from_pandas(pd.DataFrame({"b": [1, 3, -5], "c": [1, 1, None], "z": [0, 0, 0]}))
    scaler = MaxAbsScaler(columns=["b", "c", "z"])
    scaler.fit(ds)
    print(_stats(scaler))
    print(_rows(scaler.transform(ds)))
    print(_rows(scaler.transform_batch(pd.DataFrame({"b": [10], "c": [-2], "z": [1]}))), scaler)


def robust_scaler():
    """Quantiles."""
    ds = ray.data.from_pandas(pd.DataFrame({"b": [-2, -1, 0, 1, 2], "c": [-10, 1, 2, 3, 10]}))
    scaler = RobustScaler(columns=["b", "c"])
    scaler.fit(ds)
    print(_stats(scaler))
    print(_rows(scaler.transform(ds)))
    print(_rows(scaler.transform_batch(pd.DataFrame({"b": [3, 5], "c": [0, 1]}))))
    print(scaler.quantile_range)


def scaling_constant_columns():
    """Nothing is divided by 0."""
    ds = ray.data.from_pandas(pd.DataFrame({"x": [7, 7]}))
    for kind in (StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler):
        print(_rows(kind(columns=["x"]).fit_transform(ds)))


def scaling_columns_without_values():
    """There is nothing to learn, and the values stay missing."""
    ds = ray.data.from_pandas(pd.DataFrame({"x": pd.Series([None, None], dtype="float64")}))
    for kind in (StandardScaler, MinMaxScaler, MaxAbsScaler):
        scaler = kind(columns=["x"]).fit(ds)
        print(_stats(scaler), _rows(scaler.transform(ds)))


def normalizer():
    """It has nothing to learn."""
    ds = ray.data.from_pandas(pd.DataFrame({"a": [3.0, 1.0], "b": [4.0, 0.0], "c": [1, 1]}))
    for norm in ("l1", "l2", "max"):
        print(_rows(Normalizer(columns=["a", "b"], norm=norm).transform(ds)))
    print(raised(lambda: Normalizer(columns=["a"], norm="x"), "ValueError"), Normalizer(columns=["a", "b"]))
    print(_rows(Normalizer(["a", "b"], output_columns=["x", "y"]).transform_batch(pd.DataFrame({"a": [6], "b": [8]}))))


def power_transformer():
    """Two formulas."""
    ds = ray.data.from_pandas(pd.DataFrame({"a": [-1.0, 0.0, 2.0], "b": [1.0, 2.0, 3.0]}))
    for power in (0, 1, 2, 3):
        print(_rows(PowerTransformer(columns=["a"], power=power).transform(ds)))
        print(_rows(PowerTransformer(columns=["b"], power=power, method="box-cox").transform(ds)))
    print(raised(lambda: PowerTransformer(columns=["a"], power=1, method="x"), "ValueError"))
    print(PowerTransformer(columns=["a"], power=2))


def _colours():
    return ray.data.from_pandas(
        pd.DataFrame(
            {
                "a": ["red", "green", "blue", "red"],
                "b": ["warm", "cold", "hot", "cold"],
                "c": [1, 10, 5, 10],
                "d": [["warm"], [], ["hot", "warm", "cold"], ["cold", "cold"]],
            }
        )
    )


def ordinal_encoder():
    """Numbers in the order of values, also within lists."""
    ds = _colours()
    encoder = OrdinalEncoder(columns=["b", "c", "d"])
    encoder.fit(ds)
    print(_stats(encoder))
    print(_rows(encoder.transform(ds)))
    batch = pd.DataFrame({"b": ["cold", "other"], "c": [10, 20], "d": [["cold", "warm"], []]})
    print(_rows(encoder.transform_batch(batch)))
    print(encoder)
    whole = OrdinalEncoder(columns=["d"], encode_lists=False)
    whole.fit(ds)
    print(_stats(whole), _rows(whole.transform(ds.select_columns(["d"]))))
    beside = OrdinalEncoder(columns=["b"], output_columns=["n"]).fit(ds)
    print(_rows(beside.transform(ds.select_columns(["b"]))))
    print(raised(lambda: OrdinalEncoder(columns=["b", "c"], output_columns=["n"]), "ValueError"))


def one_hot_encoder():
    """Lists with a one."""
    ds = _colours()
    encoder = OneHotEncoder(columns=["b", "c", "d"])
    encoder.fit(ds)
    print(_stats(encoder))
    print(_rows(encoder.transform(ds)))
    batch = pd.DataFrame({"b": ["cold", "other"], "c": [10, 20], "d": [[], ["other"]]})
    print(_rows(encoder.transform_batch(batch)), encoder)
    few = OneHotEncoder(columns=["b"], max_categories={"b": 1})
    print(_rows(few.fit_transform(ds.select_columns(["b"]))), few.max_categories)
    print(raised(lambda: OneHotEncoder(columns=["b"], max_categories={"x": 1}).fit(ds), "ValueError"))


def multi_hot_encoder():
    """Lists of counts."""
    ds = _colours()
    encoder = MultiHotEncoder(columns=["b", "c", "d"])
    encoder.fit(ds)
    print(_stats(encoder))
    print(_rows(encoder.transform(ds)))
    batch = pd.DataFrame({"b": ["cold", "other"], "c": [10, 20], "d": [["cold", "cold"], ["other"]]})
    print(_rows(encoder.transform_batch(batch)), encoder)


def label_encoder():
    """Numbers of labels, and back."""
    ds = _colours().select_columns(["a", "c"])
    encoder = LabelEncoder("a")
    encoder.fit(ds)
    print(_stats(encoder))
    made = encoder.transform(ds)
    print(_rows(made), _rows(encoder.inverse_transform(made)))
    print(_rows(encoder.transform_batch(pd.DataFrame({"a": ["red", "black"]}))), encoder)
    beside = LabelEncoder("a", output_column="n")
    print(_rows(beside.fit_transform(ds)), beside.get_input_columns(), beside.get_output_columns())


def categorizer():
    """Types of pandas."""
    ds = _colours().select_columns(["a", "b"])
    encoder = Categorizer(columns=["a", "b"])
    encoder.fit(ds)
    print({name: list(kind.categories) for name, kind in sorted(encoder.stats_.items())})
    made = encoder.transform(ds).to_pandas()
    print({name: str(kind) for name, kind in made.dtypes.items()}, _rows(made))
    given = Categorizer(columns=["a"], dtypes={"a": pd.CategoricalDtype(["red", "green"], ordered=True)})
    batch = given.fit(ds).transform_batch(pd.DataFrame({"a": ["red", "blue"]}))
    print(_rows(batch), batch["a"].dtype.ordered)


def missing_values_of_encoders():
    """They are refused, when it learns and when it changes."""
    missing, whole = pd.DataFrame({"x": [1, None]}), pd.DataFrame({"x": [1, 1]})
    for encoder in (OrdinalEncoder(["x"]), OneHotEncoder(["x"]), MultiHotEncoder(["x"]), LabelEncoder("x")):
        print(raised(lambda one=encoder: one.fit(ray.data.from_pandas(missing)), "ValueError"))
        encoder.fit(ray.data.from_pandas(whole))
        print(raised(lambda one=encoder: one.transform(ray.data.from_pandas(missing)).materialize(), "Exception"))
        print(raised(lambda one=encoder: one.transform_batch(missing), "ValueError"))


def imputer():
    """Means, frequent values, and constants."""
    ds = ray.data.from_pandas(pd.DataFrame({"a": [1, 1, 1, None], "b": [1, 3, None, None], "c": [1, 1, 1, 1]}))
    mean = SimpleImputer(columns=["b", "c"])
    mean.fit(ds)
    print(_stats(mean), _rows(mean.transform(ds)))
    print(_rows(mean.transform_batch(pd.DataFrame({"b": [2, None], "c": [None, None]}))))
    texts = ray.data.from_pandas(pd.DataFrame({"a": [1, 2, 2, None], "b": [None, "c", "c", "b"]}))
    frequent = SimpleImputer(columns=["a", "b"], strategy="most_frequent")
    frequent.fit(texts)
    print(_stats(frequent), _rows(frequent.transform(texts)))
    constant = SimpleImputer(columns=["b"], strategy="constant", fill_value="missing")
    print(_rows(constant.transform(texts)), constant)
    print(raised(lambda: SimpleImputer(["b"], strategy="constant"), "ValueError"))
    print(raised(lambda: SimpleImputer(["b"], strategy="other"), "ValueError"))
    print(_rows(SimpleImputer(["b"], output_columns=["new"]).fit_transform(ds)))


def concatenator():
    """Columns as arrays."""
    ds = ray.data.from_pandas(pd.DataFrame({"a": [1, 2], "b": [5, 6], "c": [0.5, 1.5]}))
    print(_rows(Concatenator(columns=["b", "a"]).transform(ds)))
    made = Concatenator(columns=["a", "c"], output_column_name="x", dtype=np.float32).transform(ds)
    print(_rows(made), made.take(1)[0]["x"].dtype)
    print(raised(lambda: Concatenator(["z"], raise_if_missing=True).transform(ds).materialize(), "Exception"))
    lists = ray.data.from_items([{"a": 1, "b": [2, 3]}, {"a": 4, "b": [5, 6]}])
    print(_rows(Concatenator(columns=["a", "b"], flatten=True).transform(lists)))
    print(Concatenator(columns=["a"]).get_output_columns())


def tokenizer():
    """Words."""
    ds = ray.data.from_pandas(pd.DataFrame({"a": ["one two", "three"], "b": ["x,y", "z"]}))
    print(_rows(Tokenizer(columns=["a"]).transform(ds)))
    print(
        _rows(
            Tokenizer(columns=["b"], tokenization_fn=lambda text: text.split(","), output_columns=["c"]).transform(ds)
        )
    )
    print(Tokenizer(columns=["a"]))


def count_vectorizer():
    """How often words are there."""
    ds = ray.data.from_pandas(pd.DataFrame({"a": ["a b b c c c", "a a a a c"], "b": ["apple", "banana banana banana"]}))
    vectorizer = CountVectorizer(columns=["a", "b"])
    vectorizer.fit(ds)
    print({name: sorted(count.items()) for name, count in sorted(vectorizer.stats_.items())})
    print(_rows(vectorizer.transform(ds)))
    few = CountVectorizer(columns=["a"], max_features=2)
    print(_rows(few.fit_transform(ds)), few)


def hashing_vectorizer():
    """Hashes of words."""
    ds = ray.data.from_pandas(pd.DataFrame({"a": ["a b b c c c", "a a a a c"]}))
    print(_rows(HashingVectorizer(columns=["a"], num_features=4).transform(ds)))
    print(HashingVectorizer(columns=["a"], num_features=4))


def feature_hasher():
    """Hashes of the names of columns."""
    ds = ray.data.from_pandas(pd.DataFrame({"I": [1, 1], "like": [1, 0], "dislike": [0, 1], "Python": [1, 1]}))
    hasher = FeatureHasher(columns=["I", "like", "dislike", "Python"], num_features=8, output_column="x")
    print([row["x"] for row in _rows(hasher.transform(ds))], hasher)


def discretizers():
    """Intervals with bounds, and of equal widths."""
    ds = ray.data.from_pandas(pd.DataFrame({"a": [0.2, 1.4, 2.5, 6.2, 9.7, 2.1], "b": [1, 2, 3, 4, 5, 6]}))
    print(_rows(CustomKBinsDiscretizer(columns=["a"], bins=[0, 1, 3, 10]).transform(ds)))
    print(_rows(CustomKBinsDiscretizer(["a", "b"], {"a": [0, 3, 10], "b": [0, 3, 6]}, right=False).transform(ds)))
    print(raised(lambda: CustomKBinsDiscretizer(["a", "b"], {"a": [0, 3]}), "ValueError"))
    uniform = UniformKBinsDiscretizer(columns=["a", "b"], bins=3)
    uniform.fit(ds)
    print(_stats(uniform), _rows(uniform.transform(ds)))
    names = {"a": pd.CategoricalDtype(["low", "high"], ordered=True), "b": pd.CategoricalDtype(list("wxyz"))}
    named = UniformKBinsDiscretizer(["a", "b"], {"a": 2, "b": 4}, dtypes=names, output_columns=["x", "y"])
    print(_rows(named.fit(ds).transform_batch(ds.to_pandas())))
    print(raised(lambda: UniformKBinsDiscretizer(["a"], bins=[1, 2]).fit(ds), "TypeError"))


def chains():
    """Each learns from what those before it have made."""
    ds = ray.data.from_pandas(pd.DataFrame({"a": [-1, -1, 1, 1], "b": [1, 1, 1, None], "c": ["x", "y", "z", "z"]}))
    imputer, scaler, encoder = SimpleImputer(["b"]), StandardScaler(["a", "b"]), LabelEncoder("c")
    chain = Chain(scaler, imputer, encoder)
    print(chain.fit_status().value)
    chain.fit(ds)
    print(_stats(imputer), _stats(scaler), _stats(encoder), chain.fit_status().value)
    print(_rows(chain.transform(ds)))
    print(_rows(chain.transform_batch(pd.DataFrame({"a": [1, 2], "b": [0, None], "c": ["x", "other"]}))))
    print(len(chain.preprocessors), chain)
    print(_rows(Chain(SimpleImputer(["b"]), StandardScaler(["b"])).fit_transform(ds)))


def states_of_chains():
    """Some may have learned."""
    ds = ray.data.from_pandas(pd.DataFrame({"a": [1.0, 2.0]}))
    chain = Chain(Chain(StandardScaler(["a"]), MinMaxScaler(["a"])), MaxAbsScaler(["a"]))
    print(chain.fit_status().value)
    chain.preprocessors[1].fit(ds)
    print(chain.fit_status().value)
    print(raised(lambda: chain.transform(ds), "RuntimeError"))
    chain.preprocessors[0].fit(ds)
    print(chain.fit_status().value, Chain(Normalizer(["a"])).fit_status().value)


def own_preprocessors():
    """Subclasses."""

    class Centred(Preprocessor):
        def _fit(self, ds):
            self.stats_ = {"mean": ds.mean("x")}
            return self

        def _transform_pandas(self, df):
            return df.assign(x=df["x"] - self.stats_["mean"])

    class Doubled(Preprocessor):
        _is_fittable = False

        def _transform_numpy(self, data):
            return {"x": data["x"] * 2}

    class Nothing(Preprocessor):
        _is_fittable = False

    ds = ray.data.from_pandas(pd.DataFrame({"x": [1.0, 3.0]}))
    print(_rows(Centred().fit_transform(ds)), _rows(Doubled().transform(ds)))
    print(Doubled().fit_status().value, Centred().fit_status().value)
    print(raised(lambda: Nothing().transform(ds), "NotImplementedError"))
    print(raised(lambda: Nothing().transform_batch([1, 2]), "ValueError"))
    print(type(Doubled().transform_batch({"x": np.ones(2)})).__name__)
    print(type(Centred().fit(ds).transform_batch(pa.table({"x": [1.0]}))).__name__)


def keeping_preprocessors():
    """As bytes."""
    ds = _numbers()
    scaler = StandardScaler(columns=["b"]).fit(ds)
    kept = scaler.serialize()
    print(type(kept).__name__)
    again = StandardScaler.deserialize(kept)
    print(type(again).__name__, _stats(again), again.columns)
    print(_rows(again.transform_batch(pd.DataFrame({"b": [3, 5]}))))
    print(raised(lambda: Preprocessor.deserialize(b"nothing"), "Exception"))


def forms_of_batches():
    """Data frames, tables and dictionaries."""
    scaler = MinMaxScaler(columns=["b"]).fit(_numbers())
    print(_rows(scaler.transform_batch({"b": np.array([1, 5])})))
    print(type(scaler.transform_batch(pa.table({"b": [1, 5]}))).__name__)
    batch = pd.DataFrame({"b": [1, 5]})
    print(_rows(scaler.transform_batch(batch)))
    print(raised(lambda: scaler.transform_batch([1, 5]), "ValueError"))


def columns_that_are_not_there():
    """An error."""
    ds = _numbers()
    print(raised(lambda: StandardScaler(columns=["x"]).fit(ds), "Exception"))
    print(raised(lambda: OneHotEncoder(columns=["x"]).fit(ds), "Exception"))
    scaler = StandardScaler(columns=["b"]).fit(ds)
    print(raised(lambda: scaler.transform(ds.drop_columns(["b"])).materialize(), "Exception"))
