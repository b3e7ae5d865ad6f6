"""The core: what a job is. Nothing in it is public but through the faces, and libraries use `extend`.

From top to bottom; a module imports its own floor and those below.

- `api/`: the public functions: `init`, `remote`, `get`, `put`, `wait`, `cancel`
- `calls/`: remote functions, actor classes and handles, options, arguments
- `driver/`: starts and ends the processes of this program
- `head/`: rank 0: runs the scheduler and carries out its effects
- `rank/`: the other ranks, and what all ranks share
- `agent/`: the node agent in every rank: executors, memory, GPUs of its host
- `executor/`: the processes of user code, and the forkserver that makes them
- `gangs/`: MPI worlds made of executors: how they start, and what members do
- `client/`: the connection of a driver or executor to its rank: references, values, waits
- `objects/`: values as bytes: serialisation, the arena, transfers, files of spilled values
- `transport/`: messages, their codec, sockets, MPI
- `journal/`: finished calls on disk
- `host/`: the machine, the launcher, starting further processes
- `published.py`: public paths of classes and functions, for pickles on disk
"""
