"""Callbacks for other libraries, by the names that Ray gives them. Each module needs its library when it is used.

In a trial:

- `boosting.py`: the common part of callbacks for boosted trees
- `xgboost.py`: reports the evaluations of XGBoost
- `lightgbm.py`: reports the evaluations of LightGBM
- `pytorch_lightning.py`: reports the metrics of PyTorch Lightning

In the driver, for `RunConfig(callbacks=[...])`:

- `mlflow.py`: logs trials to MLflow
- `wandb.py`: logs trials to Weights & Biases
"""

from mpi_runtime import _face

__all__ = ["lightgbm", "mlflow", "pytorch_lightning", "wandb", "xgboost"]

__getattr__, __dir__ = _face(__name__, {"": " ".join(__all__)}, __all__)
