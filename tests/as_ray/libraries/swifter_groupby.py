"""swifter: groups of a data frame applied in tasks."""

import pandas as pd
import swifter  # noqa: F401

frame = pd.DataFrame({"key": [1, 1, 2, 3] * 50, "x": range(200)})
many = frame.swifter.progress_bar(False).groupby("key").apply(lambda group: group.x.sum())
print(many.sort_index().tolist() == frame.groupby("key").apply(lambda group: group.x.sum()).tolist())
