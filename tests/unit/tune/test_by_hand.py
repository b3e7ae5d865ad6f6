"""Classes of trials that are used by hand, and what a result looks like."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime import tune
from mpi_runtime.tune.trial import Trial


class Files(tune.Trainable):
    """Counts, and keeps its count in a file."""

    def setup(self, config: dict[str, Any], **parameters: Any) -> None:
        """Begin at 0."""
        self.count, self.is_ended = 0, False

    def step(self) -> dict[str, Any]:
        """Count."""
        self.count += 1
        return {"count": self.count}

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        """Write the count."""
        Path(checkpoint_dir, "count").write_text(str(self.count))

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Read it."""
        self.count = int(Path(checkpoint, "count").read_text())

    def cleanup(self) -> None:
        """Note it."""
        self.is_ended = True


class Values(Files):
    """Keeps its count as a value."""

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        """Return the count."""
        return {"count": self.count}

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Take it."""
        self.count = checkpoint["count"]


@pytest.mark.parametrize("kind", [Files, Values])
def test_a_state_is_saved_and_restored_by_hand(kind: type[Files], tmp_path: Path) -> None:
    first, second = kind({}), kind({})
    assert [first.train()["count"], first.train()["training_iteration"]] == [1, 2]
    second.restore(first.save(str(tmp_path / "new")))
    assert second.train()["count"] == 3
    second.stop()
    assert second.is_ended


def test_a_class_returns_the_directory_in_which_it_has_saved_its_state(tmp_path: Path) -> None:
    class Returning(Files):
        def save_checkpoint(self, checkpoint_dir: str) -> Any:
            super().save_checkpoint(checkpoint_dir)
            return f"{checkpoint_dir}{self.config['more']}"

    for more in ("", "/"):
        assert Path(Returning({"more": more}).save(str(tmp_path)).path) == tmp_path
    with pytest.raises(ValueError, match="may return this directory or a dictionary, not"):
        Returning({"more": "/count"}).save(str(tmp_path))


@pytest.mark.parametrize("kind", [Files, Values])
def test_the_directory_of_a_state_is_restored(kind: type[Files], tmp_path: Path) -> None:
    first, second = kind({}), kind({})
    first.train()
    first.save(str(tmp_path))
    second.restore(tmp_path)
    assert second.train()["count"] == 2


def test_a_result_shows_what_was_reported() -> None:
    metrics = {"loss": 1.5, "training_iteration": 3, "config": {"x": 1}, "pid": 7, "done": True}
    assert repr(tune.Result(metrics, None, None, "/place")) == (
        "Result(metrics={'loss': 1.5}, checkpoint=None, error=None, path='/place')"
    )


@pytest.mark.parametrize("kind", [Files, Values])
def test_a_restored_class_has_its_number_of_steps_again(kind: type[Files]) -> None:
    trainable = kind()
    trainable.train()
    saved = trainable.save()
    trainable.train()
    trainable.restore(saved)
    assert trainable.iteration == trainable.count == 1


def test_a_class_becomes_another_trial_by_hand() -> None:
    class Agrees(Files):
        def reset_config(self, new_config: dict[str, Any]) -> bool:
            return bool(new_config)

    trainable = Agrees({"x": 1})
    trainable.train()
    assert not trainable.reset({})
    assert trainable.reset({"x": 2})
    assert trainable.config == {"x": 2}
    assert trainable.iteration == 0


def test_loggers_may_be_called_by_hand(tmp_path: Path) -> None:
    trial = Trial("t", 0, {"x": 1}, local_path=str(tmp_path))
    assert trial.path == trial.local_path
    for logger in (tune.JsonLoggerCallback(), tune.CSVLoggerCallback()):
        logger.on_trial_result(1, [], trial, {"a": 1, "training_iteration": 1})
        logger.on_trial_complete(2, [], trial)
    assert Path(tmp_path, "result.json").read_text() == '{"a": 1, "training_iteration": 1}\n'
    assert Path(tmp_path, "progress.csv").read_text() == "a,training_iteration\n1,1\n"
    assert pickle.loads(Path(tmp_path, "params.pkl").read_bytes()) == {"x": 1}


def test_a_function_of_trials_can_be_called_by_hand() -> None:
    def trial(config: dict[str, Any]) -> list[Any]:
        context = tune.get_context()
        tune.report({"x": config["x"]})
        names = [context.get_trial_id(), context.get_trial_name(), context.get_trial_dir(), context.get_storage()]
        ranks = [context.get_world_size(), context.get_world_rank(), context.get_local_rank(), context.get_node_rank()]
        return [tune.get_checkpoint(), *names, context.get_trial_resources(), context.get_experiment_name(), *ranks]

    with pytest.warns(UserWarning, match="this is not a trial") as warned:
        assert trial({"x": 1}) == [None] * 7 + [1, 0, 0, 0]
    assert [str(one.message).partition("(")[0] for one in warned] == ["get_context", "report", "get_checkpoint"]
    assert {one.filename for one in warned} == {__file__}
