"""pymoo: `RayParallelization` in a genetic algorithm; the same optimum as without."""

import numpy as np
import ray
from pymoo.algorithms.soo.nonconvex.ga import GA
from pymoo.core.problem import ElementwiseProblem
from pymoo.optimize import minimize
from pymoo.parallelization.ray import RayParallelization


class Sphere(ElementwiseProblem):
    def __init__(self, **kwargs):
        super().__init__(n_var=4, n_obj=1, xl=-5.0, xu=5.0, **kwargs)

    def _evaluate(self, x, out, *args, **kwargs):
        out["F"] = (x**2).sum()


ray.init(num_cpus=2)
alone = minimize(Sphere(), GA(pop_size=20), ("n_gen", 5), seed=1)
many = minimize(Sphere(elementwise_runner=RayParallelization()), GA(pop_size=20), ("n_gen", 5), seed=1)
print(np.array_equal(alone.X, many.X), many.F[0] < 5)
