"""Values: how they become bytes, where large ones lie, and how they move between hosts.

Small values travel in messages. Large ones lie in the arena, one memory file for each host that all its processes map.

- `serialize.py`: values as bytes: pickle, with large buffers beside it
- `code_pickler.py`: the pickler of cloudpickle, with the file names of functions
- `first_version.py`: modules that values of earlier versions name
- `collecting.py`: finds the references inside a value
- `device_arrays.py`: arrays on GPUs inside values
- `process_facts.py`: host and GPUs of this process, for messages about values
- `arena.py`: the arena: its layout, the agent's side, the client's side
- `region.py`: one rank's part of the arena as a mapping: reads, writes, large pages
- `allocator.py`: which extents of a region are in use
- `pinned_extents.py`: extents that a GPU reads and writes itself
- `range_locks.py`: kernel locks that keep pinned pages in place
- `transfer.py`: copies from other hosts, the receiver's side
- `sends.py`: copies to other hosts, the sender's side
- `spill_file.py`: the file of values that have no room in the arena
- `passed_files.py`: parts of values in files, between hosts that share a directory
- `working_dirs.py`: directories as values, for a `runtime_env`
"""
