"""`make images`: the pictures of the documentation, each of a real run.

    python docs/images/make.py [NAME ...]

- `job.png`: the page of `init(report=...)`, of examples/external_sort.py on three hosts of tests/hosts, which need
  root, or else on this machine alone
- `view.png`, `view_dark.png`: the live page of a job with failures and actors, while it runs
- `top.png`: the screen of `mpi-runtime top --watch`, of the same job
- `batch.png`: the live page of a batch, while it runs
- `search.png`: the page of a search
- `rl.png`: the live page of a training, while it runs
- `notebook.png`: cells of a notebook with their forms, a bar and an error

Chromium takes the pictures.
"""

from __future__ import annotations

import html
import re
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
RL_PYTHON = ROOT / ".venv-rl" / "bin" / "python"
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


NOTEBOOK = (
    "import time\nimport mpi_runtime as ray\n\nray.init(num_cpus=2, quiet=True)",
    """
@ray.remote
def square(number):
    time.sleep(0.05)
    if number == 97:
        raise ValueError("no square today")
    return number * number

sum(square.map(range(90)))
""",
    "ray.put(list(range(1000)))",
    "ray.get([square.remote(number) for number in range(80, 120)])",
)
NOTEBOOK_STYLE = """<style>
body { font: 14px system-ui, sans-serif; margin: 16px 24px; color: #1c1f24; background: #fff }
pre { font: 13px ui-monospace, monospace; margin: 4px 0; white-space: pre-wrap }
p { font: 12px ui-monospace, monospace; color: #667; margin: 14px 0 2px }
.in { background: #f5f6f8; border: 1px solid #dcdfe5; border-radius: 4px; padding: 8px 10px }
.wrong { background: #fff1f0; padding: 8px 10px }
table { border-collapse: collapse; font-size: 13px; margin: 6px 0 } td, th { padding: 3px 10px; text-align: left }
tr:nth-child(even) { background: #f5f6f8 }
</style>"""


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
            _take(place, f"{address}&theme=dark", "view_dark.png", 1400, 1250)
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


def rl(place: Path) -> None:
    """The live page of a training."""
    python = RL_PYTHON if RL_PYTHON.exists() else Path(sys.executable)
    words = ["rl", "train", "--run", "ES", "--env", "CartPole-v1", "--stop", "{}", "--local-dir", str(place)]

    def has_rows() -> bool:
        return any(len(one.read_text().splitlines()) >= 20 for one in place.rglob("result.json"))

    with start_command([str(python), "-m", "mpi_runtime", *words], cwd=place) as program:
        wait_until(has_rows, 300, "20 iterations")
        (directory,) = [one.parent for one in place.rglob("result.json")]
        with start_command([sys.executable, "-m", "mpi_runtime", "view", "--no-browser", str(directory)]) as server:
            _take(place, f"{server.wait_for_line('http://')}&theme=light", "rl.png", 1400, 1000, hidden="#meta")
            server.kill()
        program.kill()


def notebook(place: Path) -> None:
    """Cells of a notebook, drawn plainly: what they show is what the kernel has sent."""
    import nbformat
    from nbclient import NotebookClient

    cells = [nbformat.v4.new_code_cell(cell.strip()) for cell in NOTEBOOK]
    made = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(made, timeout=100, allow_errors=True, resources={"metadata": {"path": str(place)}}).execute()
    body = ""
    for number, cell in enumerate(made.cells, 1):
        body += f"<p>[{number}]:</p><pre class=in>{html.escape(cell.source)}</pre>"
        for output in cell.outputs:
            data = output.get("data", {})
            text = output.get("text") or data.get("text/plain") or "\n".join(output.get("traceback", []))
            plain = html.escape(re.sub("\x1b\\[[0-9;]*m", "", text))
            wrong = " class=wrong" if output.output_type == "error" else ""
            body += f"<div>{data.get('text/html') or f'<pre{wrong}>{plain}</pre>'}</div>"
    path = place / "notebook.html"
    path.write_text(f'<!doctype html><meta charset="utf-8">{NOTEBOOK_STYLE}<body data-ready="yes">{body}</body>')
    _take(place, path.as_uri(), "notebook.png", 1200, 790)


def _terminal(place: Path, screen: Screen) -> None:
    from rich.console import Console

    console = Console(record=True, width=120, file=open("/dev/null", "w"), force_terminal=True)  # noqa: SIM115
    console.print(screen.picture(console))
    path = place / "top.html"
    drawing = console.export_svg(title="mpi-runtime top --watch")
    path.write_text(f'<!doctype html><body data-ready="yes" style="margin: 0">{drawing}</body>')
    _take(place, path.as_uri(), "top.png", 1220, 532)


def _take(place: Path, address: str, name: str, width: int, height: int, clicked: str = "", hidden: str = "") -> None:
    with Browser(place, width, height) as browser:
        browser.open(address)
        browser.wait_for("document.body.dataset.ready === 'yes'")
        if clicked:
            browser.wait_for(f"document.querySelector('{clicked}')")
            browser.run(f"document.querySelector('{clicked}').click()")
        if clicked:
            browser.wait_for("document.querySelector('.detail .err, .detail table')")
        if hidden:  # a path of this machine
            browser.run(f"document.querySelector('{hidden}').hidden = true")
        time.sleep(3)  # charts and curves fill
        browser.picture(HERE / name)
    print(f"{name}: {(HERE / name).stat().st_size // 1000} kB")


PICTURES: dict[str, Callable[[Path], None]] = {
    "job": job,
    "view": view,
    "batch": batch,
    "search": search,
    "rl": rl,
    "notebook": notebook,
}


def main() -> None:
    """Make the pictures with these names, or all."""
    for name in sys.argv[1:] or PICTURES:
        with tempfile.TemporaryDirectory(dir=HERE) as place:
            PICTURES[name](Path(place))


if __name__ == "__main__":
    main()
