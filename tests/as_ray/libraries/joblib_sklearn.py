"""joblib and scikit-learn: `register_ray()`, the backend "ray", `GridSearchCV`."""

import joblib
import numpy as np
import ray
from ray.util.joblib import register_ray
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV

ray.init(num_cpus=2)
register_ray()
rng = np.random.default_rng(0)
X, y = rng.normal(size=(60, 3)), rng.normal(size=60)
with joblib.parallel_backend("ray"):
    found = GridSearchCV(Ridge(), {"alpha": [0.1, 1.0, 10.0]}, cv=3).fit(X, y)
print(found.best_params_ == GridSearchCV(Ridge(), {"alpha": [0.1, 1.0, 10.0]}, cv=3).fit(X, y).best_params_)
