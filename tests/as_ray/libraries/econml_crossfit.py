"""econml: `LinearDML(use_ray=True)`, the folds of double machine learning as tasks."""

import numpy as np
from econml.dml import LinearDML
from sklearn.linear_model import LinearRegression

rng = np.random.default_rng(0)
X = rng.normal(size=(400, 2))
T = X[:, 0] + rng.normal(size=400)
Y = 3 * T + X[:, 1] + rng.normal(size=400) / 10


def effect(**options):
    model = LinearDML(model_y=LinearRegression(), model_t=LinearRegression(), random_state=0, cv=3, **options)
    return model.fit(Y, T, X=X).const_marginal_effect(X[:1]).item()


many, alone = effect(use_ray=True, ray_remote_func_options={"num_cpus": 1}), effect()
print(abs(many - alone) < 1e-12, round(many, 1))
