"""How much quicker is the better way in each of docs/patterns.md?

    python -m benchmarks.patterns
    python -m benchmarks.patterns --rounds 15

Runs the examples of that document themselves, both ways in turn, in one job, and prints the table at its end. A busy
machine slows both; the ratios are of medians.
"""

import argparse
import re
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.launching import ROOT, machine

DOCUMENT = ROOT / "docs" / "patterns.md"


class Pattern(NamedTuple):
    """One section: the same thing in two ways."""

    title: str
    worse: str
    better: str


def read(document: Path = DOCUMENT) -> tuple[str, list[Pattern]]:
    """What all examples begin with, and the patterns."""
    first, *sections = re.split(r"^## ", document.read_text(), flags=re.MULTILINE)
    blocks = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    (beginning,) = blocks.findall(first)
    patterns = [
        Pattern(section.partition("\n")[0], *found)
        for section in sections
        if len(found := blocks.findall(section)) == 2
    ]
    return beginning, patterns


def run(code: str, names: dict[str, Any]) -> tuple[float, Any]:
    """Run an example: how many seconds it takes, and its answer."""
    scope = dict(names)
    started = time.perf_counter()
    exec(code, scope)
    seconds, answer = time.perf_counter() - started, scope["answer"]
    scope.clear()  # functions refer to it: else what is in it would stay until the collector comes
    return seconds, answer


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="how often each way is run (7)")
    rounds = parser.parse_args().rounds
    beginning, patterns = read()
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(beginning, names)
    print(f"Medians of {rounds} rounds; {machine()}.\n")
    print("| pattern | instead of | write | times as fast |\n| --- | ---: | ---: | ---: |")
    for pattern in patterns:
        run(pattern.worse, names)
        run(pattern.better, names)  # both once, unmeasured
        pairs = [(run(pattern.worse, names)[0], run(pattern.better, names)[0]) for _ in range(rounds)]
        worse, better = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(
            f"| {pattern.title} | {1000 * worse:.0f} ms | {1000 * better:.0f} ms | {worse / better:.1f} |", flush=True
        )
    names["ray"].shutdown()


if __name__ == "__main__":
    main()
