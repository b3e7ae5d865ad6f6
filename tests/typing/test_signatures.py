"""What a type checker learns about a program: as much as the signatures carry, and nothing that is wrong."""

import re
import subprocess
import sys
from pathlib import Path

from tests.helpers import ROOT

PROGRAM = """
from typing import Any

import mpi_runtime as ray

@ray.remote
def mean(values: list[float], name: str = "") -> float:
    return sum(values) / len(values)

@ray.remote(num_returns=2)
def halves(values: list[float]) -> tuple[list[float], list[float]]:
    return values[::2], values[1::2]

class Counter:
    def __init__(self, start: int = 0) -> None:
        self.value = start

    @ray.method(num_returns=2)
    def both(self) -> tuple[int, int]:
        return self.value, -self.value

CounterActor = ray.remote(Counter)
ref = mean.remote([1.0])
ready, rest = ray.wait([ref, ray.put(1)])
low, high = halves.remote([1.0])
one, two = mean.options(num_returns=2).remote([1.0])
handle = CounterActor.options(num_cpus=2).remote(5)

reveal_type(mean)  # RemoteFunction[[values: list[float], name: str =], float]
reveal_type(ref)  # ObjectRef[float]
reveal_type(mean.options(num_cpus=2).remote([1.0]))  # ObjectRef[float]
reveal_type(ray.get(ref))  # float
reveal_type(ray.get(ref, timeout=1))  # float
reveal_type(ray.get([ref, ref]))  # list[float]
reveal_type(ray.get(mean.remote(ray.put([1.0]))))  # float
reveal_type(ray.put("a"))  # ObjectRef[str]
reveal_type(ray.get(ray.put({"a": 1})))  # dict[str, int]
reveal_type(ready)  # list[ObjectRef[float]]
reveal_type(low)  # Any
reveal_type(CounterActor)  # ActorClass[Counter]
reveal_type(CounterActor.remote())  # ActorHandle
reveal_type(handle)  # ActorHandle
reveal_type(handle.both)  # ActorMethod
reveal_type(handle.both.remote())  # Any
reveal_type(Counter(1).both())  # tuple[int, int]
reveal_type(ray.get_gpu_ids())  # list[int]
reveal_type(ray.cluster_resources())  # dict[str, float]
reveal_type(ray.nodes())  # list[dict[str, Any]]
reveal_type(ray.get_runtime_context().get_task_id())  # str | None
reveal_type(ray.is_initialized())  # bool
reveal_type(ray.init())  # Context
"""

MISTAKES = {
    "ray.get(1)": "call-overload",
    "ray.wait(ray.put(1))": "arg-type",
    "ray.kill(1)": "arg-type",
    "ray.put()": "call-arg",
    "ray.get(ray.put(1)) + 'a'": "operator",
    "ray.nonsense": "attr-defined",
}
"""Lines with a mistake that the checker must find, and what it calls that."""


def check(program: str, folder: Path) -> list[str]:
    """What mypy says about a program, line by line."""
    path = folder / "checked_program.py"
    path.write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(path)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout.splitlines()


def test_types_of_a_program(tmp_path: Path) -> None:
    expected = {
        number: re.sub(r".*\)  # ", "", line)
        for number, line in enumerate(PROGRAM.splitlines(), start=1)
        if line.startswith("reveal_type(")
    }
    said: dict[int, str] = {}
    for line in check(PROGRAM, tmp_path):
        found = re.search(r":(\d+): note: Revealed type is \"(.*)\"$", line)
        assert found, line
        said[int(found[1])] = re.sub(r"\b(?:mpi_runtime|checked_program|builtins)\.(?:\w+\.)*", "", found[2])
    assert {number: text.replace("Union[str, None]", "str | None") for number, text in said.items()} == expected


def test_mistakes_are_found(tmp_path: Path) -> None:
    program = "import mpi_runtime as ray\n" + "".join(f"{line}\n" for line in MISTAKES)
    said = [re.search(r":(\d+): error: .*\[([\w-]+)\]$", line) for line in check(program, tmp_path)]
    found = {int(one[1]): one[2] for one in said if one is not None}
    assert found == dict(enumerate(MISTAKES.values(), start=2))
