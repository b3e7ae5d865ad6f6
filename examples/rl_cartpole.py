"""PPO balances a pole: two samplers step environments, this process learns, and a checkpoint continues."""

import tempfile
from typing import Any

import mpi_runtime
from mpi_runtime import rl

SETTINGS = {"n_epochs": 20, "batch_size": 256, "gamma": 0.98, "gae_lambda": 0.8}


def main() -> None:
    mpi_runtime.init(num_cpus=2)
    ppo = rl.PPO(
        "CartPole-v1",
        num_samplers=2,
        num_envs=4,
        n_steps=32,
        learning_rate="lin_0.001",
        clip_range="lin_0.2",
        **SETTINGS,
    )
    shown = [20, 100, 300, 475]

    def watch(result: dict[str, Any]) -> bool:
        if shown and result["episode_reward_mean"] >= shown[0]:
            print(f"after {result['timesteps_total']:6} steps the mean return is {result['episode_reward_mean']:.0f}")
            shown.pop(0)
        return bool(shown)

    ppo.learn(150_000, callback=watch)
    print(f"the most probable actions: {rl.evaluate(ppo, episodes=10)}")
    with tempfile.TemporaryDirectory() as folder:
        path = ppo.save(f"{folder}/pole")
        again = rl.load(path, num_samplers=0, num_envs=8)
        print(f"from the checkpoint: {rl.evaluate(again, episodes=10)}")
    ppo.stop()


if __name__ == "__main__":
    main()
