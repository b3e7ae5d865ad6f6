"""Population based training of PPO: trials with bad learning rates continue from the weights of better ones."""

import tempfile

import mpi_runtime
from mpi_runtime import tune
from mpi_runtime.tune.schedulers import PopulationBasedTraining


def main() -> None:
    mpi_runtime.init(num_cpus=4)
    with tempfile.TemporaryDirectory() as folder:
        results = tune.Tuner(
            "PPO",
            param_space={
                "env": "CartPole-v1",
                "num_envs": 4,
                "n_steps": 256,
                "batch_size": 256,
                "lr": tune.grid_search([1e-5, 1e-4, 1e-3, 1e-2]),
            },
            tune_config=tune.TuneConfig(
                "episode_reward_mean",
                "max",
                scheduler=PopulationBasedTraining(
                    time_attr="training_iteration",
                    perturbation_interval=4,
                    hyperparam_mutations={"lr": tune.loguniform(1e-4, 1e-2)},
                ),
            ),
            run_config=tune.RunConfig(
                name="poles",
                storage_path=folder,
                verbose=0,
                stop={"training_iteration": 16},
                checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=4),
            ),
        ).fit()
        for result in results:
            mean, steps = (result.metrics[name] for name in ("episode_reward_mean", "timesteps_total"))
            print(f"lr {result.config['lr']:.0e}: return {mean:.0f} at {steps}")
        best = results.get_best_result()
        print(f"the best: {best.metrics['episode_reward_mean']:.0f} with lr {best.config['lr']:.1e}")


if __name__ == "__main__":
    main()
