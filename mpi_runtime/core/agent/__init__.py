"""The node agent in every rank: it starts executors, forwards their frames, and owns a part of the arena.

The agent obeys the scheduler and decides nothing. It never decodes what clients and scheduler send each other.

- `agent.py`: the agent: performs effects of the scheduler, has executors started and ended
- `custody.py`: the executors' lines: forwards frames, gives memory, knows which calls are sent, stolen, ended;
  of direct lines at the head
- `executors.py`: the agent's record of an executor; unsent results of one that died
- `forkserver.py`: the connection to the forkserver, which is restarted if it was killed
- `gangs.py`: forks members of gangs when their start service is ready, and removes their files
- `extents.py`: extents of the arena by client, and requests that wait for room
- `spills.py`: writes values to the spill file and reads them back
- `gpus.py`: finds the GPUs of this rank with a helper process; the variables that show them to executors
- `output_lines.py`: reads the output of executors and forwards whole lines
- `memory.py`: reports when the memory of the host is nearly full
- `measuring.py`: what is used of the host, of its GPUs and by executors, while somebody looks
- `stacks.py`: reads the stacks of executors with py-spy, if somebody asks from another host
- `leftovers.py`: kills what a dead forkserver leaves; watches the launcher and the other ranks of the host
"""
