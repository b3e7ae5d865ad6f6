"""What a type checker learns about a program: as much as the signatures carry, and nothing that is wrong."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.helpers import ROOT

PROGRAM = """
from collections.abc import Iterator
from typing import Any, TypeVar, cast

import mpi_runtime as ray

T = TypeVar("T")

@ray.remote
def mean(values: list[float], name: str = "") -> float:
    return sum(values) / len(values)

@ray.remote(num_cpus=2)
def same(value: T) -> T:
    return value

@ray.remote(num_returns="streaming")
def stream(number: int) -> Iterator[str]:
    yield str(number)

@ray.remote(num_returns=2, max_retries=1)
def halves(values: list[float]) -> tuple[list[float], list[float]]:
    return values[::2], values[1::2]

class Counter:
    def __init__(self, start: int = 0) -> None:
        self.value = start

    @ray.method
    def add(self, amount: int, /, *, times: int = 1) -> int:
        self.value += amount * times
        return self.value

    @ray.method(num_returns=2)
    def both(self) -> tuple[int, int]:
        return self.add(0), -self.value

    def reset(self) -> None:
        self.value = 0

CounterActor = ray.remote(Counter)
ref = mean.remote([1.0])
ready, rest = ray.wait([ref, ray.put(1.0)])
low, high = halves.remote([1.0])
one, two = mean.options(num_returns=2).remote([1.0])
handle = CounterActor.options(num_cpus=2).remote(5)
saved = ray.checkpoint(handle)
typed = cast(Counter, handle)
annotated: ray.ActorClass[Counter] = ray.remote(num_cpus=1)(Counter)

def use(anything: Any, some: ray.ActorHandle, counter: ray.ActorHandle[Counter]) -> None:
    mean.remote(anything, anything)
    mean.remote(ray.put([1.0]), "a")
    mean.remote([1.0], same.remote("a"))
    mean.remote(values=[1.0], name="a")
    annotated.remote()
    annotated.remote(ray.put(1))
    ray.kill(some)
    ray.kill(counter)

# Functions
reveal_type(mean)  # RemoteFunction[[values: list[float], name: str =], float]
reveal_type(ref)  # ObjectRef[float]
reveal_type(mean.options(num_cpus=2).remote([1.0]))  # ObjectRef[float]
reveal_type(mean.remote(ray.put([1.0])))  # ObjectRef[float]
reveal_type(same.remote("a"))  # ObjectRef[str]
reveal_type(low)  # ObjectRef[Any]
reveal_type(one)  # ObjectRef[Any]
reveal_type(mean.options(num_returns=0).remote([1.0]))  # None
reveal_type(mean.options(num_returns=1).remote([1.0]))  # ObjectRef[float]
reveal_type(stream.remote(3))  # ObjectRefGenerator[str]
reveal_type(ray.get(next(stream.remote(3))))  # str
reveal_type(mean.options(num_returns=len("abc")).remote([1.0]))  # Any
reveal_type(mean.map([[1.0]]))  # Results[float]
reveal_type(mean.starmap([([1.0], "a")])[0])  # float
reveal_type(mean.map([[1.0]])[:1])  # list[float]
reveal_type(mean.map([[1.0]]).get())  # list[float]
reveal_type(next(mean.map([[1.0]]).as_completed()))  # tuple[int, float]
# Values
reveal_type(ray.get(ref))  # float
reveal_type(ray.get(ref, timeout=1))  # float
reveal_type(ray.get([ref, ref]))  # list[float]
reveal_type(ray.get(ref, device=None))  # float
reveal_type(ray.get(ref, device="cpu"))  # Any
reveal_type(ray.get(ref, device="gpu"))  # Any
reveal_type(ray.get([ref, ref], timeout=1, device="cpu"))  # list[Any]
reveal_type(ray.get(mean.remote(ray.put([1.0]))))  # float
reveal_type(ray.put("a"))  # ObjectRef[str]
reveal_type(ray.get(ray.put({"a": 1})))  # dict[str, int]
reveal_type(ready)  # list[ObjectRef[float]]
reveal_type(ray.wait([stream.remote(1)])[0])  # list[ObjectRefGenerator[str]]
# Actors
reveal_type(CounterActor)  # ActorClass[Counter, [start: int =]]
reveal_type(CounterActor.options(num_cpus=2))  # ActorClass[Counter, [start: int =]]
reveal_type(CounterActor.remote())  # ActorHandle[Counter]
reveal_type(handle)  # ActorHandle[Counter]
reveal_type(handle.both)  # ActorMethod
reveal_type(handle.both.remote())  # Any
reveal_type(typed.add.remote(1))  # ObjectRef[int]
reveal_type(typed.add.remote(ray.put(1)))  # ObjectRef[int]
reveal_type(typed.both.remote())  # list[ObjectRef[Any]]
reveal_type(Counter(1).both())  # tuple[int, int]
reveal_type(Counter(1).add(1))  # int
reveal_type(ray.get_actor("a"))  # ActorHandle[Any]
# The rest
reveal_type(ray.get_gpu_ids())  # list[int]
reveal_type(ray.cluster_resources())  # dict[str, float]
reveal_type(ray.nodes())  # Table[dict[str, Any]]
reveal_type(ray.get_runtime_context().get_task_id())  # str | None
reveal_type(ray.is_initialized())  # bool
reveal_type(ray.init())  # Context
"""

EXPERIMENT = """
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mpi_runtime import rl, train, tune
from mpi_runtime.tune.schedulers import ASHAScheduler
from mpi_runtime.tune.search import Searcher
from mpi_runtime.tune.trial import Trial

def loop(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    first = checkpoint.to_dict()["epoch"] if checkpoint else 0
    tune.report({"loss": config["lr"] * first}, checkpoint=tune.Checkpoint.from_dict({"epoch": first + 1}))

class Mine(Searcher):
    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        return super().set_search_properties(metric, mode, config, **spec)

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        return {"lr": 0.1}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        print(result and result["loss"] + 1)

class Prints(tune.Callback):
    def setup(
        self, stop: Any = None, num_samples: int | None = None, total_num_samples: int | None = None, **info: Any
    ) -> None:
        print(info["path"].upper())

    def on_trial_result(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        print(trial.config["lr"] + result["loss"], trial.checkpoint.path)

class Model(tune.Trainable):
    def setup(self, config: dict[str, Any], **parameters: Any) -> None:
        self.x = config["x"]

    def step(self) -> dict[str, Any]:
        return {"loss": self.x}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.x = checkpoint["x"]

class Stops(tune.Stopper):
    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return bool(result["loss"] < 1)

tuner = tune.Tuner(
    tune.with_resources(loop, {"cpu": 2}),
    param_space={"lr": tune.loguniform(1e-4, 1), "n": tune.grid_search([1, 2]), "f": tune.sample_from(lambda c: c.lr)},
    tune_config=tune.TuneConfig("loss", "min", search_alg=Mine(), scheduler=ASHAScheduler()),
    run_config=tune.RunConfig(stop={"loss": 1}, storage_path=Path("/"), callbacks=[Prints()]),
)
settings = [tune.RunConfig(stop=lambda trial_id, result: result["loss"] < 1), tune.RunConfig(stop=Stops())]
grid = tuner.fit()
numbers = [one.config["lr"] * 2 + one.metrics["loss"] for one in grid]
trainer = train.DataParallelTrainer(loop, train_loop_config={"lr": 1}, datasets={"train": [1, 2]})
shard = train.get_dataset_shard()
numbers += [shard[0] + 1, len(shard), tune.run(loop, config={"lr": 1}, num_samples=2).best_config["lr"] + 1]
ppo = rl.PPO("CartPole-v1", num_envs=8, learning_rate=lambda left: left, **{"gamma": 0.9})
numbers += [ppo.train()["episode_reward_mean"] + 1, ppo.predict([1.0])[0] + 1]
tune.simulate(lambda config, checkpoint: iter([(1.0, {"loss": config["lr"]}, None)]), param_space={"lr": 1})

reveal_type(grid[0])  # Result
reveal_type(grid[:2])  # list[Result]
reveal_type(grid.get_best_result().metrics)  # dict[str, Any]
reveal_type(grid.get_best_result().config)  # dict[str, Any]
reveal_type(grid[0].history)  # list[dict[str, Any]]
reveal_type(trainer.fit().metrics)  # dict[str, Any]
"""

DEFINITIONS = """
from typing import cast

import mpi_runtime as ray

@ray.remote
def double(number: int, name: str = "") -> float:
    return 2 * number

class Counter:
    def __init__(self, start: int) -> None:
        self.value = start

    @ray.method
    def add(self, amount: int) -> None:
        self.value += amount

counter = cast(Counter, ray.remote(Counter).remote(1))
"""

MISTAKES = {
    "ray.get(1)": "call-overload",
    "ray.get(ray.put(1), device='tpu')": "call-overload",
    "ray.wait(ray.put(1))": "arg-type",
    "ray.kill(1)": "arg-type",
    "ray.put()": "call-arg",
    "ray.get(ray.put(1)) + 'a'": "operator",
    "ray.nonsense": "attr-defined",
    "double.remote('1')": "call-overload",
    "double.remote()": "call-overload",
    "double.remote(1, 'a', 2)": "call-overload",
    "double.remote(1, nam='a')": "call-overload",
    "double.options(num_cpus=2).remote(None)": "call-overload",
    "double.options(num_returns=2).remote(None)": "call-overload",
    "ray.remote(num_cpus=2)(double._function).remote(None)": "call-overload",
    "double.remote(1) + 1": "operator",
    "ray.remote(Counter).remote('1')": "call-overload",
    "ray.remote(Counter).options(num_cpus=2).remote()": "call-overload",
    "counter.add.remote('1')": "call-overload",
    "counter.add('1')": "arg-type",
}
"""Lines with a mistake that the checker must find, and what mypy calls that."""

UNKNOWN_TO_PYRIGHT = {"[start: int =]": "..."}
"""Arguments of constructors, for the same reason as below: what pyright says in their place."""

NOT_FOUND_BY_PYRIGHT = {"ray.remote(Counter).remote('1')", "ray.remote(Counter).options(num_cpus=2).remote()"}
"""It does not tell a class from other callables and keep its constructor's arguments; of decorated classes it knows the
type of handles all the same, which mypy does not."""


def mypy(program: str, folder: Path) -> list[str]:
    """What mypy says about a program, line by line."""
    path = folder / "checked_program.py"
    path.write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(path)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout.splitlines()


def pyright(program: str, folder: Path) -> list[str]:
    """What pyright says about a program, line by line."""
    if find_spec("pyright") is None:
        pytest.skip("pyright is not installed here; the extra `dev` brings it, and the node that it runs on")
    path = folder / "checked_program.py"
    path.write_text(program)
    (folder / "pyrightconfig.json").write_text(f'{{"extraPaths": ["{ROOT}"]}}')
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--project", str(folder)]
    env = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}  # else it asks the network for a newer version
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env).stdout.splitlines()


def lines_with(pattern: str, said: list[str]) -> dict[int, str]:
    """By line of the program what a checker said, of the lines that match."""
    return {int(found[1]): found[2] for line in said if (found := re.search(pattern, line)) is not None}


def plain(text: str) -> str:
    """A type without the modules of its parts."""
    return re.sub(r"\b(?:mpi_runtime|checked_program|builtins)\.(?:\w+\.)*", "", text)


def revealed(program: str) -> dict[int, str]:
    """By line of a program the type that is to be found there, as mypy writes it."""
    lines = enumerate(program.splitlines(), start=1)
    return {number: re.sub(r".*\)  # ", "", line) for number, line in lines if line.startswith("reveal_type(")}


def as_mypy_writes(text: str) -> str:
    """A type as pyright writes it: parameters in round brackets, with the defaults' values."""
    return re.sub(r" = [^,()\]]+", " =", text).replace("[(", "[[").replace("), ", "], ")


@pytest.mark.parametrize("program", [PROGRAM, EXPERIMENT], ids=["program", "experiment"])
def test_types_of_a_program(program: str, tmp_path: Path) -> None:
    output = mypy(program, tmp_path)
    assert not [line for line in output if ": note: Revealed" not in line]
    said = lines_with(r":(\d+): note: Revealed type is \"(.*)\"$", output)
    found = {number: plain(text).replace("Union[str, None]", "str | None") for number, text in said.items()}
    assert found == revealed(program)


def test_mistakes_are_found(tmp_path: Path) -> None:
    program = DEFINITIONS + "".join(f"{line}\n" for line in MISTAKES)
    found = lines_with(r":(\d+): error: .*\[([\w-]+)\]$", mypy(program, tmp_path))
    assert found == dict(enumerate(MISTAKES.values(), start=DEFINITIONS.count("\n") + 1))


@pytest.mark.parametrize("program", [PROGRAM, EXPERIMENT], ids=["program", "experiment"])
def test_pyright_finds_the_same_types(program: str, tmp_path: Path) -> None:
    output = pyright(program, tmp_path)
    assert not lines_with(r":(\d+):\d+ - (?:error|warning): (.*)", output)
    said = lines_with(r":(\d+):\d+ - information: Type of \".*\" is \"(.*)\"$", output)
    expected = revealed(program)
    for mypys, pyrights in UNKNOWN_TO_PYRIGHT.items():
        expected = {number: text.replace(mypys, pyrights) for number, text in expected.items()}
    assert {number: as_mypy_writes(text) for number, text in said.items()} == expected


def test_pyright_finds_mistakes(tmp_path: Path) -> None:
    found = lines_with(
        r":(\d+):\d+ - error: (.*)", pyright(DEFINITIONS + "".join(f"{line}\n" for line in MISTAKES), tmp_path)
    )
    first = DEFINITIONS.count("\n") + 1
    assert [line for number, line in enumerate(MISTAKES, start=first) if number not in found] == [
        line for line in MISTAKES if line in NOT_FOUND_BY_PYRIGHT
    ]
