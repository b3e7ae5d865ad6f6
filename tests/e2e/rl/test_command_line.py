"""The command line of the articles: a training with its status and checkpoints, and episodes of a checkpoint."""

import json
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("gymnasium")

from tests.helpers import Completed, start_command

COMMAND = [sys.executable, "-m", "mpi_runtime", "rl"]
SMALL = '{"train_batch_size": 200, "num_epochs": 2}'
STOP = '{"training_iteration": 2}'


def run_command(
    command: Sequence[str | Path], timeout: float = 60, env: dict[str, str | None] | None = None
) -> Completed:
    """Run a command to its end."""
    with start_command(command, env=env) as program:
        return program.finish(timeout=timeout)


@pytest.mark.timeout(400)
def test_the_run_of_the_articles(tmp_path: Path) -> None:
    words = ["--run", "PPO", "--env", "CartPole-v1", f"--stop={STOP}", "--checkpoint-freq", "10", "--checkpoint-at-end"]
    done = run_command(
        [*COMMAND, "train", *words, "--config", SMALL, "--local-dir", str(tmp_path)], timeout=120
    ).expect()
    blocks = done.stdout.split("== Status ==\n")[1:]
    assert len(blocks) == 3
    for block in blocks:
        for pattern in (
            r"^Memory usage on this node: [\d.]+/[\d.]+ GiB$",
            r"^Using FIFO scheduling algorithm\.$",
            r"^Resources requested: [12]/\d+ CPUs, 0/0 GPUs, 0\.0/[\d.]+ GiB heap, 0\.0/[\d.]+ GiB objects$",
            rf"^Result logdir: {tmp_path}/default$",
            r"^Number of trials: 1 \(1 (RUNNING|TERMINATED)\)$",
            r"^\| Trial name +\| status +\| loc +\| iter +\| time \(s\) +\| ts +\| reward +\|$",
        ):
            assert re.search(pattern, block, re.MULTILINE), (pattern, block)
    assert re.search(
        r"\| PPO_CartPole-v1_\S+ +\| TERMINATED \| \S+:\d+ +\| 2 +\| [\d.]+ +\| 400 +\| [\d.]+ +\|", blocks[2]
    )
    (folder,) = (tmp_path / "default").iterdir()
    lines = [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]
    assert [one["timesteps_total"] for one in lines] == [200, 400]
    assert json.loads((folder / "params.json").read_text())["n_epochs"] == 2
    assert list(folder.glob("events.out.tfevents.*"))

    checkpoint = folder / "checkpoint_2" / "checkpoint-2"
    video = tmp_path / "episodes.gif"
    more = ["--episodes", "2", "--video", str(video)]
    rolled = run_command([*COMMAND, "rollout", checkpoint, "--run", "PPO", *more], timeout=90).expect()
    assert re.fullmatch(
        r"Episode #0: reward: \d+\.0\nEpisode #1: reward: \d+\.0\n[\d.]+ ± [\d.]+ over 2 episodes\n", rolled.stdout
    )
    assert video.read_bytes()[:4] == b"GIF8"
    wrong = run_command([*COMMAND, "rollout", checkpoint, "--run", "DQN"], timeout=60).expect(2)
    assert "is a checkpoint of PPO, not of DQN" in wrong.stderr

    again = ["--restore", str(checkpoint), "--stop", '{"training_iteration": 3}', "--local-dir", str(tmp_path)]
    assert "| 600 " in run_command([*COMMAND, "train", *again], timeout=90).expect().stdout


@pytest.mark.mpi
@pytest.mark.timeout(180)
def test_on_three_ranks(tmp_path: Path) -> None:
    launcher = [str(Path(sys.executable).with_name("mpirun")), "-n", "3"]
    words = ["--run", "PPO", "--env", "CartPole-v1", f"--stop={STOP}", "--config", SMALL, "--local-dir", str(tmp_path)]
    done = run_command([*launcher, *COMMAND, "train", *words], timeout=150).expect()
    assert done.stdout.count("== Status ==") == 3
    assert "TERMINATED" in done.stdout


@pytest.mark.timeout(120)
def test_a_signal_before_the_end_of_the_time_leaves_a_checkpoint(tmp_path: Path) -> None:
    words = ["--run", "PPO", "--env", "CartPole-v1", "--config", SMALL, "--num-samplers", "0"]
    with start_command([*COMMAND, "train", *words, "--local-dir", str(tmp_path)]) as program:
        program.wait_for_line("| 200 ", timeout=60)
        program.signal(signal.SIGUSR1)
        done = program.finish(timeout=60).expect(0)
    assert "the job's time ends: continue with --restore" in done.stdout
    assert len(list(tmp_path.glob("default/*/checkpoint_*/checkpoint-*"))) == 1


@pytest.mark.parametrize("samplers", ["0", "2"])
@pytest.mark.timeout(240)
def test_ctrl_c_ends_after_the_iteration_with_a_checkpoint(samplers: str, tmp_path: Path) -> None:
    words = ["--run", "PPO", "--env", "CartPole-v1", "--config", SMALL, "--num-samplers", samplers]
    with start_command([*COMMAND, "train", *words, "--local-dir", str(tmp_path)]) as program:
        program.wait_for_line("| 200 ", timeout=100)
        program.signal(signal.SIGINT)
        done = program.finish(timeout=100).expect(130)
    assert "the training ends after this iteration, with a checkpoint" in done.stderr
    assert "Traceback" not in done.stderr
    (checkpoint,) = tmp_path.glob("default/*/checkpoint_*/checkpoint-*")
    assert f"checkpoint: {checkpoint}\ncontinue with --restore" in done.stdout


@pytest.mark.timeout(240)
def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    """In an iteration without an end: the first one waits for it."""
    long = '{"train_batch_size": 200, "num_epochs": 100000000}'
    words = ["--run", "PPO", "--env", "CartPole-v1", "--config", long, "--num-samplers", "0"]
    with start_command([*COMMAND, "train", *words, "--local-dir", str(tmp_path)]) as program:
        program.wait_for_line("Number of trials", timeout=100)
        program.signal(signal.SIGINT)
        program.wait_for_line("Press it again", timeout=60)
        program.signal(signal.SIGINT)
        done = program.finish(timeout=100)
    assert done.returncode not in (0, None)
    assert "KeyboardInterrupt" in done.stderr
    assert not list(tmp_path.glob("default/*/checkpoint_*"))


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--run", "PPO"], "train needs --run and --env"),
        (["--run", "PPOO", "--env", "CartPole-v1"], "there is no algorithm 'PPOO'; there are: PPO, A2C"),
        (["--run", "PPO", "--env", "CartPole-v1", "--stop", '{"iterations": 3}'], "--stop has no key 'iterations'"),
        (["--run", "PPO", "--env", "CartPole-v1", "--stop", "20"], "is not a JSON object"),
        (["--run", "PPO", "--env", "CartPole-v1", "--config", '{"clip": 1}'], "no hyper-parameter 'clip'"),
        (["--run", "PPO", "--env", "CartPole-v1", "--seed", "-1"], "seed must be a whole number, 0 or more"),
        (["--run", "PPO", "--env", "CartPole-v1", "--config", '{"env_config": 3}'], "env_config must be a dictionary"),
        (["--run", "SAC", "--env", "CartPole-v1"], "SAC does not fit discrete actions"),
        (["--restore", "nowhere"], "no checkpoint can be read"),
    ],
)
def test_mistakes_are_named(words: list[str], error: str) -> None:
    done = run_command([*COMMAND, "train", *words], timeout=60).expect(2)
    assert error in done.stderr
    assert "Traceback" not in done.stderr


def test_rendering_needs_a_display(tmp_path: Path) -> None:
    done = run_command([*COMMAND, "rollout", "somewhere", "--render"], env={"DISPLAY": None, "WAYLAND_DISPLAY": None})
    assert "--render needs a display" in done.expect(2).stderr
