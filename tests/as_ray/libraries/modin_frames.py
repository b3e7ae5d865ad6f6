"""modin: data frames as in pandas: groupby, sort, merge, apply, describe, parquet, an error."""

import modin.config
import numpy as np
import pandas

modin.config.Engine.put("Ray")
import modin.pandas as pd  # noqa: E402

rng = np.random.default_rng(0)
data = {"key": rng.integers(0, 50, 20_000), "a": rng.random(20_000), "b": rng.random(20_000)}
names = {"key": np.arange(50), "name": [f"group {n}" for n in range(50)]}
many, plain = pd.DataFrame(data), pandas.DataFrame(data)
many_names, plain_names = pd.DataFrame(names), pandas.DataFrame(names)


def same(ours: object, theirs: object, what: str) -> None:
    left = ours._to_pandas() if hasattr(ours, "_to_pandas") else ours
    (pandas.testing.assert_series_equal if isinstance(left, pandas.Series) else pandas.testing.assert_frame_equal)(
        left, theirs
    )
    print(what)


same(many.groupby("key").mean(), plain.groupby("key").mean(), "groupby")
same(many.sort_values("a"), plain.sort_values("a"), "sort")
same(many.merge(many_names, on="key"), plain.merge(plain_names, on="key"), "merge")
same(many.apply(lambda row: row.a - row.b, axis=1), plain.apply(lambda row: row.a - row.b, axis=1), "apply")
same(many.describe(), plain.describe(), "describe")
many.to_parquet("frame.parquet")
same(pd.read_parquet("frame.parquet"), plain, "parquet")
try:
    print(many.apply(lambda row: row.nothing, axis=1))
except AttributeError as error:
    print("error", "nothing" in str(error))
