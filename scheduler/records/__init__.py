"""The state: all tables and records. They decide nothing; only `lifecycle.advance` changes the state of a record.

- `state.py`: all tables of the scheduler, and the effects gathered so far
- `records.py`: calls, actors, executors, ranks, nodes, queues
- `parts.py`: parts of these that most of them lack: a stream, saved states, a charge
- `statistics.py`: what is kept of the past, for people: attempts, kinds of errors, totals
- `lifecycle.py`: states and allowed moves of calls, actors, objects, executors; their stories
- `grant_sources.py`: nodes and bundles as sources of grants, and reservations of them
- `index.py`: finds a node with room without a search
- `timers.py`: alarms, the earliest first
"""
