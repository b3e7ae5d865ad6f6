"""Population based training: eight trainings, the worst go on from the best ones' checkpoints, and a schedule is found.

A step improves the model only where its learning rate fits how far it is. No constant rate fits all the way.

python examples/tune_pbt.py
"""

import tempfile
from typing import Any

import mpi_runtime
from mpi_runtime import tune
from mpi_runtime.tune.schedulers import PopulationBasedTraining

STEPS = 60


def train(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    state: dict[str, Any] = checkpoint.to_dict() if checkpoint else {"step": 0, "accuracy": 0.0}
    for step in range(state["step"], STEPS):
        fits = 0.1 * (1 - state["accuracy"]) + 0.002  # large at first, small at the end
        gain = 0.1 * (1 - state["accuracy"]) * max(0.0, 1 - abs(config["lr"] - fits) / fits)
        state = {"step": step + 1, "accuracy": state["accuracy"] + gain}
        tune.report({"accuracy": state["accuracy"]}, checkpoint=tune.Checkpoint.from_dict(state))


def search(name: str, folder: str, scheduler: PopulationBasedTraining | None) -> tune.ResultGrid:
    return tune.Tuner(
        train,
        param_space={"lr": tune.grid_search([0.1, 0.08, 0.06, 0.04, 0.03, 0.02, 0.015, 0.01])},
        tune_config=tune.TuneConfig("accuracy", "max", scheduler=scheduler, seed=3),
        run_config=tune.RunConfig(name=name, storage_path=folder, stop={"training_iteration": STEPS}, verbose=0),
    ).fit()


def main() -> None:
    mpi_runtime.init()
    folder = tempfile.mkdtemp()
    constant = search("constant", folder, None).get_best_result()
    print(f"the best constant rate, {constant.config['lr']}: accuracy {constant.metrics['accuracy']:.3f}")
    results = search(
        "population",
        folder,
        PopulationBasedTraining(
            "training_iteration",
            perturbation_interval=3,
            hyperparam_mutations={"lr": tune.loguniform(0.002, 0.1)},
            quantile_fraction=0.5,
            resample_probability=0.1,
            perturbation_factors=(1.1, 0.7),
        ),
    )
    best = results.get_best_result()
    print(f"a population of the same size: accuracy {best.metrics['accuracy']:.3f}, with this schedule:")
    for step, config in results.policy(best.trial_id):
        print(f"  from step {step:2}: lr {config['lr']:.4f}")


if __name__ == "__main__":
    main()
