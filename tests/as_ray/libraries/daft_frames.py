"""daft: a data frame on its runner for Ray: groupby, sort."""

import daft

daft.set_runner_ray()
frame = daft.from_pydict({"group": [1, 1, 2], "value": [1, 2, 3]})
print(frame.groupby("group").sum("value").sort("group").to_pydict())
