"""What the scheduler writes for people: notes, errors, history.

- `notes.py`: log lines for the user, each with its level
- `errors.py`: the kinds of errors of calls, with their counts
- `descriptions.py`: what lists say of actors, also of those that have ended
- `history.py`: the last finished calls, for `timeline()`
- `value_moves.py`: the last copies, writes to disk and levels of arenas, for `timeline()`
"""
