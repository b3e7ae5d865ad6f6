"""No argument of a public function ends the job: wrong ones are refused where they are given, in words for users."""

import inspect
import random
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import mpi_runtime
from tests import fuzz_api, fuzz_rooms
from tests.helpers import ROOT, run_program, start_command


def test_wrong_arguments_of_every_public_function() -> None:
    command = [sys.executable, "-m", "tests.fuzz_api", "--calls", "700", "--init", "20", "--seed", "1"]
    with start_command(command, cwd=ROOT) as program:
        completed = program.finish(110)
    assert completed.returncode == 0, completed.output()


def test_what_is_left_out_is_public_and_the_rest_takes_arguments_or_nothing() -> None:
    assert fuzz_api.LEFT_OUT.keys() <= set(mpi_runtime.__all__)
    classes = {name for name in mpi_runtime.__all__ if inspect.isclass(getattr(mpi_runtime, name))}
    assert classes <= fuzz_api.LEFT_OUT.keys()
    public = {f"{room}.{name}" for room, module in fuzz_rooms.ROOMS.items() for name in module.__all__}
    assert fuzz_rooms.LEFT_OUT.keys() <= public


def test_no_call_has_elements_for_which_it_may_rightly_take_long() -> None:
    def target(*iterables: Any) -> list[int]:
        return [len(one) for one in iterables if isinstance(one, (str, bytes, bytearray))]

    world: Any = SimpleNamespace(right={})
    for seed in range(300):
        act, said = fuzz_api.call("executor.map", target, world, fuzz_api.Junk(random.Random(seed)))
        assert max(act(), default=0) <= 1000, said


REFUSED = {
    "ray.get_actor('a', namespace=123)": ("TypeError", "namespace must be a string, not 123"),
    r"ray.get_actor('a', namespace='\udc80')": ("ValueError", "namespace must be text that can be written as UTF-8"),
    r"ray.get_actor('\udc80')": ("ValueError", "name must be text that can be written as UTF-8"),
    "ray.kill(actor, no_restart=10**30)": ("TypeError", "no_restart must be True or False"),
    "ray.cancel(ref, force='yes')": ("TypeError", "force must be True or False, not 'yes'"),
    "ray.cancel(ref, recursive=None)": ("TypeError", "recursive must be True or False, not None"),
    "ray.util.placement_group_table(5)": ("TypeError", "placement_group_table() needs a PlacementGroup or None"),
    r"ray.util.placement_group([{'CPU': 1}], name='\udc80')": ("ValueError", "name must be text"),
    r"ray.util.placement_group([{'\udc80': 1}])": ("ValueError", "a name in a bundle must be text"),
    r"ray.util.get_placement_group('\udc80')": ("ValueError", "placement_group_name must be text"),
    "next(ray.util.as_completed([ref], chunk_size='x'))": ("TypeError", "chunk_size must be a whole number"),
    "Executor(max_workers=2**40)": ("ValueError", "max_workers must be at most 1048576"),
    "ray.rl.evaluate(1)": ("TypeError", "policy must be an algorithm, such as rl.PPO(env), not 1"),
    "ray.rl.from_old_gym(1)": ("TypeError", "env must be an environment of the old gym, not 1"),
    "ray.wait([ref], timeout=[1])": ("TypeError", "timeout must be a number of seconds or None, not [1]"),
}


def test_what_is_said_and_that_messages_before_and_after_are_not_lost() -> None:
    completed = run_program(
        f"REFUSED = {list(REFUSED)!r}\n"
        + """
import mpi_runtime as ray
from mpi_runtime.util.futures import Executor
ray.init(num_cpus=2)
double = ray.remote(lambda n: 2 * n)
actor = ray.remote(type("A", (), {"f": lambda self: 1})).remote()
ref = ray.put(1)
for line in REFUSED:
    before = [double.remote(n) for n in range(50)]
    try:
        print("nothing:", eval(line))
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
    assert ray.get([*before, double.remote(9)], timeout=60) == [*range(0, 100, 2), 18], line
assert ray.get(actor.f.remote()) == 1
"""
    ).expect(0)
    for line, (call, (kind, text)) in zip(completed.stdout.splitlines(), REFUSED.items(), strict=True):
        assert line.startswith(f"{kind}: {text}"), (call, line)


@pytest.mark.parametrize("where", ["driver", "task"])
def test_a_question_that_cannot_be_answered_ends_nothing(where: str) -> None:
    """One that the head could not read is not sent."""
    completed = run_program(
        f"WHERE = {where!r}\n"
        + """
import mpi_runtime as ray
from mpi_runtime.core.client import current
from mpi_runtime.scheduler.protocol.questions import NamedActor, Nodes
from mpi_runtime.scheduler.protocol.window_questions import Glance
ray.init(num_cpus=2)

def ask():
    questions = current.client().questions
    for question in (123, Nodes("text"), Glance(), NamedActor("", 2)):
        try:
            print(questions.ask(question))
        except TypeError as error:
            print("refused:", error, flush=True)
    return len(questions.ask(Nodes()))

print(ask() if WHERE == "driver" else ray.get(ray.remote(max_retries=0)(ask).remote()))
print(ray.get(ray.remote(lambda: "runs").remote()))
"""
    ).expect(0)
    lines = [line for line in completed.stdout.splitlines() if "refused:" in line]
    problems = ("123 is not a question", "`bytes`, got `str`", "Glance() is not a question", "`str`, got `int`")
    assert [text in line for text, line in zip(problems, lines, strict=True)] == [True] * len(problems), lines
    assert {"1", "runs"} <= set(completed.stdout.splitlines())
    assert completed.stderr == ""
