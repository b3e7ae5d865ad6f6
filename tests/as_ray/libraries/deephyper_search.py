"""deephyper: a search for the best setting with the evaluator "ray"."""

from deephyper.evaluator import Evaluator
from deephyper.hpo import CBO, HpProblem


def run(job):
    return -((job.parameters["x"] - 3) ** 2)


problem = HpProblem()
problem.add_hyperparameter((-10.0, 10.0), "x")
evaluator = Evaluator.create(run, method="ray", method_kwargs={"num_cpus": 2, "num_cpus_per_task": 1})
search = CBO(problem, random_state=1, surrogate_model="DUMMY", log_dir="search")
results = search.search(evaluator, max_evals=10)
print(len(results) >= 10, results.objective.max() > -20, evaluator.num_workers)
