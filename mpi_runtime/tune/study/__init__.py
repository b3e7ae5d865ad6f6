"""The decisions of an experiment: pure, without a clock and without the runtime.

The same seed and events give the same orders, so a journal of events restores a study.

- `study.py`: the state machine: events in, orders out
- `events.py`: the events and orders of a study
- `settings.py`: the arguments of an experiment: `TuneConfig`, `RunConfig`
- `stoppers.py`: conditions that end a trial or the whole experiment
- `callback.py`: the interface of callbacks
- `virtual_time.py`: `simulate`: an experiment in virtual time
"""
