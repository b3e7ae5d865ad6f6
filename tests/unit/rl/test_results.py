"""The directory of a training that several lives of a job write, and its page."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gymnasium")

from mpi_runtime.rl import ES
from mpi_runtime.rl.results import Results, document, latest_checkpoint
from mpi_runtime.show import page
from tests.unit.rl import probes

SMALL: dict[str, Any] = {"noise_size": 10_000, "population": 4}


def test_lives_of_a_job_share_a_directory(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path, "7") is None
    first = Results(tmp_path, "ES_Pole", "7")
    algorithm = ES("CartPole-v1", **SMALL)
    first.start(algorithm)
    for _ in range(3):
        first.add(algorithm.train())
        if algorithm.iteration <= 2:
            first.checkpoint(algorithm)
    first.close()
    found = latest_checkpoint(tmp_path, "7")
    assert found == str(tmp_path / "ES_Pole_job7/checkpoint_2/checkpoint-2")
    assert latest_checkpoint(tmp_path, "77") is None, "another job"

    second = Results(tmp_path, "ES_Pole", "7")
    assert second.path == first.path
    again = ES.load(found)
    second.start(again)
    second.add(again.train())
    second.close()
    rows = [json.loads(line) for line in (second.path / "result.json").read_text().splitlines()]
    assert [one["training_iteration"] for one in rows] == [1, 2, 3], "what the first life lost is there once"
    assert len(second.rows) == 3


def test_a_page_with_an_episode_or_the_reason_why_there_is_none(tmp_path: Path) -> None:
    for env, kind in (("CartPole-v1", "picture"), (probes.OneStep, "note")):
        results, algorithm = Results(tmp_path, "ES"), ES(env, **SMALL)
        results.start(algorithm)
        results.add(algorithm.train())
        found = document(results, algorithm, "Ended")
        blocks = {block["id"]: block for block in found["blocks"]}
        assert blocks["episode"]["kind"] == kind
        assert blocks["curve"]["trials"][0]["ys"] == [[1, results.rows[0]["episode_reward_mean"]]]
        assert ["population", "4"] in blocks["parameters"]["rows"]
        if kind == "picture":
            pytest.importorskip("imageio")
            assert blocks["episode"]["src"].startswith("data:image/gif;base64,R0lGOD")
            results.report(algorithm, str(tmp_path / "page.html"), "Ended")
            assert blocks["episode"]["src"][:100] in (tmp_path / "page.html").read_text()
            assert page.page(found).count("<script") > 1
        else:
            assert blocks["episode"]["text"].startswith("There is no video: ")
        results.close()
