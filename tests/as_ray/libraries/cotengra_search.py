"""cotengra: a search of contraction paths with trials as tasks; slices contracted as tasks."""

import cotengra as ctg
import numpy as np

inputs, output, shapes, sizes = ctg.utils.lattice_equation([4, 4], d_min=2, d_max=2)
search = ctg.HyperOptimizer(methods=["greedy"], parallel="ray", max_repeats=8, progbar=False, optlib="random")
tree = search.search(inputs, output, sizes)
arrays = [np.ones(shape) for shape in shapes]
print(float(tree.contract(arrays)) == float(2.0 ** len(sizes)), len(search.scores))

from cotengra.parallel import RayExecutor  # noqa: E402

pool = RayExecutor()
print(pool.submit(pow, 2, 5).result(), list(pool.map(abs, [-1, -2])))
