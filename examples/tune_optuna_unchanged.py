"""An objective written for Optuna, as it is, over all ranks: suggestions and pruning by messages, no database.

python examples/tune_optuna_unchanged.py      needs optuna: pip install optuna
"""

import optuna

import mpi_runtime
from mpi_runtime.util.optuna import optimize


def objective(trial: optuna.Trial) -> float:
    x = trial.suggest_float("x", -10, 10)
    kind = trial.suggest_categorical("kind", ["wide", "deep"])
    loss = 0.0
    for step in range(20):
        loss = (x - 2) ** 2 + (0.5 if kind == "wide" else 0.0) + 20 / (step + 1)
        trial.report(loss, step)
        if trial.should_prune():
            raise optuna.TrialPruned()
    return loss


def main() -> None:
    mpi_runtime.init()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0), pruner=optuna.pruners.MedianPruner())
    optimize(study, objective, n_trials=100)  # instead of study.optimize(objective, n_trials=100)
    pruned = sum(trial.state == optuna.trial.TrialState.PRUNED for trial in study.trials)
    print(f"{len(study.trials)} trials, {pruned} of them pruned")
    print(f"the best: {study.best_value:.2f} at x = {study.best_params['x']:.2f}, {study.best_params['kind']}")


if __name__ == "__main__":
    main()
