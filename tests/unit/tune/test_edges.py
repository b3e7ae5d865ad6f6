"""What is odd in reports, spaces and experiments: schedulers, searchers and stoppers of search, one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime import tune
from mpi_runtime.errors import JournalError
from mpi_runtime.tune.experiment import journal
from mpi_runtime.tune.experiment.kept_checkpoints import KeptCheckpoints
from mpi_runtime.tune.experiment.resuming import resumed
from mpi_runtime.tune.schedulers import (
    PB2,
    ASHAScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    TrialScheduler,
)
from mpi_runtime.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher, TuneBOHB
from mpi_runtime.tune.study.events import Ended, Event, Failed, Order, Reported, Revived, Sized, Start
from mpi_runtime.tune.study.settings import CheckpointConfig, ResumeConfig
from mpi_runtime.tune.study.stoppers import ExperimentPlateauStopper, MaximumIterationStopper, TrialPlateauStopper
from mpi_runtime.tune.study.study import Study
from mpi_runtime.tune.study.virtual_time import _Simulation
from mpi_runtime.tune.trial import Trial
from mpi_runtime.tune.trials.checkpoint import Saved

NAN = math.nan

SCHEDULERS: dict[str, Callable[[], TrialScheduler | None]] = {
    "none": lambda: None,
    "asha": lambda: ASHAScheduler(max_t=9, reduction_factor=3),
    "asha, promotion": lambda: ASHAScheduler(max_t=9, reduction_factor=3, brackets=2, type="promotion"),
    "hyperband": lambda: HyperBandScheduler(max_t=9),
    "bohb": lambda: HyperBandForBOHB(max_t=9),
    "median": lambda: MedianStoppingRule("training_iteration", grace_period=2),
    "median, soft": lambda: MedianStoppingRule("training_iteration", grace_period=2, hard_stop=False),
    "pbt": lambda: PopulationBasedTraining(
        "training_iteration", perturbation_interval=2, hyperparam_mutations={"x": tune.uniform(0, 1)}
    ),
    "pb2": lambda: PB2("training_iteration", perturbation_interval=2, hyperparam_bounds={"x": [0, 1]}),
}
SEARCHERS: dict[str, Callable[[], Searcher]] = {
    "random": BasicVariantGenerator,
    "limited": lambda: ConcurrencyLimiter(BasicVariantGenerator(), 3),
    "bohb": TuneBOHB,
    "repeated": lambda: Repeater(TuneBOHB(), 3),
}
each_scheduler = pytest.mark.parametrize("scheduler", SCHEDULERS.values(), ids=SCHEDULERS)


def steps_of(value: Callable[[dict[str, Any], int], float], epochs: int = 9) -> Any:
    def steps(config: dict[str, Any], checkpoint: Any) -> Iterator[tuple[float, dict[str, Any], Any]]:
        for epoch in range(0 if checkpoint is None else checkpoint.number, epochs):
            saved = Saved(epoch + 1, str(epoch + 1))
            yield 1 + config["x"] / 7, {"score": value(config, epoch)}, saved

    return steps


def simulated(steps: Any, scheduler: TrialScheduler | None, mode: str = "max", count: int = 12, **more: Any) -> Any:
    run = tune.RunConfig(stop=more.pop("stop", None), failure_config=more.pop("failures", tune.FailureConfig()))
    slots = more.pop("slots", 3)
    config = tune.TuneConfig("score", mode, scheduler=scheduler, num_samples=count, **more)
    space = {"x": tune.uniform(0, 1)}
    return tune.simulate(steps, param_space=space, tune_config=config, run_config=run, slots=slots)


def outcome(done: Any) -> list[tuple[Any, ...]]:
    return [(one.config, one.status, one.iteration, one.failures) for one in done.trials]


# --- every scheduler ---


@each_scheduler
@pytest.mark.parametrize(
    "value",
    [
        lambda c, e: NAN,
        lambda c, e: 1.0,
        lambda c, e: math.inf,
        lambda c, e: -math.inf,
        lambda c, e: NAN if e else c["x"],
    ],
    ids=["no number", "ties", "infinite", "minus infinity", "no number later"],
)
def test_odd_values_end_every_experiment(scheduler: Any, value: Any) -> None:
    done = simulated(steps_of(value), scheduler())
    assert [one.status for one in done.trials] == [Trial.TERMINATED] * 12
    assert max(one.iteration for one in done.trials) >= 1


@each_scheduler
def test_the_least_of_minus_x_is_the_most_of_x(scheduler: Any) -> None:
    most = simulated(steps_of(lambda c, e: c["x"] * (e + 1)), scheduler())
    least = simulated(steps_of(lambda c, e: -c["x"] * (e + 1)), scheduler(), "min")
    assert outcome(most) == outcome(least)
    assert [one.best_result["score"] for one in most.trials] == [-one.best_result["score"] for one in least.trials]


@each_scheduler
@pytest.mark.parametrize("slots", [1, 5])
def test_one_trial_alone_comes_to_its_end(scheduler: Any, slots: int) -> None:
    done = simulated(steps_of(lambda c, e: c["x"]), scheduler(), count=1, slots=slots)
    assert [one.status for one in done.trials] == [Trial.TERMINATED]
    assert done.trials[0].iteration == (
        1 if isinstance(scheduler(), ASHAScheduler) and scheduler().needs_checkpoints else 9
    )


@each_scheduler
def test_trials_that_never_report_and_trials_that_fail_at_once_are_not_waited_for(scheduler: Any) -> None:
    def steps(config: dict[str, Any], checkpoint: Any) -> Iterator[tuple[float, dict[str, Any], Any]]:
        kind = int(config["x"] * 1000) % 3
        if kind == 0:
            return
        if kind == 1:
            raise OSError("broken")
        yield from steps_of(lambda c, e: c["x"])(config, checkpoint)

    done = simulated(steps, scheduler(), count=20)
    kinds = [int(one.config["x"] * 1000) % 3 for one in done.trials]
    if scheduler() is None or not scheduler().needs_checkpoints:
        assert [one.status == "ERROR" for one in done.trials] == [kind == 1 for kind in kinds]
    assert {one.status for one in done.trials} == {Trial.TERMINATED, "ERROR"}


@each_scheduler
def test_a_searcher_without_a_single_trial(scheduler: Any) -> None:
    class Nothing(Searcher):
        def suggest(self, trial_id: str) -> str:
            return self.FINISHED

    done = simulated(steps_of(lambda c, e: 1.0), scheduler(), search_alg=Nothing())
    assert (done.trials, done.reports, done.seconds) == ([], 0, 0.0)


def test_a_trial_whose_reports_are_out_of_order_fails_with_both_values() -> None:
    def steps(config: dict[str, Any], checkpoint: Any) -> Iterator[tuple[float, dict[str, Any], Any]]:
        for time in (1, 5, 3):
            yield 1.0, {"score": 1.0, "t": time}, None

    done = simulated(steps, ASHAScheduler("t", max_t=9), count=1)
    assert "t of trial 00000 went from 5.0 to 3.0" in str(done.trials[0].error)


@pytest.mark.parametrize("where", ["suggest", "on_trial_result", "on_trial_complete"])
def test_an_error_of_a_searcher_ends_the_experiment_and_is_seen(where: str) -> None:
    class Broken(BasicVariantGenerator):
        pass

    def fail(*arguments: Any, **more: Any) -> None:
        raise ArithmeticError("the searcher is broken")

    setattr(Broken, where, fail)
    with pytest.raises(ArithmeticError, match="the searcher is broken"):
        simulated(steps_of(lambda c, e: 1.0), None, search_alg=Broken())


# --- replays ---


class Journaled(_Simulation):
    """A simulation that writes the journal of its study, as the driver does."""

    def __init__(self, study: Study, steps: Any, log: journal.Journal | None) -> None:
        super().__init__(study, steps)
        self.told: list[tuple[Event, float, list[Order]]] = []
        handle, begin, known = study.handle, study.begin, len(study.trials)

        def write(event: Event, now: float, orders: list[Order]) -> list[Order]:
            nonlocal known
            self.told.append((event, now, orders))
            configs = {name: one.config for name, one in list(study.trials.items())[known:]}
            known = len(study.trials)
            if log is not None:
                log.add(now, event, {name: one.status for name, one in study.changed.items()}, configs)
            study.changed = {}
            return orders

        study.begin = lambda now: write(Sized(study.slots), now, begin(now))  # type: ignore[method-assign]
        study.handle = lambda event, now: write(event, now, handle(event, now))  # type: ignore[method-assign]


def made(scheduler: Any, searcher: Any, slots: int, stop: Any = None) -> Study:
    config = tune.TuneConfig("score", "max", scheduler=scheduler(), search_alg=searcher(), num_samples=10, seed=3)
    return Study({"x": tune.uniform(0, 1)}, config, tune.RunConfig(stop=stop), slots)


def replayed(study: Study, lines: list[journal.Line]) -> float:
    now = 0.0
    for line in lines:
        now = line.now
        study.begin(now) if line.number == 0 else study.handle(line.event, now)
    return now


@each_scheduler
@pytest.mark.parametrize("searcher", SEARCHERS.values(), ids=SEARCHERS)
def test_a_replayed_journal_gives_the_same_orders(scheduler: Any, searcher: Any, tmp_path: Path) -> None:
    steps = steps_of(lambda c, e: c["x"] * (e + 1))
    log = journal.Journal(tmp_path, 0, journal.Header())
    first = Journaled(made(scheduler, searcher, 3), steps, log)
    first.run()
    log.close()
    again = made(scheduler, searcher, 3)
    lines = list(journal.read(tmp_path))
    assert len(lines) == len(first.told) > 20
    for line, (event, _, orders) in zip(lines, first.told, strict=True):
        got = again.begin(line.now) if line.number == 0 else again.handle(line.event, line.now)
        assert got == orders, event
    assert outcome_of(again) == outcome_of(first._study)


def outcome_of(study: Study) -> list[tuple[Any, ...]]:
    return [(one.config, one.status, one.iteration, one.last_result.get("score")) for one in study.trials.values()]


@each_scheduler
def test_a_search_that_is_cut_at_any_line_ends_the_same(scheduler: Any, tmp_path: Path) -> None:
    """One slot, so that no trial overtakes another; any line of the journal may be the last: every third is tried."""
    steps = steps_of(lambda c, e: c["x"] * (e + 1))
    for epoch in range(1, 10):
        (tmp_path / str(epoch)).mkdir()  # where the checkpoints would be
    log = journal.Journal(tmp_path, 0, journal.Header())
    whole = Journaled(made(scheduler, BasicVariantGenerator, 1), steps, log)
    whole.run()
    log.close()
    lines = list(journal.read(tmp_path))
    for cut in range(1, len(lines), 3):
        study = made(scheduler, BasicVariantGenerator, 1)
        now = replayed(study, lines[:cut])
        simulation = _Simulation(study, steps)
        orders: list[Order] = []
        for event in resumed(study, KeptCheckpoints(CheckpointConfig(), tmp_path), 1, ResumeConfig()):
            orders += study.handle(event, now)
        simulation.to_the_end(orders, now)
        assert outcome_of(study) == outcome_of(whole._study), cut


@each_scheduler
@pytest.mark.parametrize("restart", [False, True])
def test_a_resumed_search_starts_no_trial_twice(scheduler: Any, restart: bool, tmp_path: Path) -> None:
    """Also if slots are more or fewer now, checkpoints are gone, and failed trials are tried again."""

    def fails(config: dict[str, Any], epoch: int) -> float:
        if epoch == 4 and config["x"] > 0.5:
            raise ArithmeticError("on purpose")
        return float(config["x"] * (epoch + 1))

    for epoch in range(1, 10, 2):
        (tmp_path / str(epoch)).mkdir()  # the others are lost
    log = journal.Journal(tmp_path, 0, journal.Header())
    Journaled(made(scheduler, BasicVariantGenerator, 3), steps_of(fails), log).run()
    log.close()
    lines = list(journal.read(tmp_path))
    again = ResumeConfig(errored=ResumeConfig.ResumeType.RESTART if restart else ResumeConfig.ResumeType.RESUME)
    for cut in range(1, len(lines), 3):
        for slots in (1, 3, 5):
            study = made(scheduler, BasicVariantGenerator, 3)
            now = replayed(study, lines[:cut])
            started = []
            for event in resumed(study, KeptCheckpoints(CheckpointConfig(), tmp_path), slots, again):
                started += [one.trial_id for one in study.handle(event, now) if isinstance(one, Start)]
            running = [one.trial_id for one in study.trials.values() if one.status == Trial.RUNNING]
            assert sorted(started) == sorted(running), (cut, slots)


def test_a_journal_that_ends_at_any_byte_has_the_lines_that_are_whole(tmp_path: Path) -> None:
    log = journal.Journal(tmp_path / "whole", 0, journal.Header(metric="score"))
    ends = []
    begins = log.path.stat().st_size

    class Sizes:
        def add(self, *arguments: Any) -> None:
            log.add(*arguments)
            ends.append(log.path.stat().st_size)

    Journaled(made(SCHEDULERS["asha"], BasicVariantGenerator, 2), steps_of(lambda c, e: c["x"], 3), Sizes()).run()  # type: ignore[arg-type]
    log.close()
    lines = list(journal.read(tmp_path / "whole"))
    data = log.path.read_bytes()
    assert len(lines) == len(ends) > 15
    assert ends[-1] == len(data)
    cut = tmp_path / "cut"
    cut.mkdir()
    for length in range(begins, len(data) + 1):
        (cut / log.path.name).write_bytes(data[:length])
        assert len(list(journal.read(cut))) == sum(end <= length for end in ends), length
    for place in range(begins, len(data), 7):  # a byte that is wrong, in the midst
        wrong = bytearray(data)
        wrong[place] ^= 0x5A
        (cut / log.path.name).write_bytes(wrong)
        found = list(journal.read(cut))
        assert found == lines[: len(found)]
        assert len(found) == sum(end <= place for end in ends), place


# --- names of reported values ---


def test_a_name_with_a_stroke_is_a_value_inside_as_in_ray() -> None:
    def steps(config: dict[str, Any], checkpoint: Any) -> Iterator[tuple[float, dict[str, Any], Any]]:
        for epoch in range(1, 20):
            yield 1.0, {"eval": {"loss": config["x"] / epoch, "epoch": epoch}}, None

    scheduler = ASHAScheduler("eval/epoch", max_t=9, reduction_factor=3)
    config = tune.TuneConfig("eval/loss", "min", scheduler=scheduler, search_alg=TuneBOHB(), num_samples=6)
    run = tune.RunConfig(stop={"eval/epoch": 7})
    done = tune.simulate(steps, param_space={"x": tune.uniform(0, 1)}, tune_config=config, run_config=run)
    assert max(one.iteration for one in done.trials) == 7
    assert done.trials[0].best_result["eval/loss"] == done.trials[0].config["x"] / 7


# --- stoppers ---


def test_a_plateau_counts_where_the_threshold_was_reached_as_in_ray() -> None:
    for mode, good, bad in (("min", 0.1, 0.9), ("max", 0.9, 0.1)):
        stopper = TrialPlateauStopper("v", num_results=2, grace_period=2, metric_threshold=0.5, mode=mode)
        assert [stopper("good", {"v": good}) for _ in range(3)] == [False, True, True]
        assert [stopper("bad", {"v": bad}) for _ in range(3)] == [False, False, False]


@pytest.mark.parametrize(("patience", "reports"), [(0, 3), (1, 3), (2, 4), (3, 5)])
def test_patience_counts_reports_that_find_a_plateau_as_in_ray(patience: int, reports: int) -> None:
    stopper = ExperimentPlateauStopper("v", top=3, patience=patience)
    answers = [stopper("00000", {"v": 1.0}) for _ in range(6)]
    assert answers.index(True) + 1 == reports
    assert stopper.stop_all()


@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf])
def test_what_is_not_finite_is_no_plateau(value: float) -> None:
    trial, experiment = TrialPlateauStopper("v", num_results=2), ExperimentPlateauStopper("v", top=2)
    for _ in range(6):
        assert not trial("00000", {"v": value})
        assert not experiment("00000", {"v": value})


def test_a_stopper_begins_anew_with_each_experiment() -> None:
    stop = TrialPlateauStopper("score", std=0.0, num_results=3, grace_period=3)
    first, second = (simulated(steps_of(lambda c, e: 1.0), None, stop=stop) for _ in range(2))
    assert [one.iteration for one in first.trials] == [one.iteration for one in second.trials] == [3] * 12


def test_reports_are_counted_by_the_trial_and_not_by_the_stopper() -> None:
    stopper = MaximumIterationStopper(3)
    assert [stopper("00000", {"training_iteration": at}) for at in (1, 2, 2, 3)] == [False, False, False, True]


# --- searchers ---


def test_a_limiter_that_was_left_in_the_midst_begins_anew() -> None:
    limiter = ConcurrencyLimiter(BasicVariantGenerator(), 1)
    limiter.set_search_properties("score", "max", {"x": 1}, seed=0)
    assert limiter.suggest("00000") == {"x": 1}
    assert limiter.suggest("00001") is None
    limiter.set_search_properties("score", "max", {"x": 1}, seed=0)
    assert limiter.suggest("00000") == {"x": 1}


class Told(Searcher):
    def __init__(self) -> None:
        super().__init__("v", "max")
        self.told: list[Any] = []

    def suggest(self, trial_id: str) -> dict[str, Any]:
        return {"n": trial_id}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.told.append((trial_id, None if result is None else result["v"], error))


@pytest.mark.parametrize(
    ("values", "mean"), [([1.0, NAN, 3.0], 2.0), ([NAN, NAN, NAN], NAN), ([1.0, None, 5.0], 3.0), ([None] * 3, None)]
)
def test_a_repetition_that_is_no_number_is_left_out_of_the_mean(values: list[Any], mean: Any) -> None:
    told = Told()
    repeater = Repeater(told, 3)
    for number in range(3):
        repeater.suggest(f"{number:05d}")
    for number, value in enumerate(values):
        result = None if value is None else {"v": value}
        repeater.on_trial_complete(f"{number:05d}", result, value is None)
    ((_, found, error),) = told.told
    assert repr(found) == repr(mean)
    assert error == (mean is None)


def optuna_search() -> Searcher:
    pytest.importorskip("optuna")
    return tune.search.OptunaSearch()


@pytest.mark.parametrize(
    "searcher", [lambda: Repeater(TuneBOHB(), 2), TuneBOHB, lambda: ConcurrencyLimiter(Told(), 1), optuna_search]
)
def test_a_trial_that_is_tried_again_ends_twice_and_its_searcher_hears_of_the_first(searcher: Any) -> None:
    study = Study({"x": tune.uniform(0, 1)}, tune.TuneConfig("v", "max", searcher()), tune.RunConfig())
    study.begin(0.0)
    study.handle(Failed("00000", "oops"), 1.0)
    study.handle(Revived("00000"), 2.0)
    study.handle(Reported("00000", {"v": 1.0}), 3.0)
    study.handle(Ended("00000"), 4.0)
    assert study.trials["00000"].status == Trial.TERMINATED


@pytest.mark.parametrize("mode", ["min", "max"])
def test_optuna_is_asked_as_if_it_were_used_plainly(mode: str) -> None:
    """One trial at a time: the same values as `study.optimize` of Optuna draws, to the last one."""
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sign = 1 if mode == "min" else -1

    def value(x: float, n: int, kind: str) -> float:
        return sign * ((x - 0.3) ** 2 + 0.1 * abs(n - 4) + (kind == "a"))

    plain: list[dict[str, Any]] = []

    def objective(trial: Any) -> float:
        x, n = trial.suggest_float("x", 1e-3, 1.0, log=True), trial.suggest_int("n", 1, 8)
        kind = "abc"[trial.suggest_categorical("kind", [0, 1, 2])]
        plain.append({"x": x, "n": n, "kind": kind})
        return sign * value(x, n, kind)

    optuna.create_study(sampler=optuna.samplers.TPESampler(seed=5)).optimize(objective, n_trials=40)

    def steps(config: dict[str, Any], checkpoint: Any) -> Iterator[tuple[float, dict[str, Any], Any]]:
        yield 1.0, {"v": value(**config)}, None

    space = {"x": tune.loguniform(1e-3, 1.0), "n": tune.randint(1, 9), "kind": tune.choice(["a", "b", "c"])}
    config = tune.TuneConfig("v", mode, search_alg=tune.search.OptunaSearch(), num_samples=40, seed=5)
    done = tune.simulate(steps, param_space=space, tune_config=config)
    assert [one.config for one in done.trials] == plain


# --- revived, ended and changed trials ---


def test_a_trial_that_runs_again_is_counted_once_at_a_rung() -> None:
    scheduler = ASHAScheduler(max_t=9, reduction_factor=3, type="promotion")
    one = Trial("00000", 0, {})
    scheduler.on_trial_add(one)
    assert scheduler.on_trial_result(one, 1.0, 5.0) == {"00000": "PAUSE"}
    scheduler.on_trial_end(one)
    scheduler.on_trial_add(one)
    assert scheduler.on_trial_result(one, 2.0, 5.0) == {"00000": "CONTINUE"}, "it was at the rung at 1 before"
    assert scheduler.on_trial_result(one, 3.0, 5.0) == {"00000": "PAUSE"}


def population(count: int, **more: Any) -> tuple[PopulationBasedTraining, list[Trial]]:
    scheduler = PopulationBasedTraining("t", perturbation_interval=2, hyperparam_mutations={"lr": [1, 2, 3]}, **more)
    trials = [Trial(f"{n:05d}", n, {"lr": 2}, point=f"of {n}") for n in range(count)]
    for one in trials:
        scheduler.on_trial_add(one)
    return scheduler, trials


def test_nobody_goes_on_from_the_end_of_a_trial_that_has_ended() -> None:
    scheduler, trials = population(4)
    for one in trials[1:]:
        scheduler.on_trial_result(one, 2.0, float(one.index))
    scheduler.on_trial_end(trials[3])
    exploit = scheduler.on_trial_result(trials[0], 2.0, -1.0)["00000"]
    assert not isinstance(exploit, str)
    assert exploit.source is trials[2]


def test_the_next_interval_of_a_trial_counts_from_where_it_goes_on() -> None:
    scheduler, trials = population(2)
    scheduler.on_trial_result(trials[1], 20.0, 9.0)
    assert not isinstance(scheduler.on_trial_result(trials[0], 2.0, 1.0)["00000"], str)
    assert scheduler.on_trial_result(trials[0], 21.0, 1.0) == {}, "it is at 20 now"
    assert scheduler.on_trial_result(trials[0], 22.0, 10.0) == {"00000": "YIELD"}


def test_two_trials_do_not_set_back_each_other_for_ever() -> None:
    scheduler, trials = population(2)
    scheduler.on_trial_result(trials[1], 2.0, 9.0)
    assert not isinstance(scheduler.on_trial_result(trials[0], 20.0, 1.0)["00000"], str)
    assert scheduler.on_trial_result(trials[0], 4.0, 1.0) == {}, "it was set back to 2, and was compared at 20"
    assert not isinstance(scheduler.on_trial_result(trials[0], 22.0, 1.0)["00000"], str)


def test_a_function_that_explores_must_return_a_configuration() -> None:
    scheduler, trials = population(2, custom_explore_fn=lambda config: None)
    scheduler.on_trial_result(trials[1], 2.0, 9.0)
    with pytest.raises(TypeError, match="custom_explore_fn returned None"):
        scheduler.on_trial_result(trials[0], 2.0, 1.0)


def test_bounds_without_room_are_refused() -> None:
    with pytest.raises(ValueError, match=r"hyperparam_bounds\['lr'\] is 1 to 1"):
        PB2("t", hyperparam_bounds={"lr": [1, 1]})


def test_no_journal_is_no_experiment(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="has no experiment"):
        list(journal.read(tmp_path))
