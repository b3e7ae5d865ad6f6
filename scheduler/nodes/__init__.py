"""Nodes: ranks that join, placement groups, and devices or memory that fail.

- `nodes.py`: ranks that join, and the begin of the job
- `groups.py`: placement groups: placed all at once, removed in steps
- `gpu_quarantine.py`: GPUs that fail: suspects and quarantine
- `memory_pressure.py`: hosts with nearly no memory left: which call is ended
- `spilling.py`: full arenas: which values leave, and the answers to waiting clients
"""
