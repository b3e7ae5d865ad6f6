"""The journal: a directory with finished calls of a job, so that a later run need not repeat them.

`files/segments.py` is the format. The head uses `journal.py`; the scheduler decides what is recorded and recalled
(`scheduler/values/journaling.py`).

- `journal.py`: the journal of one job: returns earlier results, records new ones
- `value_files.py`: large values, a file for each
- `earlier_results.py`: results of earlier runs, by key
- `states.py`: saved states of actors, and the calls that each contains
- `writer.py`: writes records in a thread, and flushes them to the disk
- `upkeep.py`: shows, verifies and compacts a journal between runs
"""
