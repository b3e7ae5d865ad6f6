"""tianshou: `RayVectorEnv`, environments in actors, beside `DummyVectorEnv`."""

import gymnasium as gym
import numpy as np
from tianshou.env import DummyVectorEnv, RayVectorEnv


def steps(envs, n):
    envs.seed(7)
    envs.reset(seed=7)
    rewards = 0.0
    rng = np.random.default_rng(0)
    for _ in range(n):
        observations, reward, terminated, truncated, _ = envs.step(rng.integers(0, 2, len(envs)))
        rewards += reward.sum()
        done = np.flatnonzero(terminated | truncated)
        if len(done):
            envs.reset(done)
    return rewards, observations


def main():
    makers = [lambda: gym.make("CartPole-v1") for _ in range(3)]
    there, here = RayVectorEnv(makers), DummyVectorEnv(makers)
    of_actors, of_this_process = steps(there, 5), steps(here, 5)
    print(of_actors[0] == of_this_process[0], np.allclose(of_actors[1], of_this_process[1]))
    there.close()


if __name__ == "__main__":
    main()
