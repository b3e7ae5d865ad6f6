"""MPI inside the job: processes of ours that form an MPI world of their own.

MPI_Init asks its launcher a few questions. Members of a gang are ordinary executors, and our processes answer the
questions: by PMI-1 (MPICH) or by PMIx (Open MPI).

- `start.py`: all gangs that start on a node
- `node.py`: one gang on one node: what a member needs, what members have done
- `start_protocols.py`: the two protocols of a start
- `member.py`: a member that is an executor: starts MPI, and gives each call a communicator
- `greeting.py`: the first message between members on different nodes, and the error if it does not arrive
- `rendezvous.py`: addresses of interfaces, and ports on the host of rank 0
- `gather.py`: the head's part: what members of different nodes exchange while they start
- `pmi1.py`: the dialogue of PMI-1, pure: bytes in, bytes out
- `pmix_helper.py`: the helper process of a node, as its agent sees it
- `pmix_server.py`: a helper process that runs the PMIx server of Open MPI's own library
- `port_gate.py`: the port to which members connect, and which waits for none of them
- `pmix_messages.py`: what helper and agent send each other
- `pmix_library.py`: that library by ctypes
- `pmix_types.py`: its types in memory, and its functions
- `pmix_older.py`: functions that it lacks before version 5
- `library.py`: which MPI library programs here load, and which protocol it speaks
- `command_channel.py`: what members that run commands say to their agent: output, and what their program has done
- `environment.py`: variables that a member of a gang has, and variables that it must not have
"""
