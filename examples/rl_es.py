"""Evolution Strategies without torch: all CPUs try perturbed policies, and an episode is a message of two numbers."""

import os

import mpi_runtime
from mpi_runtime import rl


def main() -> None:
    mpi_runtime.init(num_cpus=max(2, len(os.sched_getaffinity(0))))
    workers = int(mpi_runtime.cluster_resources()["CPU"])
    with rl.ES("CartPole-v1", num_samplers=workers, noise_size=5_000_000, seed=1) as es:
        print(f"{workers} workers share one table of {es.noise.nbytes / 1e6:.0f} MB of noise")
        es.learn(300_000, callback=lambda result: result["episode_reward_mean"] < 400)
        episodes = es.episodes.total
        print(f"{episodes} episodes, {es.timesteps} steps, {es.iteration} steps of the optimiser")
        print(f"the policy without noise: {rl.evaluate(es, episodes=10)}")


if __name__ == "__main__":
    main()
