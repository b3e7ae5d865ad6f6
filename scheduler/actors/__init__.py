"""Actors: their creation and end, the order of their calls, their names, their saved states.

- `lifetimes.py`: creates actors, restarts them, ends them with their last handle; their names
- `calls.py`: calls of actors: sent in the order of each caller
- `checkpoints.py`: saved states: which calls a state contains, and when it is used
"""
