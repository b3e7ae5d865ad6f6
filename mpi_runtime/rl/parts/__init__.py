"""Pure parts of reinforcement learning in numpy: each can be compared with its definition by brute force.

- `spaces.py`: observation and action spaces as shapes
- `episodes.py`: fragments of experience, and where episodes end
- `returns.py`: generalised advantages, n-step returns, V-trace
- `replay.py`: a ring of transitions, and priorities in a sum tree
- `schedules.py`: rates that change during training
- `normalise.py`: running means and deviations that merge
- `nets_numpy.py`: forward passes and distributions without torch
- `weights.py`: a flat vector and the arrays inside it
"""
