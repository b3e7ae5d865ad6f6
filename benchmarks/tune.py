"""Search for hyper-parameters here, with Ray Tune, with Optuna, and as plain `f.map`, in one go, on one machine.

    python -m benchmarks.tune                # three rounds, writes docs/performance_tune.md
    python -m benchmarks.tune --quick        # small counts, one round, writes nothing
    python -m benchmarks.tune --only mpi_runtime optuna_memory

The systems take turns, round by round, each in a program of its own, two workers each; the figures are medians. A peer
that is not installed is named and left out. Seconds count from the call that runs the trials to its return, after a
first small experiment has warmed everything up. A trial is a function that returns one number, without files of ours.
"""

import argparse
import datetime
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.launching import ROOT, emit, json_lines, machine

PAGE = ROOT / "docs" / "performance_tune.md"
LIMIT_S = 600.0
WORKERS = 2


def objective(config: dict[str, Any]) -> dict[str, float]:
    """A trial that does nothing."""
    return {"loss": config["x"]}


def reports(config: dict[str, Any]) -> None:
    """A trial that reports, and waits for a verdict each time."""
    from mpi_runtime import tune

    for step in range(config["reports"]):
        tune.report({"loss": float(step)})


def _ours(count: int, trial: Callable[..., Any] = objective, **extra: Any) -> tuple[float, Any]:
    from mpi_runtime import tune

    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        results = tune.Tuner(
            trial,
            param_space={"x": tune.uniform(0, 1), "reports": extra.pop("reports", 1)},
            tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=count),
            run_config=tune.RunConfig(name="bench", storage_path=folder, verbose=0, **extra),
        ).fit()
        assert len(results) == count, f"{len(results)} trials, not {count}"
        seconds = time.perf_counter() - started
        return seconds, _restored(Path(folder) / "bench", trial) if extra.get("stop") is None else None


def _restored(folder: Path, trial: Callable[..., Any]) -> float:
    from mpi_runtime import tune

    started = time.perf_counter()
    tune.Tuner.restore(str(folder), trial).fit()
    return time.perf_counter() - started


def with_mpi_runtime(count: int) -> None:
    """Ours: trivial trials, and opening their experiment again; reports with a verdict."""
    import mpi_runtime

    mpi_runtime.init(num_cpus=WORKERS)
    _ours(20)
    seconds, _ = _ours(count)
    emit(work="trivial trials", value=count / seconds, unit="/s")
    _, again = _ours(10 * count)
    emit(work=f"resume of {10 * count} trials that have ended", value=again, unit="s")
    each = max(10, count // 4)
    stop = {"training_iteration": each + 1}  # never reached, but each report has to be decided about
    seconds, _ = _ours(WORKERS, reports, reports=each, stop=stop)
    emit(work="a report with verdict, one of 2 trials", value=seconds / each * 1e3, unit="ms")
    mpi_runtime.shutdown()


def with_map(count: int) -> None:
    """The same function, mapped: nothing searches, and nothing is written."""
    import mpi_runtime

    mpi_runtime.init(num_cpus=WORKERS)
    function = mpi_runtime.remote(objective)
    function.map([{"x": 0.5}] * 100).get()
    started = time.perf_counter()
    function.map([{"x": 0.5}] * count).get()
    emit(work="trivial trials", value=count / (time.perf_counter() - started), unit="/s")
    mpi_runtime.shutdown()


def sleeps(config: dict[str, Any]) -> None:
    """A trial that reports ten times a second."""
    from mpi_runtime import tune

    for step in range(config["reports"]):
        time.sleep(0.1)
        tune.report({"loss": float(step)})


def with_many(count: int) -> None:
    """Ours: 96 trials at a time, each with ten reports a second, all of which are decided about.

    `count` is how many each of them makes: 1 000, in 100 seconds at best. Ray's documentation has 169 seconds for the
    same, on 96 processors.
    """
    import mpi_runtime

    mpi_runtime.init(num_cpus=96)
    mpi_runtime.remote(objective).map([{"x": 0.5}] * 960).get()  # the processes are there
    stop = {"training_iteration": count + 1}
    seconds, _ = _ours(96, sleeps, reports=count, stop=stop)
    emit(work=f"96 trials with {count} reports each, ten a second ({count / 10:g} s at best)", value=seconds, unit="s")
    mpi_runtime.shutdown()


def with_study(count: int) -> None:
    """The pure machine alone, in virtual time: what an event costs as trials become many, and ASHA."""
    from mpi_runtime import tune

    def steps(config: dict[str, Any], checkpoint: Any) -> Any:
        for epoch in range(checkpoint or 0, 81):
            yield 1.0 + config["x"], {"loss": config["x"] / (epoch + 1)}, epoch + 1

    def asha(trials: int, slots: int) -> tuple[float, int]:
        config = tune.TuneConfig(
            metric="loss", mode="min", num_samples=trials, scheduler=tune.schedulers.ASHAScheduler(max_t=81)
        )
        started = time.process_time()
        done = tune.simulate(steps, param_space={"x": tune.uniform(0, 1)}, tune_config=config, slots=slots)
        return time.process_time() - started, done.reports + len(done.trials)

    asha(100, 100)
    seconds, _ = asha(count * 10, 1000)
    emit(work=f"simulate, ASHA, {count * 10} trials on 1 000 slots (CPU)", value=seconds, unit="s")
    # In turns, since the machine is not the same from second to second; a ratio of costs of one event.
    parts = [(asha(count, 100), asha(count * 100, 100)) for _ in range(3)]
    few, many = (sum(one[place][0] for one in parts) / sum(one[place][1] for one in parts) for place in (0, 1))
    emit(work=f"an event with {count * 100} trials against one with {count} (CPU)", value=many / few, unit="x")


def with_ray(count: int) -> None:
    """Ray Tune, with its processes reused."""
    import ray
    from ray import tune

    ray.init(num_cpus=WORKERS, log_to_driver=False, include_dashboard=False)

    def go(count: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            tune.Tuner(
                objective,
                param_space={"x": tune.uniform(0, 1)},
                tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=count, reuse_actors=True),
                run_config=tune.RunConfig(storage_path=folder, verbose=0),
            ).fit()
            return time.perf_counter() - started

    go(4)
    few = max(4, min(count, 20))  # each takes a second and more where the cores are busy
    emit(work="trivial trials", value=few / go(few), unit="/s")
    ray.shutdown()


def _optuna(count: int, storage: Callable[[Path], Any]) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        study = optuna.create_study(storage=storage(Path(folder)), sampler=optuna.samplers.RandomSampler(seed=0))

        def trial(trial: Any) -> float:
            return objective({"x": trial.suggest_float("x", 0, 1)})["loss"]

        study.optimize(trial, n_trials=5)
        started = time.perf_counter()
        study.optimize(trial, n_trials=count)
        emit(work="trivial trials", value=count / (time.perf_counter() - started), unit="/s")


def with_optuna_memory(count: int) -> None:
    """Optuna in one process, nothing written."""
    _optuna(count, lambda folder: None)


def with_optuna_journal(count: int) -> None:
    """Optuna with a journal file, as several hosts would share it."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    _optuna(count, lambda folder: JournalStorage(JournalFileBackend(str(folder / "journal.log"))))


def with_optuna_sqlite(count: int) -> None:
    """Optuna with SQLite."""
    _optuna(min(count, 200), lambda folder: f"sqlite:///{folder}/study.db")


SYSTEMS: dict[str, tuple[str, Callable[[int], None]]] = {
    "mpi_runtime": ("mpi_runtime", with_mpi_runtime),
    "study": ("mpi_runtime", with_study),
    "many": ("mpi_runtime", with_many),
    "map": ("mpi_runtime", with_map),
    "ray": ("ray", with_ray),
    "optuna_memory": ("optuna", with_optuna_memory),
    "optuna_journal": ("optuna", with_optuna_journal),
    "optuna_sqlite": ("optuna", with_optuna_sqlite),
}
"""By name: what must be installed, and what is run."""


def measured(names: list[str], rounds: int, count: int) -> tuple[dict[tuple[str, str, str], list[float]], list[str]]:
    """Let the systems take turns. By system, work and unit the figure of each round; and what went wrong."""
    figures: dict[tuple[str, str, str], list[float]] = {}
    problems = []
    for _ in range(rounds):
        for name in names:
            command = [sys.executable, "-m", "benchmarks.tune", "--one", name, "--count", str(count)]
            lines, problem = json_lines(command, LIMIT_S)
            if problem:
                problems.append(f"{name}: {problem}")
            for line in lines:
                figures.setdefault((name, line["work"], line["unit"]), []).append(line["value"])
                print(json.dumps({"system": name, **line}), flush=True)
    return figures, problems


def page(figures: dict[tuple[str, str, str], list[float]], problems: list[str], rounds: int) -> str:
    """The figures as a page of the documentation."""
    lines = [
        "# Performance of search\n",
        "Written by `python -m benchmarks.tune`; do not edit.\n",
        f"{datetime.date.today()}, {machine()}. Medians of {rounds} rounds in which the systems took turns, each in a "
        "program of its own; two workers each, Optuna in one process.\n",
        "| work | system | figure |\n| --- | --- | ---: |",
    ]
    for (name, work, unit), values in sorted(figures.items(), key=lambda item: item[0][1] != "trivial trials"):
        lines.append(f"| {work} | {name} | {statistics.median(values):,.2f} {unit} |")
    if problems:
        lines.append("\nNot measured, or not to the end:\n")
        lines += [f"- {problem}" for problem in problems]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tune", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small counts, one round, write nothing")
    parser.add_argument("--only", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS), help="these systems")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, help="trials of one measurement")
    parser.add_argument("--one", choices=list(SYSTEMS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    count = arguments.count or (100 if arguments.quick else 1000)
    if arguments.one:
        SYSTEMS[arguments.one][1](count)
        return
    problems = []
    names = []
    for name in arguments.only:
        if importlib.util.find_spec(SYSTEMS[name][0]) is None:
            problems.append(f"{name}: {SYSTEMS[name][0]} is not installed")
        else:
            names.append(name)
    rounds = 1 if arguments.quick else arguments.rounds
    figures, wrong = measured(names, rounds, count)
    text = page(figures, problems + wrong, rounds)
    print(text)
    if not arguments.quick and arguments.only == list(SYSTEMS):
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
