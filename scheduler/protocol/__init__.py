"""The words of the scheduler. Look here for a message between scheduler and processes.

Clients and ranks send events, the scheduler returns effects. Nothing here imports another room.

- `events.py`: events of clients, and the parts of calls: `Call`, `Spec`, `Done`, `Put`
- `rank_events.py`: events of ranks: `RankJoined`, `ExecutorDied`, `Fetched`
- `effects.py`: orders for ranks and messages for clients: `StartExecutor`, `Fetch`, `Ready`
- `amounts.py`: what calls ask for
- `resources.py`: what nodes have, what is free and what is held: arithmetic on amounts
- `questions.py`: questions of clients, each with the type of its answer: `RunningCalls`, `Explain`
- `window_questions.py`: those of programs that look at the job from outside: `Glance`
- `entries.py`: answers: entries of lists, and counts
- `past.py`: answers: what has run
- `series.py`: answers: what programs count in metrics of their own
- `ids.py`: derives ids, so that the same program makes the same ids
- `limits.py`: every limit and threshold, with its unit and its reason
"""
