"""An environment of your own: a class with two spaces, `reset` and `step`. Here: how much to order for a shop."""

from typing import Any

import numpy as np
from gymnasium import spaces

from mpi_runtime import rl

ROOM, DAYS = 20, 30


class Shop:
    """Each day some units are ordered, some are asked for, and unsold ones cost rent."""

    observation_space = spaces.Dict({"stock": spaces.Box(0, 1, (1,), np.float32), "weekday": spaces.Discrete(7)})
    action_space = spaces.Discrete(ROOM + 1)

    def __init__(self, config: dict[str, Any]) -> None:
        self.rent = config.get("rent", 0.1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.day, self.stock = 0, 5
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        self.stock = min(ROOM, self.stock + int(action))
        wanted = self.rng.poisson(8 if self.day % 7 >= 5 else 3)  # weekends are busy
        sold = min(self.stock, wanted)
        self.stock -= sold
        self.day += 1
        # The shop does not end after 30 days: this is a truncation, not a termination.
        return self.seen(), sold - 0.5 * int(action) - self.rent * self.stock, False, self.day == DAYS, {}

    def seen(self) -> Any:
        return {"stock": np.array([self.stock / ROOM], np.float32), "weekday": self.day % 7}


def main() -> None:
    rl.register_env("shop", Shop)
    ppo = rl.PPO(
        "shop",
        env_config={"rent": 0.2},
        num_envs=8,
        n_steps=64,
        batch_size=256,
        learning_rate=2e-3,
        gamma=0.9,
        ent_coef=0.01,
    )
    before = rl.evaluate(ppo, episodes=30, deterministic=False).mean
    ppo.learn(60_000)
    after = rl.evaluate(ppo, episodes=30).mean
    print(f"profit of 30 days: {before:.1f} at random, {after:.1f} after {ppo.timesteps} days")
    for day, weekday in enumerate(["Mon", "Sat"]):
        order, _ = ppo.predict({"stock": np.array([0.1], np.float32), "weekday": 5 * day}, deterministic=True)
        print(f"two in stock on {weekday}: order {int(order)}")


if __name__ == "__main__":
    main()
