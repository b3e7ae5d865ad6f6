"""Every program in examples/ runs to its end, started in each way, and prints what it promises.

The job of each is recorded, and its decisions come out the same when the recording is replayed.
"""

import itertools
import re
from pathlib import Path

import pytest

from tests.e2e.cli.recordings import replayed_with_calls
from tests.helpers import ROOT, run_program

EXAMPLES = ROOT / "examples"
HANGS_S = 150.0
"""They take seconds; a machine that does much else is given minutes."""

LINES = {
    "timer": [
        r"in a loop: +4 naps took \d\.\d\d s",
        r"submitted: +4 calls of \.remote\(\) took [\d.]+ ms",
        r" ObjectRef\([0-9a-f]+\)",
        r"as 4 tasks: +4 naps took \d\.\d\d s, [\d.]+ times as fast",
    ],
    "moving_average": [
        r"1000 series of 1000 points, window 10, \d+ CPUs",
        r"one task for everything +[\d.]+ s",
        r"a task for each series +[\d.]+ s",
        r"\d+ tasks on shared data +[\d.]+ s",
        r"all results equal the serial one",
    ],
    "lookups": [
        r"get inside the loop",
        r"submit all, then get",
        r"  alpha  192\.0\.2\.1    after \d\.\d\d s",
        r"through an actor",
        r"wait: the quick ones first\n  delta ",
    ],
    "task_graph": [
        r"zeros \* zeros: 100 x 100, sum 0",
        r"trace of \(2 I\)\^10 = 51200",
        r"drift 0\.0, 100 walks",
        r"drift 0\.5, 100 walks",
    ],
    "actors": [
        r"task 3 in process \d+ saw the counter at \d+",
        r"the counter stands at 105 ",
        r"a pool of 3 actors factorised 24 numbers; primes among them: \[600000007, 600000017, 600000019, 600000041\]",
    ],
    "parameter_server": [
        r"4 endless workers: the parameters stand at \d+",
        r"told to stop; updates of each worker: \[\d+, \d+, \d+, \d+\], sum \d+",
        r"step 50: loss 0\.\d+, accuracy +\d\d\.\d%",
    ],
    "put_once": [
        r"ten tasks on one array of 8 MB",
        r"passed ten times: +80 MB serialised",
        r"put once, reference passed ten times: +8 MB serialised",
        r"the tasks worked on views of shared memory",
    ],
    "llm_engine": [
        r"the engine \d+ answers at http://127\.0\.0\.1:\d+, GPUs \[\]",
        r"'prompt 7': 'PROMPT 7'",
    ],
    "heat": [
        r"diffusivity 0\.1: 0\.9802 in the middle, largest error [\d.e-]+",
        r"diffusivity 0\.6: 0\.888\d in the middle, largest error [\d.e-]+",
        r"4 cases on gangs of 2 ranks took [\d.]+ s",
    ],
    "external_sort": [
        r"0\.19 GB sorted with 0\.\d\d GB of shared memory; 0\.\d\d GB of the result on disk",
        r"took [\d.]+ s, [\d.]+ GB/s",
        r"in order, and none is missing",
    ],
    "resources": [
        r"the job has CPU 4, GPU 4, camera 2",
        r"6 photographs on 2 cameras: at most [12] at once, 6 taken",
        r"4 tasks with a GPU each had id \d \(\d\)",
        r"2 actors with half a GPU each share \[(\d), \1\]",
        r"a task with three whole GPUs had \[\d, \d, \d\]",
        r"128 GPUs: .*",
    ],
    "sweep": [
        r"rate 0\.1: mean 0\.1\d+ of 8 runs\nrate 0\.5: mean 0\.\d+ of 8 runs\nrate 1\.0: mean 1\.\d+ of 8 runs",
        r"best: exit code 1 after 1 attempt",
    ],
    "gpu_matmul": [
        r"\d GPU\(s\) of types \[.*\]; tasks compute with numpy",
        r"1024 x 1024 in 4 tiles: [\d.]+ TFLOP/s, the copies included",
        r"the product is right",
        r"40 small products on shares: 40 on CPUs",
    ],
    "gpu_actors": [
        r"0 GPU\(s\); a product in parts on CPUs, with numpy",
        r"30 batches, at most 4 of them in flight",
        r"  \d+ on CPUs, process \d+\n  \d+ on CPUs, process \d+",
    ],
    "demo": [
        r"started in [\d.]+ s",
        r"^ +\.{3}.* \d+$",
        r"^30 rows on \d+ ranks? of 1 host by \d+ processes",
        r"^10,000 empty tasks +[\d,]+ /s$",
        r"^get of 100 MB +[\d,]+ us",
    ],
    "tune_quick_start": [
        r"24 trials made \d\d+ of 648 epochs",
        r"the best: loss 0\.\d+ with lr 0\.0\d+, (?:32|64|128) units",
        r"curves, rungs and a table to sort: /.*/first/report\.html",
    ],
    "ddp": [
        r"2 workers with 32 batches each in an epoch",
        r"accuracy after 12 epochs: 0\.9\d\d",
        r"the checkpoint has \['epoch', 'model', 'optimizer'\]",
    ],
    "tune_pbt": [
        r"the best constant rate, 0\.\d+: accuracy 0\.916",
        r"a population of the same size: accuracy 0\.9\d\d, with this schedule:",
        r"  from step  0: lr 0\.\d+\n  from step ",
    ],
    "tune_optuna_unchanged": [r"100 trials, \d+ of them pruned", r"the best: 1\.\d\d at x = [12]\.\d\d, deep"],
    "tune_asha_digits": [
        r"20 networks, \d+ of 540 epochs",
        r"the best reads 9\d\.\d%: \{'lr': ",
        r"its weights: \[\(64, (\d+)\), .*, 10\)\]",
        r"its plot: /.*/curves\.png",
    ],
    "tune_simulate": [
        r"every trial to its end +24300 epochs +[\d.]+ h  best loss 0\.\d+",
        r"median stopping +\d+ epochs",
        r"ASHA, stopping +\d+ epochs",
        r"ASHA, promotion +\d+ epochs",
        r"HyperBand +\d+ epochs",
    ],
    "rl_cartpole": [
        r"after +\d+ steps the mean return is 4[789]\d",
        r"the most probable actions: (4[0-9]\d|500)\.\d ± [\d.]+ over 10 episodes",
        r"from the checkpoint: (4[0-9]\d|500)\.\d ",
    ],
    "rl_custom_env": [
        r"profit of 30 days: -?[\d.]+ at random, [1-9]\d\.\d after 6\d\d\d\d days",
        r"two in stock on Mon: order \d+\ntwo in stock on Sat: order \d+",
    ],
    "rl_es": [
        r"^\d+ workers share one table of 20 MB of noise",
        r"\d+ episodes, \d+ steps, \d+ steps of the optimiser",
        r"the policy without noise: [345]\d\d\.\d ",
    ],
    "rl_tune_pbt": [r"(lr \de-0\d: return \d+ at 16384\n){4}", r"the best: [1-5]\d\d with lr \d\.\de-0\d"],
    "rl_atari_gpu": [
        r"the learner computes on cpu; the network has 1687\d\d\d weights",
        r"128 steps, 1\.79 nats(.*\n)*.*256 steps, ",
    ],
    "own_scheduler": [r"pi is about 3\.1[34]"],
}
"""What each example prints, as patterns that are found in this order."""
NEEDS = {
    "ddp": ["torch"],
    "heat": ["mpi4py"],
    "rl_cartpole": ["torch", "gymnasium"],
    "rl_custom_env": ["torch", "gymnasium"],
    "rl_es": ["gymnasium"],
    "rl_tune_pbt": ["torch", "gymnasium"],
    "rl_atari_gpu": ["torch", "gymnasium", "ale_py", "cv2"],
    "tune_optuna_unchanged": ["optuna"],
    "tune_asha_digits": ["sklearn", "optuna", "matplotlib"],
}
"""Libraries without which they are skipped."""
WITHOUT_A_JOB = {"tune_simulate", "rl_custom_env"}
"""Each rank would run it for itself."""

ON_RANKS = list(
    zip(
        (name for name in LINES if name not in {*WITHOUT_A_JOB, *NEEDS}),
        itertools.cycle(("openmpi", "mpich")),
        strict=False,
    )
)


def check(name: str, stdout: str) -> None:
    """Assert that the lines are there, in their order."""
    at = 0
    for pattern in LINES[name]:
        found = re.compile(pattern, re.MULTILINE).search(stdout, at)
        assert found, f"no {pattern!r} in what {name} printed from character {at}:\n{stdout}"
        at = found.end()


def test_every_example_is_known() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == LINES.keys()


@pytest.mark.timeout(HANGS_S + 30)
@pytest.mark.parametrize("name", LINES)
def test_plainly(name: str, tmp_path: Path) -> None:
    for library in NEEDS.get(name, []):
        pytest.importorskip(library)
    run(name, tmp_path)


@pytest.mark.mpi
@pytest.mark.timeout(HANGS_S + 30)
@pytest.mark.parametrize(("name", "mpi"), ON_RANKS)
def test_on_two_ranks(name: str, mpi: str, tmp_path: Path) -> None:
    run(name, tmp_path, ranks=2, mpi=mpi)


def run(name: str, place: Path, ranks: int | None = None, mpi: str | None = None) -> None:
    path = place / "job"
    env = {"MPI_RUNTIME_RECORD": str(path)}
    completed = run_program(EXAMPLES / f"{name}.py", ranks=ranks, mpi=mpi, env=env, timeout=HANGS_S).expect(0)
    check(name, completed.stdout)
    assert completed.stderr == ""
    if name not in WITHOUT_A_JOB:
        replayed_with_calls(path, ranks or 1)
