"""Sets in what a journal hashes: the same bytes in each run, as far as that is possible."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import datetime, decimal, enum, hashlib, uuid
from pathlib import PurePosixPath
from mpi_runtime.core.objects.code_pickler import to_hash

class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"
    GREEN = "green"

class Node:
    def __init__(self):
        self.near = set()

texts = {"a", "b", "c", "d", "e"}
for things in (
    texts, {b"a", b"b", b"c"}, {"a", b"a", None, 1.5}, {("x", 1), ("y", 2), ("z", 3)},
    {frozenset("ab"), frozenset("cd")}, set(map(PurePosixPath, "abcde")), set(Colour),
    {datetime.date(2026, 1, day) for day in range(1, 9)}, {decimal.Decimal(1), uuid.UUID(int=1), "a"},
):
    assert to_hash(frozenset(things)) != to_hash(things) != to_hash({*things, "more"})
    print(hashlib.sha256(to_hash({"given": [things]})).hexdigest())
first, second = Node(), Node()
first.near, second.near = {second}, {first}
assert to_hash(first), "objects may lead to each other"
"""


def test_the_order_of_a_set_does_not_count() -> None:
    found = set()
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", PROGRAM]
        found.add(subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout)
    assert len(found) == 1
    assert len(set(found.pop().split())) == 9
