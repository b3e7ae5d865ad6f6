"""Runs experiments, in the program that calls `fit`. It decides nothing: each event goes to a study (`study/`).

An experiment has a directory with a journal, from which a later run continues.

- `tuner.py`: `Tuner`: creates, runs and restores experiments
- `driver.py`: performs the orders of a study: starts trials as tasks, receives their reports
- `trial_calls.py`: the function of trials with its options, and one run of it
- `journal.py`: the journal of an experiment: every event of its study
- `resuming.py`: replays the journal into a new study, and decides where trials continue
- `kept_checkpoints.py`: which checkpoints stay: the best, and always the last
- `policies.py`: files of the schedules that population based training finds
- `states.py`: states of searchers and callbacks, in files beside the journal
- `results.py`: `ResultGrid`, with a `Result` for each trial
- `several.py`: the results of several experiments as one
- `journal_view.py`: an experiment as its journal shows it, for the live page
- `timeout.py`: `TimeoutStopper`: the stopper with a clock
- `by_name.py`: `create_scheduler`, `create_searcher`: schedulers and searchers by name
- `old_names.py`: Ray Tune's earlier `run`, `run_experiments`, `Experiment`, `ExperimentAnalysis`
"""
