"""The batches of examples/batches run as their first lines say, continue where they were, and make what they promise.

The first run of each is recorded, and its decisions come out the same when the recording is replayed.
"""

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests import helpers
from tests.e2e.cli.recordings import replayed
from tests.e2e.cli.test_batch import run_batch

BATCHES = helpers.ROOT / "examples" / "batches"


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of the example that the test is called after."""
    name = request.node.name.removeprefix("test_").partition("[")[0]
    return Path(shutil.copytree(BATCHES / name, tmp_path / name))


def recorded(name: str, folder: Path, *words: str) -> helpers.Completed:
    """Run a batch, and replay what its scheduler has decided."""
    path = folder.parent / "recording"
    done = run_batch(name, *words, cwd=folder, env={"MPI_RUNTIME_RECORD": str(path)}).expect(0)
    replayed(path)
    return done


def test_every_batch_of_the_examples_is_known() -> None:
    known = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.name for path in BATCHES.iterdir()} <= known


def test_lyapunov(folder: Path) -> None:
    done = recorded("lyapunov.toml", folder)
    assert "42 of 42 done; " in done.stderr
    picture = (folder / "lyapunov.svg").read_text()
    points = re.search(r'points="([^"]*)"', picture)
    assert points is not None
    assert len(points[1].split()) == 41
    pairs = [path.read_text().split() for path in (folder / "exponents").iterdir()]
    values = {float(r): float(exponent) for r, exponent in pairs}
    assert values[3.2] < 0 < values[4.0]
    assert values[4.0] == pytest.approx(0.693, abs=0.02), "the logarithm of 2"
    assert "42 of 42 done, 42 of them before; " in run_batch("lyapunov.toml", cwd=folder).expect(0).stderr


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")
def test_build(folder: Path) -> None:
    assert "8 of 8 done; " in recorded("build.toml", folder).stderr
    source = folder / "squares.c"
    source.write_text(source.read_text().replace("n * n", "n"))
    assert "8 of 8 done, 8 of them before; " in run_batch("build.toml", cwd=folder).expect(0).stderr
    done = run_batch("build.toml", "--from", "compile.1", cwd=folder).expect(1)
    assert "6 of 8 done, 3 of them before, 2 failed" in done.stderr, "what is built now gives other answers"


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.mpi)])
def test_gpus(folder: Path, ranks: int) -> None:
    assert "9 of 9 done; " in recorded("gpus.toml", folder, "--gpus-per-node", "2", "-n", str(ranks)).stderr
    outputs = folder / "batch-gpus"
    gpus = Counter((outputs / f"train.{number}.out").read_text().split(" on GPU ")[1][0] for number in range(8))
    assert gpus == {"0": 4, "1": 4}, "four on each, all at a time"
    assert (outputs / "evaluate.out").read_text() == "0,1 has all of both\n"
