"""Which network reads digits best? ASHA with Optuna's TPE on scikit-learn's digits; checkpoints, and a plot.

python examples/tune_asha_digits.py           needs: pip install scikit-learn optuna matplotlib
"""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import matplotlib

import mpi_runtime
from mpi_runtime import tune
from mpi_runtime.tune.schedulers import ASHAScheduler
from mpi_runtime.tune.search import OptunaSearch

EPOCHS = 27


def train(config: dict[str, Any]) -> None:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier

    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(images / 16, labels, random_state=0)
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        model, first = checkpoint.to_dict()["model"], checkpoint.to_dict()["epoch"]
    else:
        first = 0
        model = MLPClassifier(
            [config["units"]] * config["layers"], learning_rate_init=config["lr"], batch_size=64, random_state=0
        )
    warnings.simplefilter("ignore")
    for epoch in range(first, EPOCHS):
        model.partial_fit(train_x, train_y, classes=range(10))
        tune.report(
            {"accuracy": model.score(test_x, test_y)},
            checkpoint=tune.Checkpoint.from_dict({"model": model, "epoch": epoch + 1}),
        )


def main() -> None:
    mpi_runtime.init()
    space = {"lr": tune.loguniform(1e-4, 1.0), "units": tune.choice([16, 32, 64]), "layers": tune.randint(1, 3)}
    folder = Path(tempfile.mkdtemp())
    results = tune.Tuner(
        train,
        param_space=space,
        tune_config=tune.TuneConfig(
            "accuracy",
            "max",
            num_samples=20,
            search_alg=OptunaSearch(),
            scheduler=ASHAScheduler(max_t=EPOCHS, reduction_factor=3),
        ),
        run_config=tune.RunConfig(name="digits", storage_path=folder, verbose=0),
    ).fit()
    best = results.get_best_result()
    epochs = sum(len(result.history) for result in results)
    print(f"{len(results)} networks, {epochs} of {len(results) * EPOCHS} epochs")
    print(f"the best reads {best.metrics['accuracy']:.1%}: {best.config}")
    assert best.checkpoint is not None
    print(f"its weights: {[weights.shape for weights in best.checkpoint.to_dict()['model'].coefs_]}")
    matplotlib.use("Agg")
    results.plot_history().figure.savefig(folder / "curves.png")
    print(f"its plot: {folder / 'curves.png'}")


if __name__ == "__main__":
    main()
