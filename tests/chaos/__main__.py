"""A long run: `python -m tests.chaos --kills 5000 --seed 1 --mode ulfm`, as docs/reliability.md tells of.

Each run of the programs takes `--per-run` kills, with a seed of its own: `--seed`, and the numbers after it. Goes on
after a failure, and ends with 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import pytest

from tests import helpers
from tests.chaos import judge
from tests.chaos.program import PROGRAMS
from tests.conftest import nothing_left


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--mode", choices=judge.MODES, default="plain")
    parser.add_argument("--kills", type=int, default=5000, help="how many in all")
    parser.add_argument("--per-run", type=int, default=100, help="how many in one run of a program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=int, default=1, help="of the programs; with 10 the map is of a million")
    parser.add_argument("--pause", type=float, default=0.15, help="seconds between kills, on average")
    parser.add_argument("--programs", nargs="*", choices=PROGRAMS, default=[])
    options = parser.parse_args()
    os.environ[helpers.MARK] = mark = f"chaos{os.getpid()}"
    total, failures, began_s = judge.Record(), 0, time.monotonic()
    seed = options.seed
    while total.kills.total() < options.kills:
        kills = min(options.per_run, options.kills - total.kills.total())
        try:
            with nothing_left(f"{mark}/{seed}"):
                record = judge.run(options.mode, seed, kills, options.size, options.pause, tuple(options.programs))
            total.add(record)
            print(
                f"seed {seed}: {record.kills.total()} kills, {record.rounds} rounds, {record.calls} calls", flush=True
            )
        except pytest.fail.Exception as failure:
            failures += 1
            print(f"seed {seed} FAILED\n{failure}", flush=True)
            if failures > 5:
                break
        seed += 1
    print(f"mode {options.mode}, seeds {options.seed} to {seed - 1}, {time.monotonic() - began_s:.0f} s: ", end="")
    print(f"{total.runs} runs, {total.rounds} rounds, {total.calls} calls, {failures} failures")
    for kind, count in sorted(total.kills.items()):
        print(f"{count:6} {kind}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
