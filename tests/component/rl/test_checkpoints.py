"""A checkpoint of a learner whose process is killed while it saves."""

import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("gymnasium")

from mpi_runtime.rl import PPO, CheckpointError
from tests.unit.rl import probes
from tests.unit.rl.test_ppo import QUICK


def test_a_checkpoint_that_is_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A save that was killed has left a file beside the last whole checkpoint, which is found by its folder."""
    algorithm = PPO(probes.ByAction, **QUICK).learn(64)
    whole = Path(algorithm.save(tmp_path / "checkpoint_1" / "checkpoint-1"))
    content = whole.read_bytes()
    if not (child := os.fork()):
        monkeypatch.setattr(os, "replace", lambda *_: os.kill(os.getpid(), signal.SIGKILL))  # before it has its name
        algorithm.save(whole.with_name("checkpoint-2"))
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    for left in ("checkpoint-2.4711.new", "checkpoint-2.4711.part"):  # of earlier versions
        whole.with_name(left).write_bytes(content[:-100])
    assert PPO.load(whole.parent).timesteps == algorithm.timesteps
    for size in (0, 1, len(content) // 2, len(content) - 1):
        whole.write_bytes(content[:size])
        with pytest.raises(CheckpointError, match="is not a checkpoint"):
            PPO.load(whole)
