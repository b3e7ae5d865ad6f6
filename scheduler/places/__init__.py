"""Where a call may run.

- `constraints.py`: nodes and bundles that a call may use: strategies, labels, placement groups
- `gang_places.py`: which member of a gang goes to which node
- `gpu_pool.py`: the GPUs of nodes, and the choice for a call
- `packing.py`: which bundle of a placement group goes to which node
"""
