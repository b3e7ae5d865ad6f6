"""What the scheduler writes for people: notes, history, lists.

- `notes.py`: log lines for the user, each with its level
- `errors.py`: the kinds of errors of calls, with their counts
- `history.py`: the last finished calls, for `timeline()`
- `value_moves.py`: the last copies, writes to disk and levels of arenas, for `timeline()`
- `listing.py`: lists of calls, actors, objects and processes, for `util.state`
"""
