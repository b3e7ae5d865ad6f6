"""FLAML: `tune.run(use_ray=True)` with its searcher CFO."""

from flaml import tune


def evaluate(config):
    return {"score": (config["x"] - 30) ** 2 + config["y"]}


def main():
    analysis = tune.run(
        evaluate,
        config={"x": tune.randint(0, 100), "y": tune.uniform(0, 1)},
        metric="score",
        mode="min",
        num_samples=20,
        use_ray=True,
        verbose=0,
    )
    print(len(analysis.trials), analysis.best_result["score"] < 500)


if __name__ == "__main__":
    main()
