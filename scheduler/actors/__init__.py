"""Actors: their creation and end, the order of their calls, their names, their saved states.

- `lives.py`: creates actors, restarts them, ends them with their last handle
- `calls.py`: calls of actors: sent in the order of each caller
- `names.py`: named actors, and clients that request the same name
- `checkpoints.py`: saved states: which calls a state contains, and when it is used
"""
