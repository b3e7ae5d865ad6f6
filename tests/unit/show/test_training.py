"""The page of a training, made of the files that `mpi-runtime rl train` writes."""

import json
import os
from pathlib import Path
from typing import Any

from mpi_runtime.show import training
from mpi_runtime.show.page import page


def result(number: int, **more: Any) -> dict[str, Any]:
    return {
        "training_iteration": number,
        "timesteps_total": 100 * number,
        "episode_reward_mean": float(number),
        "episode_reward_min": 0.0,
        "episode_reward_max": 2.0 * number,
        "episode_len_mean": 20.0,
        "time_this_iter_s": 0.5,
        "time_total_s": 0.5 * number,
        "sample_time_s": 0.4,
        "learn_time_s": 0.1,
        "steps_per_s": 200.0,
        "sampler_restarts": 1,
        "info": {"policy_loss": 1 / number, "note": "text"},
        **more,
    }


def test_returns_figures_and_iterations(tmp_path: Path) -> None:
    run = tmp_path / "PPO_CartPole-v1_now"
    run.mkdir()
    (run / "params.json").write_text(json.dumps({"algorithm": "PPO", "env": "CartPole-v1", "lr": 3e-4}))
    assert training.newest(tmp_path) == training.newest(run) == run
    assert training.newest(run / "nothing") is None
    assert training.document(run)["blocks"][0]["cards"][0]["small"] == "no iteration has ended yet"
    rows = [result(1, episode_reward_mean=float("nan")), *(result(number) for number in range(2, 1002))]
    (run / "result.json").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"training_iter')
    (run / "checkpoint_7").mkdir()
    document = training.document(run)
    assert (document["name"], document["pill"][1]) == ("PPO on CartPole-v1", "Running")
    assert "last checkpoint checkpoint_7" in document["meta"]
    blocks = {one["id"]: one for one in document["blocks"]}
    good, doing, times, failed = blocks["answers"]["cards"]
    assert (good["big"], doing["rows"][0][1].replace("\u202f", ""), times["big"], failed["bad"]) == (
        "1\u202f000",
        "100100",
        "80%",
        True,
    )
    points = blocks["returns"]["points"]
    assert len(points) <= training.POINTS_MAX
    assert points[-1] == [100_100, 1001.0, 0.0, 2002.0]
    assert [one["head"] for one in blocks["updates"]["blocks"]] == ["policy loss"]
    assert len(blocks["iterations"]["rows"]) == training.ROWS_MAX
    assert "CartPole-v1" in page(document)
    for name in os.listdir(run):
        os.utime(run / name, (1e9, 1e9))
    assert training.document(run)["pill"][1] == "Not running"
