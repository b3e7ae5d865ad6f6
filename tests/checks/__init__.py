"""Assertions on the whole state of the scheduler, for unit tests and the simulator.

- `executors.py`: executors, grants, queues, nodes, groups, actors
- `objects.py`: calls and objects: references, copies, fetches, lineage
- `circles.py`: records that have left the tables and would stay in memory
"""
