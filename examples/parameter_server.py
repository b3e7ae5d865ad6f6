"""A parameter server: workers that never end by themselves, and gradient averaging on a real small model.

First an actor holds parameters that four endless tasks read and change, as fast as each can, until told to stop.
Then softmax regression: each step puts the weights once, four tasks compute the gradient on their part of the data, and
the mean of the four is the gradient of the whole.

    python examples/parameter_server.py
    mpi-runtime run -n 4 examples/parameter_server.py
"""

import time
from typing import Any

import numpy as np
import numpy.typing as npt

import mpi_runtime

mpi_runtime.init(num_cpus=4)

Array = npt.NDArray[np.float64]
WORKERS = 4


@mpi_runtime.remote
class ParameterServer:
    def __init__(self, keys: list[str], size: int) -> None:
        self.values = {key: np.zeros(size) for key in keys}
        self.stopped = False

    def pull(self) -> dict[str, Array]:
        return self.values

    def push(self, updates: dict[str, Array]) -> bool:
        """Add the updates; whether to go on."""
        for key, update in updates.items():
            self.values[key] = self.values[key] + update
        return not self.stopped

    def stop(self) -> None:
        self.stopped = True


@mpi_runtime.remote
def work(server: Any) -> int:
    """Pull, compute, push, for ever; how many times, in the end."""
    rounds, go_on = 0, True
    while go_on:
        values = mpi_runtime.get(server.pull.remote())
        updates = {key: np.ones_like(value) for key, value in values.items()}
        go_on = mpi_runtime.get(server.push.remote(updates))
        rounds += 1
    return rounds


@mpi_runtime.remote
def gradient(weights: Array, features: Array, labels: npt.NDArray[np.int64]) -> tuple[Array, float]:
    """Gradient and value of the cross-entropy of softmax regression."""
    scores = features @ weights
    scores -= scores.max(axis=1, keepdims=True)
    chances = np.exp(scores)
    chances /= chances.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -float(np.log(chances[rows, labels]).mean())
    chances[rows, labels] -= 1.0
    return features.T @ chances / len(labels), loss


server = ParameterServer.remote(["weights", "bias", "scale"], 10)
workers = [work.remote(server) for _ in range(WORKERS)]
standing = 0.0
for mark in (1, 50, 100, 200):
    while standing < mark:
        time.sleep(0.05)
        standing = mpi_runtime.get(server.pull.remote())["weights"][0]
    print(f"{WORKERS} endless workers: the parameters stand at {standing:.0f}")
mpi_runtime.get(server.stop.remote())
rounds = mpi_runtime.get(workers)
final = mpi_runtime.get(server.pull.remote())
print(f"told to stop; updates of each worker: {rounds}, sum {sum(rounds)}")
assert all((values == sum(rounds)).all() for values in final.values())  # not one update was lost

rng = np.random.default_rng(seed=7)
centers = rng.normal(scale=0.8, size=(5, 20))
labels = rng.integers(0, len(centers), size=4000)
features = centers[labels] + rng.normal(size=(len(labels), 20))
parts = [
    (mpi_runtime.put(part), mpi_runtime.put(part_labels))
    for part, part_labels in zip(np.split(features, WORKERS), np.split(labels, WORKERS), strict=True)
]
weights = np.zeros((20, len(centers)))
for step in range(51):
    shared = mpi_runtime.put(weights)
    gradients, losses = zip(*mpi_runtime.get([gradient.remote(shared, *part) for part in parts]), strict=True)
    if step % 10 == 0:
        accuracy = float(((features @ weights).argmax(axis=1) == labels).mean())
        print(f"softmax regression, step {step:2}: loss {np.mean(losses):.4f}, accuracy {accuracy:6.1%}")
    weights = weights - 0.2 * np.mean(gradients, axis=0)

whole, _ = mpi_runtime.get(gradient.remote(shared, features, labels))
assert np.allclose(np.mean(gradients, axis=0), whole)
assert accuracy > 0.9
