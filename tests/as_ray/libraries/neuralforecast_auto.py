"""neuralforecast: `AutoMLP`, a search for the settings of a network that forecasts."""

import logging
import warnings

import numpy as np
import pandas as pd
from neuralforecast import NeuralForecast
from neuralforecast.auto import AutoMLP
from ray import tune

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")


def main():
    months = pd.date_range("2020-01-31", periods=48, freq="ME")
    frame = pd.DataFrame({"unique_id": "a", "ds": months, "y": 10 + np.sin(np.arange(48) * 2 * np.pi / 12)})
    config = {
        "input_size": 12,
        "max_steps": tune.choice([20, 40]),
        "learning_rate": tune.loguniform(1e-3, 1e-2),
        "random_seed": 1,
        "scaler_type": "standard",
        "enable_progress_bar": False,
        "logger": False,
        "enable_model_summary": False,
    }
    model = AutoMLP(h=6, config=config, num_samples=2, verbose=False)
    forecast = NeuralForecast(models=[model], freq="ME")
    forecast.fit(df=frame, val_size=6)
    predicted = forecast.predict()
    print(len(predicted), bool(np.abs(predicted["AutoMLP"] - 10).max() < 3), len(forecast.models[0].results))


if __name__ == "__main__":
    main()
