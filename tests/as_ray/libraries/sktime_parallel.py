"""sktime: `parallelize` and `evaluate` with `backend="ray"`."""

import numpy as np
import pandas as pd
from sktime.forecasting.model_evaluation import evaluate
from sktime.forecasting.naive import NaiveForecaster
from sktime.split import ExpandingWindowSplitter
from sktime.utils.parallel import parallelize


def scaled(x, meta):
    return x * meta["by"]


options = {"mute_warnings": True, "shutdown_ray": False, "ray_remote_args": {"num_cpus": 2}}
print(parallelize(scaled, range(5), {"by": 3}, backend="ray", backend_params=options))
y = pd.Series(np.arange(30.0), index=pd.period_range("2020-01", periods=30, freq="M"))
splits = ExpandingWindowSplitter(fh=[1], initial_window=20, step_length=2)
many = evaluate(NaiveForecaster(), splits, y, backend="ray", backend_params=options)
alone = evaluate(NaiveForecaster(), splits, y)
column = "test_MeanAbsolutePercentageError"
print(many[column].equals(alone[column]), len(many))
