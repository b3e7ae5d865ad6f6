"""Makes `curves.json`: the learning curves of 300 small networks, with which schedulers are compared.

    python -m tests.tune.learning_curves        # needs numpy and scikit-learn; some minutes of one processor

Each network has one hidden layer and is trained on 1 000 of scikit-learn's digits, by stochastic gradient descent with
momentum, for 81 epochs. A curve is its cross-entropy on the other 797 digits after each epoch, in ten thousandths; null
where it was no number any more. `seconds` is made up: what an epoch would take, different for each network, so that no
two reports of an experiment in virtual time come at once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

NETWORKS, EPOCHS, TRAINED_ON = 300, 81, 1000
FILE = Path(__file__).with_name("curves.json")


def drawn(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "lr": round(float(10 ** rng.uniform(-3, 0.6)), 6),
        "momentum": round(float(rng.choice([0.0, 0.5, 0.9, 0.98])), 2),
        "width": int(2 ** rng.integers(2, 8)),
        "batch": int(2 ** rng.integers(5, 9)),
        "decay": round(float(10 ** rng.uniform(-6, -1.5)), 8),
    }


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def curve(config: dict[str, Any], images: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> list[int | None]:
    width = config["width"]
    weights = [
        rng.normal(0, 0.125, (64, width)),
        np.zeros(width),
        rng.normal(0, width**-0.5, (width, 10)),
        np.zeros(10),
    ]
    speeds = [np.zeros_like(one) for one in weights]
    losses: list[int | None] = []
    for _ in range(EPOCHS):
        order = rng.permutation(TRAINED_ON)
        for first in range(0, TRAINED_ON, config["batch"]):
            rows = order[first : first + config["batch"]]
            x = images[rows]
            hidden = np.maximum(x @ weights[0] + weights[1], 0)
            error = softmax(hidden @ weights[2] + weights[3])
            error[np.arange(len(rows)), labels[rows]] -= 1
            error /= len(rows)
            back = (error @ weights[2].T) * (hidden > 0)
            slopes = [x.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]
            for weight, speed, slope in zip(weights, speeds, slopes, strict=True):
                speed *= config["momentum"]
                speed -= config["lr"] * (slope + config["decay"] * weight)
                weight += speed
        seen = softmax(np.maximum(images[TRAINED_ON:] @ weights[0] + weights[1], 0) @ weights[2] + weights[3])
        right = seen[np.arange(len(seen)), labels[TRAINED_ON:]]
        loss = float(-np.log(np.maximum(right, 1e-300)).mean())
        losses.append(round(loss * 1e4) if np.isfinite(loss) else None)
    return losses


def main() -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images, labels = digits.data[order] / 16, digits.target[order]
    networks = []
    with np.errstate(all="ignore"):
        for number in range(NETWORKS):
            rng = np.random.default_rng((1, number))
            config = drawn(rng)
            seconds = 1 + config["width"] / 64 + 32 / config["batch"] + number * 1e-4
            networks.append({**config, "seconds": round(seconds, 4), "losses": curve(config, images, labels, rng)})
    lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in networks)
    FILE.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
