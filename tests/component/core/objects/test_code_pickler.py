"""Classes of a journal keep their ids from one run to the next."""

import subprocess
import sys

import pytest

CLASSES = """
import enum
from dataclasses import dataclass, field

class Colour(enum.Enum):
    RED = 1

class Base:
    def scale(self, x):
        return Model, x

@dataclass
class Model(Base):
    size: int = 3
    colours: list = field(default_factory=lambda: [Colour.RED])
"""


LIFE = """
import pickle, sys
from mpi_runtime.core.objects import code_pickler

code_pickler.keep_ids()
space = {"__name__": "__main__"}
exec(compile(sys.argv[1], "somewhere.py", "exec"), space)
Model, Colour = space["Model"], space["Colour"]
mine = code_pickler.dumps((Model(4), Colour.RED)).hex()  # as the code of a call, before its value is read
if len(sys.argv) == 2:
    print(mine)
else:
    model, colour = pickle.loads(bytes.fromhex(sys.argv[2]))
    print(model == Model(4), colour is Colour.RED, isinstance(model, space["Base"]))
"""


def life(source: str, *values: str, seed: str = "0") -> str:
    command = [sys.executable, "-c", LIFE, source, *values]
    env = {"PYTHONHASHSEED": seed, "PATH": ""}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("source", [CLASSES, f"# another line{CLASSES}"], ids=["unchanged", "at another line"])
def test_instances_of_an_earlier_run_belong_to_the_classes_of_this_one(source: str) -> None:
    first = life(CLASSES)
    assert life(CLASSES, seed="1") == first
    assert life(source, first) == "True True True"
    assert life(source.replace("size: int = 3", "size: int = 5"), first) == "False True False", "other classes"
