"""The programs of examples/articles run, with numbers that make them small."""

import re
from pathlib import Path

import pytest

from tests.helpers import ROOT, run_program

ARTICLES = ROOT / "examples" / "articles"
PROGRAMS: dict[str, tuple[list[str], list[str]]] = {
    "search_toy": (
        ["20"],
        [
            r"^alpha 0\.2, beta 1: +21 reports, accuracy 1\.82 at timestep 20$",
            r"^alpha 0\.6, beta 2: +11 reports, accuracy 6\.03 at timestep 20$",
            r"^6 trials at once took [\d.]+ s; the pauses of the longest are 0\.2 s$",
        ],
    ),
    "matrix_products": (
        ["50", "3", "1,2", "curve.png"],
        [
            r"^\d+ CPUs, 3 products of 50 x 50 in a call$",
            r"^  1 calls: loop +[\d.]+ s, tasks +[\d.]+ s, +[\d.]+ times as fast$",
            r"^  2 calls: ",
        ],
    ),
    "moving_average": (
        ["20"],
        [
            r"^20 series of 20 points, \d+ CPUs$",
            r"^serial +[\d.]+ s",
            r"^one task +",
            r"^a task for each series +",
            r"^all results are equal$",
        ],
    ),
    "simulators": (
        ["2", "5"],
        [
            r"^2 games, 5 steps each: \d+ steps/s$",
            r"^the last step returned an image of \(210, 160, 3\), and reward -?\d+$",
        ],
    ),
    "evolution_strategies": (
        ["2"],
        [
            r"^iteration +1: mean return +[\d.]+ of 40 episodes$",
            r"^iteration +2: ",
            r"^after 80 episodes the policy without noise has [\d.]+$",
        ],
    ),
    "ppo_cartpole": (
        ["2", "200"],
        [
            r"^\| iter \| time \(s\) \| ts +\| reward \|$",
            r"^\| 1 +\| [\d.]+ +\| 200 +\| [\d.]+ +\|$",
            r"^\| 2 +\| [\d.]+ +\| 400 ",
            r"^Episode #9: reward: \d+\.0$",
        ],
    ),
}
"""Arguments, and patterns that are found in this order."""
NEEDS = {
    "matrix_products": ["matplotlib"],
    "simulators": ["gymnasium", "ale_py"],
    "evolution_strategies": ["gymnasium"],
    "ppo_cartpole": ["torch", "gymnasium"],
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_the_articles(name: str, tmp_path: Path) -> None:
    for library in NEEDS.get(name, []):
        pytest.importorskip(library)
    words, patterns = PROGRAMS[name]
    words = [str(tmp_path / word) if word.endswith(".png") else word for word in words]
    completed = run_program(ARTICLES / f"{name}.py", *words, timeout=100).expect(0)
    at = 0
    for pattern in patterns:
        found = re.compile(pattern, re.MULTILINE).search(completed.stdout, at)
        assert found, f"no {pattern!r} from character {at} of\n{completed.stdout}"
        at = found.end()
    assert completed.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == [word for word in ("curve.png",) if word in PROGRAMS[name][0]]


def test_every_program_is_known() -> None:
    assert {path.stem for path in ARTICLES.glob("*.py")} == PROGRAMS.keys()
