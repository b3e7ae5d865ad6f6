"""The processes of user code: executors, and the forkserver that forks them.

`forkserver.py` forks a process, `process_setup.py` gives it the environment of its calls and a client, and
`executor.py` runs calls until the process is stopped.

- `forkserver_handle.py`: starts a forkserver, and the agent's end of its connection
- `forkserver.py`: the forkserver: forks executors, reaps them, kills what they leave
- `fork_messages.py`: messages between an agent and its forkserver
- `process_setup.py`: from a forked process to an executor: environment, CPUs, modules, client
- `profiled.py`: executors under `nsys profile`
- `setup_hooks.py`: functions that a process calls before its first call
- `multiprocessing_pickles.py`: `multiprocessing` in a task pickles functions of the program by value
- `executor.py`: the executor: claims calls and runs user code
- `results.py`: sends results and errors, or ends the process
- `cancels.py`: cancelled calls, and the signal that interrupts a running one
- `yields.py`: items of generators, with back-pressure
- `concurrency.py`: actors that run several calls at a time: threads and asyncio loops
- `actor_methods.py`: finds methods of an actor, and those that every actor has
- `saving.py`: saves the state of an actor between calls
- `gpu_errors.py`: errors of CUDA: whether the process can continue, and which processes use the memory
- `output.py`: marks in the output that name the function or actor that writes
- `own_scheduler_mark.py`: the mark of calls that bring their own scheduler, and the numbers of GPUs inside them
- `driver_mark.py`: the mark of calls of a driver that has connected to a session: whose they are, and its home
- `scratch.py`: the files of a job on its hosts: unpacked archives of a `runtime_env`
"""
