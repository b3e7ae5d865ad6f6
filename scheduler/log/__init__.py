"""What the scheduler writes for people: notes, history, lists.

- `notes.py`: log lines for the user, each with its level
- `history.py`: the last finished calls, for `timeline()`
- `listing.py`: lists of calls, actors, objects and processes, for `util.state`
"""
