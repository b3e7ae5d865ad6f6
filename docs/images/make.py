"""`make images`: the pictures of the documentation, each of a real run.

    python docs/images/make.py [NAME ...]

- `job.png`: the page of `init(report=...)`, of examples/external_sort.py on three hosts of tests/hosts, which need
  root, or else on this machine alone
- `view.png`: the live page of a job with failures and actors, while it runs
- `batch.png`: the live page of a batch, while it runs
- `search.png`: the page of a search
- `top.png`: the screen of `mpi-runtime top --watch`

Chromium takes the pictures.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from mpi_runtime.cli.top_screen import Screen  # noqa: E402
from mpi_runtime.cli.watching import Watching  # noqa: E402
from tests.browser import Browser  # noqa: E402
from tests.helpers import start_command, start_program, wait_until  # noqa: E402
from tests.hosts.lab import lab, missing  # noqa: E402

HERE = ROOT / "docs" / "images"
EXAMPLE = ROOT / "examples" / "external_sort.py"
SORT = f"""
import functools, runpy, sys
import mpi_runtime

mpi_runtime.init = functools.partial(mpi_runtime.init, num_cpus=4, report=sys.argv[1])
sys.argv = [{str(EXAMPLE)!r}, "--megabytes", "320", "--store", "400"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
SCREEN = """
import random
import time
import mpi_runtime as ray

@ray.remote
def simulate(ligand):
    time.sleep(random.uniform(0.2, 0.6))
    if ligand % 29 == 7:
        raise ValueError(f"no stable pose after 200 steps (ligand {ligand})")
    return bytes(random.randrange(200_000, 1_500_000))

@ray.remote(max_retries=3, retry_exceptions=True)
def featurize(pose):
    time.sleep(random.uniform(0.05, 0.15))
    if random.random() < 0.03:
        raise OSError("the file system does not answer")
    print("read", len(pose), "bytes")
    return len(pose)

@ray.remote
class Model:
    def predict(self, size):
        time.sleep(0.05)
        return size % 7

with ray.init(num_cpus=6, quiet=True):
    models = [Model.options(name=f"model-{number}").remote() for number in range(3)]
    poses = [simulate.remote(ligand) for ligand in range(3000)]
    features = [featurize.options(num_cpus=0.5).remote(pose) for pose in poses]
    scores = [models[number % 3].predict.remote(feature) for number, feature in enumerate(features)]
    print("up", flush=True)
    ray.wait(scores, num_returns=len(scores))
"""
SEARCH = """
import math, random, sys, time
from mpi_runtime import tune

def train(config):
    if config["lr"] > 0.25:
        raise ValueError("loss is nan after 14 steps")
    for step in range(1, 28):
        time.sleep(0.002)
        distance = abs(math.log10(config["lr"]) + 2) + (0.4 if config["optimizer"] == "sgd" else 0)
        loss = 0.04 + 0.1 * distance + config["dropout"] / 9 + (1 + distance) / step
        tune.report({"loss": loss + random.random() / 50})

space = {
    "lr": tune.loguniform(1e-5, 1), "width": tune.choice([64, 128, 256, 512]), "dropout": tune.uniform(0, 0.5),
    "optimizer": tune.choice(["adam", "sgd"]), "weight_decay": tune.loguniform(1e-6, 1e-2),
}
scheduler = tune.schedulers.ASHAScheduler(max_t=27, grace_period=1, reduction_factor=3)
tuning = tune.TuneConfig("loss", "min", num_samples=60, scheduler=scheduler)
run = tune.RunConfig(name="digits", storage_path=sys.argv[1], verbose=0)
tune.Tuner(train, param_space=space, tune_config=tuning, run_config=run).fit().write_html(sys.argv[1] + "/search.html")
"""


def job(place: Path) -> None:
    """The page of a job that has ended."""
    report = place / "job.html"
    if reason := missing():
        print(f"on one host, since {reason}")
        with start_program(SORT, str(report), ranks=4) as program:
            program.finish(timeout=120).expect(0)
    else:
        with lab(3) as hosts, hosts.mpirun(SORT, str(report), ranks={"host1": 2, "host2": 1, "host3": 1}) as program:
            program.finish(timeout=120).expect(0)
    _take(place, report.as_uri(), "job.png", 1200, 1100)


def view(place: Path) -> None:
    """The live page and the screen in the terminal, of one job."""
    with start_program(SCREEN) as program:
        program.wait_for_line("up")
        seen = Watching(program.pid)
        command = [sys.executable, "-m", "mpi_runtime", "view", "--no-browser", str(program.pid)]
        with start_command(command) as server:
            address = server.wait_for_line("http://")
            for _ in range(25):
                seen.sample()
                time.sleep(1)
            opened = "#functions [data-id=simulate] .tog"
            _take(place, f"{address}&theme=light", "view.png", 1400, 1250, opened)
            server.kill()
        _terminal(place, Screen(seen))
        program.kill()


def batch(place: Path) -> None:
    """The live page of a batch."""
    (place / "dock.sh").write_text(
        'sleep $((RANDOM % 3)).$((RANDOM % 9)); [ $(($1 % 31)) != 7 ] || { echo "no pose: $1" >&2; exit 3; }'
    )
    (place / "ligands.txt").write_text("".join(f"bash dock.sh {number}\n" for number in range(400)))
    command = [sys.executable, "-m", "mpi_runtime", "batch", "ligands.txt"]
    with start_command(command, cwd=place) as program:
        directory = place / "batch-ligands"
        wait_until(lambda: (directory / "journal").is_dir(), 60, "the journal")
        time.sleep(20)
        with start_command([sys.executable, "-m", "mpi_runtime", "view", "--no-browser", str(directory)]) as server:
            _take(place, f"{server.wait_for_line('http://')}&theme=light", "batch.png", 1400, 1150, hidden="#meta")
            server.kill()
        program.kill()


def search(place: Path) -> None:
    """The page of a search."""
    with start_program(SEARCH, str(place)) as program:
        program.finish(timeout=120).expect(0)
    _take(place, (place / "search.html").as_uri(), "search.png", 1400, 1150, hidden="#meta")


def _terminal(place: Path, screen: Screen) -> None:
    from rich.console import Console

    console = Console(record=True, width=118, file=open("/dev/null", "w"), force_terminal=True)  # noqa: SIM115
    console.print(screen.picture())
    path = place / "top.html"
    drawing = console.export_svg(title="mpi-runtime top --watch")
    path.write_text(f'<!doctype html><body data-ready="yes" style="margin: 0">{drawing}</body>')
    _take(place, path.as_uri(), "top.png", 1200, 510)


def _take(place: Path, address: str, name: str, width: int, height: int, clicked: str = "", hidden: str = "") -> None:
    with Browser(place, width, height) as browser:
        browser.open(address)
        browser.wait_for("document.body.dataset.ready === 'yes'")
        if clicked:
            browser.wait_for(f"document.querySelector('{clicked}')")
            browser.run(f"document.querySelector('{clicked}').click()")
        if hidden:  # a path of this machine
            browser.run(f"document.querySelector('{hidden}').hidden = true")
        time.sleep(3)  # charts and curves fill
        browser.picture(HERE / name)
    print(f"{name}: {(HERE / name).stat().st_size // 1000} kB")


PICTURES: dict[str, Callable[[Path], None]] = {"job": job, "view": view, "batch": batch, "search": search}


def main() -> None:
    """Make the pictures with these names, or all."""
    for name in sys.argv[1:] or PICTURES:
        with tempfile.TemporaryDirectory(dir=HERE) as place:
            PICTURES[name](Path(place))


if __name__ == "__main__":
    main()
